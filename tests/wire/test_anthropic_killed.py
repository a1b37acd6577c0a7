"""A process killed while an answer arrives, and another one that goes on over the same server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.sqlite_store import SqliteStore
from domain import catalogue
from domain.model_ports import DeclaredCall
from domain.values import Stop
from minutebook.testing.anthropic_replies import message_reply
from minutebook.testing.crash import Witness
from minutebook.testing.fake_server import Faults, Received, Reply, serve_in_thread
from minutebook.testing.fork_server import ForkServer
from minutebook.testing.wire_rules import anthropic as rules
from projections.transcript import Exchange, Transcript
from recovery.reading import load
from tests.wire.anthropic_program import SESSION

pytestmark = pytest.mark.anyio

FIRST = message_reply("noting", [DeclaredCall("toolu_1", "note", '{"what":"x"}')], thinking="hm é")
SECOND = message_reply("all done", thinking="well")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(Path(__file__).with_name("anthropic_program.py")) as started:
        yield started


class Model:
    """Answers by what it sees; holds back the rest of one answer after a mark, the first time."""

    def __init__(self, held: Reply, mark: bytes) -> None:
        self.place = held.body.index(mark)
        self.held: Reply | None = held

    def __call__(self, request: Received) -> Reply:
        rules.check(request.parsed, signed={"c2lnbmVk": "hm é"})
        whole = SECOND if b"tool_result" in request.body else FIRST
        if whole is not self.held:
            return whole
        self.held = None
        return Reply(whole.body, faults=Faults(stall_after=self.place))


CASES = [
    (1, FIRST, b"input_json_delta"),
    (1, FIRST, b"event: message_delta"),  # the call has closed
    (1, FIRST, b"event: message_stop"),  # even the reason for the end is there
    (2, SECOND, b"text_delta"),
    (2, SECOND, b"event: message_stop"),
]


@pytest.mark.parametrize(("answer", "held", "mark"), CASES, ids=range(len(CASES)))
async def test_p58_killed_in_the_middle_of_an_answer_and_resumed(
    server: ForkServer, answer: int, held: Reply, mark: bytes, tmp_path: Path
) -> None:
    """The effect happens once, the lost answer is asked for again, thinking goes back as it was."""
    model, witness = Model(held, mark), Witness(tmp_path / "witness")
    files = {"journal": str(tmp_path / "journal.db"), "witness": str(tmp_path / "witness")}
    with serve_in_thread(model) as fake:
        files["url"] = fake.url
        killed = server.run("live", **files, kill_in=answer)
        assert killed.killed is not None, killed
        assert killed.killed[1] == "mid_stream"
        assert model.held is None
        assert len(witness.lines()) == answer - 1, "nothing of a part of an answer runs"
        server.run("live", **files).completed()
        assert len(fake.requests) == 3
    assert witness.lines() == [("note", "x")]
    assert await story(tmp_path / "journal.db") == [
        ("noting", Stop.TOOL_CALLS, [("completed", "noted x")]),
        ("all done", Stop.END, []),
    ]


async def story(journal: Path) -> list[Any]:
    """What the journal says was answered: text, stop, and what came of the calls."""
    transcript = Transcript()
    async with SqliteStore(journal).open() as reader:
        assert (await load(reader, SESSION)).problem is None
        for row in await reader.read(SESSION):
            transcript.apply(catalogue.open_stored(row))
    exchanges = [item for item in transcript.items if isinstance(item, Exchange)]
    return [(e.text, e.stop, [(c.outcome, c.output) for c in e.calls]) for e in exchanges]

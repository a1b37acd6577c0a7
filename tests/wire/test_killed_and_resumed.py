"""Processes killed anywhere in a session and resumed over the same server: every type, and all in turn."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from adapters.sqlite_store import SqliteStore
from domain import catalogue
from domain.model_ports import DeclaredCall
from minutebook.testing.anthropic_replies import message_reply
from minutebook.testing.chat_replies import chat_reply
from minutebook.testing.crash import Ended, Witness
from minutebook.testing.fake_server import Received, Reply, serve_in_thread
from minutebook.testing.fork_server import ForkServer
from minutebook.testing.responses_replies import response_reply
from minutebook.testing.wire_rules import CHECKS
from projections.transcript import Exchange, Transcript
from recovery.reading import load
from tests.wire.killed_program import SESSION

pytestmark = pytest.mark.anyio

THOUGHT: Final = "first look, then pay é"
#: What signs or holds a thought, as the replies of each dialect have it.
MATERIAL: Final = {"anthropic-messages": "c2lnbmVk", "openai-responses": "gAAAAfake==", "openai-chat": ""}

CHAT: Final = {"type": "openai-compatible"}
RESPONSES: Final = {"type": "openai", "api": "responses"}
ANTHROPIC: Final = {"type": "anthropic"}
AZURE: Final = {"type": "azure-openai", "deployment": "d", "api_version": "2024-10-21"}

#: The providers that are asked in turn, and how many points lie between two kills.
SESSIONS: Final[dict[str, tuple[list[dict[str, Any]], int]]] = {
    "chat": ([CHAT], 9),
    "responses": ([RESPONSES], 9),
    "anthropic": ([ANTHROPIC], 9),
    "azure": ([AZURE], 17),
    "gemini": ([{"type": "gemini"}], 17),
    "deepseek": ([{"type": "deepseek"}], 17),
    "all in turn": ([CHAT, ANTHROPIC, RESPONSES], 19),
}


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(
        Path(__file__).with_name("killed_program.py"), preload=["minutebook.testing.warm"]
    ) as started:
        yield started


def dialect(path: str) -> str:
    """By where a request went."""
    if path.endswith("/messages"):
        return "anthropic-messages"
    return "openai-responses" if path.endswith("/responses") else "openai-chat"


def model(request: Received) -> Reply:
    """Thinks and asks for two calls; answers once they have results. Takes only what servers take."""
    api = dialect(request.path.partition("?")[0])
    CHECKS[api](request.parsed)
    said = request.body.decode()
    job = max(int(found) for found in re.findall(r"job (\d)", said))
    calls = [
        DeclaredCall(f"call_{job}", "pay", f'{{"what":"x{job}"}}'),
        DeclaredCall(f"call_{job}b", "look", '{"what":"y"}'),
    ]
    answered = f"x{job}" in said
    assert not answered or MATERIAL[api] in said, "what belongs to a call comes back with it"
    text, asked = (f"done {job}", []) if answered else ("", calls)
    if api == "anthropic-messages":
        return message_reply(text, asked, thinking=THOUGHT)
    return (
        response_reply(text, asked, reasoning=THOUGHT)
        if api == "openai-responses"
        else chat_reply(text, asked)
    )


@pytest.mark.parametrize("name", SESSIONS)
async def test_p58_the_answer_is_right_and_nothing_is_paid_twice(
    name: str, server: ForkServer, tmp_path: Path
) -> None:
    kinds, step = SESSIONS[name]
    with serve_in_thread(model) as fake:
        url = {"azure-openai": fake.url.removesuffix("/v1")}
        providers = [
            {**kind, "base_url": url.get(kind["type"], fake.url), "api_key": "key-of-nobody"}
            for kind in kinds
        ]
        for number in range(3, 1000, step):
            place = tmp_path / str(number)
            place.mkdir()
            files = {"journal": str(place / "j.db"), "witness": str(place / "w")}
            killed = server.run("live", **files, providers=providers, kill_at=number)
            if killed.killed is not None:
                finish(server, files, providers)
            assert Witness(place / "w").lines() == [("paid", f"x{job}") for job in range(len(kinds))]
            assert await texts(place / "j.db") == [f"done {job}" for job in range(len(kinds))]
            if killed.killed is None:
                break


def finish(server: ForkServer, files: dict[str, str], providers: list[dict[str, Any]]) -> None:
    """Resume until nothing is left; where somebody has to decide, by what the world looks like."""
    ended: Ended | None = None
    while ended is None or ended.told("undecided"):
        if ended is not None:
            for tool_id in ended.told("undecided")[0]:
                job = int(tool_id.partition(".")[0][1:]) - 1
                happened = ("paid", f"x{job}") in Witness(files["witness"]).lines()
                server.run("decide", journal=files["journal"], tool_id=tool_id, happened=happened).completed()
                if not happened:
                    Witness(files["witness"]).record("paid", f"x{job}")  # by whoever decided
        ended = server.run("live", **files, providers=providers).completed()


async def texts(journal: Path) -> list[str]:
    """What was answered in the end, question by question, by the journal alone."""
    transcript = Transcript()
    async with SqliteStore(journal).open() as reader:
        assert (await load(reader, SESSION)).problem is None
        for row in await reader.read(SESSION):
            transcript.apply(catalogue.open_stored(row))
    return [item.text for item in transcript.items if isinstance(item, Exchange) and not item.calls]

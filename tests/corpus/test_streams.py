"""Hostile answers in every dialect: read alone, and over the real SDK and a real socket into a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from adapters.memory_journal import MemoryStore
from adapters.model_failures import KINDS
from adapters.sqlite_store import SqliteStore
from adapters.system import SystemClock
from domain.arguments import parse_arguments
from domain.errors import ArgumentsRefused
from domain.model_ports import Parameters
from domain.values import CUT_STOPS, ToolKind
from minutebook.testing.fake_server import serve
from minutebook.testing.faulty_store import FaultyStore
from minutebook.testing.wire_rules import CHECKS
from minutebook.tool_definition import ToolDefinition, tool
from tests.corpus.dialects import DIALECTS, Came, Dialect, splittings
from tests.corpus.streams import CALL, CALLED, SAID, SHARED, TOOL, Begin, HostileStream
from tests.session.harness import Place
from tests.wire.rounds import conversation

#: All of them go into a session in one dialect; in the others every third that is not read by
#: what all dialects share. Alone they are all read, and what comes of them is all sent back.
EVERY = [("chat", name) for name in DIALECTS["chat"].streams] + [
    (dialect, name)
    for dialect in ("responses", "anthropic")
    for name in [name for name in DIALECTS[dialect].streams if name not in SHARED][::3]
]
EACH = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
#: The name of an answer with nothing wrong.
PLAIN = "a plain call"
#: Longer than any of these takes; a hang fails.
LONG_S = 20.0


class Impatient(SystemClock):
    """A clock that does not wait before a new attempt; everything else waits as ever."""

    async def sleep_until(self, moment: float) -> None:
        await super().sleep_until(moment if moment > self.monotonic() + 5 else 0.0)


@EACH
def test_the_corpus_is_as_large_as_it_says(dialect: Dialect) -> None:
    assert len(dialect.streams) >= 100
    assert len(dialect.only) >= 20


# --- read alone -------------------------------------------------------------------------------


@EACH
def test_an_answer_is_read_as_what_it_may_be(dialect: Dialect) -> None:
    for name, stream in dialect.streams.items():
        if stream.status == 200 and name != "a text of 3 MiB":  # that one is too much for a journal
            came = dialect.read([dialect.body(stream)])
            assert stream.completed in (None, came.response is not None), name
            assert came.response is not None or not stream.kinds or came.kind in stream.kinds, name
            assert came.response is None or stream.text in (None, came.kept), name
            runs = [arguments for called, arguments in _runs(came) if called == TOOL and "what" in arguments]
            assert len(runs) <= stream.runs, name


@EACH
def test_what_comes_of_an_answer_does_not_depend_on_how_it_was_cut_into_pieces(dialect: Dialect) -> None:
    for name, stream in dialect.streams.items():
        body = dialect.body(stream)
        whole = dialect.read([body])
        for pieces in splittings(body, name):
            assert dialect.read(pieces) == whole, name


@EACH
def test_what_is_kept_is_what_was_shown(dialect: Dialect) -> None:
    for name, stream in dialect.streams.items():
        came = dialect.read([dialect.body(stream)])
        assert came.response is not None or came.kind in KINDS, name
        if came.response is not None and not stream.mixed:
            assert came.kept == came.shown, name


@EACH
@pytest.mark.anyio
async def test_what_is_kept_is_sent_back_so_that_servers_take_it(dialect: Dialect) -> None:
    """The strictest checker of the dialect, over the next request after each answer."""
    provider = dialect.provider("http://127.0.0.1:9/v1")
    for name, stream in dialect.streams.items():
        came = dialect.read([dialect.body(stream)])
        if came.response is not None:
            items = conversation([came.response], provider, "a-model")
            encoded = [provider.encode(item) for item in items]
            body = orjson.loads(provider.body(encoded, [], Parameters("a-model")))
            try:
                CHECKS[provider.api](body)
            except AssertionError as refused:
                raise AssertionError(name) from refused
    await provider.aclose()


@EACH
def test_nothing_of_a_cut_answer_runs(dialect: Dialect) -> None:
    """Cut as a proxy does that gives up, the plain call at every byte: it is the whole, or nothing runs."""
    for name, stream in _with_calls(dialect).items():
        body = dialect.body(stream)
        whole = _runs(dialect.read([body]))
        step = 1 if name == PLAIN else 5
        for size in range(len(name) % step, len(body), step):
            runs = _runs(dialect.read([body[:size]]))
            assert runs in ([], whole), f"{name}, cut after {size} bytes"


def _with_calls(dialect: Dialect) -> dict[str, HostileStream]:
    """Short answers that ask for something when they are whole."""
    streams = {PLAIN: HostileStream((*SAID, *CALL, *CALLED)), **dialect.streams}
    short = {name: each for name, each in streams.items() if len(dialect.body(each)) < 2000}
    return {name: each for name, each in short.items() if _runs(dialect.read([dialect.body(each)]))}


def _runs(came: Came) -> list[Any]:
    """The calls that may be carried out: of an answer that was not cut, with an object as arguments."""
    if came.response is None or came.response.stop in CUT_STOPS:
        return []
    found = []
    for call in came.response.calls:
        try:
            arguments = parse_arguments(call.arguments)
        except ArgumentsRefused:
            continue  # refused before anything runs
        found.append((call.name, arguments))
    return found


# --- in a session -----------------------------------------------------------------------------


def noting(ran: list[str]) -> ToolDefinition:
    """A tool that remembers what it was given."""

    @tool(name="note", kind=ToolKind.READ_ONLY)
    async def note(what: str) -> str:
        ran.append(what)
        return f"noted {len(ran)}"

    return note


@pytest.mark.anyio
@pytest.mark.parametrize(("dialect", "name"), EVERY, ids=[f"{dialect}-{name}" for dialect, name in EVERY])
async def test_an_attempt_ends_and_nothing_of_it_runs_that_is_not_whole(
    tmp_path: Path, dialect: str, name: str
) -> None:
    speaks, ran = DIALECTS[dialect], list[str]()
    stream = speaks.streams[name]
    tools = [noting(ran)]
    store = SqliteStore(tmp_path / "journal.db") if dialect == "chat" else MemoryStore()
    place = Place(FaultyStore(store), Impatient())
    good = [speaks.answer(text) for text in ("done", "on", "on")]
    with anyio.fail_after(LONG_S):
        async with serve([speaks.reply(stream), *good]) as server:
            provider = speaks.provider(server.url)
            try:
                async with place.create(provider, tools=tools) as session:
                    await session.run("go")
                    runs = len(ran)
                    assert (await session.run("and on")).status == "completed"
                    before = session.messages
                async with place.resume(provider, tools=tools) as session:
                    assert session.messages == before
            finally:
                await provider.aclose()
    _check_ends(await place.events(), stream)
    assert runs == stream.runs or (stream.up_to and runs <= stream.runs)
    assert all(what in ("x", "\ud800") for what in ran)
    assert len(server.requests) > 1
    for request in server.requests:
        CHECKS[provider.api](request.parsed)


def _check_ends(events: list[Any], stream: HostileStream) -> None:
    """The first attempt ended once, as it may; its failure is a sentence."""
    first = [e for e in events if e.model_attempt_id == "r1.t1.a1" and e.type != "model_request_started"]
    ends = [e for e in first if e.type in ("model_request_completed", "model_request_failed")]
    assert len(ends) == 1
    completed = ends[0].type == "model_request_completed"
    assert stream.completed in (None, completed), ends[0].data
    if not completed:
        ends[0].data.message.encode()
        assert len(ends[0].data.message) < 2000
        assert not stream.kinds or ends[0].data.error_code in stream.kinds, ends[0].data
        assert ends[0].data.error_code in KINDS
    elif stream.text is not None:
        blocks = [block.text for block in ends[0].data.response.blocks if block.kind == "text"]
        assert "".join(blocks) == stream.text


@EACH
@pytest.mark.anyio
async def test_ids_that_a_server_uses_again_do_not_meet(dialect: Dialect) -> None:
    """The same response and call ids in every attempt of a session."""
    ran: list[str] = []
    asks = dialect.reply(HostileStream((Begin(), *CALL, *CALLED)))
    place = Place()
    async with serve([asks, asks, dialect.answer("done")]) as server:
        provider = dialect.provider(server.url)
        async with place.create(provider, tools=[noting(ran)]) as session:
            assert (await session.run("go")).status == "completed"
            calls = [call for item in session.messages if hasattr(item, "calls") for call in item.calls]
        await provider.aclose()
    assert [call.output for call in calls] == ["noted 1", "noted 2"]
    assert len({call.wire_id for call in calls}) == 2
    for request in server.requests:
        CHECKS[provider.api](request.parsed)

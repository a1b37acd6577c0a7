"""Hostile answers over the real SDK and a real socket, into a session whose tool counts what runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.openai_chat import OpenAIChatProvider
from adapters.sqlite_store import SqliteStore
from adapters.system import SystemClock
from domain.values import ToolKind
from minutebook.testing.attempts import attempt
from minutebook.testing.chat_replies import chat_reply
from minutebook.testing.fake_server import Reply, serve
from minutebook.tool_definition import tool
from tests.corpus import chat_stream
from tests.corpus.streams import STREAMS, HostileStream
from tests.session.faults import WatchedStore
from tests.session.harness import Place

pytestmark = pytest.mark.anyio

EVERY = STREAMS | chat_stream.STREAMS
#: Longer than any of these takes; a hang fails.
LONG_S = 20.0


class Impatient(SystemClock):
    """A clock that does not wait before a new attempt; everything else waits as ever."""

    async def sleep_until(self, moment: float) -> None:
        await super().sleep_until(moment if moment > self.monotonic() + 5 else 0.0)


def test_the_corpus_is_as_large_as_it_says() -> None:
    assert len(EVERY) >= 100


def reply_of(stream: HostileStream) -> Reply:
    """The HTTP reply of a stream in this dialect."""
    body = chat_stream.render(stream.steps) if stream.body is None else stream.body
    types = (("content-type", stream.content_type),) if stream.content_type else ()
    return Reply(body, stream.status, types, stream.faults)


def provider_at(url: str) -> OpenAIChatProvider:
    """The real adapter."""
    return OpenAIChatProvider(
        provider="openai-compatible", base_url=url, api_key="", stream_idle_timeout_ms=5000
    )


@pytest.mark.parametrize("name", EVERY)
async def test_an_attempt_ends_and_nothing_of_it_runs_that_is_not_whole(tmp_path: Path, name: str) -> None:
    stream, ran = EVERY[name], list[str]()

    @tool(name="note", kind=ToolKind.READ_ONLY)
    async def note(what: str) -> str:
        ran.append(what)
        return "noted"

    place = Place(WatchedStore(SqliteStore(tmp_path / "journal.db")), Impatient())
    with anyio.fail_after(LONG_S):
        async with serve(
            [reply_of(stream), chat_reply("done"), chat_reply("on"), chat_reply("on")]
        ) as server:
            provider = provider_at(server.url)
            try:
                async with place.create(provider, tools=[note]) as session:
                    await session.run("go")
                    runs = len(ran)
                    assert (await session.run("and on")).status == "completed"
                    before = session.messages
                async with place.resume(provider, tools=[note]) as session:
                    assert session.messages == before
            finally:
                await provider.aclose()
    _check_ends(await place.events(), stream)
    assert runs == stream.runs or (stream.up_to and runs <= stream.runs)
    assert all(what in ("x", "\ud800") for what in ran)


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
    elif stream.text is not None:
        blocks = [block.text for block in ends[0].data.response.blocks if block.kind == "text"]
        assert "".join(blocks) == stream.text


async def test_ids_that_a_server_uses_again_do_not_meet(tmp_path: Path) -> None:
    """The same response and call ids in every attempt of a session."""
    ran: list[str] = []

    @tool(name="note", kind=ToolKind.READ_ONLY)
    async def note(what: str) -> str:
        ran.append(what)
        return f"noted {len(ran)}"

    asks = Reply(chat_stream.render(STREAMS["an end where calls were"].steps), 200, ())
    place = Place()
    async with serve([asks, asks, chat_reply("done")]) as server:
        provider = provider_at(server.url)
        async with place.create(provider, tools=[note]) as session:
            assert (await session.run("go")).status == "completed"
            calls = [call for item in session.messages if hasattr(item, "calls") for call in item.calls]
        await provider.aclose()
    assert [call.output for call in calls] == ["noted 1", "noted 2"]
    assert len({call.wire_id for call in calls}) == 2


@pytest.mark.parametrize("name", ["a key twice", "hostile text", "usage: negative", "calls mixed up"])
async def test_every_cut_of_a_stream_is_a_failure_or_the_whole(name: str) -> None:
    """Cut at every byte of its second half, as a proxy does that gives up."""
    body = chat_stream.render(EVERY[name].steps)
    replies = [Reply(body[:size], 200, ()) for size in range(len(body) // 2, len(body), 7)]
    async with serve(replies) as server:
        provider = provider_at(server.url)
        for _ in replies:
            found = await attempt(provider)
            whole = found.response is not None and found.failure is None
            assert not whole or server.requests[-1].number >= len(replies) - 3
        await provider.aclose()

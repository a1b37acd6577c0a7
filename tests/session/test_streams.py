"""Views of a running session: streams and feeds, late, slow, left early, in numbers."""

from __future__ import annotations

import gc

import anyio
import pytest

from domain.cursor import Cursor
from domain.envelope import Recorded
from domain.errors import StreamError
from minutebook import stream_events as se
from minutebook.feed import MAX_DELTAS
from minutebook.session import Session
from minutebook.testing.scripted import Gate, ScriptedProvider, call, reply
from minutebook.tool_context import ToolContext
from minutebook.tool_definition import tool
from tests.session.harness import LONG_S, Hands, Place, drained

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

LOOKS = [reply("let me see", call("look", {"what": "x"})), reply("done")]


async def test_there_is_nothing_to_stream_before_something_is_sent(place: Place) -> None:
    async with place.create([]) as session:
        with pytest.raises(StreamError, match="NO_PENDING_REQUEST"):
            session.stream()


async def test_a_request_is_streamed_once(place: Place) -> None:
    async with place.create([reply("done")]) as session:
        await session.send("hello")
        await place.told(session.stream())
        with pytest.raises(StreamError, match="NO_PENDING_REQUEST"):
            session.stream()


async def test_leaving_a_stream_early_leaves_the_request_alone(place: Place, hands: Hands) -> None:
    async with place.create(LOOKS, tools=hands.tools()) as session:
        await session.send("hello")
        async for event in session.stream():
            if isinstance(event, se.ToolUse):
                break
        gc.collect()  # an iterator that is dropped needs no clean-up, on any event loop
        await session.wait_idle()
    assert (await place.types())[-1] == "request_completed"


async def test_a_stream_may_be_closed_by_hand(place: Place) -> None:
    async with place.create([reply("done", pieces=3)]) as session:
        await session.send("hello")
        stream = session.stream()
        assert isinstance(await anext(stream), se.InputApplied)
        await stream.aclose()  # type: ignore[attr-defined]
        assert await anext(stream, None) is None
        await session.wait_idle()


async def test_a_late_stream_tells_the_whole_request(place: Place, hands: Hands) -> None:
    async with place.create(LOOKS, tools=hands.tools()) as session:
        await session.send("hello")
        await session.wait_idle()
        late = await place.told(session.stream())
    assert [event.delta for event in late if isinstance(event, se.ContentDelta)] == ["let me see", "done"]
    assert isinstance(late[-1], se.Result)


async def test_thinking_is_shown_to_those_who_ask(place: Place) -> None:
    gates = [Gate(), Gate()]
    script = [[gate, *reply("done", thinking="hm")] for gate in gates]
    told = []
    async with place.create(script) as session:
        for gate, include in zip(gates, (True, False), strict=True):
            await session.send("hello")
            gate.open()
            told.append(await place.told(session.stream(include_thinking=include)))
    assert [[e.delta for e in each if isinstance(e, se.ThinkingDelta)] for each in told] == [["hm"], []]


async def test_a_tool_shows_how_far_it_is(place: Place) -> None:
    @tool
    async def work(ctx: ToolContext) -> str:
        await ctx.progress({"done": 1})
        await ctx.message("half way")
        return "worked"

    async def allow(_: object) -> str:
        return "allow"

    script = [reply("", call("work")), reply("done")]
    async with place.create(script, tools=[work], permission_handler=allow) as session:
        await session.send("hello")
        told = await place.told(session.stream())
    shown = [e for e in told if isinstance(e, (se.ToolProgress, se.ToolMessage, se.ToolResult))]
    assert shown == [
        se.ToolProgress("s1", "r1.t1.a1.c0", "work", {"done": 1}),
        se.ToolMessage("s1", "r1.t1.a1.c0", "work", "half way"),
        se.ToolResult("s1", "r1.t1.a1.c0", "work", "worked", "completed", False),
    ]


# --- feeds ----------------------------------------------------------------------------------------


async def _durable(session: Session, after: Cursor | None, into: list[Recorded]) -> None:
    async for event in session.events(after=after):
        if isinstance(event, Recorded):
            into.append(event)


async def test_every_consumer_of_the_feed_gets_every_event(any_place: Place, hands: Hands) -> None:
    seen: list[list[Recorded]] = [[] for _ in range(4)]
    opened = any_place.create([*LOOKS, reply("more")], tools=hands.tools())
    async with anyio.create_task_group() as tasks, opened as session:
        for each in seen[:3]:
            tasks.start_soon(_durable, session, Cursor.start(session.id), each)
        await session.run("one")
        tenth = (await session.recorded())[9]
        tasks.start_soon(_durable, session, Cursor.after(tenth), seen[3])
        await session.run("two")
    journal = await any_place.events()
    assert seen[0] == seen[1] == seen[2] == journal
    assert seen[3] == journal[10:]


async def test_the_feed_from_now_on_begins_now(place: Place) -> None:
    seen: list[Recorded] = []
    async with anyio.create_task_group() as tasks, place.create([reply("one"), reply("two")]) as session:
        await session.run("one")
        head = session.head_sequence
        feed = session.events()
        await session.run("two")
        tasks.start_soon(_collect, feed, seen)
    assert [event.sequence for event in seen] == list(range(head + 1, len(await place.events()) + 1))


async def _collect(feed: object, into: list[Recorded]) -> None:
    async for event in feed:  # type: ignore[attr-defined]
        if isinstance(event, Recorded):
            into.append(event)


async def test_the_feed_is_in_order_and_told_when_it_is_durable(any_place: Place, hands: Hands) -> None:
    told: list[object] = []

    async def watch(session: Session) -> None:
        told.extend(await any_place.told(session.events(after=Cursor.start(session.id))))

    opened = any_place.create(LOOKS, tools=hands.tools())
    async with anyio.create_task_group() as tasks, opened as session:
        tasks.start_soon(watch, session)
        await session.run("hello")
    started = next(i for i, e in enumerate(told) if getattr(e, "type", "") == "model_request_started")
    assert isinstance(told[started + 1], se.ContentDelta)
    assert getattr(told[started + 2], "type", "") == "model_request_completed"


async def test_a_slow_consumer_loses_live_pieces_and_is_told_how_many(place: Place) -> None:
    gate, pieces = Gate(), MAX_DELTAS + 50
    text = "x" * pieces
    first, *rest = reply(text, pieces=pieces)
    async with place.create([[first, gate, *rest]]) as session:
        await session.send("hello")
        stream = session.stream()
        while not isinstance(await anext(stream), se.ContentDelta):
            pass
        gate.open()
        await session.wait_idle()
        told = await place.told(stream)
    dropped = [event.count for event in told if isinstance(event, se.EventsDropped)]
    shown = [event.delta for event in told if isinstance(event, se.ContentDelta)]
    assert dropped == [pieces - 1 - MAX_DELTAS]
    assert len(shown) == MAX_DELTAS
    assert told[-1].content == text


async def test_a_consumer_that_comes_too_late_for_live_pieces_gets_the_text_whole(place: Place) -> None:
    text = "0123456789" * 150
    async with place.create([reply(text, pieces=len(text))]) as session:
        await session.send("hello")
        await session.wait_idle()
        told = await place.told(session.stream())
    assert [event.delta for event in told if isinstance(event, se.ContentDelta)] == [text]


async def test_a_consumer_slower_than_memory_reads_the_journal(place: Place) -> None:
    provider = ScriptedProvider(lambda sent: reply(str(sent.number)))
    async with place.create(provider) as session:
        feed = session.events(after=Cursor.start(session.id))
        first = await anext(feed)
        for number in range(80):
            await session.run(str(number))
        with anyio.fail_after(LONG_S):
            sequences = [first.sequence]  # type: ignore[union-attr]
            while sequences[-1] < session.head_sequence:
                event = await anext(feed)
                if isinstance(event, Recorded):
                    sequences.append(event.sequence)
    assert sequences == list(range(1, len(sequences) + 1))
    assert len(sequences) > 512


async def test_rows_can_be_followed_as_they_are_stored(place: Place) -> None:
    async with place.create([reply("done")]) as session:
        await session.run("hello")
        rows = session.journal_rows()
        stored = [await anext(rows) for _ in range(session.head_sequence)]
        recorded = await session.recorded()
    assert [row.sequence for row in stored] == [event.sequence for event in recorded]


async def test_leaving_the_session_ends_its_views(place: Place) -> None:
    gate, told = Gate(), list[se.StreamEvent]()
    async with place.create([[gate, *reply("done")]], abort_timeout_s=0.1) as session:
        await session.send("hello")
        await gate.reached()
        stream, feed = session.stream(), session.events(after=Cursor.start(session.id))
    with pytest.raises(StreamError, match="DETACHED"):
        await drained(stream, told)
    assert [event.type for event in told[:2]] == ["input_applied", "turn_start"]
    assert [event.type async for event in feed if isinstance(event, Recorded)] == await place.types()

"""What happens to a handoff, and to others, while it is under way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import minutebook as mb
from adapters.sqlite_store import SqliteStore
from domain.cursor import Cursor
from domain.errors import (
    Fenced,
    HandoffError,
    HandoffFailed,
    LeaseConflict,
    LeaseLost,
    MinutebookError,
    SessionClosed,
    SessionSuspending,
)
from domain.values import SideEffect, ToolKind
from minutebook.leaving import HandoffResult
from minutebook.session import Session
from minutebook.testing.faulty_store import Fault, FaultyStore
from minutebook.testing.scripted import Gate, call, reply
from minutebook.tool_context import ToolContext
from minutebook.tool_definition import tool
from tests.session.harness import LONG_S, Place, data
from tests.session.leasing import keeping, until
from tests.session.test_handoff import CALLS
from tests.store.suspensions import cancelled_at

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

MOST = 60


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """A store in a file."""
    place = Place(FaultyStore(SqliteStore(tmp_path / "journal.db")))
    yield place
    await place.check()


async def outcome(way_out: Any) -> Any:
    """What came of a call: what it returned, or the error."""
    try:
        with anyio.fail_after(LONG_S):
            return await way_out()
    except MinutebookError as error:
        return error


def next_commit(place: Place) -> int:
    """The number of the next commit."""
    return len(place.store.batches) + 1


# --- the store's side ------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.FOUND, Fault.FOUND_LATE, Fault.ABSENT])
async def test_a_handoff_whose_outcome_was_unknown_is_told_as_it_is(place: Place, fault: Fault) -> None:
    async with place.create([reply("done")]) as session:
        await session.run("hello")
        place.store.faults[next_commit(place)] = fault
        result = await session.suspend_for_handoff()
        events = await place.events()
        assert result.head_sequence == events[-1].sequence
        assert result.recovery_plan.items[0].action == "none"
    types = await place.types()
    assert types[-2:] == ["handoff_completed", "lease_released"]
    assert types.count("handoff_completed") == 1


@pytest.mark.parametrize("fault", [Fault.LOST_FOUND, Fault.LOST_ABSENT, Fault.RAISES, Fault.DEFECT])
async def test_a_handoff_that_nobody_can_settle_says_so_and_lets_another_one_on(
    place: Place, fault: Fault
) -> None:
    async with place.create([reply("done")]) as session:
        await session.run("hello")
        place.store.faults[next_commit(place)] = fault
        error = await outcome(session.suspend_for_handoff)
        assert isinstance(error, HandoffFailed)
        assert isinstance(error.__cause__, Fenced)
        assert session.is_closed
        async with place.resume([reply("two")]) as other:
            assert (await other.run("again")).content == "two"
    written = fault in (Fault.LOST_FOUND, Fault.RAISES)
    assert (await place.types()).count("handoff_completed") == int(written)


# --- several at once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["close", "hand over", "leave"])
@pytest.mark.parametrize("second", ["close", "close for good", "hand over", "leave", "abort", "send"])
async def test_two_ways_out_at_once(place: Place, first: str, second: str) -> None:
    """Whichever is first is carried through; the other gets a typed answer, and nobody hangs."""
    answering = Gate()
    async with place.create([[answering, *reply("never")]]) as session:
        await session.send("hello")
        await answering.reached()
        ways: dict[str, Any] = {
            "close": session.close,
            "close for good": lambda: session.close(final=True),
            "hand over": session.suspend_for_handoff,
            "leave": session.leave,
            "abort": session.abort,
            "send": lambda: session.send("more"),
        }
        came: dict[int, Any] = {}

        async def go(number: int, way: str) -> None:
            came[number] = await outcome(ways[way])

        place.store.after[next_commit(place)] = writing = Gate()  # the end of the attempt
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(go, 1, first)
            await writing.reached()
            tasks.start_soon(go, 2, second)
            await anyio.wait_all_tasks_blocked()
            writing.open()
        assert isinstance(came[1], HandoffResult) if first == "hand over" else came[1] is None
        if second in ("close", "close for good", "leave"):
            assert came[2] is None
        else:
            assert isinstance(came[2], SessionClosed | SessionSuspending), came[2]
        assert session.is_closed
    types = await place.types()
    assert types.count("model_request_aborted") == 1
    assert types.count("handoff_completed") == int(first == "hand over")
    assert types.count("session_closed") == 0
    async with place.resume([reply("done")]) as other:
        await other.wait_idle()
    assert (await place.types()).count("request_completed") == 1


async def test_a_handoff_during_an_abort_that_is_waited_for(place: Place) -> None:
    gate = Gate()
    came: list[Any] = []

    @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.NON_IDEMPOTENT)
    async def work(ctx: ToolContext) -> str:
        with anyio.CancelScope(shield=True):
            await gate.pass_through()
        return "ended"

    async def end(way_out: Any) -> None:
        came.append(await outcome(way_out))

    async with place.create([reply("", call("work"))], tools=[work]) as session:
        await session.send("hello")
        await gate.reached()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end, session.abort)
            await until(lambda: session.is_aborting)
            tasks.start_soon(end, session.suspend_for_handoff)
            await anyio.wait_all_tasks_blocked()
            gate.open()
    ways = {type(each) for each in came}
    assert HandoffResult in ways
    assert ways <= {HandoffResult, SessionClosed, type(None)}
    async with place.resume([], tools=[work]) as other:
        await other.wait_idle()
    assert (await place.types()).count("request_interrupted") == 1


async def test_every_call_is_refused_while_the_last_commit_is_written(place: Place) -> None:
    async with place.create([reply("done")]) as session:
        await session.run("hello")
        place.store.after[next_commit(place)] = writing = Gate()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.suspend_for_handoff)
            await writing.reached()
            for change in CALLS[:-1]:  # closing waits for the handoff
                with pytest.raises(SessionSuspending):
                    await change(session)
            with pytest.raises(LeaseConflict):
                await place.resume([]).__aenter__()
            writing.open()
    assert (await place.types())[-1] == "lease_released"


async def test_readers_are_told_everything_and_then_end(place: Place) -> None:
    answering = Gate()
    told: list[str] = []
    streamed: list[Any] = []

    async def watch(session: Session) -> None:
        told.extend([event.type async for event in session.events(after=Cursor.start(session.id))])

    async def stream(session: Session) -> None:
        try:
            streamed.extend([event async for event in session.stream()])
        except MinutebookError as error:
            streamed.append(error)

    async with place.create([[answering, *reply("never")]]) as session, anyio.create_task_group() as tasks:
        tasks.start_soon(watch, session)
        await session.send("hello")
        tasks.start_soon(stream, session)
        await answering.reached()
        await session.suspend_for_handoff()
    assert [word for word in told if "." not in word and word in await place.types()] == await place.types()
    assert isinstance(streamed[-1], MinutebookError), streamed


async def test_a_handoff_cancelled_anywhere_happens_once_or_not_at_all(tmp_path: Path) -> None:
    n, happened = 0, 0
    while True:
        place = Place(FaultyStore(SqliteStore(tmp_path / f"{n}.db")))
        answering = Gate()
        async with place.create([[answering, *reply("never")]]) as session:
            await session.send("hello")
            await answering.reached()
            tried = await cancelled_at(n, session.suspend_for_handoff)
            assert tried.error is None
            over = session.is_closed
            if not over:
                assert session.lease is not None
                assert session.is_running
                await session.suspend_for_handoff()
            assert keeping() == []
            async with place.resume([reply("done")]) as other:
                await other.wait_idle()
        types = await place.types()
        assert (types.count("handoff_completed"), types.count("request_completed")) == (1, 1)
        await place.check()
        happened += over
        if tried.suspensions < n:
            break
        n += 1
        assert n < MOST
    assert happened


async def test_the_session_goes_on_in_this_process_while_its_old_handle_is_there(place: Place) -> None:
    async with place.create([reply("one")]) as session:
        await session.run("hello")
        await session.suspend_for_handoff()
        async with place.resume([reply("two")]) as other:
            assert (await other.run("again")).content == "two"
            with pytest.raises(SessionClosed):
                await session.send("late")
            assert session.head_sequence < other.head_sequence
            await session.close()
            await session.leave()
            assert other.lease is not None
            assert (await outcome(lambda: session.suspend_for_handoff())).code == "SESSION_CLOSED"
            other._parts.book.check_open()
    (_, second) = data(await place.events(), "lease_acquired")
    assert second.former_end == "released"


async def test_what_starts_during_a_handoff_does_not_outlive_its_call(place: Place) -> None:
    refused: list[Any] = []
    begun = anyio.Event()

    @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE)
    async def work(ctx: ToolContext) -> str:
        begun.set()
        await until(lambda: ctx.cancelled)
        refused.append(await outcome(lambda: ctx.start_process(["sleep", "60"], background=True)))
        return "ended"

    async with place.create([reply("", call("work"))], tools=[work]) as session:
        await session.send("hello")
        await begun.wait()
        assert isinstance(await outcome(session.suspend_for_handoff), HandoffResult)
    assert [type(error) for error in refused] == [SessionSuspending]


async def test_two_holders_of_one_name_write_no_more_than_one_of_them(place: Place) -> None:
    """Both ids are shared, as after a copied configuration: the store's order decides, and one is told."""
    lease: dict[str, Any] = {"lease": mb.LeaseConfig(worker_id="w", lease_id="l")}
    async with place.create([reply("one")], **lease) as first:
        await first.run("hello")
        async with place.resume([reply("two")], **lease) as second:
            assert (await second.run("again")).content == "two"
            came = await outcome(lambda: first.run("me too"))
            assert isinstance(came, MinutebookError)
            assert first._parts.book.fenced is not None
            handed = await outcome(first.suspend_for_handoff)
            assert isinstance(handed, HandoffError)
    events = await place.events()
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))


async def test_a_keeper_whose_thread_dies_ends_the_lease_and_hangs_nobody(place: Place) -> None:
    async with place.create([reply("done")]) as session:
        held = session._parts.book.held
        assert held is not None
        thread = place.keeper._thread  # type: ignore[attr-defined]
        thread._portal.result().call(thread._portal.result().stop, True)
        await until(lambda: keeping() == [])
        assert isinstance(await outcome(lambda: session.run("hello")), LeaseLost)
        await outcome(session.close)
    async with place.resume([reply("again")]) as other:
        assert (await other.run("hello")).content == "again"

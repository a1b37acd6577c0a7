"""A session's lease: kept by a thread of its own, and what its loss does to the session."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import anyio
import pytest

import minutebook as mb
from adapters.memory_journal import MemoryStore
from adapters.sqlite_driver import sqlite
from domain.errors import Fenced, LeaseConflict, LeaseLost
from domain.ports import Holder
from domain.values import SideEffect, ToolKind
from minutebook.lease_config import LeaseConfig
from minutebook.testing.clock import ManualClock
from minutebook.testing.faulty_store import FaultyStore
from minutebook.testing.scripted import Gate, ScriptedProvider, call, reply
from minutebook.tool_context import ToolContext
from minutebook.tool_definition import tool
from projections.transcript import UserItem
from tests.postgres.waiting import wait_until
from tests.session.harness import Hands, Place, data, drained
from tests.session.leasing import OFTEN, QUIET, Renewals, SteppedClock, keeping, odd_place, until
from tests.store.busy import Noticing, store_at

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


Odd = tuple[Place, Renewals, SteppedClock]
#: The defaults, by a clock that only the test moves: nothing is renewed or lost before it says so.
LEASE = LeaseConfig(ttl_s=30.0, heartbeat_s=10.0)


@pytest.fixture
async def odd() -> AsyncIterator[Odd]:
    """A place in memory whose leases can be disturbed."""
    place, renewals, clock = odd_place()
    yield place, renewals, clock
    renewals.opened.set()
    await place.check()


async def steal(place: Place) -> None:
    """Give the session's lease back behind its back."""
    fence = place.store.batches[-1].fence
    assert fence is not None
    async with place.reader() as journal:
        await journal.leases.release("s1", fence)


# --- what a session says about it -------------------------------------------------------------


@BOTH
async def test_a_session_shows_its_lease_for_as_long_as_it_has_it(any_place: Place, hands: Hands) -> None:
    script = [reply("", call("look", {"what": "x"})), reply("done")]
    options: dict[str, Any] = {"tools": hands.tools(), "lease": LeaseConfig(ttl_s=60, worker_id="me")}
    async with any_place.create(script, **options) as session:
        lease = session.lease
        assert lease is not None
        assert (lease.worker_id, lease.token) == ("me", 1)
        assert (lease.expires_at - lease.renewed_at).total_seconds() == 60
        await session.run("hello")
        (ctx,) = hands.contexts
        assert ctx.fence is not None
        assert (ctx.fence.worker_id, ctx.fence.lease_id, ctx.fence.token) == ("me", lease.lease_id, 1)
        assert {event.recorded_by for event in await any_place.events()} == {ctx.fence}
    assert session.lease is None
    async with any_place.resume([], **options) as again:
        assert again.lease is not None
        assert again.lease.token == 2
        assert again.lease.lease_id != lease.lease_id


@BOTH
async def test_who_holds_a_session_is_on_record(any_place: Place) -> None:
    async with any_place.create([], lease=LeaseConfig(ttl_s=60, worker_id="one")):
        pass
    async with any_place.resume([], lease=LeaseConfig(ttl_s=90, worker_id="two")):
        pass
    assert await any_place.types() == [
        *("session_created", "lease_acquired"),
        *("lease_acquired", "session_resumed"),
    ]
    first, second = data(await any_place.events(), "lease_acquired")
    assert (first.ttl_ms, first.former_worker_id, first.former_end) == (60_000, None, None)
    assert (second.ttl_ms, second.former_worker_id, second.former_token, second.former_end) == (
        *(90_000, "one"),
        *(1, "released"),
    )


async def test_the_same_worker_and_lease_goes_on_under_the_lease_on_record(place: Place) -> None:
    """Only where somebody insists on an id: after a crash nobody else has had it in between."""
    mine = LeaseConfig(worker_id="me", lease_id="l-mine")
    async with place.create([reply("done")], lease=mine) as session:
        await session.run("hello")
    dead = await _still_held(place)
    async with dead.resume([reply("again")], lease=mine) as session:
        assert session.lease is not None
        assert session.lease.token == 1
        assert (await session.run("more")).content == "again"
    assert (await dead.types()).count("lease_acquired") == 1


async def _still_held(place: Place) -> Place:
    """The same journal where nobody has given the lease back."""
    left = Place()
    fence = place.store.batches[0].fence
    assert fence is not None
    async with left.store.inner.open() as journal:
        await journal.leases.acquire("s1", Holder(fence.worker_id, fence.lease_id), 30_000)
        for batch in place.store.batches:
            await journal.commit(batch)
    return left


async def test_p30_p88_one_name_in_two_places_is_two_holders(any_place: Place) -> None:
    same = LeaseConfig(worker_id="local")
    async with any_place.create([reply("done")], lease=same) as session:
        for _ in range(2):
            with pytest.raises(LeaseConflict, match="held by local"):
                await any_place.resume([], lease=same).__aenter__()
        assert (await session.run("hello")).content == "done"


# --- keeping it ----------------------------------------------------------------------------------


def renewed(session: mb.Session, clock: SteppedClock) -> bool:
    """Whether the lease was renewed at the moment at which the clock stands."""
    return session.lease is not None and session.lease.renewed_at == clock.now()


async def test_p90_p92_work_without_any_news_keeps_the_lease(odd: Odd) -> None:
    """A model that thinks for longer than the lease lasts; the one thing that counts is time."""
    place, renewals, clock = odd
    gate = Gate()
    async with place.create([[gate, *reply("done")]], lease=LEASE) as session:
        await session.send("hello")
        await gate.reached()
        for clock.seconds in range(10, 101, 10):
            await until(lambda: renewed(session, clock))
        gate.open()
        await session.wait_idle()
        assert not session.is_running
    assert renewals.asked == 10


async def test_an_application_that_blocks_its_loop_keeps_the_lease(odd: Odd) -> None:
    place, _, clock = odd
    async with place.create([reply("done")], lease=LEASE) as session:
        for clock.seconds in range(10, 101, 10):
            wait_until(lambda: renewed(session, clock), "it is renewed while nothing of this loop runs")
        assert (await session.run("hello")).content == "done"


async def test_many_sessions_share_one_thread_that_ends_with_the_last(place: Place) -> None:
    before = set(threading.enumerate())
    async with AsyncExitStack() as stack:
        for number in range(64):
            opened = place.create([reply("done")], f"s{number}", lease=OFTEN)
            session = await stack.enter_async_context(opened)
        assert keeping() == ["keeps leases"]
        assert (await session.run("hello")).content == "done"
    assert keeping() == []
    left = [thread.name for thread in set(threading.enumerate()) - before]
    assert not [name for name in left if "AnyIO" not in name]  # its own worker threads end with the loop


async def test_a_renewal_that_failed_is_tried_again_in_time(odd: Odd) -> None:
    place, renewals, clock = odd
    async with place.create([reply("done")], lease=LEASE) as session:
        renewals.how = "fail"
        for clock.seconds in (10, 13, 16):
            await until(lambda: clock.seconds + 3 in clock.awaited)
        assert renewals.asked == 3
        renewals.how = "answer"
        clock.seconds = 19
        await until(lambda: renewed(session, clock))
        assert (await session.run("hello")).content == "done"


async def test_a_renewal_without_an_answer_is_tried_again_beside_it(odd: Odd) -> None:
    place, renewals, clock = odd
    impatient = LeaseConfig(ttl_s=30.0, heartbeat_s=10.0, store_timeout_s=0.1)
    async with place.create([reply("done")], lease=impatient) as session:
        renewals.how = "hang for good"
        clock.seconds = 10
        await until(lambda: 13 in clock.awaited)
        renewals.how = "answer"
        clock.seconds = 13
        await until(lambda: renewed(session, clock))
        assert (await session.run("hello")).content == "done"
        renewals.opened.set()


async def test_p77_a_file_that_is_locked_holds_up_neither_the_loop_nor_the_lease(tmp_path: Path) -> None:
    """The lock is held until the loop gets to let go of it: for ever, if the loop is what waits."""
    place = Place(FaultyStore(store_at(tmp_path / "journal.db", "auto", timeout_s=15)))
    async with place.create([reply("done")], lease=OFTEN) as session, anyio.create_task_group() as tasks:
        with closing(sqlite.connect(tmp_path / "journal.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert session.lease is not None
            before, commits = session.lease.renewed_at, len(place.store.batches)
            tasks.start_soon(session.run, "hello")
            await until(lambda: len(place.store.batches) > commits)
            Noticing.kept_waiting.clear()
            await until(Noticing.kept_waiting.is_set)
            assert len(await place.types()) == commits + 1, "nothing is written while the file is locked"
            other.execute("ROLLBACK")
        await until(lambda: session.lease is not None and session.lease.renewed_at > before)
        await session.wait_idle()
    assert (await place.types())[-1] == "request_completed"


# --- losing it -----------------------------------------------------------------------------------


async def run_out(renewals: Renewals, clock: SteppedClock) -> None:
    """Let the lease's time be over, after a renewal was tried."""
    clock.seconds = 10
    await until(lambda: renewals.asked == 1)
    if renewals.how == "fail":
        await until(lambda: 13 in clock.awaited)
    clock.seconds = 29


async def _lost(place: Place, session: mb.Session, stream: Any, gate: Gate) -> str:
    """What is the same however the lease was lost: everything stops, and nothing is written."""
    with pytest.raises(LeaseLost) as told:
        await drained(stream)
    assert session.lease is None
    for refused in (
        *(session.send("more"), session.send("more", input_id="i-1"), session.wait_idle()),
        *(session.abort(), session.change(max_turns=3), session.run("x")),
    ):
        with pytest.raises(LeaseLost):
            await refused
    gate.open()
    assert isinstance(session.messages[0], UserItem)  # reads go on
    return str(told.value)


@BOTH
@pytest.mark.parametrize("how", ["taken", "fail", "hang", "hang for good"])
async def test_a_lease_that_is_lost_stops_the_session_and_writes_no_end(odd: Odd, how: str) -> None:
    place, renewals, clock = odd
    gate = Gate()
    async with place.create([[gate, *reply("never")]], lease=LEASE, abort_timeout_s=0.1) as session:
        await session.send("hello", input_id="i-1")
        await gate.reached()
        stream = session.stream()
        if how == "taken":
            await steal(place)
            clock.seconds = 10
        else:
            renewals.how = how
            await run_out(renewals, clock)
        told = await _lost(place, session, stream, gate)
        if how == "taken":
            assert "it was given back" in told
        else:
            assert "it was not renewed for" in told
        if how == "fail":
            assert "the last try failed: far away: no answer" in told
        renewals.opened.set()
    assert (await place.types())[-1] == "model_request_started"
    assert keeping() == []


@BOTH
async def test_a_lost_lease_stops_tools_and_records_nothing_of_them(odd: Odd) -> None:
    place, renewals, clock = odd
    stopped: list[str] = []

    @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE)
    async def hold(ctx: ToolContext) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append(ctx.tool_id)
        return "never"

    @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE)
    def heed(ctx: ToolContext) -> str:
        ctx.stopping.wait()
        stopped.append(ctx.tool_id)
        return "ended early"

    script = [reply("", call("hold"), call("heed"))]
    async with place.create(script, tools=[hold, heed], lease=LEASE, abort_timeout_s=0.1) as session:
        await session.send("hello")
        await until(lambda: session.head_sequence >= 13)
        renewals.how = "fail"
        await run_out(renewals, clock)
        with pytest.raises(LeaseLost):
            await session.wait_idle()
        await until(lambda: len(stopped) == 2)
    assert (await place.types())[-2:] == ["tool_started", "tool_started"]


async def test_p89_the_old_holder_of_a_name_cannot_renew_or_write(place: Place) -> None:
    """Its lease ran out, and somebody of the same name has the session."""
    clock = ManualClock()
    place.store.inner = MemoryStore(clock=clock)
    name = LeaseConfig(worker_id="w", ttl_s=30, heartbeat_s=1000 / 90)
    async with place.create([], lease=name) as old:
        clock.advance(31)
        async with place.resume([reply("done")], lease=name) as new:
            assert new.lease is not None
            assert new.lease.token == 2
            with pytest.raises(LeaseLost, match="token 2"):
                await old.send("late")
            fence = place.store.batches[0].fence
            assert fence is not None
            async with place.reader() as journal:
                with pytest.raises(LeaseLost):
                    await journal.leases.renew("s1", fence, 30_000)
            assert (await new.run("hello")).content == "done"
    second = data(await place.events(), "lease_acquired")[1]
    assert (second.former_worker_id, second.former_end) == ("w", "ran_out")


async def test_p90_nothing_is_written_after_the_time_is_over_even_if_nobody_took_over(place: Place) -> None:
    clock = ManualClock()
    place.store.inner = MemoryStore(clock=clock)
    async with place.create([reply("never")], lease=QUIET) as session:
        clock.advance(QUIET.ttl_s)
        with pytest.raises(LeaseLost, match="the lease ran out"):
            await session.send("hello")
        assert session.lease is not None  # as far as this process knows
        with pytest.raises(Fenced):
            await session.send("hello")
    assert await place.types() == ["session_created", "lease_acquired"]


# --- beginning what is on record as begun -----------------------------------------------------


@BOTH
@pytest.mark.parametrize("tardy", [False, True])
async def test_the_store_is_asked_once_more_only_where_something_held_things_up(
    odd: Odd, hands: Hands, tardy: bool
) -> None:
    place, renewals, _ = odd
    place.timer = clock = ManualClock()
    script = [reply("", call("look", {"what": "x"})), reply("done")]
    gates = {number: Gate() for number in (3, 4, 5)} if tardy else {}
    place.store.after.update(gates)
    async with place.create(script, tools=hands.tools(), lease=QUIET) as session:
        await session.send("hello")
        for gate in gates.values():
            await gate.reached()
            clock.advance(2)
            gate.open()
        await session.wait_idle()
        assert (await place.told(session.stream()))[-1].content == "done"
    assert renewals.validated == (3 if tardy else 0)  # two attempts and a tool


@BOTH
@pytest.mark.parametrize("commit", [3, 4])
async def test_what_was_overtaken_between_its_commit_and_its_beginning_does_not_begin(
    odd: Odd, hands: Hands, commit: int
) -> None:
    place, _, _ = odd
    place.timer = clock = ManualClock()
    place.store.after[commit] = gate = Gate()
    provider = ScriptedProvider([reply("", call("pay", {"what": "rent"})), reply("never")])
    allowed: dict[str, Any] = {"permission_mode": "yolo", "tools": hands.tools(), "lease": QUIET}
    async with place.create(provider, **allowed) as session:
        await session.send("hello")
        await gate.reached()
        await steal(place)
        clock.advance(2)
        gate.open()
        with pytest.raises(LeaseLost):
            await session.wait_idle()
        assert session.lease is None or (await _gone(session))
    assert (len(provider.sent), hands.begun) == (commit - 3, [])
    assert (await place.types())[-1] == ("model_request_started" if commit == 3 else "tool_started")


async def _gone(session: mb.Session) -> bool:
    with pytest.raises(LeaseLost):
        await session.send("more")
    return True


async def test_a_store_that_cannot_say_begins_nothing(odd: Odd, hands: Hands) -> None:
    """What has not begun is on record as that, and is tried again."""
    place, renewals, _ = odd
    place.timer = clock = ManualClock()
    place.store.after[4] = gate = Gate()
    script = [reply("", call("look", {"what": "x"})), reply("done")]
    async with place.create(script, tools=hands.tools(), lease=QUIET) as session:
        await session.send("hello")
        await gate.reached()
        clock.advance(2)
        renewals.how = "fail"
        gate.open()
        assert (await place.told(session.stream()))[-1].content == "done"
    assert hands.begun == []
    assert data(await place.events(), "tool_cancelled")[0].reason == "error before it began"


# --- another process ----------------------------------------------------------------------------


async def test_a_forked_process_has_no_part_in_the_lease(place: Place) -> None:
    async with place.create([reply("done")], lease=OFTEN) as session:
        child = os.fork()
        if child == 0:
            os._exit(_in_the_child(session))
        _, status = await anyio.to_thread.run_sync(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert session.lease is not None
        assert (await session.run("hello")).content == "done"


def _in_the_child(session: mb.Session) -> int:
    """0: as it should be."""
    if keeping() or session.lease is not None:
        return 1
    held = session._parts.book.held
    assert held is not None
    try:
        held.check()
    except LeaseLost as error:
        return 0 if "forked" in str(error) else 2
    return 3

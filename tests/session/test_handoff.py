"""Handing a session over: it stops where it is, and another worker goes on at once."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import minutebook as mb
from adapters.sqlite_store import SqliteStore
from adapters.system import SystemClock
from domain.errors import (
    HandoffActiveWork,
    HandoffError,
    HandoffFailed,
    HandoffNotConfigured,
    HandoffPending,
    SessionClosed,
    SessionSuspending,
    StreamError,
)
from domain.values import Priority, SideEffect, ToolKind
from minutebook.interactions import Approve
from minutebook.leaving import HandoffResult
from minutebook.session import Session
from minutebook.testing.clock import START
from minutebook.testing.faulty_store import Fault, FaultyStore
from minutebook.testing.scripted import Attempt, Gate, ScriptedProvider, call, reply
from minutebook.tool_context import ToolContext
from minutebook.tool_definition import ToolDefinition, tool
from tests.session import order
from tests.session.harness import Hands, Place, asked, data
from tests.session.leasing import keeping, landed, until
from tests.session.test_processes import PARENT, Family, starting

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

GRACE_S = 0.05


@dataclass(frozen=True, slots=True)
class QuickClock:
    """Time that goes by quicker than it does."""

    speed: float = 5.0
    boot_id: str | None = None

    def now(self) -> datetime:
        """Aware UTC."""
        return START + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        """Seconds, never going back."""
        return SystemClock().monotonic() * self.speed

    async def sleep_until(self, moment: float) -> None:
        """Return once `monotonic` has reached `moment`; at once if it has."""
        while (left := moment - self.monotonic()) > 0:  # noqa: ASYNC110 - a sleep may end early
            await anyio.sleep(left / self.speed)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """A store in a file, and less time to wait for what does not stop."""
    place = Place(FaultyStore(SqliteStore(tmp_path / "journal.db")), QuickClock())
    yield place
    await place.check()


async def handed_over(place: Place, session: Session) -> HandoffResult:
    """Hand it over, and look at what is the same however it stood."""
    token = session.lease and session.lease.token
    result = await session.suspend_for_handoff()
    events = await place.events()
    assert (result.session_id, result.head_sequence, result.fenced) == ("s1", events[-1].sequence, True)
    assert order.types(order.commits(events)[-1]) == ["handoff_completed", "lease_released"]
    assert events[-2].data.next_action == result.recovery_plan.items[0].action
    assert result.recovery_plan.lease is not None
    assert (result.recovery_plan.lease.holder, result.recovery_plan.lease.token) == (None, token)
    assert session.lease is None
    assert session.is_closed
    assert keeping() == []
    with pytest.raises(SessionClosed):
        await session.send("late")
    with pytest.raises(SessionClosed):
        await session.suspend_for_handoff()
    return result


async def goes_on(place: Place, provider: Any, **options: Any) -> str:
    """What another worker makes of it, without waiting for anything."""
    with anyio.fail_after(10):  # a third of the time the lease would have taken
        async with place.resume(provider, **options) as session:
            for question in session.interactions:
                await session.respond(question.id, Approve(), digest=question.digest)
            await session.wait_idle()
            return session.messages[-1].text if hasattr(session.messages[-1], "text") else ""


# --- in every state of a request ------------------------------------------------------------------


async def test_an_idle_session(place: Place) -> None:
    async with place.create([reply("one")]) as session:
        await session.run("hello")
        result = await handed_over(place, session)
        assert [item.action for item in result.recovery_plan.items] == ["none"]
        async with place.resume([reply("two")]) as other:
            assert other.lease is not None
            assert other.lease.token == 2
            assert (await other.run("again")).content == "two"
    (_, second) = data(await place.events(), "lease_acquired")
    assert (second.former_token, second.former_end) == (1, "released")


async def test_a_model_that_answers_and_inputs_that_wait(place: Place) -> None:
    gate = Gate()
    async with place.create([[gate, *reply("never")]]) as session:
        await session.send("hello")
        await gate.reached()
        await session.send("later", input_id="i-2", priority=Priority.LATER)
        result = await handed_over(place, session)
        assert result.recovery_plan.items[0].action == "next_attempt"
        assert await goes_on(place, [reply("one"), reply("two")]) == "two"
    (aborted,) = data(await place.events(), "model_request_aborted")
    assert aborted.reason == "handoff"


def heeding(is_async: bool) -> tuple[ToolDefinition, Event]:
    """A tool of unknown effects that ends when it is told to."""
    begun = Event()
    if is_async:

        @tool
        async def work(ctx: ToolContext) -> str:
            begun.set()
            await until(lambda: ctx.cancelled)
            return "ended early"
    else:

        @tool
        def work(ctx: ToolContext) -> str:
            begun.set()
            ctx.stopping.wait()
            return "ended early"

    return work, begun


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_tool_that_ends_when_it_is_told_to(place: Place, is_async: bool) -> None:
    work, begun = heeding(is_async)
    options: dict[str, Any] = {"tools": [work], "permission_mode": "yolo"}
    async with place.create([reply("", call("work"))], **options) as session:
        await session.send("hello")
        await until(begun.is_set)
        result = await handed_over(place, session)
        assert result.recovery_plan.items[0].action == "complete_turn"
        assert await goes_on(place, [reply("done")], **options) == "done"
    assert (await place.types()).count("tool_completed") == 1


@pytest.mark.parametrize("side_effect", [SideEffect.PURE, SideEffect.NON_IDEMPOTENT])
async def test_a_tool_that_does_not_end_in_time_stays_as_started(
    place: Place, side_effect: SideEffect
) -> None:
    runs: list[int] = []

    @tool(side_effect=side_effect)
    async def work(ctx: ToolContext) -> str:
        runs.append(ctx.run)
        if ctx.run == 1:
            await anyio.sleep_forever()
        return "worked"

    options: dict[str, Any] = {"tools": [work], "permission_mode": "yolo", "abort_timeout_s": GRACE_S}
    async with place.create([reply("", call("work"))], **options) as session:
        await session.send("hello")
        await until(lambda: runs == [1])
        result = await handed_over(place, session)
        (item,) = result.recovery_plan.items
        if side_effect is SideEffect.PURE:
            assert item.action == "start_tool"
            assert await goes_on(place, [reply("done")], **options) == "done"
        else:
            assert item.action == "reconcile_tool_outcomes"
            with pytest.raises(mb.RecoveryRequired):
                await place.resume([], **options).__aenter__()
    assert runs == ([1, 2] if side_effect is SideEffect.PURE else [1])


async def test_a_tool_that_runs_a_program(place: Place) -> None:
    family = Family()
    async with place.create([reply("", call("work"))], tools=[starting(family)]) as session:
        await session.send("hello")
        await until(lambda: len(family.numbers) == 2)
        await handed_over(place, session)
        await family.has_ended()


async def test_a_permission_that_is_pending(place: Place, hands: Hands) -> None:
    options: dict[str, Any] = {"tools": hands.tools()}
    async with place.create([reply("", call("pay", {"what": "rent"}))], **options) as session:
        await session.send("hello")
        question = await asked(session)
        result = await handed_over(place, session)
        assert result.recovery_plan.items[0].action == "resolve_permissions"
        async with place.resume([], **options) as other:
            assert [each.id for each in other.interactions] == [question.id]
        assert await goes_on(place, [reply("done")], **options) == "done"
    assert hands.done == ["rent"]


async def test_a_request_that_is_being_aborted(place: Place) -> None:
    work, begun = heeding(False)
    options: dict[str, Any] = {"tools": [work], "permission_mode": "yolo"}
    async with place.create([reply("", call("work"))], **options) as session:
        await session.send("hello")
        await until(begun.is_set)
        await session.abort(wait=False)
        result = await handed_over(place, session)
        assert result.recovery_plan.items[0].action in ("finish_abort", "none")
        async with place.resume([], **options) as other:
            await other.wait_idle()
            assert not other.is_running
    assert (await place.types()).count("request_interrupted") == 1


async def test_nothing_of_a_request_that_has_not_begun_begins(place: Place) -> None:
    provider = ScriptedProvider([])
    place.store.before[3] = gate = Gate()  # the attempt's own commit
    async with place.create(provider) as session:
        await session.send("hello")
        await gate.reached()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(handed_over, place, session)
            await anyio.wait_all_tasks_blocked()
            gate.open()
        assert provider.sent == []
        assert await goes_on(place, [reply("done")]) == "done"


# --- what is refused meanwhile ------------------------------------------------------------------


CALLS: list[Callable[[Session], Awaitable[Any]]] = [
    lambda session: session.send("more"),
    lambda session: session.run("more"),
    lambda session: session.cancel_input("i-1"),
    lambda session: session.respond(None, Approve()),
    lambda session: session.abort(),
    lambda session: session.change(max_turns=3),
    lambda session: session.set_thinking(None),
    lambda session: session.set_budget(None),
    lambda session: session.model.switch("other"),
    lambda session: session.close(final=True),
]


def stuck(place: Place, gate: Gate) -> AbstractAsyncContextManager[Session]:
    """A session with a tool that heeds nobody."""

    @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE)
    async def work(ctx: ToolContext) -> str:
        with anyio.CancelScope(shield=True):
            await gate.pass_through()
        return "after all"

    return place.create([reply("", call("work"))], tools=[work], abort_timeout_s=GRACE_S)


async def test_every_call_that_changes_something_is_refused(place: Place) -> None:
    gate = Gate()
    async with stuck(place, gate) as session:
        await session.send("hello")
        await gate.reached()
        with pytest.raises(HandoffPending):
            await session.suspend_for_handoff()
        head = session.head_sequence
        for change in CALLS:
            with pytest.raises(SessionSuspending):
                await change(session)
        assert (session.head_sequence, session.is_closed) == (head, False)
        assert session.messages  # reads go on
        gate.open()


async def test_a_send_that_was_under_way_is_refused_too(place: Place) -> None:
    """It looks for an earlier call of its id while the handoff begins."""
    gate = Gate()
    async with stuck(place, gate) as session:
        await session.send("hello")
        await gate.reached()
        refused: list[str] = []

        async def send() -> None:
            with pytest.raises(SessionSuspending) as told:
                await session.send("more", input_id="i-9")
            refused.append(told.value.code)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            await anyio.lowlevel.checkpoint()
            with pytest.raises(HandoffPending):
                await session.suspend_for_handoff()
        assert refused == ["SESSION_SUSPENDING"]
        gate.open()


async def test_a_tool_cannot_hand_over_its_own_session(place: Place) -> None:
    told: list[str] = []
    opened: list[Session] = []

    @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE)
    async def work(ctx: ToolContext) -> None:
        with pytest.raises(StreamError) as refused:
            await opened[0].suspend_for_handoff()
        told.append(refused.value.reason)

    async with place.create([reply("", call("work")), reply("done")], tools=[work]) as session:
        opened.append(session)
        assert (await session.run("hello")).content == "done"
    assert told == ["REENTRANT_WAIT"]


# --- when it does not come to that -----------------------------------------------------------------


async def test_a_store_that_does_not_outlive_the_process_is_no_place_to_go_on() -> None:
    async with Place().create([reply("done")]) as session:
        with pytest.raises(HandoffNotConfigured, match="does not outlive this process") as refused:
            await session.suspend_for_handoff()
        error = refused.value
        assert (error.code, error.retryable, error.closed) == ("SESSION_HANDOFF_NOT_CONFIGURED", False, False)
        assert (await session.run("hello")).content == "done"


async def test_what_runs_in_the_background_is_ended_first(place: Place) -> None:
    family = Family()

    @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE)
    async def serve(ctx: ToolContext) -> str:
        process = await ctx.start_process([sys.executable, "-c", PARENT, "stay"], background=True)
        await family.born(process)
        return "started"

    async with place.create(
        [reply("", call("serve")), reply("done"), reply("more")], tools=[serve]
    ) as session:
        await session.run("hello")
        with pytest.raises(HandoffActiveWork) as refused:
            await session.suspend_for_handoff()
        error = refused.value
        assert (error.code, error.retryable, error.closed) == ("SESSION_HANDOFF_ACTIVE_WORK", True, False)
        assert (error.active_shell_ids, error.active_subagent_ids) == (("r1.t1.a1.c0.p1",), ())
        assert (await session.run("still here")).content == "more"
        assert await session.background.stop(error.active_shell_ids[0])
        await family.has_ended()
        await handed_over(place, session)


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_tool_that_heeds_nobody_keeps_the_lease_until_it_has_ended(
    place: Place, is_async: bool
) -> None:
    gate, free = Gate(), Event()
    begun: list[int] = []
    if is_async:

        @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE)
        async def work(ctx: ToolContext) -> str:
            begun.append(ctx.run)
            with anyio.CancelScope(shield=True):
                await gate.pass_through()
            return "after all"
    else:

        @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE)
        def work(ctx: ToolContext) -> str:
            begun.append(ctx.run)
            free.wait()
            return "after all"

    options: dict[str, Any] = {"tools": [work], "abort_timeout_s": GRACE_S}
    async with place.create([reply("", call("work"))], **options) as session:
        await session.send("hello")
        await until(lambda: bool(begun))
        for _ in range(2):
            with pytest.raises(HandoffPending) as refused:
                await session.suspend_for_handoff()
            error = refused.value
            assert (error.code, error.retryable) == ("SESSION_HANDOFF_PENDING_CALLBACKS", True)
            assert (error.closed, error.pending_callbacks) == (False, ("r1.t1.a1.c0",))
            assert session.lease is not None
            with pytest.raises(mb.errors.LeaseConflict):
                await place.resume([], **options).__aenter__()
        gate.open()
        free.set()
        await landed(session)
        await handed_over(place, session)
        assert await goes_on(place, [reply("done")], **options) == "done"
    (note,) = data(await place.events(), "notice_recorded")
    assert (note.kind, note.data) == ("callback_pending", {"subjects": ["r1.t1.a1.c0"]})
    assert begun == [1] if not is_async else begun[0] == 1


async def test_a_thread_that_was_given_up_is_waited_for_too(place: Place) -> None:
    """Its call has been given up; but its code still runs here."""
    free = Event()
    begun = Event()

    @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.NON_IDEMPOTENT)
    def work(ctx: ToolContext) -> str:
        begun.set()
        free.wait()
        return "late"

    async with place.create([reply("", call("work"))], tools=[work], abort_timeout_s=GRACE_S) as session:
        await session.send("hello")
        await until(begun.is_set)
        await session.abort()
        with pytest.raises(HandoffPending) as refused:
            await session.suspend_for_handoff()
        assert refused.value.pending_callbacks == ("r1.t1.a1.c0",)
        free.set()
        await landed(session)
        await handed_over(place, session)
    assert (await place.types()).count("tool_outcome_unknown") == 1


async def test_a_handler_that_heeds_nobody_is_named(place: Place, hands: Hands) -> None:
    gate = Gate()

    async def handler(_: mb.PermissionCall) -> mb.Verdict | None:
        with anyio.CancelScope(shield=True):
            await gate.pass_through()
        return None

    options: dict[str, Any] = {"tools": hands.tools(), "permission_handler": handler}
    script: list[Attempt] = [reply("", call("look", {"what": "x"}))]
    async with place.create(script, abort_timeout_s=GRACE_S, **options) as session:
        await session.send("hello")
        await gate.reached()
        with pytest.raises(HandoffPending) as refused:
            await session.suspend_for_handoff()
        assert refused.value.pending_callbacks == ("evaluate:r1.t1.a1.c0",)
        gate.open()
        await landed(session)
        await handed_over(place, session)
    assert hands.begun == []


@pytest.mark.parametrize("fault", [Fault.WRITE_FAILED, Fault.LEASE_LOST, Fault.LOST_FOUND, Fault.LOST_ABSENT])
async def test_a_handoff_that_fails_leaves_the_session_to_its_journal(place: Place, fault: Fault) -> None:
    gate = Gate()
    async with place.create([[gate, *reply("never")]]) as session:
        await session.send("hello")
        await gate.reached()
        place.store.faults[len(place.store.batches) + 2] = fault  # after the end of the attempt
        with pytest.raises(HandoffFailed) as refused:
            await session.suspend_for_handoff()
        error = refused.value
        assert (error.code, error.retryable, error.closed) == ("SESSION_HANDOFF_FAILED", False, True)
        assert isinstance(error.__cause__, mb.MinutebookError)
        assert session.is_closed
        with pytest.raises(SessionClosed):
            await session.send("more")
    place.store.faults.clear()
    assert await goes_on(place, [reply("done")]) == "done"


async def test_a_cancelled_handoff_is_carried_through(place: Place) -> None:
    gate = Gate()
    place.store.before[5] = gate
    async with place.create([reply("done")]) as session:
        await session.run("hello")
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.suspend_for_handoff)
                await gate.reached()
                scope.cancel()
                gate.open()
        assert session.is_closed
    assert (await place.types())[-1] == "lease_released"


async def test_two_handoffs_at_once_are_one(place: Place) -> None:
    results: list[Any] = []

    async def hand_over(session: Session) -> None:
        try:
            results.append(await session.suspend_for_handoff())
        except (SessionClosed, HandoffError) as error:
            results.append(error)

    async with place.create([reply("done")]) as session:
        await session.run("hello")
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(hand_over, session)
    assert sorted(type(each).__name__ for each in results) == ["HandoffResult", *["SessionClosed"] * 2]
    assert (await place.types()).count("handoff_completed") == 1

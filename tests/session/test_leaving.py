"""Entering and leaving a session: in order, by an error, by a cancellation, for good."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from domain.errors import (
    InvalidId,
    InvalidOptions,
    LeaseConflict,
    SessionClosed,
    SessionExists,
    SessionNotFound,
    StoreWriteFailed,
)
from domain.values import SideEffect, ToolKind
from minutebook.interactions import Approve
from minutebook.prompting import prompt
from minutebook.session import Session
from minutebook.testing.clock import ManualClock
from minutebook.testing.scripted import Gate, ScriptedProvider, call, reply
from minutebook.tool_context import ToolContext
from minutebook.tool_definition import tool
from recovery.plan import RecoveryRequired
from tests.session import order
from tests.session.faults import Fault
from tests.session.harness import LONG_S, Hands, Place, asked, data

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

DEADLINE_S = 7.0


# --- entering ----------------------------------------------------------------------------------


async def test_what_cannot_be_entered_says_why_and_leaves_nothing_open(place: Place) -> None:
    provider = ScriptedProvider([reply("done")])
    async with place.create(provider, "mine"):
        pass
    assert provider.closed
    refused: list[tuple[Any, type[Exception]]] = [
        (place.create([], "mine"), SessionExists),
        (place.resume([], "other"), SessionNotFound),
        (place.resume([], "mine", owner_id="somebody-else"), SessionNotFound),
    ]
    for opening, error in refused:
        with pytest.raises(error):
            await opening.__aenter__()
    async with place.resume([], "mine") as session:
        with pytest.raises(LeaseConflict, match="held by w1"):
            await place.resume([], "mine", worker_id="w2").__aenter__()
        await session.close(final=True)
    with pytest.raises(SessionClosed):
        await place.resume([], "mine").__aenter__()
    with pytest.raises(InvalidId):
        place.create([], "../mine")


@pytest.mark.parametrize(
    "options",
    [
        {"model": ""},
        {"max_turns": 0},
        {"temperature": "warm"},
        {"permission_mode": "yes"},
        {"abort_timeout_s": 0},
        {"lease_ttl_ms": 10},
        {"tools": [print]},
        {"context": {"environment": object()}},
        {"system_prompt": 3},
        {"temperature": float("nan")},
    ],
    ids=str,
)
async def test_a_configuration_that_cannot_work_is_refused_at_once(place: Place, options: Any) -> None:
    with pytest.raises(InvalidOptions):
        place.create([], **options)


async def test_a_session_that_cannot_be_recorded_is_not_opened(place: Place) -> None:
    provider = ScriptedProvider([])
    place.store.faults = {1: Fault.WRITE_FAILED}
    with pytest.raises(StoreWriteFailed):
        await place.create(provider).__aenter__()
    assert provider.closed
    async with place.create([reply("done")]) as session:
        assert (await session.run("hello")).content == "done"


async def test_entering_a_resumed_session_executes_nothing(any_place: Place, hands: Hands) -> None:
    gate = Gate()
    async with any_place.create([[gate, *reply("done")]], abort_timeout_s=0.1) as session:
        await session.send("hello")
        await gate.reached()
    provider = ScriptedProvider([reply("done")])
    async with any_place.resume(provider) as session:
        await anyio.wait_all_tasks_blocked()
        assert provider.sent == []
        assert session.is_running
        assert (await any_place.told(session.stream()))[-1].content == "done"


# --- leaving ------------------------------------------------------------------------------------


async def test_leaving_in_the_middle_makes_up_no_end_and_says_how_to_go_on(
    any_place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    provider = ScriptedProvider([[gate, *reply("never")], reply("done")])
    with caplog.at_level(logging.WARNING, "minutebook"):
        async with any_place.create(provider) as session:
            await session.send("hello")
            await gate.reached()
    assert session.is_closed
    assert caplog.records == []  # the block ended as it was meant to
    assert (await any_place.types())[-1] == "model_request_aborted"
    assert data(await any_place.events(), "model_request_aborted")[0].reason == "detached"
    async with any_place.resume(provider) as session:
        assert (await any_place.told(session.stream()))[-1].content == "done"


class _OwnError(Exception):
    pass


async def test_an_error_of_the_block_comes_out_as_it_is(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async def block() -> None:
        gate = Gate()
        async with place.create([[gate, *reply("never")]]) as session:
            await session.send("hello")
            await gate.reached()
            raise _OwnError

    with caplog.at_level(logging.WARNING, "minutebook"), pytest.raises(_OwnError):
        await block()
    (record,) = caplog.records
    assert "resume_session('s1'" in record.getMessage()
    assert "session_closed" not in await place.types()


async def test_a_tool_that_ends_in_time_has_its_end_on_record(place: Place, hands: Hands) -> None:
    hands.gates["x"] = Gate()

    async def finish(ctx: ToolContext) -> None:
        while not ctx.cancelled:
            await anyio.lowlevel.checkpoint()
        hands.gates["x"].open()

    async with place.create([reply("", call("look", {"what": "x"}))], tools=hands.tools()) as session:
        await session.send("hello")
        await hands.gates["x"].reached()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(finish, hands.contexts[0])
            await session.close()
    assert (await place.types())[-1] == "tool_completed"
    async with place.resume([reply("done")], tools=hands.tools()) as session:
        assert (await place.told(session.stream()))[-1].content == "done"
    assert hands.done == ["x"]


@pytest.mark.parametrize(
    ("side_effect", "action"),
    [
        (SideEffect.PURE, "start_tool"),
        (SideEffect.IDEMPOTENT, "start_tool"),
        (SideEffect.NON_IDEMPOTENT, "reconcile_tool_outcomes"),
    ],
)
async def test_a_tool_that_does_not_end_in_time_stays_on_record_as_started(
    place: Place, side_effect: SideEffect, action: str
) -> None:
    place.timer = clock = ManualClock()
    gate, runs = Gate(), []

    @tool(kind=ToolKind.READ_ONLY, side_effect=side_effect)
    async def work(ctx: ToolContext) -> str:
        runs.append(ctx.idempotency_key)
        if len(runs) == 1:
            await gate.pass_through()
        return "worked"

    options: dict[str, Any] = {"tools": [work], "abort_timeout_s": DEADLINE_S}
    async with place.create([reply("", call("work"))], **options) as session:
        await session.send("hello")
        await gate.reached()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.close)
            await clock.awaited(DEADLINE_S)
            clock.advance(DEADLINE_S)
    assert (await place.types())[-1] == "tool_started"
    assert (await place.plan()).items[0].action == action
    if action == "start_tool":
        async with place.resume([reply("done")], **options) as session:
            assert (await place.told(session.stream()))[-1].content == "done"
        assert len(runs) == 2
        assert len(set(runs)) == 1
    else:
        with pytest.raises(RecoveryRequired):
            await place.resume([], **options).__aenter__()


async def test_leaving_while_commits_are_under_way_waits_for_them(place: Place) -> None:
    place.store.after[3] = gate = Gate()
    async with place.create([reply("never")]) as session:
        await session.send("hello")
        await gate.reached()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.close)
            await anyio.wait_all_tasks_blocked()
            assert session.head_sequence == 3
            gate.open()
    assert (await place.types())[-2:] == ["model_request_started", "model_request_aborted"]


async def test_closing_is_leaving_and_may_be_said_often(place: Place) -> None:
    gate = Gate()
    async with place.create([[gate, *reply("never")]]) as session:
        await session.send("hello")
        await gate.reached()
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(session.close)
        await session.close()
        with pytest.raises(SessionClosed, match="was left by this handle"):
            await session.send("more")
    assert "session_closed" not in await place.types()
    async with place.resume([reply("done")]) as session:
        assert (await place.told(session.stream()))[-1].content == "done"


# --- under cancellation ---------------------------------------------------------------------------


async def _speaking(session: Session, hands: Hands) -> None:
    await session.send("speak")


async def _asking(session: Session, hands: Hands) -> None:
    await session.send("ask")
    await asked(session)


async def _working(session: Session, hands: Hands) -> None:
    await session.send("work")
    await hands.gates["x"].reached()


@pytest.mark.parametrize("begin", [_speaking, _asking, _working])
async def test_a_cancelled_block_is_left_in_order(
    any_place: Place, hands: Hands, begin: Callable[[Session, Hands], Any]
) -> None:
    gate = Gate()
    hands.gates["x"] = Gate()
    answers = {
        "speak": [gate, *reply("done")],
        "ask": reply("", call("pay", {"what": "rent"})),
        "work": reply("", call("look", {"what": "x"})),
    }

    def answer(sent: Any) -> Any:
        return answers[sent.messages[0]["content"]] if sent.messages[-1]["role"] == "user" else reply("done")

    provider = ScriptedProvider(answer)
    options: dict[str, Any] = {"tools": hands.tools(), "abort_timeout_s": 0.05}
    left = False
    with anyio.fail_after(LONG_S), anyio.CancelScope() as scope:
        async with any_place.create(provider, **options) as session:
            await begin(session, hands)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
            await anyio.sleep_forever()
        left = True
    assert scope.cancelled_caught
    assert not left
    assert provider.closed
    gate.open()
    hands.gates.clear()
    async with any_place.resume(provider, **options) as session:
        if session.interactions:
            question = session.interactions[0]
            await session.respond(question.id, Approve(), digest=question.digest)
        assert (await any_place.told(session.stream()))[-1].content == "done"


async def test_a_cancelled_send_is_sent_all_the_same(place: Place) -> None:
    place.store.before[2] = gate = Gate()
    ended = []

    async def send(session: Session, scope: anyio.CancelScope) -> None:
        with scope:
            await session.send("hello")
        ended.append(session.head_sequence)

    async with place.create([reply("done")]) as session:
        scope = anyio.CancelScope()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send, session, scope)
            await gate.reached()
            scope.cancel()
            await anyio.wait_all_tasks_blocked()
            assert ended == []  # the outcome has to be learnt
            gate.open()
        assert ended[0] >= 3
        await session.wait_idle()
        assert (await place.told(session.stream()))[-1].content == "done"


async def test_a_deadline_around_running_leaves_the_session_usable(place: Place) -> None:
    gate = Gate()
    async with place.create([[gate, *reply("one")], reply("two")]) as session:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.run, "hello")
                await gate.reached()
                scope.cancel()
        assert session.is_running
        gate.open()
        assert (await session.run("again")).content == "two"


# --- for good ---------------------------------------------------------------------------------------


async def test_closing_for_good_ends_what_runs_and_cancels_what_waits(any_place: Place, hands: Hands) -> None:
    script = [reply("", call("pay", {"what": "rent"}))]
    told: list[str] = []

    async def watch(session: Session) -> None:
        told.extend([event.type async for event in session.events(after=0)])

    options: dict[str, Any] = {"tools": hands.tools()}
    async with anyio.create_task_group() as tasks, any_place.create(script, **options) as session:
        tasks.start_soon(watch, session)
        await session.send("one")
        await asked(session)
        await session.send("two")
        await session.close(final=True, reason="enough")
        assert session.is_closed
        await session.close(final=True)
    types = await any_place.types()
    assert types[-3:] == ["request_interrupted", "input_cancelled", "session_closed"]
    assert order.types(order.commits(await any_place.events())[-1]) == ["input_cancelled", "session_closed"]
    assert told[-1] == "session_closed"


async def test_closing_for_good_at_the_same_time_is_closing_once(place: Place) -> None:
    gate = Gate()
    async with place.create([[gate, *reply("never")]]) as session:
        await session.send("hello")
        await gate.reached()

        async def close() -> None:
            await session.close(final=True)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(close)
    assert (await place.types()).count("session_closed") == 1


async def test_nothing_is_sent_to_a_session_that_is_being_closed(place: Place) -> None:
    """Neither while what runs is stopped, nor while the end itself is being written."""
    for number in (4, 6):
        place.store.batches.clear()
        place.store.before = {number: (gate := Gate())}
        speaking, session_id = Gate(), f"s{number}"
        async with place.create([[speaking, *reply("never")]], session_id) as session:
            await session.send("hello")
            await speaking.reached()
            async with anyio.create_task_group() as tasks:

                async def close() -> None:
                    await session.close(final=True)

                tasks.start_soon(close)
                await gate.reached()
                with pytest.raises(SessionClosed):
                    await session.send("too late")
                gate.open()
        assert (await place.types(session_id)).count("input_accepted") == 1


async def test_an_effect_can_be_settled_after_the_session_was_closed(place: Place, hands: Hands) -> None:
    hands.gates["x"] = Gate()
    script = [reply("", call("put", {"what": "x"}))]
    async with place.create(script, tools=hands.tools(), permission_mode="autoEdit") as session:
        await session.send("hello")
        await hands.gates["x"].reached()
        await session.close(final=True)
        assert len(session.unsettled_effects) == 1
    async with place.coordinator() as coordinator:
        await coordinator.reconcile_tool_outcome("r1.t1.a1.c0", outcome="failed", evidence="no file there")
    assert (await place.types())[-1] == "tool_outcome_reconciled"
    with pytest.raises(SessionClosed):
        await place.resume([], tools=hands.tools()).__aenter__()


async def test_a_late_result_of_a_closed_session_is_dropped_quietly(place: Place) -> None:
    place.timer = clock = ManualClock()
    begun, release = anyio.Event(), threading.Event()

    @tool(kind=ToolKind.READ_ONLY)
    def hang() -> str:
        anyio.from_thread.run_sync(begun.set)
        release.wait(20)
        return "late"

    async def close(session: Session) -> None:
        await session.close(final=True)

    async with place.create([reply("", call("hang"))], tools=[hang], abort_timeout_s=DEADLINE_S) as session:
        await session.send("hello")
        await begun.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(close, session)
            await clock.awaited(DEADLINE_S)
            clock.advance(DEADLINE_S)
        release.set()
    assert (await place.types())[-1] == "session_closed"


# --- waiting for oneself -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["run", "wait_idle", "close"])
async def test_a_tool_does_not_wait_for_its_own_session(place: Place, method: str) -> None:
    holder: list[Session] = []

    @tool(kind=ToolKind.READ_ONLY)
    async def wait() -> None:
        await getattr(holder[0], method)(*(["again"] if method == "run" else []))

    provider = ScriptedProvider([reply("", call("wait")), reply("done")])
    async with place.create(provider, tools=[wait]) as session:
        holder.append(session)
        assert (await session.run("hello")).content == "done"
    assert "REENTRANT_WAIT" in provider.sent[1].messages[-1]["content"]


async def test_a_tool_may_use_another_session(place: Place) -> None:
    @tool(kind=ToolKind.READ_ONLY)
    async def delegate() -> str:
        async with place.create([reply("from the other")], "s2") as other:
            return (await other.run("help")).content

    async with place.create([reply("", call("delegate")), reply("done")], tools=[delegate]) as session:
        assert (await session.run("hello")).content == "done"
    assert "from the other" in data(await place.events(), "tool_completed")[0].output


# --- one question, one answer ------------------------------------------------------------------------


async def test_a_prompt_makes_uses_and_closes_a_session(place: Place, hands: Hands) -> None:
    script = [reply("", call("look", {"what": "x"}), call("look", "oops")), reply("done", usage={"n": 3})]
    config = place.config(script, tools=hands.tools())
    result = await prompt("hello", config, store=place.store)
    assert (result.status, result.result, result.turns_count) == ("completed", "done", 2)
    first, second = result.tool_calls
    assert (first.name, first.output, first.is_error, second.is_error) == ("look", "did x", False, True)
    assert result.usage == {"n": 3}
    assert result.duration_ms >= 0
    assert (await place.types(result.session_id))[-1] == "session_closed"

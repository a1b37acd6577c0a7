"""Entering and leaving a session: in order, by an error, by a cancellation, for good."""

from __future__ import annotations

import logging
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
from minutebook.lease_config import LeaseConfig
from minutebook.session import Session
from minutebook.testing.clock import ManualClock
from minutebook.testing.faulty_store import Fault
from minutebook.testing.scripted import Gate, ScriptedProvider, call, reply
from minutebook.tool_context import ToolContext
from minutebook.tool_definition import tool
from recovery.plan import RecoveryRequired
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
            await place.resume([], "mine", lease=LeaseConfig(worker_id="w2")).__aenter__()
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
        {"lease": 30},
        {"tools": [print]},
        {"context": {"environment": range(3)}},
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
            assert session.head_sequence == 4
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

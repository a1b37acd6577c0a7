"""Stopping a request over its tools: those that stop, those that do not, those that have not begun."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import anyio
import pytest

from domain.cursor import Cursor
from domain.errors import UnsettledEffectsFull
from domain.values import Interrupt, SideEffect, ToolKind
from minutebook.interactions import Approve
from minutebook.testing.clock import ManualClock
from minutebook.testing.scripted import Gate, ScriptedProvider, call, reply
from minutebook.tool_context import ToolContext
from minutebook.tool_definition import tool
from projections.transcript import UNKNOWN_OUTPUT, Exchange
from recovery.plan import RecoveryRequired
from tests.session import order
from tests.session.aborting import DEADLINE_S, abort, hung
from tests.session.harness import Hands, Place, asked, data

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


STOPPED = {
    "pure": (SideEffect.PURE, Interrupt.BLOCK, "tool_cancelled"),
    "may be cancelled": (SideEffect.NON_IDEMPOTENT, Interrupt.CANCEL, "tool_cancelled"),
    "idempotent": (SideEffect.IDEMPOTENT, Interrupt.BLOCK, "tool_outcome_unknown"),
    "neither": (SideEffect.NON_IDEMPOTENT, Interrupt.BLOCK, "tool_outcome_unknown"),
}


@pytest.mark.parametrize(("side_effect", "interrupt", "ends"), STOPPED.values(), ids=STOPPED.keys())
async def test_a_tool_that_lets_itself_be_stopped(
    place: Place, side_effect: SideEffect, interrupt: Interrupt, ends: str
) -> None:
    gate = Gate()

    @tool(kind=ToolKind.READ_ONLY, side_effect=side_effect, interrupt=interrupt)
    async def work() -> str:
        await gate.pass_through()
        return "worked"

    async with place.create([reply("", call("work")), reply("hi")], tools=[work]) as session:
        await session.send("hello")
        await gate.reached()
        await session.abort()
        unsettled = [effect.tool_id for effect in session.unsettled_effects]
        assert (await session.run("hi")).content == "hi"
    assert unsettled == (["r1.t1.a1.c0"] if ends == "tool_outcome_unknown" else [])
    assert [e.type for e in await place.events() if e.type in order.RUN_ENDS] == [ends]


async def test_a_tool_that_ends_in_time_has_its_own_end(place: Place) -> None:
    gate = Gate()

    @tool(kind=ToolKind.READ_ONLY)
    async def work() -> str:
        with suppress(anyio.get_cancelled_exc_class()):
            await gate.pass_through()
        return "put things in order"

    async with place.create([reply("", call("work"))], tools=[work]) as session:
        await session.send("hello")
        await gate.reached()
        await session.abort()
        exchange = session.messages[1]
    assert isinstance(exchange, Exchange)
    assert (exchange.calls[0].outcome, exchange.calls[0].output) == ("completed", "put things in order")


async def test_a_sync_tool_that_looks_stops_in_time(place: Place) -> None:
    begun = anyio.Event()

    @tool(kind=ToolKind.READ_ONLY)
    def work(ctx: ToolContext) -> str:
        anyio.from_thread.run_sync(begun.set)
        ctx.stopping.wait(20)
        ctx.raise_if_cancelled()
        return "worked"

    async with place.create([reply("", call("work"))], tools=[work]) as session:
        await session.send("hello")
        await begun.wait()
        await session.abort()
        assert session.unsettled_effects == ()
    assert data(await place.events(), "tool_cancelled")[0].reason == "the tool stopped when it was told to"


@pytest.mark.parametrize("in_thread", [False, True], ids=["shielded", "thread"])
async def test_a_tool_that_does_not_stop_cannot_hold_up_an_abort(any_place: Place, in_thread: bool) -> None:
    any_place.timer = clock = ManualClock()
    begun, release, gate = anyio.Event(), threading.Event(), anyio.Event()

    @tool(name="hang", kind=ToolKind.READ_ONLY)
    async def hang() -> str:
        begun.set()
        with anyio.CancelScope(shield=True):
            await gate.wait()
        return "late"

    @tool(name="hang", kind=ToolKind.READ_ONLY)
    def hang_sync() -> str:
        anyio.from_thread.run_sync(begun.set)
        release.wait(20)
        return "late"

    provider = ScriptedProvider([reply("", call("hang")), reply("hi"), reply("bye")])
    tools = [hang_sync if in_thread else hang]
    async with any_place.create(provider, tools=tools, abort_timeout_s=DEADLINE_S) as session:
        await session.send("hello")
        await begun.wait()
        await hung(session, clock)
        (effect,) = session.unsettled_effects
        assert (effect.tool_id, effect.request_id) == ("r1.t1.a1.c0", "r1")
        assert (await session.run("hi")).content == "hi"
        feed = session.events(after=Cursor.start(session.id))
        gate.set()
        release.set()
        async for event in feed:
            if event.type == "notice_recorded":
                break
        assert event.data.kind == "late_result"  # type: ignore[union-attr]
        said = event.data.data  # type: ignore[union-attr]
        assert (said["ended_as"], said["output"]) == ("completed", "late")
    assert provider.sent[1].messages[2]["content"] == UNKNOWN_OUTPUT
    assert (await any_place.types()).count("tool_completed") == 0
    async with any_place.coordinator() as coordinator:
        await coordinator.reconcile_tool_outcome(
            "r1.t1.a1.c0", outcome="completed", evidence="I looked", output="it had worked"
        )
    async with any_place.resume(provider, tools=tools) as session:
        assert session.unsettled_effects == ()
        assert (await session.run("bye")).content == "bye"
    assert provider.sent[2].messages[2]["content"] == "it had worked"


async def test_an_unsettled_effect_is_never_run_again(place: Place, hands: Hands) -> None:
    hands.gates["rent"] = Gate()
    script = [reply("", call("pay", {"what": "rent"})), reply("hi")]
    async with place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        question = await asked(session)
        await session.respond(question.id, Approve(), digest=question.digest)
        await hands.gates["rent"].reached()
        await session.abort()
        assert len(session.unsettled_effects) == 1
    hands.gates.clear()
    async with place.resume([reply("hi")], tools=hands.tools()) as session:
        assert (await session.run("hi")).content == "hi"
        assert len(session.unsettled_effects) == 1
    assert (hands.begun, hands.done) == (["rent"], [])


async def test_some_end_in_time_and_some_do_not(place: Place, hands: Hands) -> None:
    place.timer = clock = ManualClock()
    stuck, begun = anyio.Event(), anyio.Event()
    hands.gates["x"] = Gate()

    @tool(kind=ToolKind.READ_ONLY)
    async def hang() -> None:
        begun.set()
        with anyio.CancelScope(shield=True):
            await stuck.wait()

    script = [reply("", call("look", {"what": "x"}), call("hang"), call("pay", {"what": "rent"}))]
    options: dict[str, Any] = {"tools": [*hands.tools(), hang], "abort_timeout_s": DEADLINE_S}
    async with place.create(script, **options) as session:
        await session.send("hello")
        await hands.gates["x"].reached()
        await begun.wait()
        await asked(session)
        await hung(session, clock, after="tool_cancelled")
        stuck.set()
    made = order.commits(await place.events())
    end = next(commit for commit in made if commit[-1].type == "request_interrupted")
    assert order.types(end) == [
        "tool_outcome_unknown",
        "permission_cancelled",
        "tool_cancelled",
        "turn_aborted",
        "request_interrupted",
    ]


@pytest.mark.parametrize("sibling", [False, True])
async def test_a_call_just_approved_does_not_begin_after_an_abort(
    place: Place, hands: Hands, sibling: bool
) -> None:
    """Both are on their way into the journal, in this order; meanwhile another call may end."""
    place.store.before[5] = gate = Gate()
    hands.gates["x"] = Gate()
    calls = [call("look", {"what": "x"})] if sibling else []
    script = [reply("", *calls, call("pay", {"what": "rent"}))]
    async with place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        question = await asked(session)
        async with anyio.create_task_group() as tasks:

            async def answer() -> None:
                await session.respond(question.id, Approve(), digest=question.digest)

            tasks.start_soon(answer)
            await gate.reached()
            tasks.start_soon(abort, session)
            await anyio.wait_all_tasks_blocked()
            hands.gates["x"].open()
            await anyio.wait_all_tasks_blocked()
            gate.open()
        assert session.unsettled_effects == ()
    types = await place.types()
    assert types.index("tool_started") < types.index("abort_requested")
    assert data(await place.events(), "tool_cancelled")[0].reason == "abort before it began"
    assert "rent" not in hands.begun


async def test_effects_that_nobody_settles_stop_new_work(place: Place, hands: Hands) -> None:
    hands.gates["x"] = Gate()
    many = [reply("", *[call("pay", {"what": "x"})] * count) for count in (60, 4)]
    options: dict[str, Any] = {"tools": hands.tools(), "permission_mode": "yolo"}
    async with place.create([*many, reply("never")], **options) as session:
        for count in (60, 64):
            await session.send("hello")
            while len(hands.begun) < count:
                await anyio.lowlevel.checkpoint()
            if count == 64:
                queued = await session.send("waits")
            await session.abort()
            assert len(session.unsettled_effects) == count
        with pytest.raises(UnsettledEffectsFull, match="reconcile_tool_outcome"):
            await session.send("too much")
        await session.wait_idle()
        assert [item.input_id for item in session.pending_inputs] == [queued.input_id]
    async with place.coordinator() as coordinator:
        await coordinator.reconcile_tool_outcome("r1.t1.a1.c0", outcome="failed", evidence="no such payment")
    async with place.resume([reply("at last")], **options) as session:
        await session.wait_idle()
        assert session.messages[-1].text == "at last"  # type: ignore[union-attr]


async def test_a_request_that_needs_a_decision_can_be_stopped(place: Place) -> None:
    @tool(kind=ToolKind.READ_ONLY, timeout_s=0.01)
    async def slow() -> None:
        await anyio.sleep_forever()

    async with place.create([reply("", call("slow")), reply("hi")], tools=[slow]) as session:
        await session.send("hello")
        with pytest.raises(RecoveryRequired):
            await session.wait_idle()
        await session.abort()
        assert [effect.name for effect in session.unsettled_effects] == ["slow"]
        assert (await session.run("hi")).content == "hi"

"""Stopping a request: at any moment, within its time, with everything under it accounted for."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import anyio
import pytest

from domain.envelope import Recorded
from domain.errors import SessionClosed, UnsettledEffectsFull
from domain.values import Interrupt, SideEffect, ToolKind
from minutebook import stream_events as se
from minutebook.interactions import Approve
from minutebook.session import Session
from minutebook.testing.clock import ManualClock
from minutebook.testing.scripted import Gate, ScriptedProvider, call, fail, reply
from minutebook.tool_context import ToolContext
from minutebook.tool_definition import tool
from projections.transcript import UNKNOWN_OUTPUT, Exchange
from recovery.plan import RecoveryRequired
from tests.session import order
from tests.session.harness import LONG_S, Hands, Place, approving, asked, data

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

#: Not a heartbeat's time, so that a test can tell who waits.
DEADLINE_S = 7.0


def ended_as(events: list[Recorded], request_id: str = "r1") -> str:
    """The type of a request's end."""
    return next(e.type for e in events if e.request_id == request_id and e.type in order.REQUEST_ENDS)


# --- at every commit ---------------------------------------------------------------------------


def _script() -> ScriptedProvider:
    return ScriptedProvider(
        {
            "r1.t1.a1": reply("look", call("look", {"what": "x"}), call("pay", {"what": "rent"})),
            "r1.t2.a1": reply("done", pieces=2),
            "r2.t1.a1": reply("next"),
        }
    )


#: How many there are when nobody aborts.
COMMITS = 10


async def test_how_many_commits_there_are(place: Place, hands: Hands) -> None:
    async with place.create(_script(), tools=hands.tools()) as session:
        await _send_two_and_answer(session)
    assert COMMITS - 1 <= len(place.store.batches) <= COMMITS


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("number", range(2, COMMITS + 1))
async def test_aborting_while_any_commit_is_under_way(
    place: Place, hands: Hands, side: str, number: int
) -> None:
    gate = Gate()
    getattr(place.store, side)[number] = gate
    async with place.create(_script(), tools=hands.tools()) as session, anyio.create_task_group() as tasks:
        at_the_gate = anyio.Event()

        async def play() -> None:
            await _send_two_and_answer(session)
            at_the_gate.set()  # there are fewer commits where more of them are shared

        async def stand() -> None:
            await gate.reached()
            at_the_gate.set()

        tasks.start_soon(play)
        tasks.start_soon(stand)
        await at_the_gate.wait()
        tasks.start_soon(_abort, session)
        await anyio.wait_all_tasks_blocked()
        gate.open()
        await session.wait_idle()
        tasks.cancel_scope.cancel()
    await place.check()
    events = await place.events()
    types = order.types(events)
    assert types.count("input_accepted") == 2
    aborted = {e.request_id for e in events if e.type == "abort_requested"}
    for request_id in ("r1", "r2"):
        expected = "request_interrupted" if request_id in aborted else "request_completed"
        assert ended_as(events, request_id) == expected
    assert len(aborted) == 1 or number > COMMITS - 2
    assert len(hands.done) == len(set(hands.done))
    assert await _accounted(events) == set()


async def _send_two_and_answer(session: Session) -> None:
    with anyio.fail_after(LONG_S):
        await session.send("one")
        await session.send("two")
        with suppress(Exception):  # somebody else may have closed the question
            async for event in approving(session):
                del event
        await session.wait_idle()


async def _abort(session: Session) -> None:
    with anyio.fail_after(LONG_S):
        await session.abort()


async def _accounted(events: list[Recorded]) -> set[str]:
    """Calls that were started and have neither an end nor an unknown outcome."""
    started = {str(e.tool_id) for e in events if e.type == "tool_started"}
    ended = {str(e.tool_id) for e in events if e.type in order.RUN_ENDS}
    return started - ended


# --- while something else is under way -----------------------------------------------------------


async def test_aborting_while_the_model_speaks(place: Place) -> None:
    gate = Gate()
    first, *rest = reply("hello there", pieces=2)
    async with place.create([[first, gate, *rest], reply("again")]) as session:
        await session.send("hello")
        await gate.reached()
        await session.abort("enough")
        told = await place.told(session.stream())
        assert (told[-1].code, told[-1].message) == ("REQUEST_INTERRUPTED", "enough")
        assert (await session.run("and now?")).content == "again"
    made = order.commits(await place.events())
    assert ["abort_requested"] in [order.types(commit) for commit in made]
    end = next(commit for commit in made if commit[-1].type == "request_interrupted")
    assert order.closing(end) == ["model_request_aborted", "turn_aborted", "request_interrupted"]


async def test_what_an_interrupted_model_said_is_not_fed_back(place: Place) -> None:
    gate = Gate()
    first, *rest = reply("half a sentence", pieces=2)
    provider = ScriptedProvider([[first, gate, *rest], reply("again")])
    async with place.create(provider) as session:
        await session.send("hello")
        await gate.reached()
        await session.abort()
        await session.run("and now?")
    assert [message["role"] for message in provider.sent[1].messages] == ["user", "user"]
    assert provider.counts.cancelled == 1


async def test_aborting_while_a_question_is_open_closes_it_with_its_call(
    any_place: Place, hands: Hands
) -> None:
    script = [reply("", call("pay", {"what": "rent"})), reply("hi")]
    async with any_place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        await asked(session)
        await session.abort()
        assert session.interactions == ()
        assert (await session.run("hi")).content == "hi"
    made = order.commits(await any_place.events())
    end = next(commit for commit in made if commit[-1].type == "request_interrupted")
    assert order.types(end) == [
        "permission_cancelled",
        "tool_cancelled",
        "turn_aborted",
        "request_interrupted",
    ]
    assert hands.begun == []


@pytest.mark.parametrize("kind", ["permission_handler", "confirmation_handler"])
async def test_aborting_while_the_application_thinks(place: Place, hands: Hands, kind: str) -> None:
    gate = Gate()

    async def think(_: Any) -> None:
        await gate.pass_through()

    script = [reply("", call("pay", {"what": "rent"})), reply("hi")]
    options: dict[str, Any] = {"tools": hands.tools(), kind: think}
    async with place.create(script, **options) as session:
        await session.send("hello")
        await gate.reached()
        await session.abort()
        assert (await session.run("hi")).content == "hi"
    assert hands.begun == []


async def test_aborting_while_a_retry_waits(place: Place) -> None:
    place.timer = clock = ManualClock()
    async with place.create([fail(), reply("hi")]) as session:
        await session.send("hello")
        await clock.awaited(0.5)
        await session.abort()
        await session.wait_idle()
        assert (await session.run("hi")).content == "hi"


async def test_aborting_before_the_model_was_asked(place: Place) -> None:
    place.store.before[3] = gate = Gate()
    provider = ScriptedProvider([reply("hi")])
    async with place.create(provider) as session, anyio.create_task_group() as tasks:
        await session.send("hello")
        await gate.reached()
        tasks.start_soon(_abort, session)
        await anyio.wait_all_tasks_blocked()
        gate.open()
    assert provider.sent == []  # it was on record as sent, and still was not
    assert "model_request_aborted" in await place.types()


# --- tools -------------------------------------------------------------------------------------------


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


async def _hung(session: Session, clock: ManualClock, after: str = "abort_requested") -> None:
    """Abort over a tool that does not stop; its time is over after an event."""
    feed = session.events()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_abort, session)
        await clock.awaited(DEADLINE_S)
        while (await anext(feed)).type != after:
            assert session.is_aborting
        clock.advance(DEADLINE_S)


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
        await _hung(session, clock)
        (effect,) = session.unsettled_effects
        assert (effect.tool_id, effect.request_id) == ("r1.t1.a1.c0", "r1")
        assert (await session.run("hi")).content == "hi"
        feed = session.events(after=0)
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
        await _hung(session, clock, after="tool_cancelled")
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
            tasks.start_soon(_abort, session)
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


# --- who may abort, and how often --------------------------------------------------------------------


async def test_aborting_nothing_does_nothing(place: Place) -> None:
    async with place.create([reply("done")]) as session:
        await session.abort()
        await session.run("hello")
        await session.abort()
    assert "abort_requested" not in await place.types()


async def test_aborting_twice_is_aborting_once(place: Place) -> None:
    gate = Gate()
    async with place.create([[gate, *reply("done")]]) as session:
        await session.send("hello")
        await gate.reached()
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(_abort, session)
        await session.abort()
    assert (await place.types()).count("abort_requested") == 1


async def test_aborting_without_waiting_returns_when_the_request_is_sealed(place: Place) -> None:
    gate = Gate()
    async with place.create([[gate, *reply("done")]]) as session:
        await session.send("hello")
        await gate.reached()
        await session.abort(wait=False)
        assert (await place.types())[8] == "abort_requested"
        assert (await place.told(session.stream()))[-1].code == "REQUEST_INTERRUPTED"


async def test_an_abort_that_is_overtaken_by_leaving_does_not_wait_for_ever(
    place: Place, hands: Hands
) -> None:
    place.timer = clock = ManualClock()
    begun, gate = anyio.Event(), anyio.Event()

    @tool(kind=ToolKind.READ_ONLY)
    async def hang() -> None:
        begun.set()
        with anyio.CancelScope(shield=True):
            await gate.wait()

    options: dict[str, Any] = {"tools": [hang], "abort_timeout_s": DEADLINE_S}
    async with place.create([reply("", call("hang"))], **options) as session:
        await session.send("hello")
        await begun.wait()
        async with anyio.create_task_group() as tasks:

            async def abort() -> None:
                with pytest.raises(SessionClosed):
                    await session.abort()

            tasks.start_soon(abort)
            await clock.awaited(DEADLINE_S)
            tasks.start_soon(session.close)
            await anyio.wait_all_tasks_blocked()
            gate.set()
    assert (await place.plan()).items[0].action == "finish_abort"
    async with place.resume([], **options) as session:
        assert (await place.told(session.stream()))[-1].code == "REQUEST_INTERRUPTED"


async def test_aborting_from_inside_the_stream(place: Place, hands: Hands) -> None:
    hands.gates["x"] = Gate()
    told = []
    async with place.create([reply("", call("look", {"what": "x"}))], tools=hands.tools()) as session:
        await session.send("hello")
        async for event in session.stream():
            told.append(event)
            if isinstance(event, se.ToolUse):
                await session.abort()
    assert [event.type for event in told[-3:]] == ["tool_result", "turn_interrupted", "error"]


async def test_aborting_from_inside_a_tool(place: Place) -> None:
    holder: list[Session] = []

    @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE)
    async def stop_everything() -> str:
        await holder[0].abort("the tool said so")
        return "not reached"

    async with place.create([reply("", call("stop_everything"))], tools=[stop_everything]) as session:
        holder.append(session)
        result = await session.run("hello")
    assert (result.status, result.message) == ("interrupted", "the tool said so")


async def test_what_is_queued_survives_and_is_next(any_place: Place, hands: Hands) -> None:
    gate = Gate()
    provider = ScriptedProvider([[gate, *reply("a")], reply("b"), reply("c")])
    async with any_place.create(provider) as session:
        await session.send("one")
        await session.send("two")
        await gate.reached()
        await session.abort()
        await session.send("three")
        await session.wait_idle()
    events = await any_place.events()
    assert [ended_as(events, request) for request in ("r1", "r2", "r3")] == [
        "request_interrupted",
        "request_completed",
        "request_completed",
    ]


async def test_an_abort_that_is_not_finished_is_finished_after_a_restart(place: Place, hands: Hands) -> None:
    hands.gates["x"] = Gate()
    script = [reply("", call("look", {"what": "x"})), reply("hi")]
    async with place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        await hands.gates["x"].reached()
        await session.abort(wait=False)
        commits = next(
            n for n, b in enumerate(place.store.batches, 1) if b.events[-1].topic == "abort_requested@1"
        )
    left = await place.killed_after(commits)
    assert (await left.plan()).items[0].action == "finish_abort"
    async with left.resume([reply("hi")], tools=hands.tools()) as session:
        assert (await left.told(session.stream()))[-1].code == "REQUEST_INTERRUPTED"
        assert (await session.run("hi")).content == "hi"
    assert hands.begun == ["x"]
    await left.check()

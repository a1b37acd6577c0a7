"""How users got hurt by crashes and cancellations: each test is about the kind, the report is one member."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from domain.errors import SessionNotFound
from domain.values import PermissionMode, SideEffect, ToolKind
from minutebook import stream_events as se
from minutebook.interactions import Approve
from minutebook.lease_config import LeaseConfig
from minutebook.testing.clock import ManualClock
from minutebook.testing.scripted import Gate, ScriptedProvider, call, fail, reply
from minutebook.tool_definition import tool
from projections.transcript import UNKNOWN_OUTPUT, Exchange
from recovery.plan import RecoveryRequired
from tests.session.harness import Hands, Place, asked, data

pytestmark = pytest.mark.anyio

ROUND = [reply("let me see", call("look", {"what": "x"})), reply("done")]
YOLO: dict[str, Any] = {"permission_mode": PermissionMode.YOLO}


async def killed_in_tool(place: Place, hands: Hands, *calls: Any, **options: Any) -> Place:
    """A worker dies while the call for `x` runs; the others have ended."""
    hands.gates["x"] = Gate()
    async with place.create([reply("", *calls)], tools=hands.tools(), **YOLO, **options) as session:
        await session.send("hello")
        await hands.gates["x"].reached()
        await anyio.wait_all_tasks_blocked()
        left = await place.killed_after(len(place.store.batches))
        await session.abort()
    hands.gates.clear()
    return left


async def test_p01_finished_calls_keep_their_results_wherever_the_worker_dies(
    place: Place, hands: Hands
) -> None:
    async with place.create(ROUND, tools=hands.tools()) as session:
        await session.run("hello")
    for commits in range(5, 7):  # from the commit of the result on
        left = await place.killed_after(commits)
        async with left.reader() as reader:
            assert await reader.session("s1") is not None
        provider = ScriptedProvider({"r1.t2.a2": reply("done")})
        if commits == 5:
            async with left.coordinator() as coordinator:
                await coordinator.reconcile_model_outcome("r1.t2.a1", outcome="lost", evidence="no reply")
        async with left.resume(provider, tools=hands.tools()) as session:
            await session.wait_idle()
            calls = [c for item in session.messages if isinstance(item, Exchange) for c in item.calls]
        assert [(c.outcome, c.output) for c in calls] == [("completed", "did x")]
        await left.check()
    assert hands.done == ["x"]


@pytest.mark.parametrize("before", [0, 1, 3])
async def test_p02_p09_a_kill_in_a_tool_leaves_a_decision_and_no_request_is_sent(
    place: Place, hands: Hands, before: int
) -> None:
    script = [
        step for n in range(before) for step in (reply("", call("look", {"what": str(n)})), reply("ok"))
    ]
    async with place.create(script, tools=hands.tools()) as session:
        for _ in range(before):
            await session.run("earlier")
    hands.gates["x"] = Gate()
    async with place.resume([reply("", call("pay", {"what": "x"}))], tools=hands.tools(), **YOLO) as session:
        await session.send("hello")
        await hands.gates["x"].reached()
        left = await place.killed_after(len(place.store.batches))
        await session.abort()
    provider = ScriptedProvider([reply("done")])
    with pytest.raises(RecoveryRequired) as required:
        await left.resume(provider, tools=hands.tools(), **YOLO).__aenter__()
    (item,) = required.value.plan.items
    assert (item.action, item.subject) == ("reconcile_tool_outcomes", f"r{before + 1}.t1.a1.c0")
    assert provider.sent == []
    async with left.coordinator() as coordinator:
        await coordinator.reconcile_tool_outcome(item.subject, outcome="cancelled", evidence="it did nothing")
    async with left.resume(provider, tools=hands.tools(), **YOLO) as session:
        assert (await left.told(session.stream()))[-1].content == "done"
    await left.check()


async def test_p04_what_was_in_flight_is_shown_and_never_dropped(place: Place, hands: Hands) -> None:
    left = await killed_in_tool(place, hands, call("pay", {"what": "x"}))
    async with left.coordinator() as coordinator:
        await coordinator.abandon_request(reason="nobody knows")
    provider = ScriptedProvider([reply("careful then")])
    async with left.resume(provider, tools=hands.tools(), **YOLO) as session:
        exchange = session.messages[1]
        assert isinstance(exchange, Exchange)
        assert exchange.calls[0].outcome == "unknown"
        await session.run("go on")
    assert provider.sent[0].messages[2]["content"] == UNKNOWN_OUTPUT
    await left.check()


@pytest.mark.parametrize("call_id", ["call-1", "", "x" * 94])
async def test_p06_a_call_is_known_by_its_place_and_not_by_the_provider_s_id(
    place: Place, hands: Hands, call_id: str
) -> None:
    first = call("look", {"what": "a"}, call_id)
    hands.gates["x"] = Gate()
    script = [reply("", first), reply("", call("pay", {"what": "x"}, call_id))]
    async with place.create(script, tools=hands.tools(), **YOLO) as session:
        await session.send("hello")
        await hands.gates["x"].reached()
        left = await place.killed_after(len(place.store.batches))
        await session.abort()
    plan = await left.plan()
    assert [(item.action, item.subject) for item in plan.items] == [
        ("reconcile_tool_outcomes", "r1.t2.a1.c0")
    ]


async def test_p07_where_a_session_stands_is_what_its_events_say(place: Place, hands: Hands) -> None:
    async with place.create(ROUND, tools=hands.tools()) as session:
        await session.run("hello")
    for commits in range(1, len(place.store.batches) + 1):
        left = await place.killed_after(commits)
        plan = await left.plan()
        events = await left.events()
        assert plan.head_sequence == events[-1].sequence
        async with left.reader() as reader:
            row = await reader.session("s1")
        assert row is not None
        assert row.head.hex() == plan.head_hash


@pytest.mark.parametrize("name", ["look", "put", "pay"])
async def test_p10_a_stopped_call_leaves_a_history_that_takes_a_new_request(
    place: Place, hands: Hands, name: str
) -> None:
    hands.gates["x"] = Gate()
    script = [reply("", call(name, {"what": "x"})), reply("hi")]
    async with place.create(script, tools=hands.tools(), **YOLO) as session:
        await session.send("hello")
        await hands.gates["x"].reached()
        await session.abort()
        assert (await session.run("and now?")).content == "hi"
        exchange = session.messages[1]
    assert isinstance(exchange, Exchange)
    assert exchange.calls[0].outcome == ("cancelled" if name == "look" else "unknown")


@pytest.mark.parametrize("in_thread", [False, True])
async def test_p11_a_tool_that_hangs_for_ever_does_not_hold_up_an_abort(
    place: Place, in_thread: bool
) -> None:
    place.timer = clock = ManualClock()
    begun, release, gate = anyio.Event(), threading.Event(), anyio.Event()

    @tool(name="hang", kind=ToolKind.READ_ONLY)
    async def hang() -> None:
        begun.set()
        with anyio.CancelScope(shield=True):
            await gate.wait()

    @tool(name="hang", kind=ToolKind.READ_ONLY)
    def hang_sync() -> None:
        anyio.from_thread.run_sync(begun.set)
        release.wait(20)

    tools = [hang_sync if in_thread else hang]
    async with place.create([reply("", call("hang"))], tools=tools, abort_timeout_s=3) as session:
        await session.send("hello")
        await begun.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.abort)
            await clock.awaited(3)
            clock.advance(3)
        assert [effect.tool_id for effect in session.unsettled_effects] == ["r1.t1.a1.c0"]
        feed = session.events(after=session.cursor)
        gate.set()
        release.set()
        assert (await anext(feed)).type == "notice_recorded"


@pytest.mark.parametrize("kind", ["overloaded", "bad_request", "stream_cut"])
async def test_p12_results_outlive_whatever_the_next_model_request_does(
    any_place: Place, hands: Hands, kind: str
) -> None:
    script = [ROUND[0], fail(kind, retryable=False)]
    async with any_place.create(script, tools=hands.tools()) as session:
        await session.run("hello")
    types = await any_place.types()
    assert types.index("tool_completed") < types.index("model_request_failed")
    async with any_place.resume([reply("done")], tools=hands.tools()) as session:
        assert (await session.run("go on")).content == "done"
    assert hands.done == ["x"]


async def test_p17_p21_p22_of_several_calls_only_the_unfinished_move(place: Place, hands: Hands) -> None:
    calls = [call("look", {"what": "a"}), call("pay", {"what": "b"}), call("put", {"what": "c"})]
    script = [reply("", *calls), reply("done")]
    async with place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        await session.wait_idle()
        before = {question.tool_id: question for question in session.interactions}
        assert hands.done == ["a"]
    assert sorted(before) == ["r1.t1.a1.c1", "r1.t1.a1.c2"]
    for number, tool_id in enumerate(sorted(before, reverse=True)):
        async with place.resume([reply("done")], tools=hands.tools()) as session:
            assert len(session.interactions) == 2 - number
            question = before[tool_id]
            await session.respond(question.id, Approve(), digest=question.digest)
            await session.wait_idle()
    assert sorted(hands.done) == ["a", "b", "c"]
    assert len(hands.begun) == 3


async def test_p20_the_key_of_a_call_is_its_own_and_lasts_over_runs_and_restarts(
    place: Place, hands: Hands
) -> None:
    same = {"what": "x"}
    left = await killed_in_tool(place, hands, call("put", same))
    async with left.resume(
        [reply("", call("put", same)), reply("done")], tools=hands.tools(), **YOLO
    ) as session:
        await session.wait_idle()
    keys = [(ctx.tool_id, ctx.idempotency_key) for ctx in hands.contexts]
    assert len(keys) == 3
    assert keys[0] == keys[1]
    assert keys[2][1] != keys[1][1]
    other = Place()
    async with other.create(
        [reply("", call("put", same)), reply("done")], "s2", tools=hands.tools(), **YOLO
    ) as s:
        await s.run("hello")
    assert hands.contexts[-1].idempotency_key not in {key for _, key in keys}


async def test_p25_what_was_shown_is_not_said_again_behind_one_s_back(place: Place) -> None:
    shown = [reply("one two three", pieces=3)[n] for n in range(3)]
    for count in range(1, 4):
        cut = fail("stream_cut", after=shown[:count])
        provider = ScriptedProvider([cut, reply("whole")])
        session_id = f"s{count}"
        async with place.create(provider, session_id) as session:
            await session.send("hello")
            told = await place.told(session.stream(), session_id)
            assert len(provider.sent) == 1
            assert (await session.run("again")).content == "whole"
            texts = [item.text for item in session.messages if isinstance(item, Exchange)]
        assert texts == ["whole"]
        assert [event.type for event in told].count("content") == count
        assert [event.retrying for event in told if isinstance(event, se.AttemptDiscarded)] == [False]


async def test_p30_a_session_is_open_once(any_place: Place) -> None:
    async with any_place.create([reply("done")]) as session:
        for worker in ("w1", "w2"):
            with pytest.raises(Exception, match="is held by w1"):
                await any_place.resume([], lease=LeaseConfig(worker_id=worker)).__aenter__()
        assert (await session.run("hello")).content == "done"
    async with any_place.resume([reply("done")], lease=LeaseConfig(worker_id="w2")) as session:
        assert (await session.run("again")).content == "done"


async def test_p31_what_was_said_before_a_question_is_in_the_journal_before_it(
    any_place: Place, hands: Hands
) -> None:
    script = [reply("I have to pay", call("pay", {"what": "rent"}), call("look", {"what": "x"}))]
    async with any_place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        await asked(session)
        events = await any_place.events()
        await session.abort()
    (completed,) = data(events, "model_request_completed")
    assert completed.response.blocks[0].text == "I have to pay"
    assert len(completed.response.calls) == 2
    assert [event.name for event in data(events, "tool_scheduled")] == ["pay", "look"]


@pytest.mark.parametrize("side_effect", [SideEffect.PURE, SideEffect.IDEMPOTENT, SideEffect.NON_IDEMPOTENT])
async def test_p34_one_decision_is_one_start_of_what_may_not_run_twice(
    place: Place, side_effect: SideEffect
) -> None:
    runs: list[int] = []

    @tool(side_effect=side_effect, timeout_s=0.02)
    async def pay() -> str:
        runs.append(1)
        if len(runs) == 1:
            await anyio.sleep_forever()
        return "paid"

    async with place.create([reply("", call("pay")), reply("done")], tools=[pay]) as session:
        await session.send("hello")
        question = await asked(session)
        await session.respond(question.id, Approve(), digest=question.digest)
        if side_effect is SideEffect.NON_IDEMPOTENT:
            with pytest.raises(RecoveryRequired):
                await session.wait_idle()
        else:
            await session.wait_idle()
    assert len(runs) == 1
    assert len(data(await place.events(), "permission_resolved")) == 1


async def test_p79_closing_while_something_begins_leaves_nothing_half(place: Place, hands: Hands) -> None:
    for number in range(2, 7):
        session_id, gate = f"s{number}", Gate()
        place.store.batches.clear()
        place.store.before = {number: gate}
        opened = place.create(ROUND, session_id, tools=hands.tools())
        async with opened as session, anyio.create_task_group() as tasks:
            tasks.start_soon(session.send, "hello")
            await gate.reached()
            tasks.start_soon(session.close)
            await anyio.wait_all_tasks_blocked()
            gate.open()
        listed = (await place.plan(session_id)).status
        assert listed == "open"
    with pytest.raises(SessionNotFound):
        await place.plan("s99")


async def test_p111_going_on_needs_no_new_message_and_what_cannot_work_is_refused_at_once(
    place: Place, hands: Hands
) -> None:
    left = await killed_in_tool(place, hands, call("look", {"what": "x"}))
    with pytest.raises(ValueError, match="model"):
        left.resume([reply("done")], tools=hands.tools(), model="")
    async with left.resume([reply("done")], tools=hands.tools(), **YOLO) as session:
        await session.wait_idle()
        assert not session.is_running
    assert (await left.types())[-1] == "request_completed"

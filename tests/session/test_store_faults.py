"""The store fails at the n-th commit, in every way and for every n: nothing is made up, nothing is lost."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import anyio
import pytest

from domain.errors import Fenced, MinutebookError, OutcomeUnknown, SessionNotFound
from minutebook import stream_events as se
from minutebook.interactions import Approve
from minutebook.session import Session
from minutebook.testing.faulty_store import FATAL_ABSENT, PASSING, Fault
from minutebook.testing.scripted import Gate, ScriptedProvider, call, reply
from recovery.plan import RecoveryRequired
from tests.session import order
from tests.session.harness import Hands, Place, approving, asked, decoded, drained

pytestmark = pytest.mark.anyio

#: Commits of `play` when nothing fails: one to create, then two requests.
COMMITS = 10
EVERY = range(1, COMMITS + 1)


def _script() -> ScriptedProvider:
    return ScriptedProvider(
        {
            "r1.t1.a1": reply("on it", call("look", {"what": "x"}), call("pay", {"what": "rent"})),
            "r1.t1.a2": reply("on it", call("look", {"what": "x"}), call("pay", {"what": "rent"})),
            "r1.t2.a1": reply("first", pieces=2),
            "r1.t2.a2": reply("first", pieces=2),
            "r2.t1.a1": reply("second"),
            "r2.t1.a2": reply("second"),
        }
    )


async def play(place: Place, hands: Hands, told: list[Any]) -> None:
    """A session with a tool round, a question and a queued input."""
    async with place.create(_script(), tools=hands.tools()) as session:
        await session.send("one", input_id="i1")
        await session.send("two", input_id="i2")
        for _ in range(2):
            async with aclosing(approving(session)) as stream:
                told += await place.told(stream)


async def finish(place: Place, hands: Hands) -> None:
    """Whatever `play` left: decide what has to be decided, and go on to the end."""
    place.store.faults = {}
    try:
        opened = place.resume(_script(), tools=hands.tools())
        session = await opened.__aenter__()
    except SessionNotFound:
        await play(place, hands, [])
        return
    except RecoveryRequired as required:
        await _decide(place, hands, required)
        await finish(place, hands)
        return
    try:
        await session.send("one", input_id="i1")
        await session.send("two", input_id="i2")
        await _answer_and_wait(session)
    finally:
        await opened.__aexit__(None, None, None)


async def _answer_and_wait(session: Session) -> None:
    await session.wait_idle()
    for question in session.interactions:
        await session.respond(question.id, Approve(), digest=question.digest)
    await session.wait_idle()


async def _decide(place: Place, hands: Hands, required: RecoveryRequired) -> None:
    async with place.coordinator() as coordinator:
        for item in required.plan.items:
            if item.action == "reconcile_model_outcome":
                await coordinator.reconcile_model_outcome(item.subject, outcome="lost", evidence="no answer")
            if item.action == "reconcile_tool_outcomes":
                did = "rent" in hands.done
                outcome, output = ("completed", "did rent") if did else ("cancelled", "")
                await coordinator.reconcile_tool_outcome(
                    item.subject, outcome=outcome, evidence="the bank says so", output=output
                )


def check_ended(events: Any, hands: Hands) -> None:
    """Both requests ended well, and nobody paid twice."""
    ends = [(e.request_id, e.type) for e in events if e.type in order.REQUEST_ENDS]
    assert ends == [("r1", "request_completed"), ("r2", "request_completed")]
    assert [e.data.input_id for e in events if e.type == "input_accepted"] == ["i1", "i2"]
    assert hands.done.count("rent") <= 1
    paid = [e for e in events if e.type in ("tool_completed", "tool_outcome_reconciled")]
    assert ("rent" in hands.done) == any(getattr(e.data, "output", "") == "did rent" for e in paid)


async def test_how_many_commits_there_are(place: Place, hands: Hands) -> None:
    await play(place, hands, [])
    assert len(place.store.batches) == COMMITS
    check_ended(await place.events(), hands)


@pytest.mark.parametrize("fault", [*FATAL_ABSENT, Fault.LOST_FOUND])
@pytest.mark.parametrize("number", EVERY)
async def test_a_commit_that_is_not_known_to_be_there_stops_the_session(
    place: Place, hands: Hands, number: int, fault: Fault
) -> None:
    place.store.faults, told = {number: fault}, list[Any]()
    with pytest.raises(MinutebookError) as failed:
        await play(place, hands, told)
    assert failed.value.code != "MINUTEBOOK_ERROR"
    assert len(place.store.batches) == number, "nothing is written after a failure"
    before = await place.events()
    ended = {e.request_id for e in before if e.type in order.REQUEST_ENDS}
    assert {e.request_id for e in told if isinstance(e, se.Result | se.Error)} <= ended
    await finish(place, hands)
    events = await place.events()
    assert events[: len(before)] == before
    check_ended(events, hands)


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("number", EVERY)
async def test_an_outcome_that_can_be_settled_is_settled_and_nobody_notices(
    place: Place, hands: Hands, number: int, fault: Fault
) -> None:
    place.store.faults, told = {number: fault}, list[Any]()
    await play(place, hands, told)
    assert [type(event) for event in told].count(se.Result) == 2
    check_ended(await place.events(), hands)


@pytest.mark.parametrize("number", EVERY)
async def test_what_a_worker_leaves_that_dies_after_any_commit(
    place: Place, hands: Hands, number: int
) -> None:
    await play(place, hands, [])
    left, again = await place.killed_after(number), Hands()
    if "pay" in _started(place, number):
        again.done.append("rent")  # it was running, and the world has it
    await finish(left, again)
    check_ended(await left.events(), again)
    await left.check()


def _started(place: Place, number: int) -> set[str]:
    """Names of the calls that run when a worker dies after a commit."""
    events = [e for b in place.store.batches[:number] for e in decoded(b)]
    names = {e.tool_id: e.data.name for e in events if e.type == "tool_scheduled"}
    started = {e.tool_id for e in events if e.type == "tool_started"}
    return {names[tool_id] for tool_id in started}


# --- who is told ---------------------------------------------------------------------------------


async def test_everybody_who_waits_is_told(place: Place, hands: Hands) -> None:
    errors: list[BaseException] = []
    place.store.before[6] = gate = Gate()
    place.store.faults = {6: Fault.WRITE_FAILED}

    async def catch(wait: Any) -> None:
        try:
            await wait()
        except MinutebookError as error:
            errors.append(error)

    async with place.create(_script(), tools=hands.tools()) as session:
        await session.send("one")
        question = await asked(session)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(catch, lambda: drained(session.stream()))
            tasks.start_soon(catch, lambda: drained(session.events()))
            tasks.start_soon(catch, session.wait_idle)
            tasks.start_soon(catch, lambda: session.send("two"))
            tasks.start_soon(catch, lambda: session.respond(question.id, Approve(), digest=question.digest))
            tasks.start_soon(catch, session.abort)
            await gate.reached()
            await anyio.wait_all_tasks_blocked()
            gate.open()
        for refused in (session.send("three"), session.abort(), session.wait_idle()):
            with pytest.raises(MinutebookError):
                await refused
        assert session.head_sequence == len(await place.events())
    assert len(errors) >= 5


async def test_a_failed_send_stops_a_session_that_only_waits(place: Place, hands: Hands) -> None:
    async with place.create(_script(), tools=hands.tools()) as session:
        await session.send("one")
        await asked(session)
        await session.wait_idle()
        stream = session.stream()
        place.store.faults = {len(place.store.batches) + 1: Fault.WRITE_FAILED}
        with pytest.raises(MinutebookError, match="disk is full"):
            await session.send("two")
        with pytest.raises(MinutebookError):
            await drained(stream)
        assert session.pending_inputs == ()


async def test_an_outcome_that_stays_unknown_says_so(place: Place) -> None:
    place.store.faults = {2: Fault.LOST_ABSENT}
    async with place.create([reply("done")]) as session:
        with pytest.raises(OutcomeUnknown):
            await session.send("hello", input_id="mine")
        with pytest.raises(Fenced):
            await session.send("hello", input_id="mine")
    async with place.resume([reply("done")]) as session:
        assert (await session.run("hello", input_id="mine")).content == "done"


async def test_a_model_is_not_asked_and_a_tool_not_run_when_its_start_is_not_durable(
    place: Place, hands: Hands
) -> None:
    for number, fault in ((3, Fault.WRITE_FAILED), (4, Fault.WRITE_FAILED)):
        session_id, provider = f"s{number}", ScriptedProvider([reply("", call("look", {"what": "x"}))])
        place.store.batches.clear()
        place.store.faults = {number: fault}
        async with place.create(provider, session_id, tools=hands.tools()) as session:
            await session.send("hello")
            with pytest.raises(MinutebookError):
                await session.wait_idle()
        assert len(provider.sent) == number - 3
    assert hands.begun == []

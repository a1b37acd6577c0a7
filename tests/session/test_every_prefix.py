"""A worker dies after every commit of many sessions; another one goes on, and everything adds up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from domain import lifecycle
from domain.envelope import Recorded
from domain.errors import SessionClosed
from domain.state import State
from domain.values import OnLostAttempt, PermissionMode
from minutebook.interactions import Approve, Deny
from minutebook.testing.clock import ManualClock
from minutebook.testing.scripted import Gate, ScriptedProvider, Sent, call, fail, reply
from projections.transcript import Exchange
from recovery.plan import RecoveryRequired
from tests.session import order
from tests.session.harness import Hands, Place, approving, asked, drained

pytestmark = pytest.mark.anyio

Play = Callable[[Place, Hands], Awaitable[None]]


async def plain(place: Place, hands: Hands) -> None:
    """Rounds with parallel calls, one of them refused."""
    script = [
        reply("a", call("look", {"what": "1"}), call("put", {"what": "2"}), call("look", "{")),
        reply("b", call("look", {"what": "3"})),
        reply("c"),
    ]
    options: dict[str, Any] = {"permission_mode": PermissionMode.YOLO}
    async with place.create(script, tools=hands.tools(), **options) as session:
        await session.run("hello")


async def denied(place: Place, hands: Hands) -> None:
    """One question is answered with no, one with another input."""
    script = [reply("", call("pay", {"what": "1"}), call("put", {"what": "2"})), reply("c")]
    async with place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        await session.wait_idle()
        first, second = session.interactions
        await session.respond(second.id, Approve({"what": "half"}), digest=second.digest)
        await session.respond(first.id, Deny("no"), digest=first.digest)
        await session.wait_idle()


async def aborted(place: Place, hands: Hands) -> None:
    """A request is stopped while it asks and works; two more wait."""
    hands.gates["1"] = Gate()
    calls = [call("put", {"what": "1"}), call("pay", {"what": "2"})]
    provider = ScriptedProvider([reply("", *calls), reply("b"), reply("c")])

    async def handler(asked_about: Any) -> str | None:
        return "allow" if asked_about.name == "put" else None

    async with place.create(provider, tools=hands.tools(), permission_handler=handler) as session:
        await session.send("one")
        await session.send("two")
        await hands.gates["1"].reached()
        await asked(session)
        await session.send("three")
        await session.abort()
        await session.wait_idle()
    hands.gates.clear()


async def retried(place: Place, hands: Hands) -> None:
    """A model fails twice before it answers, and then for good."""
    place.timer = clock = ManualClock()
    script = [fail(), fail("stream_cut"), reply("a"), fail("bad_request", retryable=False)]
    async with place.create(script) as session, anyio.create_task_group() as tasks:
        tasks.start_soon(session.run, "hello")
        for wait in (0.5, 1.0):
            await clock.awaited(wait)
            clock.advance(wait)
    place.timer = Place().timer
    async with place.resume(ScriptedProvider([script[3]])) as session:
        await session.run("again")


async def granted(place: Place, hands: Hands) -> None:
    """Settings, modes and grants change on the way; the session is closed for good."""
    script = [reply("", call("put", {"what": "1"})), reply("a")]
    async with place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        question = await asked(session)
        await session.change(permission_mode=PermissionMode.AUTO_EDIT, temperature=0.1)
        await session.respond(question.id, Approve(), digest=question.digest)
        await session.wait_idle()
        await session.change(model="other")
        await session.send("more")
        await session.close(final=True)


PLAYS = [plain, denied, aborted, retried, granted]


def _answer(sent: Sent) -> Any:
    return reply("done")


async def go_on(place: Place, hands: Hands) -> None:
    """Whatever was left: decide, answer, and go on until nothing is open."""
    options: dict[str, Any] = {"tools": hands.tools(), "on_lost_attempt": OnLostAttempt.RETRY}
    for _ in range(10):
        try:
            async with place.resume(ScriptedProvider(_answer), **options) as session:
                await session.wait_idle()
                if session.is_running:
                    await drained(approving(session))
                await session.wait_idle()
                return
        except RecoveryRequired as required:
            await _decide(place, required)
    raise AssertionError("the plan does not come to an end")


async def _decide(place: Place, required: RecoveryRequired) -> None:
    async with place.coordinator() as coordinator:
        item = required.plan.items[0]
        if item.action == "reconcile_model_outcome":
            await coordinator.reconcile_model_outcome(item.subject, outcome="lost", evidence="no answer")
        else:
            await coordinator.reconcile_tool_outcome(item.subject, outcome="failed", evidence="I looked")


def check_accounts(events: list[Recorded]) -> None:
    """Every input, request, turn, attempt and call has come to exactly one end."""
    state = lifecycle.fold(State(events[0].session_id), events)
    assert state.request is None
    queue = state.queue
    assert queue.accepted == queue.applied + queue.cancelled + len(queue.pending)
    for begins, ends, key in (
        ({"request_accepted"}, order.REQUEST_ENDS, "request_id"),
        ({"turn_started"}, {"turn_completed", "turn_aborted"}, "turn_id"),
        ({"model_request_started"}, order.ATTEMPT_ENDS, "model_attempt_id"),
    ):
        begun = [getattr(e, key) for e in events if e.type in begins]
        ended = [getattr(e, key) for e in events if e.type in ends]
        assert sorted(begun) == sorted(ended)
        assert len(set(ended)) == len(ended)
    terminal = {"tool_completed", "tool_failed", "tool_cancelled", "tool_rejected", "tool_outcome_reconciled"}
    calls = [e.tool_id for e in events if e.type in ("tool_scheduled", "tool_rejected")]
    ended = [e.tool_id for e in events if e.type in terminal]
    assert len(set(ended)) == len(ended)
    assert set(calls) == set(ended) | {effect.tool_id for effect in state.unsettled}


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
async def test_a_worker_that_dies_after_any_commit_is_followed_by_another(
    place: Place, hands: Hands, play: Play
) -> None:
    await play(place, hands)
    whole = await place.events()
    assert len(place.store.batches) > 5
    for commits in range(1, len(place.store.batches) + 1):
        left, again = await place.killed_after(commits), Hands()
        before = await left.events()
        assert before == whole[: len(before)]
        try:
            await go_on(left, again)
        except SessionClosed:
            assert before[-1].type == "session_closed"
            continue
        events = await left.events()
        assert events[: len(before)] == before
        check_accounts(events)
        await left.check()


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
async def test_what_is_read_after_any_number_of_restarts_is_what_was_written(
    place: Place, hands: Hands, play: Play
) -> None:
    await play(place, hands)
    for commits in range(1, len(place.store.batches) + 1):
        left = await place.killed_after(commits)
        try:
            async with left.resume([], tools=hands.tools()) as session:
                messages, questions = session.messages, session.interactions
            async with left.resume([], tools=hands.tools()) as session:
                assert (session.messages, session.interactions) == (messages, questions)
        except (RecoveryRequired, SessionClosed):
            continue
        ended = {e.tool_id for e in await left.events() if e.type in order.RUN_ENDS | {"tool_rejected"}}
        calls = [c for item in messages if isinstance(item, Exchange) for c in item.calls]
        assert {c.tool_id for c in calls if c.outcome != "open"} == ended

"""Inputs: accepted once, applied between turns, cancelled on record; none is lost."""

from __future__ import annotations

import pytest

from domain import canonical, inputs, request, turn
from domain import events as ev
from domain.decider import EndRequest
from domain.inputs import AcceptInput, ApplyInput, BeginPreparation, CancelInput, FinishPreparation, Queue
from domain.session import Note
from domain.values import Priority
from minutebook.testing.scenario import Writing, created, forged, given, recorded, started
from tests.unit.domain_cases import DIGEST, FINAL, START, TURN, Case, Direct, sent, table

APPLY = ApplyInput("i-1", Priority.NEXT, 1)
BEGIN: list[Writing] = [APPLY, request.StartRequest()]
WAITING = (*FINAL, sent(2))
STEER = ApplyInput("i-2", Priority.NEXT, 2)
STEERED = (*WAITING, STEER)

CASES = [
    Case(
        "inputs are numbered",
        (created(),),
        AcceptInput("i-1", "x", Priority.NEXT, 2),
        AcceptInput("i-1", "x", Priority.NEXT, 1),
    ),
    Case(
        "an input is accepted once",
        START,
        AcceptInput("i-1", "x", Priority.NEXT, 2),
        AcceptInput("i-2", "x", Priority.NEXT, 2),
    ),
    Case("the input is pending", WAITING, CancelInput("i-9", "user"), CancelInput("i-2", "user")),
    Case("the input is pending", STEERED, CancelInput("i-2", "user"), Note("remark", "")),
    Case("the input is pending", WAITING, ApplyInput("i-9", Priority.NEXT, 2), STEER),
    Case("an input is applied between turns", (*TURN, sent(2)), STEER, STEER, WAITING),
    Case(
        "a request starts with its own input",
        (*START, sent(2)),
        [ApplyInput("i-2", Priority.NEXT, 1), request.StartRequest()],
        BEGIN,
    ),
    Case("the input is aimed at this request", (*FINAL, sent(2, Priority.LATER)), STEER, STEER, WAITING),
    Case("the input is aimed at this request", (*FINAL, sent(2, target=None)), STEER, STEER, WAITING),
    Case("it names the turn that will see it", WAITING, ApplyInput("i-2", Priority.NEXT, 3), STEER),
    Case(
        "it names the turn that will see it",
        START,
        [ApplyInput("i-1", Priority.NEXT, 2), request.StartRequest()],
        BEGIN,
    ),
    Case(
        "inputs are prepared between turns", TURN, FinishPreparation(()), FinishPreparation(("i-2",)), STEERED
    ),
    Case(
        "not while a preparation is under way",
        (*START, [*BEGIN, BeginPreparation(("i-1",))], sent(2)),
        ApplyInput("i-2", Priority.NEXT, 1),
        ApplyInput("i-2", Priority.NEXT, 1),
        (*START, BEGIN, sent(2)),
    ),
    Case(
        "something applied is to be prepared",
        FINAL,
        BeginPreparation(()),
        BeginPreparation(("i-2",)),
        STEERED,
    ),
    Case(
        "something applied is to be prepared",
        FINAL,
        FinishPreparation(()),
        FinishPreparation(("i-2",)),
        STEERED,
    ),
    Case("it names the applied inputs", STEERED, BeginPreparation(("i-1",)), BeginPreparation(("i-2",))),
    Case(
        "it names the applied inputs", STEERED, FinishPreparation(("i-1", "i-2")), FinishPreparation(("i-2",))
    ),
    Case(
        "an event of the queue",
        (created(),),
        Direct(Note("remark", ""), lambda event: inputs.evolve(Queue(), event)),
        Direct(AcceptInput("i-1", "x", Priority.NEXT, 1), lambda event: inputs.evolve(Queue(), event)),
    ),
]


@table(CASES)
def test_it_refuses_and_allows(case: Case) -> None:
    case.refuse()
    case.allow()


def test_the_initial_input_its_request_and_its_preparation_are_one_commit() -> None:
    given(*START).when([*BEGIN, FinishPreparation(("i-1",))]).then(
        "input_applied", "request_started", "input_prepared"
    )


def test_hooks_make_it_two_commits() -> None:
    scenario = given(*START).when([*BEGIN, BeginPreparation(("i-1",), ("mask",))])
    scenario.then("input_applied", "request_started", ev.InputPreparationStarted)
    again = scenario.scenario
    assert again.actions() == ["reconcile_request_inputs"]
    again.when(FinishPreparation(("i-1",), {"i-1": "m**k"})).then("input_prepared")
    assert again.actions() == ["continue_request"]


def test_accepted_is_applied_and_cancelled_and_pending() -> None:
    scenario = given(*TURN, sent(2), sent(3), sent(4, Priority.LATER), CancelInput("i-3", "user"))
    queue = scenario.state.queue
    assert (queue.accepted, queue.applied, queue.cancelled, len(queue.pending)) == (4, 1, 1, 2)
    assert [item.input_id for item in queue.pending] == ["i-2", "i-4"]
    assert queue.size_bytes == 2 * len(b'"more"')


def test_the_size_of_an_input_is_that_of_its_stored_content() -> None:
    content = [{"type": "text", "text": "half a pair: \udc00"}]
    scenario = given(created(), AcceptInput("i-1", content, Priority.NEXT, 1))
    stored = b'[{"text":{"$mb":"str","v":"half a pair: \\\\udc00"},"type":"text"}]'
    assert scenario.state.queue.size_bytes == len(stored) == len(canonical.encode(content))


@pytest.mark.parametrize("priority", Priority)
def test_a_priority_holds_while_the_request_it_aims_at_is_active(priority: Priority) -> None:
    scenario = given(*TURN, sent(2, priority))
    (item,) = scenario.state.waiting_inputs()
    assert scenario.state.effective_priority(item) is priority
    sealed = scenario.given(request.RequestAbort("user")).state
    assert sealed.effective_priority(item) is Priority.LATER
    ended = scenario.given(EndRequest("abort", request.Interrupt("abort"))).state
    assert ended.effective_priority(item) is Priority.LATER
    assert scenario.actions() == ["start_next_request"]


def test_now_comes_before_next_and_each_by_acceptance() -> None:
    scenario = given(*TURN, sent(2), sent(3, Priority.NOW), sent(4), sent(5, Priority.NOW))
    assert [i.input_id for i in scenario.state.steering_inputs()] == ["i-3", "i-5", "i-2", "i-4"]


def test_the_own_input_of_an_accepted_request_is_cancelled_only_with_it() -> None:
    cancel = CancelInput("i-1", "user")
    scenario = given(*START)
    scenario.when(cancel).refused("the same commit goes on with the request's end")
    scenario.when([cancel, Note("remark", "")]).refused("the same commit goes on with the request's end")
    scenario.when([cancel, request.Interrupt("user")]).then("input_cancelled", "request_interrupted")


def test_two_steering_inputs_are_prepared_together() -> None:
    scenario = given(*FINAL, sent(2), sent(3), STEER, ApplyInput("i-3", Priority.NEXT, 2))
    scenario.when(FinishPreparation(("i-2", "i-3"))).then("input_prepared")
    scenario.when(turn.StartTurn(2, DIGEST)).then("turn_started")


def test_an_input_cannot_be_applied_twice() -> None:
    given(*START, started()).when(APPLY).refused("an input is applied between turns")
    given(*FINAL).when(ApplyInput("i-1", Priority.NEXT, 2)).refused("the input is pending")


def test_without_a_request_nothing_is_applied() -> None:
    given(created()).when(APPLY).refused("there is an active request")
    forgery = recorded(ev.InputApplied(input_id="i-1", priority=Priority.NEXT, turn=1), request_id="r1")
    given(created(), AcceptInput("i-1", "x", Priority.NEXT, 1)).when(forgery).refused("the request is active")


def test_the_queue_is_that_of_the_session_not_of_a_request() -> None:
    misplaced = forged(AcceptInput("i-1", "x", Priority.NEXT, 1), request_id="r1")
    given(created()).when(misplaced).refused("input_accepted names no request")

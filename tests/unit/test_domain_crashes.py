"""The crash table: what the plan says of a journal that ends there, and what must never happen."""

from __future__ import annotations

import pytest

from domain import request, turn
from domain.compaction import FailCompaction
from domain.decider import EndRequest, OnCall
from domain.inputs import ApplyInput, BeginPreparation, FinishPreparation
from domain.lifecycle import fold
from domain.model_attempt import Abandon
from domain.next_steps import Action, next_steps
from domain.permission import Resolve
from domain.state import State
from domain.tool import Cancel, Complete
from domain.tool import Reconcile as ToolReconcile
from domain.values import Priority, Verdict
from minutebook.testing.scenario import (
    LOOK,
    PAY,
    PUT,
    Commit,
    Writing,
    created,
    evaluated,
    forged,
    given,
    in_call,
    running,
    scheduled,
)
from tests.unit.domain_cases import (
    DIGEST,
    FINAL,
    OTHER,
    START,
    TURN,
    answered,
    asked,
    begun,
    compaction_begun,
    ready,
    sent,
)
from tests.unit.plan_rows import BEGIN, C0, DUE, NOW

THREE = answered(LOOK, PUT, PAY)
ALL_STARTED: list[Writing] = [
    *[scheduled(i, c) for i, c in enumerate((LOOK, PUT, PAY))],
    *[evaluated(i) for i in range(3)],
    *[running(i) for i in range(3)],
]

CRASHES: list[tuple[str, tuple[Commit, ...], list[str]]] = [
    ("accepted", START, ["resume_request"]),
    ("input applied and started", (*START, BEGIN), ["prepare_input"]),
    ("applied, started and prepared", (*START, [*BEGIN, FinishPreparation(("i-1",))]), ["continue_request"]),
    ("a hook had begun", (*START, [*BEGIN, BeginPreparation(("i-1",))]), ["reconcile_request_inputs"]),
    (
        "turn started",
        (*START, [*BEGIN, FinishPreparation(("i-1",)), turn.StartTurn(1, DIGEST)]),
        ["next_attempt"],
    ),
    ("model started", TURN, ["reconcile_model_outcome"]),
    ("model completed", THREE, ["schedule_call"] * 3),
    ("tool scheduled", ready(PAY), ["evaluate"]),
    ("permission pending", asked(PAY), ["resolve_permissions"]),
    ("allowed, not started", (*asked(PAY), OnCall(0, Resolve(Verdict.ALLOW))), ["start_tool"]),
    ("started, pure", begun(LOOK), ["start_tool"]),
    ("started, idempotent", begun(PUT), ["start_tool"]),
    ("started, non-idempotent", begun(PAY), ["reconcile_tool_outcomes"]),
    (
        "that one reconciled",
        (*begun(PAY), in_call(0, ToolReconcile("completed", "asked"))),
        ["complete_turn"],
    ),
    (
        "reconciled, a sibling left",
        (*THREE, ALL_STARTED, in_call(2, ToolReconcile("failed", "asked"))),
        ["start_tool", "start_tool"],
    ),
    (
        "one of three finished",
        (*THREE, ALL_STARTED, in_call(0, Complete({"output": "1"}))),
        ["start_tool", "reconcile_tool_outcomes"],
    ),
    ("all tools terminal", (*begun(PAY), in_call(0, Cancel("x"))), ["complete_turn"]),
    ("turn completed with calls", DUE, ["continue_request"]),
    ("turn completed, final", FINAL, ["finalize_request"]),
    (
        "turn aborted by steering",
        (*TURN, NOW, Abandon("steering"), turn.AbortTurn("steering", "i-2")),
        ["apply_input"],
    ),
    ("abort requested", (*begun(PAY), request.RequestAbort("user")), ["finish_abort"]),
    ("terminal, nothing queued", (*FINAL, request.Complete("done", {})), ["none"]),
    (
        "terminal, an input queued",
        (*FINAL, sent(2, Priority.LATER), request.Complete("done", {})),
        ["start_next_request"],
    ),
    ("compaction failed", (created(), compaction_begun(), FailCompaction("c-1", "x")), ["none"]),
]


@pytest.mark.parametrize(("killed_after", "before", "plan"), CRASHES, ids=[c[0] for c in CRASHES])
def test_the_crash_table(killed_after: str, before: tuple[Commit, ...], plan: list[str]) -> None:
    scenario = given(*before)
    assert scenario.actions() == plan
    assert [s.action.value for s in next_steps(fold(State("s-test"), scenario.events))] == plan


def test_the_same_question_is_asked_again() -> None:
    """Killed while a person was asked: the same id, not a new question."""
    scenario = given(*asked(PAY))
    state = scenario.state.calls[0].permission
    assert state is not None
    assert state.question_id(C0) == f"{C0}.p1"
    scenario.when(OnCall(0, Resolve(Verdict.ALLOW))).then("permission_resolved")


def test_a_decision_outlives_the_crash_for_this_input_only() -> None:
    scenario = given(*asked(PAY), OnCall(0, Resolve(Verdict.ALLOW)))
    scenario.when(evaluated(0, Verdict.ASK)).refused("evaluated once per policy and input")
    scenario.when(forged(running(0), data={"input_digest": OTHER})).refused("exactly the input")
    scenario.when(running(0)).then("tool_started")


def test_what_runs_again_keeps_its_key() -> None:
    scenario = given(*begun(PUT))
    scenario.when(forged(running(0), data={"idempotency_key": "new"})).refused("the same input and key")
    (again,) = scenario.when(running(0)).events
    assert again.data.idempotency_key == scenario.events[-2].data.idempotency_key


def test_a_turn_number_is_never_used_twice() -> None:
    begin: list[Writing] = [*BEGIN, FinishPreparation(("i-1",)), turn.StartTurn(1, DIGEST)]
    given(*START, begin).when(turn.StartTurn(1, DIGEST)).refused("a turn has something to tell the model")
    given(*DUE).when(turn.StartTurn(1, DIGEST)).refused("turns are numbered")


def test_the_input_that_steered_is_applied_in_the_same_request() -> None:
    scenario = given(*TURN, NOW, Abandon("steering"), turn.AbortTurn("steering", "i-2"))
    (step,) = scenario.plan()
    assert step.subject == "i-2"
    scenario.given(ApplyInput("i-2", Priority.NOW, 2))
    assert scenario.events[-1].request_id == "r1"


def test_inside_the_closing_commit_nothing_is_durable() -> None:
    """Its events are one command: whoever reads half of it knows, and takes the state before."""
    scenario = given(*begun(PAY), request.RequestAbort("user"))
    closing = scenario.compose(EndRequest("abort", request.Interrupt("abort"))).events
    for cut in range(1, len(closing)):
        assert not fold(scenario.state, closing[:cut]).command.is_whole
    assert next_steps(fold(scenario.state, closing))[0].action is Action.NONE

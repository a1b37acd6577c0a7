"""The decider: which events carry a command out, where they belong and what caused them."""

from __future__ import annotations

import pytest

from domain import events as ev
from domain import request, tool, turn
from domain.compaction import FailCompaction
from domain.decider import CloseSession, EndRequest, OnCall, Reject, SettleEffect, draft, handle
from domain.envelope import Actor
from domain.errors import ModelFailed, RuleViolated
from domain.inputs import AcceptInput, ApplyInput, FinishPreparation
from domain.model_attempt import Fail
from domain.permission import Ask, Resolve, Withdraw
from domain.session import Create, Note
from domain.state import State
from domain.tool import Answer, Cancel, Complete, LoseSight, Suspend
from domain.values import ActorKind, Priority, Verdict
from minutebook.testing.scenario import (
    LOOK,
    PAY,
    PUT,
    SETTINGS,
    Commit,
    Scenario,
    Writing,
    attempt,
    created,
    evaluated,
    given,
    in_call,
    responded,
    running,
    scheduled,
)
from tests.unit.domain_cases import (
    FINAL,
    START,
    TURN,
    Case,
    answered,
    asked,
    begun,
    compaction_attempt,
    compaction_begun,
    ready,
    sent,
    table,
)

ABORT = EndRequest("abort", request.Interrupt("abort"))
ABANDON = EndRequest("abandoned", request.Interrupt("abandoned"))
FAILED = Fail(ModelFailed("overloaded", "no", retryable=True))

CASES = [
    Case(
        "there is an active request",
        (created(),),
        request.RequestAbort("user"),
        request.RequestAbort("user"),
        START,
    ),
    Case("there is an active request", (created(),), ABORT, ABORT, START),
    Case("there is an active request", (created(),), attempt(), attempt(), (*TURN, FAILED)),
    Case("there is a turn", START, attempt(), attempt(), (*TURN, FAILED)),
    Case("there is a turn", START, turn.AbortTurn("steering"), turn.AbortTurn("steering"), (*TURN, FAILED)),
    Case("there is a model attempt", START, FAILED, FAILED, TURN),
    Case("there is a declared call 1", answered(LOOK), Reject(1, "policy", "no"), Reject(0, "policy", "no")),
    Case(
        "there is a declared call -1", answered(LOOK), Reject(-1, "policy", "no"), Reject(0, "policy", "no")
    ),
    Case(
        "there is a scheduled call",
        answered(LOOK),
        OnCall(0, Cancel("x")),
        OnCall(0, Cancel("x")),
        ready(LOOK),
    ),
    Case(
        "there is a scheduled call",
        answered(LOOK),
        OnCall(0, Ask("?")),
        OnCall(0, Ask("?")),
        (*ready(LOOK), evaluated(0, Verdict.ASK)),
    ),
    Case(
        "there is an unsettled effect r1.t1.a1.c0",
        begun(PAY),
        SettleEffect("r1.t1.a1.c0", tool.Reconcile("failed", "asked")),
        SettleEffect("r1.t1.a1.c0", tool.Reconcile("failed", "asked")),
        (*begun(PAY), ABANDON),
    ),
]


@table(CASES)
def test_it_refuses_and_allows(case: Case) -> None:
    case.refuse()
    case.allow()


def test_it_decides_without_looking_at_the_rules() -> None:
    """`handle` says what a command would append; whether that may follow is not its business."""
    state = given(*FINAL).state
    (again,) = handle(state, turn.StartTurn(9, "0" * 64))
    assert (again.data, again.turn_id) == (ev.TurnStarted(number=9, settings_digest="0" * 64), "r1.t9")


def test_the_same_state_and_command_give_the_same_drafts() -> None:
    state = given(*asked(PAY)).state
    assert handle(state, ABORT) == handle(state, ABORT)


def test_who_decided_is_on_every_draft() -> None:
    operator = Actor(ActorKind.OPERATOR, "ann")
    assert {d.actor for d in handle(given(*asked(PAY)).state, ABORT, operator)} == {operator}


# --- the closing commit -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (START, ["input_cancelled"]),
        (TURN, ["model_request_aborted", "turn_aborted"]),
        ((*TURN, FAILED), ["turn_aborted"]),
        (FINAL, []),
        (answered(LOOK, PAY), ["tool_rejected", "tool_rejected", "turn_aborted"]),
        (ready(PAY), ["tool_cancelled", "turn_aborted"]),
        (asked(PAY), ["permission_cancelled", "tool_cancelled", "turn_aborted"]),
        ((*asked(PAY), OnCall(0, Resolve(Verdict.DENY))), ["tool_cancelled", "turn_aborted"]),
        (begun(LOOK), ["tool_cancelled", "turn_aborted"]),
        (begun(PUT), ["tool_outcome_unknown", "turn_aborted"]),
        (begun(PAY), ["tool_outcome_unknown", "turn_aborted"]),
        ((*begun(PAY), in_call(0, LoseSight("x"))), ["turn_aborted"]),
        ((*begun(PAY), in_call(0, Suspend(None, {}))), ["tool_cancelled", "turn_aborted"]),
        (
            (*begun(PAY), in_call(0, Suspend(None, {})), in_call(0, Answer(1))),
            ["tool_cancelled", "turn_aborted"],
        ),
        ((*begun(PAY), in_call(0, Complete({"output": "1"}))), ["turn_aborted"]),
        ((*answered(LOOK), Reject(0, "policy", "no")), ["turn_aborted"]),
    ],
    ids=(
        "accepted attempt no-attempt between-turns declared scheduled asked denied pure idempotent "
        "non-idempotent unknown suspended resumed completed rejected"
    ).split(),
)
def test_the_closing_commit_ends_what_is_open(before: tuple[Commit, ...], expected: list[str]) -> None:
    given(*before).when(ABORT).then(*expected, "request_interrupted")


def several() -> Scenario:
    """A turn with a call in each state."""
    calls = [LOOK, PAY, PUT, PAY, PAY]
    decide: list[Writing] = [
        *[scheduled(i, c) for i, c in enumerate(calls) if i],
        *[evaluated(i) for i in (1, 2)],
    ]
    ask: list[Writing] = [evaluated(3, Verdict.ASK), OnCall(3, Ask("?"))]
    return given(
        *answered(*calls), decide, ask, [running(1), running(2)], in_call(2, Complete({"output": "1"}))
    )


@pytest.mark.parametrize("reason", ["abort", "abandoned", "error", "superseded"])
def test_all_calls_of_a_turn_are_ended_in_order(reason: str) -> None:
    drafts = handle(several().state, EndRequest(reason, request.Interrupt("x")))
    assert [(d.data.type, d.tool_id and d.tool_id[-1]) for d in drafts] == [
        ("tool_rejected", "0"),
        ("tool_outcome_unknown", "1"),
        ("permission_cancelled", "3"),
        ("tool_cancelled", "3"),
        ("tool_cancelled", "4"),
        ("turn_aborted", None),
        ("request_interrupted", None),
    ]
    assert drafts[-2].data == ev.TurnAborted(reason=reason)  # type: ignore[arg-type]  # one of its words


def test_what_is_of_unknown_outcome_stays_with_the_session() -> None:
    scenario = several().given(ABORT)
    (effect,) = scenario.state.unsettled
    assert effect.tool_id == "r1.t1.a1.c1"
    assert [s.evidence for s in scenario.plan()] == [(effect.sequence,)]


def test_an_open_question_that_is_closed_leaves_the_request_to_end() -> None:
    given(*asked(PAY)).when([*in_call(0, Withdraw("x")), ABORT]).then(
        "permission_cancelled", "tool_cancelled", "turn_aborted", "request_interrupted"
    )


# --- ids and causes -----------------------------------------------------------------------


def test_ids_below_the_session_are_derived() -> None:
    events = given(*asked(PAY), OnCall(0, Resolve(Verdict.ALLOW)), running(0)).events
    found = [(e.type, e.aggregate_id) for e in events[2:]]
    assert found == [
        ("request_accepted", "r1"),
        ("input_applied", "s-test"),
        ("request_started", "r1"),
        ("input_prepared", "s-test"),
        ("turn_started", "r1.t1"),
        ("model_request_started", "r1.t1.a1"),
        ("model_request_completed", "r1.t1.a1"),
        ("tool_scheduled", "r1.t1.a1.c0"),
        ("permission_evaluated", "r1.t1.a1.c0"),
        ("permission_requested", "r1.t1.a1.c0"),
        ("permission_resolved", "r1.t1.a1.c0"),
        ("tool_started", "r1.t1.a1.c0"),
    ]


def test_causes_lead_from_a_result_back_to_the_input() -> None:
    events = given(
        *asked(PAY), OnCall(0, Resolve(Verdict.ALLOW)), running(0), in_call(0, Complete({"output": "1"}))
    ).events
    walked, event = [], events[-1]
    while event.causation is not None:
        walked.append(event.type)
        event = events[event.causation - 1]
    walked.append(event.type)
    assert walked == [
        "tool_completed",
        "tool_started",
        "permission_resolved",
        "permission_requested",
        "permission_evaluated",
        "tool_scheduled",
        "model_request_completed",
        "model_request_started",
        "turn_started",
        "input_prepared",
        "request_started",
        "input_applied",
        "input_accepted",
    ]


def test_an_attempt_is_caused_by_the_one_before_it() -> None:
    events = given(*TURN, FAILED, attempt()).events
    assert events[-1].causation == events[-2].sequence


def test_ends_of_a_compaction_s_attempt_belong_to_no_request() -> None:
    scenario = given(*FINAL, [compaction_begun(), compaction_attempt()])
    (ended,) = handle(scenario.state, FAILED)
    assert (ended.request_id, ended.turn_id, ended.model_attempt_id) == (None, None, "c-1.a1")
    scenario.when([FAILED, FailCompaction("c-1", "x")]).then("model_request_failed", "compaction_failed")


def test_settling_names_the_call_of_the_ended_request() -> None:
    scenario = given(*begun(PAY), ABANDON)
    (settled,) = handle(scenario.state, SettleEffect("r1.t1.a1.c0", tool.Reconcile("completed", "asked")))
    ids = (settled.request_id, settled.turn_id, settled.model_attempt_id, settled.tool_id)
    assert ids == ("r1", "r1.t1", "r1.t1.a1", "r1.t1.a1.c0")
    assert settled.causation == scenario.state.unsettled[0].sequence


def test_closing_cancels_each_pending_input_because_it_was_accepted() -> None:
    scenario = given(
        created(), AcceptInput("i-1", "a", Priority.NEXT, 1), AcceptInput("i-2", "b", Priority.LATER, 2)
    )
    drafts = handle(scenario.state, CloseSession("user"))
    assert [(d.data.type, d.causation) for d in drafts] == [
        ("input_cancelled", 2),
        ("input_cancelled", 3),
        ("session_closed", None),
    ]


def test_a_draft_without_a_place_of_its_own_belongs_to_the_session() -> None:
    note = draft(State("s-1"), ev.NoticeRecorded(kind="k", message="m"), Actor(ActorKind.HOST))
    assert (note.aggregate_id, note.request_id) == ("s-1", None)


def test_creating_needs_no_state() -> None:
    (made,) = handle(State("s-1"), Create("local", SETTINGS, {}))
    assert isinstance(made.data, ev.SessionCreated)


def test_applying_an_unknown_input_is_left_to_the_rules() -> None:
    scenario = given(*FINAL, sent(2))
    (wrong,) = handle(scenario.state, ApplyInput("i-9", Priority.NEXT, 2))
    assert wrong.causation == scenario.state.request.last_sequence  # type: ignore[union-attr]  # it is active
    with pytest.raises(RuleViolated, match="the input is pending"):
        scenario.compose(ApplyInput("i-9", Priority.NEXT, 2))


def test_commands_of_one_commit_see_each_other() -> None:
    everything: list[Writing] = [
        ApplyInput("i-1", Priority.NEXT, 1),
        request.StartRequest(),
        FinishPreparation(("i-1",)),
        turn.StartTurn(1, SETTINGS.digest()),
        attempt(),
    ]
    entry = given(*START).compose(everything)
    assert {event.command_id for event in entry.events} == {"cmd-3"}
    assert [(e.command_index, e.command_size) for e in entry.events] == [(i, 5) for i in range(5)]
    assert [e.causation for e in entry.events] == [2, 4, 5, 6, 7]


def test_a_note_has_no_cause() -> None:
    (note,) = handle(given(*START).state, Note("remark", ""))
    assert note.causation is None


def test_responses_of_any_number_of_calls_are_declared() -> None:
    assert given(*TURN, responded(*[PAY] * 60)).state.calls[59].call_id == "r1.t1.a1.c59"

"""The plan's table, row by row, with nothing in flight and with what is; then the crash table.

Row 0 (a journal that cannot be read on, or is cut inside a command) is decided by
those who read journals; here is what the fold shows them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from domain import request, turn
from domain.compaction import FailCompaction
from domain.decider import CloseSession, EndRequest, OnCall, Reject, StartAttempt
from domain.errors import ModelFailed
from domain.inputs import ApplyInput, BeginPreparation, FinishPreparation
from domain.lifecycle import fold
from domain.limits import MAX_ATTEMPTS_PER_TURN, MAX_RUNS_PER_CALL
from domain.model_attempt import Abandon, Fail, Reconcile
from domain.next_steps import NOTHING, Action, Step, Who, evaluating, next_steps, preparing, stop
from domain.permission import Resolve
from domain.session import Change
from domain.state import State
from domain.tool import Answer, Cancel, Complete, LoseSight, Suspend
from domain.tool import Reconcile as ToolReconcile
from domain.values import Interrupt, OnLostAttempt, Priority, SideEffect, Stop, Verdict
from minutebook.testing.scenario import (
    LOOK,
    PAY,
    PUT,
    SETTINGS,
    Called,
    Commit,
    Writing,
    accepted,
    attempt,
    created,
    evaluated,
    forged,
    given,
    in_call,
    responded,
    running,
    scheduled,
    started,
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
    compaction_attempt,
    compaction_begun,
    decided,
    ready,
    sent,
)

AUTO, HOST, PERSON, OPERATOR, FLIGHT, NOBODY = (
    Who.AUTOMATIC,
    Who.HOST,
    Who.PERSON,
    Who.OPERATOR,
    Who.FLIGHT,
    Who.NOBODY,
)
Expected = tuple[str, Who, str, str]

A1 = "r1.t1.a1"
C0 = "r1.t1.a1.c0"
C1 = "r1.t1.a1.c1"
NOW = sent(2, Priority.NOW)
BEGIN: list[Writing] = [ApplyInput("i-1", Priority.NEXT, 1), request.StartRequest()]
STEER = ApplyInput("i-2", Priority.NEXT, 2)
FAILED = Fail(ModelFailed("overloaded", "no", retryable=True))
NEVER = Fail(ModelFailed("bad_request", "no", retryable=False))
USED_UP = (*TURN, *(FAILED, attempt()) * (MAX_ATTEMPTS_PER_TURN - 1), FAILED)
REJECT = Reject(0, "policy", "no")
DUE = (*answered(LOOK), REJECT, turn.CompleteTurn(1, "tool_calls"))
LOST = LoseSight("the connection broke")
WAIT = Suspend(None, {})
DENY = OnCall(0, Resolve(Verdict.DENY))
TORN = Called("look", '{"at":')
OTHER_MODE = Change({"permission_mode": "plan"})
ABANDON = EndRequest("abandoned", request.Interrupt("abandoned"))
UNSETTLED = (*begun(PAY), ABANDON)
STOPPABLE = Called("wait", "{}", SideEffect.NON_IDEMPOTENT, Interrupt.CANCEL)
STOPPABLE_PUT = Called("sync", "{}", SideEffect.IDEMPOTENT, Interrupt.CANCEL)
STEADY = Called("hash", "{}", SideEffect.PURE, Interrupt.BLOCK)
FOREIGN: list[Writing] = [
    sent(1, target=None),
    forged(request.AcceptRequest("i-1", SETTINGS, {}, 5), data={"settings_digest": OTHER}),
]


def with_settings(**values: object) -> tuple[Commit, ...]:
    """The first attempt is out, under other settings."""
    settings = SETTINGS.changed(dict(values))
    return created(settings), accepted(settings=settings), started(settings=settings)


RETRY = with_settings(on_lost_attempt=OnLostAttempt.RETRY)
ONE_TURN = (*with_settings(max_turns=1), responded(LOOK), REJECT, turn.CompleteTurn(1, "tool_calls"))


@dataclass(frozen=True)
class Row:
    """After `given`, with `in_flight`, the plan is `expected`."""

    number: str
    says: str
    given: tuple[Commit, ...]
    expected: tuple[Expected, ...]
    in_flight: frozenset[str] = NOTHING

    def __str__(self) -> str:
        return f"{self.number}: {self.says}"


def row(number: str, says: str, before: tuple[Commit, ...], *expected: Expected, flight: str = "") -> Row:
    return Row(number, says, before, expected, frozenset(flight.split()))


def auto(action: str, subject: str, reason: str = "") -> Expected:
    return action, AUTO, subject, reason


def waits(subject: str) -> Expected:
    return "await", FLIGHT, subject, ""


ROWS = [
    row("1", "no session yet", (), ("none", NOBODY, "s-test", "")),
    row("1", "closed", (created(), CloseSession("user")), ("none", NOBODY, "s-test", "")),
    row(
        "1", "closed, an effect unsettled", (*UNSETTLED, CloseSession("user")), ("none", NOBODY, "s-test", "")
    ),
    row(
        "2",
        "abort of an accepted request",
        (*START, request.RequestAbort("user")),
        auto("finish_abort", "r1"),
    ),
    row("2", "abort inside a turn", (*begun(PAY), request.RequestAbort("user")), auto("finish_abort", "r1")),
    row(
        "2",
        "abort, a tool in flight",
        (*begun(PAY), request.RequestAbort("user")),
        auto("finish_abort", "r1"),
        flight=C0,
    ),
    row(
        "2",
        "abort comes before a compaction",
        (*FINAL, compaction_begun(), request.RequestAbort("user")),
        auto("finish_abort", "r1"),
    ),
    row(
        "3",
        "compaction begun",
        (created(), compaction_begun()),
        auto("fail_compaction", "c-1", "process_restart"),
    ),
    row(
        "3",
        "its attempt out",
        (*FINAL, [compaction_begun(), compaction_attempt()]),
        auto("fail_compaction", "c-1", "process_restart"),
    ),
    row("3", "compaction in flight", (*FINAL, compaction_begun()), waits("c-1"), flight="c-1"),
    row("4", "nothing to do", (created(),), ("none", NOBODY, "s-test", "")),
    row("4", "inputs queued", (created(), sent(1), sent(2)), auto("start_next_request", "i-1")),
    row("4", "an effect unsettled, nothing queued", UNSETTLED, ("none", NOBODY, "s-test", "")),
    row(
        "4", "an effect unsettled, an input queued", (*UNSETTLED, sent(2)), auto("start_next_request", "i-2")
    ),
    row("5", "request accepted", START, auto("resume_request", "r1")),
    row("5", "accepted, others queued", (*START, NOW), auto("resume_request", "r1")),
    row("6", "attempt started", TURN, ("reconcile_model_outcome", HOST, A1, "outcome_unknown")),
    row(
        "6",
        "attempt started, now pending",
        (*TURN, NOW),
        ("reconcile_model_outcome", HOST, A1, "outcome_unknown"),
    ),
    row("6", "attempt started, retry recorded", RETRY, auto("reconcile_model_outcome", A1, "lost")),
    row("6", "attempt in flight", TURN, waits(A1), flight=A1),
    row("6", "attempt in flight, now pending", (*TURN, NOW), auto("interrupt", A1), flight=A1),
    row("6", "attempt told to stop", (*TURN, NOW), waits(A1), flight=f"{A1} {stop(A1)}"),
    row("6", "attempt in flight, next pending", (*TURN, sent(2)), waits(A1), flight=A1),
    row(
        "7",
        "no attempt yet",
        (*START, [*BEGIN, FinishPreparation(("i-1",)), turn.StartTurn(1, DIGEST)]),
        auto("next_attempt", "r1.t1"),
    ),
    row("7", "failed, retryable", (*TURN, FAILED), auto("next_attempt", "r1.t1")),
    row("7", "aborted", (*TURN, Abandon("handoff")), auto("next_attempt", "r1.t1")),
    row("7", "lost", (*TURN, Reconcile("lost", "asked")), auto("next_attempt", "r1.t1")),
    row("7", "failed for good", (*TURN, NEVER), auto("fail_request", "r1", "model")),
    row(
        "7",
        "reconciled as failed",
        (*TURN, Reconcile("failed", "asked")),
        auto("fail_request", "r1", "model"),
    ),
    row("7", "attempts used up", USED_UP, auto("fail_request", "r1", "model")),
    row("7", "now pending", (*TURN, FAILED, NOW), auto("abort_turn", "r1.t1", "steering")),
    row(
        "7",
        "now pending comes before a failure",
        (*TURN, NEVER, NOW),
        auto("abort_turn", "r1.t1", "steering"),
    ),
    row("7", "next pending", (*TURN, FAILED, sent(2)), auto("next_attempt", "r1.t1")),
    row("8a", "declared", answered(LOOK, PAY), auto("schedule_call", C0), auto("schedule_call", C1)),
    row(
        "8a",
        "arguments do not parse",
        (*TURN, responded(TORN, PAY)),
        auto("reject_call", C0, "malformed"),
        auto("schedule_call", C1),
    ),
    *[
        row(
            "8a",
            f"response ended by {cut}",
            (*TURN, responded(LOOK, stop=cut)),
            auto("reject_call", C0, "truncated"),
        )
        for cut in (Stop.LENGTH, Stop.REFUSAL, Stop.PAUSE)
    ],
    row(
        "8a",
        "cut and malformed",
        (*TURN, responded(TORN, stop=Stop.LENGTH)),
        auto("reject_call", C0, "truncated"),
    ),
    row("8a", "declared, now pending", (*answered(LOOK), NOW), auto("reject_call", C0, "interrupted")),
    row("8a", "malformed, now pending", (*TURN, responded(TORN), NOW), auto("reject_call", C0, "malformed")),
    row("8b", "unevaluated", ready(PAY), auto("evaluate", C0)),
    row("8b", "being evaluated", ready(PAY), waits(C0), flight=evaluating(C0)),
    row("8b", "allowed under another policy", (*decided(PAY), OTHER_MODE), auto("evaluate", C0)),
    row("8b", "ask", decided(PAY, Verdict.ASK), auto("ask", C0)),
    row("8b", "allowed", decided(PAY), auto("start_tool", C0)),
    row(
        "8b", "allowed by a person", (*asked(PAY), OnCall(0, Resolve(Verdict.ALLOW))), auto("start_tool", C0)
    ),
    row("8b", "denied", decided(PAY, Verdict.DENY), auto("cancel_tool", C0, "permission_denied")),
    row("8b", "denied by a person", (*asked(PAY), DENY), auto("cancel_tool", C0, "permission_denied")),
    *[
        row("8b", f"{said}, now pending", (*before, NOW), auto("cancel_tool", C0, "steering"))
        for said, before in (
            ("unevaluated", ready(PAY)),
            ("ask", decided(PAY, Verdict.ASK)),
            ("asked", asked(PAY)),
            ("allowed", decided(PAY)),
        )
    ],
    row("8b", "answered", (*begun(PAY), in_call(0, WAIT), in_call(0, Answer(1))), auto("start_tool", C0)),
    row(
        "8b",
        "answered, now pending",
        (*begun(PAY), in_call(0, WAIT), in_call(0, Answer(1)), NOW),
        auto("cancel_tool", C0, "steering"),
    ),
    row("8c", "permission pending", asked(PAY), ("resolve_permissions", PERSON, C0, "")),
    row("8d", "suspended", (*begun(PAY), in_call(0, WAIT)), ("answer_suspensions", PERSON, C0, "")),
    row(
        "8d",
        "suspended, now pending",
        (*begun(PAY), in_call(0, WAIT), NOW),
        auto("cancel_tool", C0, "steering"),
    ),
    row("8e", "started, pure", begun(LOOK), auto("start_tool", C0, "again")),
    row("8e", "started, idempotent", begun(PUT), auto("start_tool", C0, "again")),
    row("8e", "started, non-idempotent", begun(PAY), ("reconcile_tool_outcomes", HOST, C0, "")),
    row("8e", "unknown, pure", (*begun(LOOK), in_call(0, LOST)), auto("start_tool", C0, "again")),
    row("8e", "unknown, idempotent", (*begun(PUT), in_call(0, LOST)), auto("start_tool", C0, "again")),
    row(
        "8e",
        "unknown, non-idempotent",
        (*begun(PAY), in_call(0, LOST)),
        ("reconcile_tool_outcomes", HOST, C0, ""),
    ),
    row(
        "8e",
        "runs used up",
        (*begun(LOOK), *[running(0)] * (MAX_RUNS_PER_CALL - 1)),
        ("reconcile_tool_outcomes", HOST, C0, ""),
    ),
    row("8e", "pure and stoppable, now pending", (*begun(LOOK), NOW), auto("cancel_tool", C0, "steering")),
    row(
        "8e",
        "unknown, pure, now pending",
        (*begun(LOOK), in_call(0, LOST), NOW),
        auto("cancel_tool", C0, "steering"),
    ),
    row("8e", "pure and not stoppable, now pending", (*begun(STEADY), NOW), auto("start_tool", C0, "again")),
    row(
        "8e",
        "stoppable idempotent, now pending",
        (*begun(STOPPABLE_PUT), NOW),
        auto("start_tool", C0, "again"),
    ),
    row("8e", "idempotent, now pending", (*begun(PUT), NOW), auto("start_tool", C0, "again")),
    row(
        "8e",
        "stoppable non-idempotent, now pending",
        (*begun(STOPPABLE), NOW),
        ("reconcile_tool_outcomes", HOST, C0, ""),
    ),
    row("8e", "in flight", begun(PAY), waits(C0), flight=C0),
    row(
        "8e",
        "unknown, still thought to be in flight",
        (*begun(PAY), in_call(0, LOST)),
        ("reconcile_tool_outcomes", HOST, C0, ""),
        flight=C0,
    ),
    row(
        "8e",
        "in flight and stoppable, now pending",
        (*begun(STOPPABLE), NOW),
        auto("interrupt", C0, "steering"),
        flight=C0,
    ),
    row("8e", "told to stop", (*begun(STOPPABLE), NOW), waits(C0), flight=f"{C0} {stop(C0)}"),
    row("8e", "in flight and not stoppable, now pending", (*begun(PAY), NOW), waits(C0), flight=C0),
    row(
        "8f",
        "all calls ended",
        (*begun(PAY), in_call(0, Complete({"output": "1"}))),
        auto("complete_turn", "r1.t1"),
    ),
    row("8f", "all calls rejected", (*answered(LOOK), REJECT), auto("complete_turn", "r1.t1")),
    row("8f", "no calls", answered(), auto("complete_turn", "r1.t1")),
    row("8f", "all ended, now pending", (*answered(LOOK), REJECT, NOW), auto("complete_turn", "r1.t1")),
    row(
        "9",
        "preparation begun",
        (*START, [*BEGIN, BeginPreparation(("i-1",))]),
        ("reconcile_request_inputs", HOST, "r1", ""),
    ),
    row(
        "9",
        "preparation in flight",
        (*START, [*BEGIN, BeginPreparation(("i-1",))]),
        waits("r1"),
        flight=preparing("r1"),
    ),
    row(
        "9",
        "begun, now pending",
        (*START, [*BEGIN, BeginPreparation(("i-1",))], NOW),
        ("reconcile_request_inputs", HOST, "r1", ""),
    ),
    row("10", "next pending", (*FINAL, sent(2)), auto("apply_input", "i-2")),
    row("10", "next and now pending", (*FINAL, sent(2), sent(3, Priority.NOW)), auto("apply_input", "i-3")),
    row("10", "two of a kind", (*DUE, sent(2), sent(3)), auto("apply_input", "i-2")),
    row("10", "applied, another pending", (*FINAL, sent(2), sent(3), STEER), auto("apply_input", "i-3")),
    row("10", "applied, not prepared", (*START, BEGIN), auto("prepare_input", "r1")),
    row("10", "steering applied, not prepared", (*FINAL, sent(2), STEER), auto("prepare_input", "r1")),
    row(
        "10", "later pending does not count", (*DUE, sent(2, Priority.LATER)), auto("continue_request", "r1")
    ),
    row("11", "prepared", (*START, [*BEGIN, FinishPreparation(("i-1",))]), auto("continue_request", "r1")),
    row("11", "the last turn had calls", DUE, auto("continue_request", "r1")),
    row(
        "11",
        "the last turn was paused",
        (*TURN, responded(stop=Stop.PAUSE), turn.CompleteTurn(0, "pause")),
        auto("continue_request", "r1"),
    ),
    row("11", "no turn left", ONE_TURN, auto("fail_request", "r1", "max_turns")),
    row("12", "the last turn is final", FINAL, auto("finalize_request", "r1")),
    row("12", "final, later pending", (*FINAL, sent(2, Priority.LATER)), auto("finalize_request", "r1")),
    row(
        "13",
        "accepted under unknown settings",
        (created(), FOREIGN),
        ("reconcile_request_outcome", OPERATOR, "r1", "no_snapshot"),
    ),
]


def shown(steps: tuple[Step, ...]) -> tuple[Expected, ...]:
    return tuple((step.action.value, step.who, step.subject, step.reason) for step in steps)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_table(row: Row) -> None:
    scenario = given(*row.given)
    assert shown(scenario.plan(row.in_flight)) == row.expected


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_evidence_is_there_and_is_about_the_subject(row: Row) -> None:
    scenario = given(*row.given)
    for step in scenario.plan(row.in_flight):
        assert step.evidence or step.action is Action.NONE
        for sequence in step.evidence:
            assert 0 < sequence <= scenario.state.sequence
        if step.index is not None:
            assert scenario.state.calls[step.index].call_id == step.subject


EVIDENCE: dict[str, list[str]] = {
    "1: closed, an effect unsettled": ["tool_outcome_unknown"],
    "2: abort inside a turn": ["abort_requested"],
    "3: compaction begun": ["compaction_started"],
    "4: inputs queued": ["input_accepted"],
    "5: request accepted": ["input_accepted", "request_accepted"],
    "6: attempt started": ["model_request_started"],
    "7: no attempt yet": ["turn_started"],
    "7: failed, retryable": ["turn_started", "model_request_failed"],
    "7: attempts used up": ["turn_started", "model_request_failed"],
    "8a: declared": ["model_request_completed"],
    "8b: unevaluated": ["tool_scheduled"],
    "8b: denied": ["tool_scheduled", "permission_evaluated"],
    "8b: denied by a person": ["tool_scheduled", "permission_resolved"],
    "8b: answered": ["tool_resumed", "permission_evaluated"],
    "8c: permission pending": ["tool_scheduled", "permission_requested"],
    "8d: suspended": ["tool_suspended"],
    "8e: started, non-idempotent": ["tool_started"],
    "8e: unknown, non-idempotent": ["tool_started", "tool_outcome_unknown"],
    "8f: all calls ended": ["turn_started", "model_request_completed"],
    "9: preparation begun": ["input_preparation_started"],
    "10: next pending": ["input_accepted"],
    "10: applied, not prepared": ["request_started"],
    "11: prepared": ["input_prepared"],
    "12: the last turn is final": ["turn_completed"],
    "13: accepted under unknown settings": ["request_accepted"],
}


@pytest.mark.parametrize("row", [row for row in ROWS if str(row) in EVIDENCE], ids=str)
def test_the_evidence_is_what_calls_for_the_step(row: Row) -> None:
    scenario = given(*row.given)
    step = scenario.plan(row.in_flight)[0]
    found = [scenario.events[sequence - 1].type for sequence in step.evidence]
    assert found == EVIDENCE[str(row)]


def test_every_kind_of_evidence_was_looked_at() -> None:
    assert EVIDENCE.keys() <= {str(row) for row in ROWS}


@pytest.mark.parametrize("last", [None, "aborted"], ids=["no turn", "a turn that leads nowhere"])
def test_row_13_what_these_rules_cannot_write_is_for_an_operator(last: str | None) -> None:
    state = given(*FINAL).state
    assert state.turn is not None
    turned = None if last is None else replace(state.turn, status=turn.Status.ABORTED, reason="error")
    (step,) = next_steps(replace(state, turn=turned))
    assert (step.action, step.who) == (Action.RECONCILE_REQUEST_OUTCOME, OPERATOR)


def test_every_action_is_in_the_table() -> None:
    assert {expected[0] for row in ROWS for expected in row.expected} == {a.value for a in Action}


def test_every_row_is_in_the_table() -> None:
    numbers = [str(n) for n in range(1, 14) if n != 8] + [f"8{letter}" for letter in "abcdef"]
    assert {row.number for row in ROWS} == set(numbers)


def test_a_running_attempt_of_a_turn_nobody_remembers_settings_of_is_asked_about() -> None:
    went_on: list[Writing] = [*BEGIN, FinishPreparation(("i-1",)), turn.StartTurn(1, OTHER), attempt()]
    scenario = given(created(), FOREIGN, went_on)
    assert shown(scenario.plan()) == (("reconcile_model_outcome", HOST, A1, "outcome_unknown"),)


def test_provider_run_tools_are_never_retried_by_themselves() -> None:
    settings = SETTINGS.changed({"on_lost_attempt": OnLostAttempt.RETRY})
    sent_out = StartAttempt("s", "openai-chat", "m", OTHER, 2, provider_run_tools=True)
    begin: list[Writing] = [
        *BEGIN,
        FinishPreparation(("i-1",)),
        turn.StartTurn(1, settings.digest()),
        sent_out,
    ]
    scenario = given(created(settings), accepted(settings=settings), begin)
    assert shown(scenario.plan()) == (("reconcile_model_outcome", HOST, A1, "outcome_unknown"),)


def test_nothing_in_flight_of_another_turn_counts() -> None:
    scenario = given(*begun(PAY))
    stale = frozenset({"r1.t9.a1", "r1.t1.a1.c7", stop("r1.t1.a1.c7"), "c-9", preparing("r9")})
    assert scenario.plan(stale) == scenario.plan()


@pytest.mark.parametrize("cut", range(1, 5))
def test_row_0_a_cut_inside_a_command_is_seen_and_the_last_whole_one_has_a_plan(cut: int) -> None:
    scenario = given(*START)
    events = scenario.compose(started()).events
    torn = fold(scenario.state, events[:cut])
    assert not torn.command.is_whole
    assert next_steps(fold(State("s-test"), scenario.events)) == scenario.plan()


# --- the crash table ------------------------------------------------------------------------

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

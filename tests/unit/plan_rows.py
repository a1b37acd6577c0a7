"""The plan's table as data: after these commits, with this in flight, these steps."""

from __future__ import annotations

from dataclasses import dataclass

from domain import request, turn
from domain.budget import Limits, SetBudget
from domain.decider import CloseSession, EndRequest, OnCall, Reject
from domain.errors import ModelFailed
from domain.inputs import ApplyInput, BeginPreparation, FinishPreparation
from domain.limits import MAX_ATTEMPTS_PER_TURN, MAX_RUNS_PER_CALL
from domain.model_attempt import Abandon, Fail, Reconcile
from domain.next_steps import NOTHING, Who, evaluating, preparing, stop
from domain.permission import Resolve
from domain.session import Change
from domain.tool import Answer, Complete, LoseSight, Suspend
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
    forged,
    in_call,
    responded,
    running,
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

#: The response to its first turn has spent the session's budget.
SPENT = (
    created(),
    SetBudget(Limits(max_tokens=5)),
    accepted(),
    started(),
    responded(LOOK),
    REJECT,
    turn.CompleteTurn(1, "tool_calls"),
)


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


FAILED_BY_BUDGET = EndRequest("error", request.Fail("BUDGET_SPENT", "spent"))
NOTHING_DUE: Expected = ("none", NOBODY, "s-test", "")


def waits(subject: str) -> Expected:
    return "await", FLIGHT, subject, ""


ROWS = [
    row(
        "4", "inputs queued, the budget spent", (*SPENT, FAILED_BY_BUDGET, sent(2, target=None)), NOTHING_DUE
    ),
    row("10", "next pending, the budget spent", (*SPENT, sent(2)), auto("fail_request", "r1", "budget")),
    row("11", "a turn due, the budget spent", SPENT, auto("fail_request", "r1", "budget")),
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

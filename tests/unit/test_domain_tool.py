"""Tool: one call from its declaration to one terminal event; what may run twice and what may not."""

from __future__ import annotations

from typing import Any

import pytest

from domain import events as ev
from domain import tool
from domain.canonical import digest
from domain.decider import EndRequest, OnCall, Reject, SettleEffect
from domain.limits import MAX_RUNS_PER_CALL
from domain.permission import Resolve
from domain.request import Interrupt as RequestInterrupted
from domain.session import Change, SetRule
from domain.tool import (
    Answer,
    Cancel,
    Complete,
    Fail,
    LoseSight,
    Reconcile,
    Start,
    Status,
    Suspend,
)
from domain.turn import CompleteTurn, StartTurn
from domain.values import CUT_STOPS, SideEffect, Verdict
from minutebook.testing.scenario import (
    LOOK,
    PAY,
    PUT,
    Called,
    Commit,
    Writing,
    attempt,
    evaluated,
    forged,
    given,
    in_call,
    recorded,
    responded,
    running,
    scheduled,
)
from tests.unit.domain_cases import (
    DIGEST,
    OTHER,
    TURN,
    Case,
    answered,
    asked,
    begun,
    decided,
    ready,
    table,
)

KEY = "key-r1.t1.a1.c0"
INPUT = {LOOK: digest({"at": 1}), PUT: digest({"k": "v"}), PAY: digest({"cents": 5})}
DONE = Complete({"output": "ok"})
LOST = LoseSight("the connection broke")
WAIT = Suspend({"question": "which?"}, {"type": "object"})
FAILED = Fail("ValueError", "no")
ANSWER = Answer({"which": "this"})
RULE = SetRule("u1", "tool", "look", Verdict.ALLOW)
REJECT = Reject(0, "policy", "no")
SCHEDULE = scheduled(0, LOOK)
FAILURE_OF_IT = recorded(
    ev.ToolFailed(error_type="E", message="m"),
    request_id="r1",
    turn_id="r1.t1",
    model_attempt_id="r1.t1.a1",
    tool_id="r1.t1.a1.c0",
)


def start(called: Called, **changes: Any) -> Writing:
    """Start the only call, with something of it changed."""
    return OnCall(0, Start(**{"input_digest": INPUT[called], "idempotency_key": KEY, **changes}))


def unknown(called: Called) -> tuple[Commit, ...]:
    return (*begun(called), in_call(0, LOST))


def suspended(called: Called) -> tuple[Commit, ...]:
    return (*begun(called), in_call(0, WAIT))


def resumed(called: Called) -> tuple[Commit, ...]:
    return (*suspended(called), in_call(0, ANSWER))


def done(called: Called) -> tuple[Commit, ...]:
    return (*begun(called), in_call(0, DONE))


#: A person allowed it.
ALLOWED = (*asked(PAY), in_call(0, Resolve(Verdict.ALLOW)))
#: An answer came, and since then the policy denies it.
DENIED_LATE = (*resumed(LOOK), RULE, evaluated(0, Verdict.DENY))
DENIED = decided(LOOK, Verdict.DENY)
RUN_OUT = (*begun(LOOK), *[running(0)] * (MAX_RUNS_PER_CALL - 1))
UNSETTLED = (*unknown(PAY), EndRequest("abandoned", RequestInterrupted("abandoned")))
NARROWED = start(PAY, side_effect=SideEffect.PURE, narrowed_because="a dry run")
SEGMENT_2 = start(LOOK)


def case(rule: str, before: tuple[Commit, ...], refused: Writing, allowed_before: tuple[Commit, ...]) -> Case:
    """The same commit, refused after one history and allowed after another."""
    return Case(rule, before, refused, refused, allowed_before)


CASES = [
    case("the call's turn is active and has its response", TURN, FAILURE_OF_IT, begun(LOOK)),
    Case(
        "the call's turn is active and has its response",
        answered(LOOK),
        forged(REJECT, turn_id="r1.t2"),
        REJECT,
    ),
    Case(
        "the call is of the turn's response",
        answered(LOOK),
        forged(REJECT, model_attempt_id="r1.t1.a2"),
        REJECT,
    ),
    Case("the response declared the call", answered(LOOK), forged(REJECT, tool_id="r1.t1.a1.c1"), REJECT),
    Case("it is the call as declared", answered(LOOK), forged(SCHEDULE, data={"name": "put"}), SCHEDULE),
    Case("it is the call as declared", answered(LOOK), forged(SCHEDULE, data={"index": 1}), SCHEDULE),
    Case(
        "it is the call as declared", answered(LOOK), forged(REJECT, data={"provider_call_id": "x"}), REJECT
    ),
    Case(
        "the arguments are those declared",
        answered(LOOK),
        forged(SCHEDULE, data={"arguments_digest": OTHER}),
        SCHEDULE,
    ),
    Case(
        "the input is what the arguments say",
        answered(LOOK),
        forged(SCHEDULE, data={"input": {"at": 2}}),
        SCHEDULE,
    ),
    Case(
        "the input is what the arguments say",
        answered(LOOK),
        forged(SCHEDULE, data={"input": {"at": 2}, "input_digest": digest({"at": 2})}),
        SCHEDULE,
    ),
    Case("a call's first event is tool_scheduled or tool_rejected", answered(LOOK), FAILURE_OF_IT, REJECT),
    case("a call is scheduled once", ready(LOOK), SCHEDULE, answered(LOOK)),
    case("a call ends once", done(LOOK), OnCall(0, DONE), begun(LOOK)),
    case("a call ends once", (*answered(LOOK), REJECT), FAILURE_OF_IT, begun(LOOK)),
    case("started only when the latest decision is allow", ready(LOOK), start(LOOK), decided(LOOK)),
    case("started only when the latest decision is allow", DENIED, start(LOOK), decided(LOOK)),
    case("started only when the latest decision is allow", asked(LOOK), start(LOOK), decided(LOOK)),
    Case(
        "started with exactly the input that was allowed",
        decided(LOOK),
        start(LOOK, input_digest=OTHER),
        start(LOOK),
    ),
    Case(
        "the digest is that of the input",
        decided(LOOK),
        start(LOOK, input={"at": 2}),
        start(LOOK, input={"at": 1}),
    ),
    case(
        "the decision is for this input and the present policy",
        (*decided(LOOK), RULE),
        start(LOOK),
        (*decided(LOOK), RULE, evaluated(0)),
    ),
    Case("the class is not narrowed after a permission", ALLOWED, NARROWED, start(PAY)),
    Case("a narrower class has a reason", decided(PAY), start(PAY, side_effect=SideEffect.PURE), NARROWED),
    case("only pure and idempotent calls are started again", begun(PAY), start(PAY), decided(PAY)),
    case("only pure and idempotent calls are started again", unknown(PAY), start(PAY), decided(PAY)),
    case("at most 3 runs", RUN_OUT, start(LOOK), RUN_OUT[:-1]),
    Case(
        "started again with the same input and key",
        begun(PUT),
        start(PUT, idempotency_key="another"),
        start(PUT),
    ),
    Case(
        "started again with the same input and key", unknown(PUT), start(PUT, input_digest=OTHER), start(PUT)
    ),
    Case(
        "started again in the same class",
        begun(PUT),
        start(PUT, side_effect=SideEffect.PURE, narrowed_because="a dry run"),
        start(PUT),
    ),
    case("started from scheduled, resumed, started or unknown", suspended(LOOK), SEGMENT_2, resumed(LOOK)),
    Case("one key for all runs of a call", resumed(LOOK), start(LOOK, idempotency_key="another"), SEGMENT_2),
    Case("runs are numbered", begun(LOOK), forged(start(LOOK), data={"run": 3}), start(LOOK)),
    Case("segments are numbered", resumed(LOOK), forged(SEGMENT_2, data={"segment": 0}), SEGMENT_2),
    case("completed only from started, unknown or resumed", decided(LOOK), OnCall(0, DONE), unknown(LOOK)),
    case("completed only from started, unknown or resumed", suspended(LOOK), OnCall(0, DONE), resumed(LOOK)),
    case("an answer is the result only while allowed", DENIED_LATE, OnCall(0, DONE), resumed(LOOK)),
    case("the question is closed first", asked(LOOK), OnCall(0, FAILED), decided(LOOK)),
    case("the question is closed first", asked(LOOK), OnCall(0, Cancel("x")), decided(LOOK)),
    case("a denied call ends as cancelled", DENIED, OnCall(0, FAILED), decided(LOOK)),
    case("unknown only from started", decided(LOOK), OnCall(0, LOST), begun(LOOK)),
    case("suspended only from started", decided(LOOK), OnCall(0, WAIT), begun(LOOK)),
    case(
        "resumed only from suspended (the first answer wins)",
        resumed(LOOK),
        OnCall(0, ANSWER),
        suspended(LOOK),
    ),
    case(
        "reconciled only from started or unknown",
        suspended(LOOK),
        OnCall(0, Reconcile("completed", "asked")),
        begun(LOOK),
    ),
    Case(
        "an ended request's call does not wait",
        UNSETTLED,
        SettleEffect("r1.t1.a1.c0", Reconcile("suspended", "asked")),
        SettleEffect("r1.t1.a1.c0", Reconcile("cancelled", "asked")),
    ),
]
CASES += [
    Case("a cut response runs none of its calls", (*TURN, responded(LOOK, stop=stop)), SCHEDULE, REJECT)
    for stop in sorted(CUT_STOPS)
]


@table(CASES)
def test_it_refuses_and_allows(case: Case) -> None:
    case.refuse()
    case.allow()


TERMINAL = [DONE, FAILED, Cancel("x"), Reconcile("completed", "asked")]


@pytest.mark.parametrize("first", TERMINAL, ids="completed failed cancelled reconciled".split())
@pytest.mark.parametrize("second", [*TERMINAL, LOST, WAIT, ANSWER], ids=lambda c: type(c).__name__)
def test_a_second_end_is_refused(first: tool.Command, second: tool.Command) -> None:
    given(*begun(LOOK), in_call(0, first)).when(in_call(0, second)).refused("a call ends once")


@pytest.mark.parametrize("before", [decided, begun, unknown, suspended, resumed], ids=lambda f: f.__name__)
@pytest.mark.parametrize("end", [FAILED, Cancel("x")], ids=["failed", "cancelled"])
def test_a_call_may_fail_or_be_cancelled_wherever_it_stands(before: Any, end: tool.Command) -> None:
    scenario = given(*before(PUT), in_call(0, end))
    assert scenario.actions() == ["complete_turn"]


@pytest.mark.parametrize("outcome", ["completed", "failed", "cancelled", "suspended"])
@pytest.mark.parametrize("before", [begun, unknown], ids=["started", "unknown"])
def test_somebody_may_say_what_became_of_it(before: Any, outcome: str) -> None:
    scenario = given(*before(PAY), in_call(0, Reconcile(outcome, "the bank says so")))
    call = scenario.state.calls[0]
    assert call.tool is not None
    assert call.tool.status == Status(outcome)
    expected = "answer_suspensions" if outcome == "suspended" else "complete_turn"
    assert scenario.actions() == [expected]


def test_a_pure_call_runs_again_with_the_same_key_and_a_new_number() -> None:
    outcome = given(*begun(LOOK)).when(running(0))
    (event,) = outcome.events
    assert (event.data.run, event.data.segment, event.data.idempotency_key) == (2, 0, KEY)


def test_an_answer_begins_a_new_segment_under_the_same_decision() -> None:
    outcome = given(*resumed(PAY)).when(running(0))
    (event,) = outcome.events
    assert (event.data.run, event.data.segment, event.data.idempotency_key) == (1, 1, KEY)


def test_an_answer_may_be_the_result_itself() -> None:
    given(*suspended(PAY)).when(in_call(0, ANSWER, DONE)).then("tool_resumed", "tool_completed")


def test_a_policy_that_changed_meanwhile_is_asked_before_the_next_segment() -> None:
    scenario = given(*resumed(LOOK), RULE)
    assert scenario.actions() == ["evaluate"]
    scenario.when(running(0)).refused("the decision is for this input and the present policy")
    scenario.given(evaluated(0)).when(running(0)).then("tool_started")


def test_running_again_needs_no_new_decision() -> None:
    given(*begun(LOOK), Change({"permission_mode": "plan"})).when(running(0)).then("tool_started")


def test_a_class_may_be_widened_without_a_reason() -> None:
    scenario = given(*decided(LOOK)).given(start(LOOK, side_effect=SideEffect.NON_IDEMPOTENT))
    assert scenario.actions() == ["reconcile_tool_outcomes"]


def test_a_narrowed_call_may_run_again() -> None:
    scenario = given(*decided(PAY)).given(NARROWED)
    assert scenario.actions() == ["start_tool"]


def test_starting_keeps_the_class_it_was_scheduled_in() -> None:
    (event,) = given(*decided(PUT)).when(running(0)).events
    assert event.data.side_effect is SideEffect.IDEMPOTENT


@pytest.mark.parametrize("reason", ["malformed", "truncated", "interrupted", "policy", "unknown_tool"])
def test_a_rejected_call_is_over(reason: str) -> None:
    scenario = given(*answered(LOOK), Reject(0, reason, "why"))
    assert scenario.actions() == ["complete_turn"]
    scenario.when(evaluated(0)).refused("there is a scheduled call")
    scenario.when(in_call(0, DONE)).refused("a call ends once")


def test_a_call_whose_arguments_do_not_parse_cannot_be_scheduled() -> None:
    torn = Called("look", '{"at":')
    scheduled_anyway = recorded(
        ev.ToolScheduled(
            index=0,
            provider_call_id="call_0",
            name="look",
            arguments_digest=given(*TURN, responded(torn)).state.calls[0].arguments_digest,
            input={},
            input_digest=digest({}),
            side_effect=SideEffect.PURE,
            kind=torn.kind,
            interrupt=torn.interrupt,
            tool_digest="d" * 64,
        ),
        request_id="r1",
        turn_id="r1.t1",
        model_attempt_id="r1.t1.a1",
        tool_id="r1.t1.a1.c0",
    )
    given(*TURN, responded(torn)).when(scheduled_anyway).refused("the input is what the arguments say")


def test_equal_calls_of_two_turns_are_two_calls() -> None:
    again: list[Writing] = [StartTurn(2, DIGEST), attempt()]
    scenario = given(*done(LOOK), CompleteTurn(1, "tool_calls"), again, responded(LOOK), SCHEDULE)
    assert scenario.state.calls[0].call_id == "r1.t2.a1.c0"
    assert scenario.actions() == ["evaluate"]


def test_a_finished_sibling_is_kept_while_others_run() -> None:
    both: list[Writing] = [scheduled(0, LOOK), scheduled(1, PAY), evaluated(0), evaluated(1)]
    scenario = given(*answered(LOOK, PAY), both, [running(0), running(1)], in_call(0, DONE))
    assert [(s.action, s.index) for s in scenario.plan()] == [("reconcile_tool_outcomes", 1)]
    assert [(s.action, s.index) for s in scenario.plan(frozenset({"r1.t1.a1.c1"}))] == [("await", 1)]


def test_one_effect_may_be_settled_and_no_other() -> None:
    scenario = given(*UNSETTLED)
    scenario.when(SettleEffect("r1.t1.a1.c1", Reconcile("failed", "x"))).refused("an unsettled effect")
    scenario.given(SettleEffect("r1.t1.a1.c0", Reconcile("failed", "x")))
    scenario.when(SettleEffect("r1.t1.a1.c0", Reconcile("failed", "x"))).refused("an unsettled effect")


def test_what_a_class_says_of_running_twice() -> None:
    again = {
        called.name: given(*begun(called)).state.calls[0].tool.may_run_again  # type: ignore[union-attr]  # it has begun
        for called in (LOOK, PUT, PAY)
    }
    assert again == {"look": True, "put": True, "pay": False}

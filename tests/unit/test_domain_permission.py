"""Permission: evaluated before a start, asked once, answered once, bound to input and policy."""

from __future__ import annotations

import pytest

from domain import permission
from domain.canonical import digest
from domain.decider import OnCall
from domain.permission import Ask, Decision, PermissionState, Resolve, Withdraw
from domain.session import Change, Grant
from domain.tool import Answer, Complete, Start, Suspend
from domain.values import Verdict
from minutebook.testing.scenario import (
    LOOK,
    PAY,
    PUT,
    Commit,
    Scenario,
    Writing,
    evaluated,
    forged,
    given,
    in_call,
    running,
    scheduled,
)
from tests.unit.domain_cases import OTHER, Case, Direct, answered, asked, begun, decided, ready, table

ASK = OnCall(0, Ask("May it?"))
ALLOW = OnCall(0, Resolve(Verdict.ALLOW))
DENY = OnCall(0, Resolve(Verdict.DENY))
WITHDRAW = OnCall(0, Withdraw("policy changed"))
STRICTER = Change({"permission_mode": "plan"})
UPDATED = {"cents": 3}
UPDATE = OnCall(0, Resolve(Verdict.ALLOW, UPDATED, digest(UPDATED)))
TO_BE_ASKED = decided(PAY, Verdict.ASK)
ASKED = asked(PAY)
ALLOWED = (*ASKED, ALLOW)
#: A permission event for a call that is only declared.
TOO_EARLY = forged(evaluated(1), tool_id="r1.t1.a1.c0")
UNDECIDED = PermissionState(digest({"cents": 5}))
ONE_OF_TWO = (*answered(PAY, PAY), scheduled(1, PAY))

CASES = [
    Case("the call is scheduled", ONE_OF_TWO, TOO_EARLY, evaluated(1)),
    Case("decided before a start", begun(PAY), evaluated(0), evaluated(0), ready(PAY)),
    Case("a person is asked only after evaluated ask", ready(PAY), ASK, ASK, TO_BE_ASKED),
    Case("a person is asked only after evaluated ask", decided(PAY), ASK, ASK, TO_BE_ASKED),
    Case("a person is asked only after evaluated ask", ASKED, ASK, ASK, TO_BE_ASKED),
    Case(
        "the question is about the call's input", TO_BE_ASKED, forged(ASK, data={"input_digest": OTHER}), ASK
    ),
    Case("questions are numbered", TO_BE_ASKED, forged(ASK, data={"permission_id": "r1.t1.a1.c0.p2"}), ASK),
    Case("the question is open (the first answer wins)", ALLOWED, DENY, DENY, ASKED),
    Case("the question is open (the first answer wins)", TO_BE_ASKED, ALLOW, ALLOW, ASKED),
    Case("the question is open (the first answer wins)", ALLOWED, WITHDRAW, WITHDRAW, ASKED),
    Case(
        "the answer names the open question",
        ASKED,
        forged(ALLOW, data={"permission_id": "r1.t1.a1.c1.p1"}),
        ALLOW,
    ),
    Case(
        "the answer names the open question", ASKED, forged(WITHDRAW, data={"permission_id": "x"}), WITHDRAW
    ),
    Case("the answer repeats the input's digest", ASKED, forged(ALLOW, data={"input_digest": OTHER}), ALLOW),
    Case("an updated input has a digest", ASKED, OnCall(0, Resolve(Verdict.ALLOW, UPDATED)), UPDATE),
    Case("an updated input has a digest", ASKED, OnCall(0, Resolve(Verdict.ALLOW, None, OTHER)), UPDATE),
    Case(
        "the digest is that of the updated input",
        ASKED,
        OnCall(0, Resolve(Verdict.ALLOW, UPDATED, OTHER)),
        UPDATE,
    ),
    Case(
        "an open question is closed before a new evaluation",
        (*ASKED, STRICTER),
        evaluated(0),
        [WITHDRAW, evaluated(0)],
    ),
    Case(
        "evaluated under the present policy",
        ready(PAY),
        forged(evaluated(0), data={"policy_digest": OTHER}),
        evaluated(0),
    ),
    Case(
        "evaluated for the call's input",
        ready(PAY),
        forged(evaluated(0), data={"input_digest": OTHER}),
        evaluated(0),
    ),
    Case(
        "evaluated once per policy and input",
        decided(PAY),
        evaluated(0),
        evaluated(0),
        (*decided(PAY), STRICTER),
    ),
    Case(
        "evaluated once per policy and input",
        decided(PAY, Verdict.DENY),
        evaluated(0),
        evaluated(0),
        (*decided(PAY, Verdict.DENY), STRICTER),
    ),
    Case(
        "what a person allowed is never asked about again",
        (*ALLOWED, STRICTER),
        evaluated(0, Verdict.ASK),
        evaluated(0, Verdict.DENY),
    ),
    Case(
        "a permission event",
        decided(PAY),
        Direct(running(0), lambda event: permission.evolve(UNDECIDED, event, "")),
        Direct(evaluated(0), lambda event: permission.evolve(UNDECIDED, event, event.data.policy_digest)),
        ready(PAY),
    ),
]


@table(CASES)
def test_it_refuses_and_allows(case: Case) -> None:
    case.refuse()
    case.allow()


def decision(scenario: Scenario, index: int = 0) -> Decision:
    state = scenario.state.calls[index].permission
    assert state is not None
    return state.decision


@pytest.mark.parametrize("verdict", Verdict)
def test_a_verdict_is_where_the_call_stands(verdict: Verdict) -> None:
    assert decision(given(*decided(PAY, verdict))) is Decision(verdict)


@pytest.mark.parametrize(
    ("answer", "action"), [(ALLOW, "start_tool"), (DENY, "cancel_tool")], ids=["allow", "deny"]
)
def test_a_person_decides(answer: Writing, action: str) -> None:
    scenario = given(*ASKED)
    assert scenario.actions() == ["resolve_permissions"]
    scenario.given(answer)
    assert scenario.actions() == [action]


def test_an_answer_is_good_for_this_input_only() -> None:
    scenario = given(*ASKED, UPDATE)
    assert scenario.actions() == ["evaluate"]
    scenario.given(evaluated(0))
    declared = OnCall(0, Start(digest({"cents": 5}), "key"))
    scenario.when(declared).refused("started with exactly the input that was allowed")
    scenario.when(OnCall(0, Start(digest(UPDATED), "key", UPDATED))).then("tool_started")


def test_an_updated_input_goes_through_the_policy_again_and_may_be_denied() -> None:
    scenario = given(*ASKED, UPDATE)
    scenario.when(evaluated(0, Verdict.ASK)).refused("never asked about again")
    scenario.given(evaluated(0, Verdict.DENY))
    assert scenario.actions() == ["cancel_tool"]


def test_after_a_denial_a_person_may_be_asked_again() -> None:
    """What is never asked about again is what a person allowed, as long as it is allowed."""
    other = Change({"permission_mode": "autoEdit"})
    scenario = given(*ALLOWED, STRICTER, evaluated(0, Verdict.DENY), other)
    scenario.when([evaluated(0, Verdict.ASK), ASK]).then("permission_evaluated", "permission_requested")


def test_a_grant_leaves_decisions_as_they_are() -> None:
    scenario = given(*decided(PAY), Grant("g1", "tool", "pay"))
    assert scenario.actions() == ["start_tool"]


@pytest.mark.parametrize("stand", ["allow", "ask", "pending", "deny"])
def test_what_another_policy_makes_of_a_decision(stand: str) -> None:
    """Only an allow is looked at again: a question or a denial is not undone by itself."""
    before = {
        "allow": decided(PAY),
        "ask": TO_BE_ASKED,
        "pending": ASKED,
        "deny": decided(PAY, Verdict.DENY),
    }[stand]
    expected = {
        "allow": "evaluate",
        "ask": "ask",
        "pending": "resolve_permissions",
        "deny": "cancel_tool",
    }[stand]
    assert given(*before, STRICTER).actions() == [expected]


def test_a_policy_that_is_what_it_was_makes_a_decision_current_again() -> None:
    scenario = given(*decided(PAY), STRICTER)
    assert scenario.actions() == ["evaluate"]
    scenario.given(Change({"permission_mode": "default"}))
    assert scenario.actions() == ["start_tool"]


def test_parallel_questions_are_two_and_answered_in_any_order() -> None:
    both: list[Writing] = [scheduled(0, PAY), scheduled(1, PAY)]
    asks: list[Writing] = [
        evaluated(0, Verdict.ASK),
        OnCall(0, Ask("first?")),
        evaluated(1, Verdict.ASK),
        OnCall(1, Ask("second?")),
    ]
    scenario = given(*answered(PAY, PAY), both, asks)
    ids = [e.data.permission_id for e in scenario.events if e.type == "permission_requested"]
    assert ids == ["r1.t1.a1.c0.p1", "r1.t1.a1.c1.p1"]
    scenario.given(OnCall(1, Resolve(Verdict.DENY)))
    assert (decision(scenario), decision(scenario, 1)) == (Decision.PENDING, Decision.DENY)
    scenario.given(OnCall(0, Resolve(Verdict.ALLOW)))
    assert scenario.actions() == ["start_tool", "cancel_tool"]


def test_a_second_question_about_a_call_has_an_id_of_its_own() -> None:
    again: Commit = [WITHDRAW, evaluated(0, Verdict.ASK), ASK]
    outcome = given(*ASKED, STRICTER).when(again)
    assert outcome.events[-1].data.permission_id == "r1.t1.a1.c0.p2"
    late = forged(ALLOW, data={"permission_id": "r1.t1.a1.c0.p1"})
    outcome.scenario.when(late).refused("the answer names the open question")


def test_a_decision_covers_every_segment_of_the_call() -> None:
    scenario = given(*ALLOWED, running(0), in_call(0, Suspend(None, {})), in_call(0, Answer(1)))
    assert scenario.actions() == ["start_tool"]
    scenario.when(in_call(0, Complete({"output": "as answered"}))).then("tool_completed")


def test_verdicts_of_siblings_are_their_own() -> None:
    both: list[Writing] = [scheduled(0, LOOK), scheduled(1, PUT), evaluated(0), evaluated(1, Verdict.DENY)]
    scenario = given(*answered(LOOK, PUT), both)
    assert scenario.actions() == ["start_tool", "cancel_tool"]

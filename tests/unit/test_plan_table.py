"""The plan's table, row by row, with nothing in flight and with what is.

Row 0 (a journal that cannot be read on, or is cut inside a command) is decided by
those who read journals; here is what the fold shows them. The crash table is in
`test_domain_crashes.py`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain import turn
from domain.decider import StartAttempt
from domain.inputs import FinishPreparation
from domain.lifecycle import fold
from domain.next_steps import Action, Step, next_steps, preparing, stop
from domain.state import State
from domain.values import OnLostAttempt
from minutebook.testing.scenario import (
    PAY,
    SETTINGS,
    Writing,
    accepted,
    attempt,
    created,
    given,
    started,
)
from tests.unit.domain_cases import (
    FINAL,
    OTHER,
    START,
    begun,
)
from tests.unit.plan_rows import A1, BEGIN, FOREIGN, HOST, OPERATOR, ROWS, Expected, Row

#: By row: the types of the events that its first step names.
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

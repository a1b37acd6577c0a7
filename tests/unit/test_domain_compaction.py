"""Compaction: one at a time, never beside a turn, ended after its attempt."""

from __future__ import annotations

import pytest

from domain import events as ev
from domain.compaction import FailCompaction
from domain.errors import ModelFailed
from domain.inputs import ApplyInput, FinishPreparation
from domain.model_attempt import Fail, Reconcile
from domain.request import StartRequest
from domain.turn import StartTurn
from domain.values import Priority
from minutebook.testing.scenario import Commit, Writing, created, given, recorded, responded
from tests.unit.domain_cases import (
    DIGEST,
    FINAL,
    START,
    TURN,
    Case,
    compaction_attempt,
    compaction_begun,
    table,
)

OPEN = (created(), compaction_begun())
SENT = (created(), [compaction_begun(), compaction_attempt()])
GIVE_UP = FailCompaction("c-1", "no summary")
FAILED = Fail(ModelFailed("overloaded", "try later", retryable=True))
END_OF_NONE = recorded(ev.ModelRequestAborted(reason="abort"), model_attempt_id="c-1.a1")
SUMMARY = recorded(
    ev.CompactionCompleted(compaction_id="c-1", summary="short", upto_sequence=1), aggregate_id="c-1"
)

CASES = [
    Case("one compaction at a time", OPEN, compaction_begun("c-2"), compaction_begun("c-2"), (created(),)),
    Case("a compaction is open", (created(),), GIVE_UP, GIVE_UP, OPEN),
    Case("it names the open compaction", OPEN, FailCompaction("c-2", "x"), GIVE_UP),
    Case("no compaction inside a turn", TURN, compaction_begun(), compaction_begun(), FINAL),
    Case("a compaction ends after its attempt", SENT, GIVE_UP, [FAILED, GIVE_UP]),
    Case("a compaction ends after its attempt", SENT, SUMMARY, [responded(), SUMMARY]),
    Case(
        "an attempt is within a turn or a compaction", FINAL, compaction_attempt(), compaction_attempt(), OPEN
    ),
    Case("an attempt is active", OPEN, END_OF_NONE, END_OF_NONE, SENT),
    Case(
        "an attempt within a compaction is for it",
        OPEN,
        compaction_attempt(purpose="turn"),
        compaction_attempt(),
    ),
    Case("one attempt at a time", SENT, compaction_attempt(2), compaction_attempt(2), (*SENT, FAILED)),
    Case("attempts are numbered", (*SENT, FAILED), compaction_attempt(3), compaction_attempt(2)),
    Case("attempt ids are derived", OPEN, compaction_attempt(1, "c-2.a1"), compaction_attempt(1)),
]


@table(CASES)
def test_it_refuses_and_allows(case: Case) -> None:
    case.refuse()
    case.allow()


@pytest.mark.parametrize("before", [START[:1], START, FINAL], ids=["idle", "accepted", "between turns"])
def test_it_may_begin_wherever_no_turn_is(before: tuple[Commit, ...]) -> None:
    scenario = given(*before)
    scenario.given([compaction_begun(), compaction_attempt()])
    assert scenario.actions() == ["fail_compaction"]
    assert scenario.actions(frozenset({"c-1"})) == ["await"]


def test_nothing_else_is_planned_meanwhile() -> None:
    scenario = given(*START, compaction_begun())
    assert scenario.actions() == ["fail_compaction"]
    prepared: list[Writing] = [
        ApplyInput("i-1", Priority.NEXT, 1),
        StartRequest(),
        FinishPreparation(("i-1",)),
    ]
    scenario.given(prepared).when(StartTurn(1, DIGEST)).refused("no turn while a compaction is open")


def test_what_a_crash_left_is_failed_with_its_attempt_lost() -> None:
    outcome = given(*SENT).when([Reconcile("lost", "asked"), FailCompaction("c-1", "process_restart")])
    scenario = outcome.then("model_outcome_reconciled", ev.CompactionFailed)
    assert scenario.state.compaction is None
    assert scenario.state.compaction_attempt is None


def test_its_response_declares_no_calls_and_counts_for_no_request() -> None:
    scenario = given(*FINAL, [compaction_begun(), compaction_attempt()], [responded(), SUMMARY])
    assert scenario.state.calls == ()
    assert scenario.state.request is not None
    assert dict(scenario.state.request.usage) == {"input_tokens": 3, "output_tokens": 2}
    assert scenario.actions() == ["finalize_request"]

"""Budgets: what is counted, when a limit is reached, and what then may not follow any more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from domain import budget, snapshot, turn
from domain import events as ev
from domain.budget import Limits, SetBudget, Spending, Tokens
from domain.decider import OnCall
from domain.errors import ModelFailed
from domain.lifecycle import fold
from domain.model_attempt import Abandon, Fail, Finish, Reconcile
from domain.model_ports import Response
from domain.request import AcceptRequest
from domain.request import Complete as CompleteRequest
from domain.tool import Complete
from domain.values import BudgetLevel, Priority, Stop
from minutebook.testing.scenario import (
    LOOK,
    PAY,
    PUT,
    SETTINGS,
    Commit,
    Scenario,
    Writing,
    accepted,
    attempt,
    created,
    evaluated,
    given,
    recorded,
    responded,
    running,
    scheduled,
    started,
)
from tests.unit.domain_cases import DIGEST, Case, compaction_attempt, compaction_begun, sent

RATES = (("input", 2_000_000), ("output", 10_000_000))
#: What `responded` reports is 3 tokens in and 2 out.
FIVE = SetBudget(Limits(max_tokens=5))
PLENTY = SetBudget(Limits(max_tokens=1000))
CENTS = SetBudget(Limits(max_cost=26, rates=RATES))
FAILED = Fail(ModelFailed("overloaded", "no", retryable=True))


def under(limits: SetBudget, *commits: Commit) -> tuple[Commit, ...]:
    """The first attempt is out, under a budget."""
    return (created(), limits, accepted(), started(), *commits)


def reports(stop: Stop = Stop.END, **usage: int) -> Finish:
    return Finish(Response((), (), stop, usage))


#: The turn is over and another one is due; the budget is spent or not.
SPENT = under(FIVE, responded(stop=Stop.PAUSE), turn.CompleteTurn(0, "pause"))
UNSPENT = under(PLENTY, responded(stop=Stop.PAUSE), turn.CompleteTurn(0, "pause"))
#: The request is over.
DONE = under(FIVE, responded(), turn.CompleteTurn(0, "end"))


def idle(limits: SetBudget) -> tuple[Commit, ...]:
    """A request is over, an input waits."""
    over: list[Writing] = [turn.CompleteTurn(0, "end"), CompleteRequest("", {})]
    return under(limits, responded(), over, sent(2, Priority.LATER, None))


def exceeded(**data: Any) -> Any:
    return recorded(ev.BudgetExceeded(level=BudgetLevel.LIMIT, limit="tokens", **data))


CASES = [
    Case("a budget is more than what is spent already", UNSPENT, FIVE, SetBudget(Limits(max_tokens=6))),
    Case(
        "it states what was reached, once",
        UNSPENT,
        exceeded(tokens=5),
        SetBudget(Limits(max_tokens=6)),
    ),
    Case("the budget is not spent", SPENT, turn.StartTurn(2, DIGEST), turn.StartTurn(2, DIGEST), UNSPENT),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_refuses_and_allows(case: Case) -> None:
    case.refuse()
    case.allow()


@pytest.mark.parametrize(
    ("spent", "unspent", "commit"),
    [
        (SPENT, UNSPENT, turn.StartTurn(2, DIGEST)),
        (idle(FIVE), idle(PLENTY), AcceptRequest("i-2", SETTINGS, {}, 5)),
        (
            under(
                FIVE, FAILED, attempt(), reports(Stop.PAUSE, output_tokens=9), turn.CompleteTurn(0, "pause")
            ),
            under(PLENTY, FAILED, attempt(), reports(Stop.PAUSE), turn.CompleteTurn(0, "pause")),
            [turn.StartTurn(2, DIGEST), attempt()],
        ),
        ((*SPENT, compaction_begun()), (*UNSPENT, compaction_begun()), compaction_attempt()),
    ],
    ids=["turn", "request", "attempt", "compaction"],
)
def test_nothing_more_is_asked_of_a_model(
    spent: tuple[Commit, ...], unspent: tuple[Commit, ...], commit: Commit
) -> None:
    given(*spent).when(commit).refused("the budget is not spent")
    assert given(*unspent).when(commit).error is None


def test_an_attempt_that_would_follow_one_whose_tokens_spent_it_is_refused() -> None:
    """A failed attempt reports nothing, so only a budget that shrinks in between can do this: it may not."""
    scenario = given(*under(PLENTY, FAILED))
    state = replace(scenario.state, spending=replace(scenario.state.spending, tokens=1000))
    scenario.state = state
    scenario.when(attempt()).refused("the budget is not spent")


# --- what is recorded --------------------------------------------------------------------


def test_reaching_a_limit_is_recorded_with_what_reached_it() -> None:
    given(*under(FIVE)).when(responded()).then(
        "model_request_completed",
        ev.BudgetExceeded(level=BudgetLevel.LIMIT, limit="tokens", tokens=5),
    )


def test_it_may_not_go_unsaid() -> None:
    scenario = given(*under(FIVE))
    entry = scenario.compose(responded())
    with pytest.raises(Exception, match="the same commit goes on with budget_exceeded"):
        fold(scenario.state, [replace(entry.events[0], command_size=1)])


def test_coming_near_is_recorded_once() -> None:
    limits = SetBudget(Limits(max_tokens=20, warn_at=500))
    scenario = given(*under(limits), reports(Stop.PAUSE, output_tokens=9), turn.CompleteTurn(0, "pause"))
    again: list[Writing] = [turn.StartTurn(2, DIGEST), attempt()]
    scenario.given(again).when(reports(Stop.PAUSE, output_tokens=1)).then(
        "model_request_completed",
        ev.BudgetExceeded(level=BudgetLevel.WARNING, limit="tokens", tokens=10),
    )
    third: list[Writing] = [turn.CompleteTurn(0, "pause"), turn.StartTurn(3, DIGEST), attempt()]
    scenario.given(third).when(reports(Stop.PAUSE, output_tokens=9)).then("model_request_completed")
    fourth: list[Writing] = [turn.CompleteTurn(0, "pause"), turn.StartTurn(4, DIGEST), attempt()]
    scenario.given(fourth).when(reports(output_tokens=1)).then(
        "model_request_completed",
        ev.BudgetExceeded(level=BudgetLevel.LIMIT, limit="tokens", tokens=20),
    )


def test_a_new_budget_warns_anew_also_at_once() -> None:
    scenario = given(*DONE)
    warned = ev.BudgetExceeded(level=BudgetLevel.WARNING, limit="tokens", tokens=5)
    scenario.when(SetBudget(Limits(max_tokens=6))).then("budget_set", warned)
    scenario.when(SetBudget(Limits(max_tokens=6, warn_at=1000))).then("budget_set")
    scenario.when(SetBudget(None)).then("budget_set")
    assert scenario.state.spending.limits is None
    assert scenario.state.spending.tokens == 5


def test_a_response_that_an_operator_brings_counts_too() -> None:
    outcome = Reconcile("completed", "the log", Response((), (), Stop.END, {"output_tokens": 5}))
    given(*under(FIVE)).when(outcome).then("model_outcome_reconciled", "budget_exceeded")


def test_compactions_count_too() -> None:
    scenario = given(*UNSPENT, compaction_begun(), compaction_attempt()).given(reports(output_tokens=7))
    assert scenario.state.spending.tokens == 12


# --- what comes next ------------------------------------------------------------------------


def auto(action: str, reason: str = "") -> list[tuple[str, str]]:
    return [(action, reason)]


def planned(scenario: Scenario) -> list[tuple[str, str]]:
    return [(step.action.value, step.reason) for step in scenario.plan()]


def test_the_request_fails_instead_of_another_turn() -> None:
    assert planned(given(*SPENT)) == auto("fail_request", "budget")
    assert planned(given(*UNSPENT)) == auto("continue_request")


def test_calls_are_carried_out_first_and_their_results_stay() -> None:
    scenario = given(*under(FIVE, responded(LOOK)))
    assert planned(scenario) == auto("schedule_call")
    scenario.given(scheduled(0, LOOK), evaluated(0), running(0))
    scenario.given(OnCall(0, Complete({"output": "seen"})))
    assert planned(scenario) == auto("complete_turn")
    scenario.given(turn.CompleteTurn(1, "tool_calls"))
    assert planned(scenario) == auto("fail_request", "budget")


def test_a_call_nobody_knows_about_is_decided_first() -> None:
    scenario = given(*under(FIVE, responded(PAY), scheduled(0, PAY), evaluated(0), running(0)))
    assert planned(scenario) == auto("reconcile_tool_outcomes")
    again = given(*under(FIVE, responded(PUT), scheduled(0, PUT), evaluated(0), running(0)))
    assert planned(again) == auto("start_tool", "again")


def test_a_final_response_ends_the_request_as_ever() -> None:
    assert planned(given(*DONE)) == auto("finalize_request")


def test_inputs_aimed_at_it_stay_for_later() -> None:
    aimed = under(FIVE, sent(2, Priority.NOW), responded(LOOK))
    scenario = given(*aimed)
    assert scenario.state.steering_inputs() == ()
    assert planned(scenario) == auto("schedule_call")  # and not: reject it, somebody has something to say
    done = given(*under(FIVE, sent(2), responded(), turn.CompleteTurn(0, "end")))
    assert planned(done) == auto("finalize_request")


def test_no_request_starts_and_a_higher_budget_lets_it() -> None:
    scenario = given(*idle(FIVE))
    assert planned(scenario) == auto("none")
    assert planned(scenario.given(PLENTY)) == auto("start_next_request")


def test_a_failure_that_allows_no_further_attempt_is_what_is_told() -> None:
    scenario = given(*under(PLENTY, Fail(ModelFailed("bad_request", "no"))))
    spent = replace(scenario.state.spending, tokens=1000)
    scenario.state = replace(scenario.state, spending=spent)
    assert planned(scenario) == auto("fail_request", "model")
    retryable = given(*under(PLENTY, FAILED))
    retryable.state = replace(retryable.state, spending=spent)
    assert planned(retryable) == auto("fail_request", "budget")


# --- what is counted ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({}, Tokens()),
        ({"input_tokens": 10, "output_tokens": 4}, Tokens(10, 0, 0, 4, 0)),
        ({"input_tokens": 10, "cached_input_tokens": 6, "cache_write_tokens": 3}, Tokens(1, 6, 3)),
        ({"output_tokens": 10, "reasoning_tokens": 6}, Tokens(output=4, reasoning=6)),
        ({"total_tokens": 7}, Tokens(7)),
        ({"total_tokens": 7, "output_tokens": 2}, Tokens(5, output=2)),
        ({"total_tokens": 20, "input_tokens": 10, "output_tokens": 4}, Tokens(10, output=10)),
        ({"total_tokens": 3, "input_tokens": 10, "output_tokens": 4}, Tokens(10, output=4)),
        ({"input_tokens": 1, "cached_input_tokens": 6, "reasoning_tokens": 2}, Tokens(0, 6, 0, 0, 2)),
        ({"input_tokens": -5, "output_tokens": 2}, Tokens(output=2)),
    ],
    ids=str,
)
def test_no_token_is_counted_twice(usage: dict[str, int], tokens: Tokens) -> None:
    assert budget.by_kind(usage) == tokens


@pytest.mark.parametrize(
    ("tokens", "rates", "cost"),
    [
        (Tokens(1_000_000), {"input": 3}, 3),
        (Tokens(1), {"input": 1}, 1),  # rounded up
        (Tokens(0), {"input": 1}, 0),
        (Tokens(1_000_000, 1_000_000, 1_000_000, 1_000_000, 1_000_000), {"input": 1, "output": 10}, 23),
        (
            Tokens(0, 1_000_000, 1_000_000, 0, 1_000_000),
            {"cached_input": 5, "cache_write": 7, "reasoning": 0},
            12,
        ),
    ],
    ids=str,
)
def test_a_kind_without_a_price_costs_what_its_kin_does(
    tokens: Tokens, rates: dict[str, int], cost: int
) -> None:
    assert budget.price(tokens, rates) == cost


def test_tokens_are_priced_once_by_the_first_rates_there_are() -> None:
    scenario = given(*UNSPENT)
    assert (scenario.state.spending.cost, scenario.state.spending.unpriced) == (0, Tokens(3, 0, 0, 2, 0))
    scenario.given(SetBudget(Limits(max_cost=1000, rates=RATES)))
    assert (scenario.state.spending.cost, scenario.state.spending.unpriced) == (26, Tokens())
    scenario.given(SetBudget(Limits(max_cost=1000, rates=(("input", 1), ("output", 1)))))
    assert scenario.state.spending.cost == 26


def test_a_limit_of_cost_is_reached_as_one_of_tokens_is() -> None:
    reached = ev.BudgetExceeded(level=BudgetLevel.LIMIT, limit="cost", tokens=5, cost=26)
    given(*under(CENTS)).when(responded()).then("model_request_completed", reached)
    more = SetBudget(Limits(max_cost=27, rates=RATES, warn_at=1000))
    given(*under(more)).when(responded()).then("model_request_completed")


@pytest.mark.parametrize(
    ("ended", "unseen"),
    [
        (Fail(ModelFailed("overloaded", "no", retryable=True, bytes_sent=True)), 1),
        (Fail(ModelFailed("connect", "no", retryable=True, bytes_sent=False)), 0),
        (Abandon("detached"), 1),
        (Reconcile("lost", "nobody knows"), 1),
        (Reconcile("failed", "the log"), 1),
        (reports(), 1),
        (reports(output_tokens=1), 0),
    ],
    ids=["sent", "never sent", "aborted", "lost", "failed", "no report", "report"],
)
def test_what_may_have_been_billed_unseen_is_counted_beside(ended: Commit, unseen: int) -> None:
    assert given(*under(FIVE, ended)).state.spending.unseen == unseen


def test_a_session_without_a_budget_counts_and_has_no_limit() -> None:
    state = given(created(), accepted(), started(), responded()).state
    assert state.spending == Spending(tokens=5, unpriced=Tokens(3, 0, 0, 2, 0))
    assert not state.spending.is_spent


# --- as stored -----------------------------------------------------------------------------------


def test_it_is_in_the_snapshot_and_one_of_the_old_shape_is_passed_over() -> None:
    state = given(*under(CENTS, responded())).state
    taken = snapshot.take(state, b"h" * 32)
    restored = snapshot.restore(taken)
    assert restored == state
    assert restored is not None
    assert restored.spending.level is BudgetLevel.LIMIT
    assert snapshot.restore(replace(taken, version=1)) is None


def test_the_order_of_rates_does_not_matter() -> None:
    one = ev.BudgetSet(max_cost=1, rates={"input": 1, "output": 2})
    other = ev.BudgetSet(max_cost=1, rates={"output": 2, "input": 1})
    assert budget.after(Spending(), one) == budget.after(Spending(), other)


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 0},
        {"max_cost": 0},
        {"warn_at": 0},
        {"warn_at": 1001},
        {"rates": {"thinking": 1}},
        {"rates": {"input": -1}},
    ],
    ids=str,
)
def test_a_payload_that_makes_no_sense_is_none(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        ev.BudgetSet(**fields)


def test_money_is_written_as_people_write_it() -> None:
    assert [budget.money(n) for n in (0, 1, 1_000_000, 12_340_000, 1_234_567)] == [
        "0.00",
        "0.000001",
        "1.00",
        "12.34",
        "1.234567",
    ]

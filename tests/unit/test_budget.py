"""`mb.Budget`: money becomes whole numbers, and what makes no sense is refused by name."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.budget import Limits, Spending
from domain.errors import InvalidOptions
from minutebook.budget import Budget, Money, SessionUsage, check_unspent
from projections.usage import Sum, Usage

RATES: dict[str, Money] = {"input": 3, "output": "15.5"}


def test_a_budget_is_journaled_in_whole_numbers() -> None:
    budget = Budget(
        max_tokens=10, max_cost=0.1, rates={**RATES, "cached_input": Decimal("0.3")}, warn_at=0.75
    )
    rates = (("cached_input", 300_000), ("input", 3_000_000), ("output", 15_500_000))
    assert budget.limits() == Limits(10, 100_000, rates, 750)
    assert Budget(max_tokens=1).limits() == Limits(1, None, (), 800)


@given(st.decimals(min_value=0, max_value=10**9, places=6))
def test_no_amount_down_to_a_millionth_is_rounded(amount: Decimal) -> None:
    limits = Budget(max_cost=1, rates={"input": str(amount), "output": amount}).limits()
    assert {rate for _, rate in limits.rates} == {int(amount * 1_000_000)}


@given(st.floats(min_value=0, max_value=1e9).map(lambda amount: round(amount, 6)))
def test_a_float_is_the_number_that_was_written(amount: float) -> None:
    limits = Budget(max_cost=1, rates={"input": amount, "output": amount}).limits()
    assert limits.rates[0][1] == round(Decimal(repr(amount)) * 1_000_000)


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({}, "budget"),
        ({"warn_at": 0.5}, "budget"),
        ({"rates": RATES}, "budget"),
        ({"max_tokens": 0}, "budget.max_tokens"),
        ({"max_tokens": -1}, "budget.max_tokens"),
        ({"max_tokens": True}, "budget.max_tokens"),
        ({"max_tokens": 1.5}, "budget.max_tokens"),
        ({"max_tokens": "1000"}, "budget.max_tokens"),
        ({"max_tokens": 1, "rates": RATES}, "budget.rates"),
        ({"max_cost": 1}, "budget.rates"),
        ({"max_cost": 1, "rates": {}}, "budget.rates"),
        ({"max_cost": 1, "rates": {"input": 1}}, "budget.rates"),
        ({"max_cost": 1, "rates": {**RATES, "images": 1}}, "budget.rates"),
        ({"max_cost": 1, "rates": {**RATES, "input": -1}}, "budget.rates.input"),
        ({"max_cost": 1, "rates": {**RATES, "input": "free"}}, "budget.rates.input"),
        ({"max_cost": 1, "rates": {**RATES, "input": None}}, "budget.rates.input"),
        ({"max_cost": 0, "rates": RATES}, "budget.max_cost"),
        ({"max_cost": float("nan"), "rates": RATES}, "budget.max_cost"),
        ({"max_cost": float("inf"), "rates": RATES}, "budget.max_cost"),
        ({"max_cost": 10**15, "rates": RATES}, "budget.max_cost"),
        ({"max_cost": Decimal("sNaN"), "rates": RATES}, "budget.max_cost"),
        ({"max_cost": True, "rates": RATES}, "budget.max_cost"),
        ({"max_cost": [], "rates": RATES}, "budget.max_cost"),
        ({"max_tokens": 1, "warn_at": 0}, "budget.warn_at"),
        ({"max_tokens": 1, "warn_at": 1.01}, "budget.warn_at"),
        ({"max_tokens": 1, "warn_at": True}, "budget.warn_at"),
        ({"max_tokens": 1, "warn_at": "most"}, "budget.warn_at"),
        ({"max_tokens": 1, "warn_at": float("nan")}, "budget.warn_at"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_by_name(options: dict[str, Any], option: str) -> None:
    with pytest.raises(InvalidOptions) as refused:
        Budget(**options)
    assert refused.value.option == option


def test_a_budget_that_is_used_up_says_how_much_was_used() -> None:
    check_unspent(Spending(Limits(max_tokens=10), tokens=9))
    with pytest.raises(InvalidOptions, match="10 of 10 tokens; 2 attempts may have been billed unseen"):
        check_unspent(Spending(Limits(max_tokens=10), tokens=10, unseen=2))


def test_cost_is_known_once_there_are_rates() -> None:
    def cost(spending: Spending) -> Decimal | None:
        return SessionUsage(Usage(), lambda: spending).cost

    assert cost(Spending()) is None
    assert cost(Spending(Limits(max_tokens=1))) is None
    assert cost(Spending(Limits(max_cost=1, rates=(("input", 1),)))) == 0
    assert cost(Spending(None, cost=1_500_000)) == Decimal("1.5")
    assert SessionUsage(Usage(), Spending).request("r9") == Sum()

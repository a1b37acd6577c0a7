"""What a session may spend, as an application says it, and what it has spent so far.

The rules are in `domain.budget`; here money becomes whole numbers and back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Final

from domain.budget import KINDS, PRICED_TOKENS, WHOLE, Limits, Spending, told
from domain.errors import InvalidOptions
from projections.usage import Sum, Usage

Money = Decimal | int | float | str

_LARGEST: Final = 10**18


@dataclass(frozen=True, slots=True)
class Budget:
    """What the whole session may spend. Money is in whatever unit the rates are in.

    Once a limit is reached nothing more is asked of a model: calls of the response that
    reached it are carried out, then the request fails with BUDGET_SPENT and queued inputs
    stay queued. A response is never cut off, so the last one may go beyond the limit. Only
    what providers report counts: attempts that may have been billed unseen are counted
    beside it, see `session.usage`.

    Args:
        max_tokens: input and output tokens together, as the providers report them.
        max_cost: needs `rates`.
        rates: what a million tokens cost, by kind: input, output, cached_input,
            cache_write, reasoning. A kind that is not named costs what input or output does.
        warn_at: the share of a limit at which it is recorded that it is near.

    Raises:
        InvalidOptions: no limit, one below 1, a price without a limit of cost, and so on.
    """

    max_tokens: int | None = None
    max_cost: Money | None = None
    rates: Mapping[str, Money] | None = None
    warn_at: float = 0.8

    def __post_init__(self) -> None:
        self.limits()

    def limits(self) -> Limits:
        """The budget as it is journaled."""
        if self.max_tokens is None and self.max_cost is None:
            raise InvalidOptions("budget", "max_tokens, or max_cost with rates", self)
        tokens = self.max_tokens
        if tokens is not None and (type(tokens) is not int or not 1 <= tokens <= _LARGEST):
            expected = f"a whole number of tokens, 1 to {_LARGEST}, or None"
            raise InvalidOptions("budget.max_tokens", expected, tokens)
        return Limits(self.max_tokens, self._cost(), self._rates(), self._share())

    def _cost(self) -> int | None:
        if self.max_cost is None:
            return None
        if not self.rates:
            raise InvalidOptions("budget.rates", "prices, because there is a max_cost", self.rates)
        cost = _millionths("budget.max_cost", self.max_cost)
        if cost < 1:
            raise InvalidOptions("budget.max_cost", "an amount of at least 0.000001", self.max_cost)
        return cost

    def _rates(self) -> tuple[tuple[str, int], ...]:
        if self.rates is None:
            return ()
        if not isinstance(self.rates, Mapping):
            raise InvalidOptions("budget.rates", "a mapping from kinds to prices, or None", self.rates)
        if self.max_cost is None:
            raise InvalidOptions("budget.rates", "a max_cost beside it", self.rates)
        unknown = sorted(map(str, self.rates.keys() - set(KINDS)))
        if unknown:
            raise InvalidOptions("budget.rates", f"kinds among {', '.join(KINDS)}", unknown)
        missing = {"input", "output"} - self.rates.keys()
        if missing:
            raise InvalidOptions("budget.rates", "at least input and output", sorted(self.rates))
        return tuple(sorted((k, _millionths(f"budget.rates.{k}", v)) for k, v in self.rates.items()))

    def _share(self) -> int:
        expected = "a share above 0, up to 1"
        if isinstance(self.warn_at, bool) or not isinstance(self.warn_at, int | float):
            raise InvalidOptions("budget.warn_at", expected, self.warn_at)
        if not 0 < self.warn_at <= 1:
            raise InvalidOptions("budget.warn_at", expected, self.warn_at)
        return max(1, round(self.warn_at * WHOLE))


def _millionths(option: str, amount: object) -> int:
    expected = "an amount of money from 0"
    if isinstance(amount, bool) or not isinstance(amount, Decimal | int | float | str):
        raise InvalidOptions(option, expected, amount)
    try:
        exact = Decimal(amount) * PRICED_TOKENS
        whole = int(exact.to_integral_value(ROUND_HALF_EVEN))
    except (InvalidOperation, ValueError, OverflowError):
        raise InvalidOptions(option, expected, amount) from None
    if not 0 <= whole <= _LARGEST:
        raise InvalidOptions(option, f"{expected}, at most {_LARGEST // PRICED_TOKENS}", amount)
    return whole


def check_unspent(spending: Spending) -> None:
    """Refuse a budget that is used up already. Raises InvalidOptions."""
    if spending.is_spent:
        raise InvalidOptions(
            "budget", f"limits above what is used already ({told(spending)})", "a spent budget"
        )


class SessionUsage:
    """What a session has used, as far as it is durable.

    Sums hold what the providers reported. `maybe_billed` in each counts attempts that
    ended, or have not ended, without a report, and may have been billed all the same.
    """

    def __init__(self, usage: Usage, spending: Callable[[], Spending]) -> None:
        self._usage, self._spending = usage, spending

    def session(self) -> Sum:
        """Everything since the session began."""
        return self._usage.session

    def request(self, request_id: str) -> Sum:
        """One request; nothing yet: zeros."""
        return self._usage.requests.get(request_id, Sum())

    @property
    def cost(self) -> Decimal | None:
        """What the reported tokens cost, None while no budget with rates was set.

        Each attempt is priced once: by the rates in force at its end, or else by the
        first that are set later.
        """
        spending = self._spending()
        priced = spending.cost or (spending.limits is not None and spending.limits.rates)
        return Decimal(spending.cost) / PRICED_TOKENS if priced else None

    @property
    def is_spent(self) -> bool:
        """Whether a limit of the budget is reached."""
        return self._spending().is_spent

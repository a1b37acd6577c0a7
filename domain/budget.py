"""Budget: what a session may spend, and what it has spent by its journal.

A part of the control state like the queue: it is folded by `domain.lifecycle`, which
lets nothing begin that would spend more once a limit is reached. Whole numbers only:
tokens, and money in millionths of whatever unit the prices are in.

Only what providers reported is counted. An attempt that ended without a report and may
have been billed all the same is counted as `unseen`, beside the sum and never in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from domain import events as ev
from domain.envelope import Recorded
from domain.events import Payload
from domain.rules import need
from domain.values import BudgetLevel

#: Prices are for so many tokens.
PRICED_TOKENS: Final = 1_000_000
#: In `BudgetSet.warn_at`: all of the budget.
WHOLE: Final = 1000

# --- commands -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetBudget:
    """Another budget from now on; None takes it away."""

    limits: Limits | None


# --- state --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token counts by what they cost; no token is in two of them."""

    input: int = 0
    cached_input: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0

    def plus(self, other: Tokens) -> Tokens:
        """The sum, kind by kind."""
        return Tokens(*(getattr(self, kind) + getattr(other, kind) for kind in KINDS))

    @property
    def total(self) -> int:
        """All of them."""
        return sum(getattr(self, kind) for kind in KINDS)


#: The kinds of tokens that a price list may name.
KINDS: Final = tuple(field.name for field in fields(Tokens))
#: What a kind costs where the price list does not name it.
_LIKE: Final = {"cached_input": "input", "cache_write": "input", "reasoning": "output"}


@dataclass(frozen=True, slots=True)
class Limits:
    """A budget as it is journaled.

    Args:
        max_tokens: at most so many tokens of every kind together.
        max_cost: at most so much money, in millionths.
        rates: by kind, what a million tokens cost, in millionths.
        warn_at: the share of a limit at which to warn, in thousandths.
    """

    max_tokens: int | None = None
    max_cost: int | None = None
    rates: tuple[tuple[str, int], ...] = ()
    warn_at: int = 800


@dataclass(frozen=True, slots=True)
class Spending:
    """What the session may spend and has spent.

    Args:
        tokens: as reported so far, of every kind together.
        cost: what was priced so far, in millionths.
        unpriced: what was reported while no price list was in force.
        unseen: attempts that ended without a report and may have been billed.
        level: what is on record about these limits being reached.
    """

    limits: Limits | None = None
    tokens: int = 0
    cost: int = 0
    unpriced: Tokens = Tokens()
    unseen: int = 0
    level: BudgetLevel | None = None

    @property
    def is_spent(self) -> bool:
        """Whether a limit is reached: nothing more may be asked of a model."""
        return self.reached(WHOLE) is not None

    def reached(self, share: int) -> str | None:
        """The limit ("tokens" or "cost") of which that share, in thousandths, is used up."""
        limits = self.limits
        if limits is None:
            return None
        if limits.max_tokens is not None and self.tokens * WHOLE >= limits.max_tokens * share:
            return "tokens"
        if limits.max_cost is not None and self.cost * WHOLE >= limits.max_cost * share:
            return "cost"
        return None

    @property
    def due(self) -> BudgetLevel | None:
        """The level that has been reached and is not on record yet."""
        if self.limits is None or self.level is BudgetLevel.LIMIT:
            return None
        if self.is_spent:
            return BudgetLevel.LIMIT
        if self.level is None and self.reached(self.limits.warn_at) is not None:
            return BudgetLevel.WARNING
        return None


# --- decide ---------------------------------------------------------------------------


def decide(command: SetBudget) -> Payload:
    """The event that carries out `command`."""
    limits = command.limits
    if limits is None:
        return ev.BudgetSet()
    return ev.BudgetSet(
        max_tokens=limits.max_tokens,
        max_cost=limits.max_cost,
        rates=dict(limits.rates),  # type: ignore[arg-type]  # checked by the payload
        warn_at=limits.warn_at,
    )


def notice(spending: Spending) -> Payload | None:
    """The event that is due because a share of a limit was reached, if one is."""
    if spending.due is None:
        return None
    assert spending.limits is not None
    share = WHOLE if spending.due is BudgetLevel.LIMIT else spending.limits.warn_at
    return ev.BudgetExceeded(
        level=spending.due,
        limit=spending.reached(share),  # type: ignore[arg-type]  # due: one of the two is reached
        tokens=spending.tokens,
        cost=spending.cost,
    )


def told(spending: Spending) -> str:
    """What is used of what, for people."""
    limits = spending.limits or Limits()
    parts = [f"{spending.tokens} of {limits.max_tokens} tokens"] if limits.max_tokens is not None else []
    if limits.max_cost is not None:
        parts.append(f"{money(spending.cost)} of {money(limits.max_cost)}")
    unseen = f"; {spending.unseen} attempts may have been billed unseen" if spending.unseen else ""
    return f"{', '.join(parts)}{unseen}"


def money(millionths: int) -> str:
    """An amount as people write it; at least two places."""
    whole, rest = divmod(millionths, PRICED_TOKENS)
    places = f"{rest:06}".rstrip("0")
    return f"{whole}.{places:0<2}"


# --- evolve ------------------------------------------------------------------------------


def evolve(state: Spending, event: Recorded) -> Spending:
    """Fold one event of the budget. Raises RuleViolated."""
    data = event.data
    if isinstance(data, ev.BudgetSet):
        return after(state, data)
    need(notice(state) == data, "it states what was reached, once", event)
    return replace(state, level=data.level)


def after(state: Spending, data: Payload) -> Spending:
    """The spending after a new budget, or after an attempt's end with what its provider reported."""
    match data:
        case ev.BudgetSet():
            return _set(state, data)
        case ev.ModelRequestCompleted():
            usage: dict[str, int] | None = data.response.usage
        case ev.ModelOutcomeReconciled():
            usage = data.response.usage if data.response is not None else None
        case ev.ModelRequestFailed():
            return replace(state, unseen=state.unseen + data.bytes_sent)
        case ev.ModelRequestAborted():
            usage = None
        case _:
            return state
    if not usage:
        return replace(state, unseen=state.unseen + 1)
    return _count(state, by_kind(usage))


def _set(state: Spending, data: ev.BudgetSet) -> Spending:
    # The order in which a price list names its kinds is nobody's decision.
    limits = Limits(data.max_tokens, data.max_cost, tuple(sorted(data.rates.items())), data.warn_at)
    none = data.max_tokens is None and data.max_cost is None
    set_ = replace(state, limits=None if none else limits, level=None)
    return _count(replace(set_, unpriced=Tokens()), state.unpriced, seen=0)


def _count(state: Spending, used: Tokens, seen: int | None = None) -> Spending:
    """Price tokens by the list in force; without one they wait for the next."""
    tokens = state.tokens + (used.total if seen is None else seen)
    rates = dict(state.limits.rates) if state.limits is not None else {}
    if not rates:
        return replace(state, tokens=tokens, unpriced=state.unpriced.plus(used))
    return replace(state, tokens=tokens, cost=state.cost + price(used, rates))


# --- tokens and prices --------------------------------------------------------------------


def by_kind(usage: Mapping[str, int]) -> Tokens:
    """A report by what its tokens cost.

    `input_tokens` holds `cached_input_tokens` and `cache_write_tokens`, `output_tokens`
    holds `reasoning_tokens`. What a total has beyond both is counted as well: as input
    where none was given, otherwise as output, where some servers leave reasoning out.
    """
    given: dict[str, Any] = {name: max(0, count) for name, count in usage.items()}
    cached, written = given.get("cached_input_tokens", 0), given.get("cache_write_tokens", 0)
    reasoning = given.get("reasoning_tokens", 0)
    whole_input = max(given.get("input_tokens", 0), cached + written)
    whole_output = max(given.get("output_tokens", 0), reasoning)
    beyond = max(0, given.get("total_tokens", 0) - whole_input - whole_output)
    if "input_tokens" in given:
        whole_output += beyond
    else:
        whole_input += beyond
    return Tokens(whole_input - cached - written, cached, written, whole_output - reasoning, reasoning)


def price(used: Tokens, rates: Mapping[str, int]) -> int:
    """What tokens cost, in millionths, rounded up."""
    whole = 0
    for kind in KINDS:
        rate = rates.get(kind, rates.get(_LIKE.get(kind, kind), 0))
        whole += getattr(used, kind) * rate
    return -(-whole // PRICED_TOKENS)

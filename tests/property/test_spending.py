"""Laws of what a session spends, over histories with random budgets, models and settings."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from domain import events as ev
from domain import snapshot
from domain.budget import Limits
from domain.envelope import Recorded
from domain.lifecycle import fold
from domain.model_ports import Response
from domain.next_steps import Action, next_steps
from domain.state import State
from domain.values import BudgetLevel
from minutebook.testing.histories import Walk, histories, tools_of, worlds
from minutebook.testing.scenario import LOOK, response
from minutebook.testing.world import World
from projections.usage import Usage
from tests.property.examples import share

KINDS = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_tokens", "reasoning_tokens")
#: What asks a model, or would.
ASKS = frozenset({"request_accepted", "turn_started", "model_request_started"})


def limits() -> st.SearchStrategy[Limits | None]:
    """Budgets that a short session may well reach."""
    rates = st.fixed_dictionaries(
        {"input": st.integers(0, 10**7), "output": st.integers(0, 10**7)},
        optional={"cached_input": st.integers(0, 10**7), "reasoning": st.integers(0, 10**7)},
    )
    priced = st.builds(
        lambda rates, cost, warn: Limits(None, cost, tuple(sorted(rates.items())), warn),
        rates,
        st.integers(1, 300),
        st.integers(1, 1000),
    )
    counted = st.builds(lambda n, warn: Limits(n, None, (), warn), st.integers(1, 40), st.integers(1, 1000))
    return st.one_of(st.none(), counted, priced)


def _usage() -> st.SearchStrategy[dict[str, int]]:
    counts = st.integers(0, 20)
    return st.one_of(st.just({}), st.dictionaries(st.sampled_from(KINDS), counts, min_size=2))


@st.composite
def spenders(draw: st.DrawFn) -> World:
    """Worlds whose models report all kinds of tokens, or none, under changing budgets."""
    world = draw(worlds())
    usages = draw(st.lists(_usage(), min_size=1, max_size=3))
    answers = [_reporting(answer, usages[n % len(usages)]) for n, answer in enumerate(world.responses)]
    budgets = draw(st.lists(limits(), min_size=1, max_size=3))
    return World(
        responses=(*answers, _reporting(response(LOOK), usages[0])),
        tools=(*tools_of(answers), LOOK),
        verdicts=world.verdicts,
        on_lost_attempt=world.on_lost_attempt,
        budgets=tuple(budgets),
    )


def _reporting(answer: Response, usage: dict[str, int]) -> Response:
    return Response(answer.blocks, answer.calls, answer.stop, usage)


def states(walk: Walk) -> list[tuple[Recorded, State]]:
    """Every event with the state after it."""
    state, found = State(walk.state.session_id), []
    for event in walk.events:
        state = fold(state, [event])
        found.append((event, state))
    return found


@share(60)
@given(histories(spenders()))
def test_what_was_spent_is_what_the_projection_says(walk: Walk) -> None:
    usage = Usage()
    for event, state in states(walk):
        usage.apply(event)
        whole = usage.session
        reported = sum(_whole(attempt.tokens) for attempt in usage.attempts)
        still_open = sum(attempt.outcome == "open" for attempt in usage.attempts)
        assert state.spending.tokens == reported
        assert state.spending.unseen + still_open == whole.maybe_billed


def _whole(tokens: Any) -> int:
    """All tokens of a report, no token twice."""
    cached: int = tokens.get("cached_input_tokens", 0) + tokens.get("cache_write_tokens", 0)
    fresh: int = max(tokens.get("input_tokens", 0), cached)
    said: int = max(tokens.get("output_tokens", 0), tokens.get("reasoning_tokens", 0))
    return fresh + said


@share(60)
@given(histories(spenders()))
def test_each_report_is_priced_once_and_never_below_its_price(walk: Walk) -> None:
    """An oracle that keeps every report and prices it in fractions, when rates are first known."""
    unpriced: list[dict[str, int]] = []
    rates: dict[str, int] = {}
    exact, reports = Fraction(0), 0
    for event, state in states(walk):
        if isinstance(event.data, ev.BudgetSet):
            rates = {str(kind): rate for kind, rate in event.data.rates.items()}
        used = _reported(event)
        if used:
            unpriced.append(used)
        if rates and unpriced:
            exact += sum((_price(each, rates) for each in unpriced), Fraction(0))
            reports += len(unpriced)
            unpriced.clear()
        assert exact <= state.spending.cost < exact + max(reports, 1)


def _reported(event: Recorded) -> dict[str, int] | None:
    kept = getattr(event.data, "response", None)
    return kept.usage if kept is not None else None


def _price(usage: dict[str, int], rates: dict[str, int]) -> Fraction:
    cached, written = usage.get("cached_input_tokens", 0), usage.get("cache_write_tokens", 0)
    thought = usage.get("reasoning_tokens", 0)
    fresh = max(usage.get("input_tokens", 0) - cached - written, 0)
    said = max(usage.get("output_tokens", 0) - thought, 0)
    return Fraction(
        (fresh + written) * rates["input"]
        + cached * rates.get("cached_input", rates["input"])
        + said * rates["output"]
        + thought * rates.get("reasoning", rates["output"]),
        1_000_000,
    )


@share(60)
@given(histories(spenders()))
def test_a_spent_budget_asks_no_model_and_plan_and_rules_agree(walk: Walk) -> None:
    before = State(walk.state.session_id)
    for event, state in states(walk):
        assert not (before.spending.is_spent and event.type in ASKS)
        if state.spending.is_spent and state.command.is_whole:
            asked = {
                Action.START_NEXT_REQUEST,
                Action.CONTINUE_REQUEST,
                Action.NEXT_ATTEMPT,
                Action.APPLY_INPUT,
            }
            assert not asked & {step.action for step in next_steps(state)}
        before = state


@share(60)
@given(histories(spenders()))
def test_what_was_reached_is_on_record_once_for_each_budget(walk: Walk) -> None:
    levels: list[BudgetLevel] = []
    for event, state in states(walk):
        if isinstance(event.data, ev.BudgetSet):
            levels = []
        if isinstance(event.data, ev.BudgetExceeded):
            levels.append(event.data.level)
        if state.command.is_whole:
            assert (BudgetLevel.LIMIT in levels) == state.spending.is_spent
            limits_ = state.spending.limits
            if limits_ is not None and state.spending.reached(limits_.warn_at):
                assert levels
        assert levels in (
            [],
            [BudgetLevel.WARNING],
            [BudgetLevel.LIMIT],
            [BudgetLevel.WARNING, BudgetLevel.LIMIT],
        )


@share(40)
@given(histories(spenders()), st.data())
def test_any_prefix_and_the_rest_fold_to_the_same_also_over_a_snapshot(
    walk: Walk, draw: st.DataObject
) -> None:
    cut = draw.draw(st.integers(0, len(walk.commits)))
    first = [event for commit in walk.commits[:cut] for event in commit]
    state = fold(State(walk.state.session_id), first)
    restored = snapshot.restore(snapshot.take(state, b"h" * 32)) if first else state
    assert restored == state
    assert restored is not None
    assert fold(restored, walk.events[len(first) :]) == walk.state


def test_the_histories_reach_limits_and_change_models() -> None:
    """Otherwise the laws above would hold of nothing."""
    seen: set[str] = set()
    reasons: set[str] = set()

    @settings(share(100), derandomize=True)  # no luck: the same histories every time
    @given(histories(spenders()))
    def look(walk: Walk) -> None:
        seen.update(event.type for event in walk.events)
        reasons.update(step.reason for state, _ in walk.moments for step in next_steps(state))

    look()
    assert seen >= {"budget_set", "budget_exceeded", "thinking_changed", "model_changed", "request_failed"}
    assert "budget" in reasons

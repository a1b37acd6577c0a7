"""The benchmark's judge, with figures made by hand: it must not be able to flatter."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from bench import goals
from bench.cases import FULL, QUICK, core, peers
from bench.goals import Goal, Judged, Samples, Verdict, judge, load_goals

#: A floor whose rounds agree, so that timed goals are judged.
QUIET = {"t1_floor": {"ms": [3.0, 3.1, 3.3]}}
RATIO = Goal("G-X", "soft", "ours over theirs", "ours.ms / theirs.ms", "theirs", at_most=2.0)
COUNT = Goal("G-Y", "hard", "commits", "ours.commits", "4", at_most=5)


def judged(goal: Goal, samples: Samples) -> Judged:
    return judge([goal], samples)[0]


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [([2.0], Verdict.MET), ([2.01], Verdict.MISSED), ([1.0, 9.0, 9.0], Verdict.MISSED)],
)
def test_a_ratio_beyond_its_bound_is_missed(ours: list[float], verdict: Verdict) -> None:
    found = judged(RATIO, {**QUIET, "ours": {"ms": ours}, "theirs": {"ms": [1.0] * len(ours)}})
    assert found.verdict is verdict


def test_a_lower_bound_is_missed_from_below() -> None:
    goal = replace(RATIO, at_most=None, at_least=0.5)
    samples = {**QUIET, "ours": {"ms": [0.4]}, "theirs": {"ms": [1.0]}}
    assert judged(goal, samples).verdict is Verdict.MISSED
    assert judged(goal, {**samples, "ours": {"ms": [0.5]}}).verdict is Verdict.MET


def test_a_ratio_is_taken_round_by_round() -> None:
    """A machine that gets slower does so for both sides."""
    found = judged(RATIO, {**QUIET, "ours": {"ms": [1.0, 10.0, 30.0]}, "theirs": {"ms": [1.0, 5.0, 10.0]}})
    assert (found.value, found.low, found.high) == (2.0, 1.0, 3.0)


def test_a_figure_of_one_round_stands_for_all() -> None:
    found = judged(RATIO, {**QUIET, "ours": {"ms": [2.0, 4.0, 6.0]}, "theirs": {"ms": [2.0]}})
    assert (found.value, found.low, found.high) == (2.0, 1.0, 3.0)


@pytest.mark.parametrize(
    "samples",
    [
        QUIET,
        {**QUIET, "ours": {"ms": [1.0]}},
        {**QUIET, "ours": {"ms": [1.0]}, "theirs": {"ms": []}},
        {**QUIET, "ours": {"ms": [1.0]}, "theirs": {"ms": [0.0]}},
        {**QUIET, "ours": {"ms": [float("nan")]}, "theirs": {"ms": [1.0]}},
    ],
    ids=["nothing", "one side", "no round", "divided by nothing", "not a number"],
)
def test_what_was_not_measured_is_never_met(samples: Samples) -> None:
    found = judged(RATIO, samples)
    assert found.verdict is Verdict.NOT_MEASURED
    assert found.value is None
    assert found.why


@pytest.mark.parametrize("ours", [[2.0], [1.0], [3.0, 1.9]], ids=["equal", "less", "one round"])
def test_a_difference_that_drowns_in_noise_is_not_measured(ours: list[float]) -> None:
    """A negative ratio would be far below any bound."""
    goal = replace(RATIO, value="(ours.ms - memory.ms) / theirs.ms")
    samples = {**QUIET, "ours": {"ms": ours}, "memory": {"ms": [2.0]}, "theirs": {"ms": [1.0]}}
    found = judged(goal, samples)
    assert (found.verdict, found.value) == (Verdict.NOT_MEASURED, None)
    assert "the noise is larger" in found.why


@pytest.mark.parametrize("floor", [[3.0, 4.9], [3.0], []], ids=["spread", "one round", "none"])
def test_a_run_without_a_quiet_floor_judges_no_time(floor: list[float]) -> None:
    samples = {"t1_floor": {"ms": floor}, "ours": {"ms": [1.0]}, "theirs": {"ms": [1.0]}}
    found = judged(RATIO, samples)
    assert (found.verdict, found.value) == (Verdict.NOISY, 1.0)


def test_a_count_is_judged_in_any_noise_and_by_its_worst_round() -> None:
    noisy = {"t1_floor": {"ms": [1.0, 9.0]}}
    assert judged(COUNT, {**noisy, "ours": {"commits": [5, 5, 5]}}).verdict is Verdict.MET
    found = judged(COUNT, {**noisy, "ours": {"commits": [5, 6, 5]}})
    assert (found.verdict, found.value) == (Verdict.MISSED, 6)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("a.x + 1", 3.0),
        ("(b.y - a.x) / 4", 1.0),
        ("max(a.x, b.y) * 0.5", 3.0),
        ("min(a.x, b.y, 1.5)", 1.5),
    ],
)
def test_expressions(expression: str, value: float) -> None:
    assert goals.rounds(expression, {"a": {"x": [2.0]}, "b": {"y": [6.0]}}) == [value]


@pytest.mark.parametrize("expression", ["__import__('os').getpid()", "a.x ** 2", "-a.x", "open('x')", "'1'"])
def test_an_expression_is_arithmetic_and_nothing_else(expression: str) -> None:
    with pytest.raises((ValueError, goals.NotMeasuredError)):
        goals.rounds(expression, {"a": {"x": [2.0]}})


@pytest.mark.parametrize(
    "change",
    [{"kind": "medium"}, {"at_least": 1.0}, {"at_most": None}],
    ids=["kind", "two bounds", "no bound"],
)
def test_a_goal_that_says_nothing_clear_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="G-X"):
        replace(RATIO, **change)  # type: ignore[arg-type]  # that is the point


# --- goals.toml -------------------------------------------------------------------------------


def figures(goal: Goal) -> list[str]:
    """The cases that a goal's expression names."""
    tree = ast.parse(goal.value, mode="eval")
    return [ast.unparse(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]


@pytest.mark.parametrize("goal", load_goals(), ids=lambda goal: goal.id)
def test_every_goal_names_cases_that_exist(goal: Goal) -> None:
    known = {case.id for profile in (QUICK, FULL) for case in (*core(profile), *peers(profile))}
    assert figures(goal)
    assert set(figures(goal)) - known == set()


def test_hard_goals_need_no_clock() -> None:
    timed = ("_us", "_ms", "per_s", ".ms")
    assert [g.id for g in load_goals() if g.kind == "hard" and g.value.endswith(timed)] == []


def test_goals_have_names_of_their_own() -> None:
    names = [goal.id for goal in load_goals()]
    assert len(set(names)) == len(names) > 25

"""Judging a run: is each goal met, missed, not measured, or not to be judged in this noise?

Pure: figures in, verdicts out. A missing figure never counts as a goal that is met.
"""

from __future__ import annotations

import ast
import math
import operator
import statistics
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

GOALS: Final = Path(__file__).with_name("goals.toml")
#: The case by which a run's noise is told, and the spread of it that is too much.
FLOOR_CASE: Final = "t1_floor"
FLOOR_FIGURE: Final = "ms"
MOST_SPREAD: Final = 1.6

#: case -> figure -> one value for each round.
Samples = Mapping[str, Mapping[str, Sequence[float]]]

_OPERATORS: Final[dict[type[ast.AST], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_FUNCTIONS: Final[dict[str, Callable[..., float]]] = {"min": min, "max": max}


class Verdict(StrEnum):
    """What came of a goal."""

    MET = "met"
    MISSED = "missed"
    NOT_MEASURED = "not measured"
    NOISY = "noisy"  # measured, and not judged


class NotMeasuredError(Exception):
    """An expression needs a figure that the run does not have."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One entry of `goals.toml`. Exactly one of `at_most` and `at_least` is given."""

    id: str
    kind: str
    title: str
    value: str
    compared: str
    at_most: float | None = None
    at_least: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("hard", "soft"):
            raise ValueError(f"{self.id}: kind has to be hard or soft, not {self.kind!r}")
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError(f"{self.id}: exactly one of at_most and at_least is needed")
        ast.parse(self.value, mode="eval")

    @property
    def bound(self) -> str:
        """The bound in words."""
        return f"<= {self.at_most:g}" if self.at_most is not None else f">= {self.at_least:g}"

    def is_met_by(self, value: float) -> bool:
        """Whether a value keeps the bound."""
        if self.at_most is not None:
            return value <= self.at_most
        assert self.at_least is not None
        return value >= self.at_least


@dataclass(frozen=True, slots=True)
class Judged:
    """A goal with what the run showed; `value`, `low`, `high` are None where nothing was measured."""

    goal: Goal
    verdict: Verdict
    value: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""


def load_goals(path: Path = GOALS) -> list[Goal]:
    """The goals of a file, in its order."""
    return [Goal(**entry) for entry in tomllib.loads(path.read_text())["goal"]]


def spread(samples: Samples) -> float:
    """The largest value of the floor case over its smallest; nan without two rounds of it."""
    values = samples.get(FLOOR_CASE, {}).get(FLOOR_FIGURE, ())
    return max(values) / min(values) if len(values) > 1 else math.nan


def is_quiet(samples: Samples) -> bool:
    """Whether timed goals can be judged: the floor was run more than once, and its rounds agree."""
    return spread(samples) < MOST_SPREAD  # never so for nan


def judge(goals: Sequence[Goal], samples: Samples) -> list[Judged]:
    """Each goal against the figures of a run."""
    quiet = is_quiet(samples)
    return [_judged(goal, samples, quiet) for goal in goals]


def _judged(goal: Goal, samples: Samples, quiet: bool) -> Judged:
    try:
        values = rounds(goal.value, samples)
    except (NotMeasuredError, ZeroDivisionError) as e:
        return Judged(goal, Verdict.NOT_MEASURED, why=str(e))
    value = statistics.median(values)
    if not math.isfinite(value):
        return Judged(goal, Verdict.NOT_MEASURED, why=f"the value is {value}")
    if goal.kind == "hard":  # every round has to keep it
        worst = max(values) if goal.at_most is not None else min(values)
        met = goal.is_met_by(worst)
        return Judged(goal, Verdict.MET if met else Verdict.MISSED, worst, min(values), max(values))
    verdict = Verdict.MET if goal.is_met_by(value) else Verdict.MISSED
    return Judged(goal, verdict if quiet else Verdict.NOISY, value, min(values), max(values))


def rounds(expression: str, samples: Samples) -> list[float]:
    """The expression's value in each round. A figure with one value only has it in every round.

    Raises:
        NotMeasuredError: a figure is missing, or a difference drowned in noise.
    """
    tree = ast.parse(expression, mode="eval").body
    named = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    series = {ast.unparse(node): _series(node, samples) for node in named}
    length = max((len(values) for values in series.values()), default=1)
    return [
        _value(tree, {name: values[n % len(values)] for name, values in series.items()})
        for n in range(length)
        if all(n < len(values) or len(values) == 1 for values in series.values())
    ]


def _series(node: ast.Attribute, samples: Samples) -> Sequence[float]:
    name = ast.unparse(node)
    case, _, figure = name.partition(".")
    values = samples.get(case, {}).get(figure)
    if not values or any(not isinstance(value, int | float) for value in values):
        raise NotMeasuredError(f"no figure {name} in this run")
    return values


def _value(node: ast.AST, known: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Attribute():
            return known[ast.unparse(node)]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _combined(op, _value(left, known), _value(right, known), ast.unparse(node))
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(each, known) for each in arguments))
    raise ValueError(f"expected figures, numbers, + - * / and min, max; got {ast.unparse(node)}")


def _combined(op: ast.operator, left: float, right: float, text: str) -> float:
    if isinstance(op, ast.Sub) and left <= right:  # a ratio of it would flatter, or mean nothing
        raise NotMeasuredError(f"{text} is not above 0: the noise is larger than the difference")
    return _OPERATORS[type(op)](left, right)


def to_plain(judged: Judged) -> dict[str, Any]:
    """As a document of plain values."""
    goal = judged.goal
    return {
        "id": goal.id,
        "kind": goal.kind,
        "title": goal.title,
        "bound": goal.bound,
        "compared": goal.compared,
        "verdict": judged.verdict.value,
        "value": judged.value,
        "low": judged.low,
        "high": judged.high,
        "why": judged.why,
    }

"""Every rule that the domain states is broken once and kept once by the tables of these tests.

A rule is a place: a call of `need`, or a `RuleViolated` that is raised by itself.
The places are read from the source; which of them a case reaches is seen by
running it. A rule that no case breaks makes this fail, and so does a case that
is refused by another rule than it names.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import pytest

import domain
from domain.rules import need
from tests.unit.domain_cases import Case

HERE = Path(__file__).parent
DOMAIN = Path(domain.__file__).parent
TABLES = sorted(path.stem for path in HERE.glob("test_domain_*.py") if path.stem != Path(__file__).stem)


@dataclass(frozen=True)
class Rule:
    """A place where a rule is stated. `kept` is whether it can be kept: a `need` can."""

    file: str
    first: int
    last: int
    text: str
    kept: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.first} {self.text}"


def rules(file: str, source: str) -> Iterator[Rule]:
    """The rules that a module states."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="need"), args=[_, text, *_], lineno=first, end_lineno=last):
                yield Rule(file, first, last or first, ast.unparse(text), kept=True)
            case ast.Raise(exc=ast.Call(func=ast.Name(id="RuleViolated"), args=[text, *_]), lineno=first):
                yield Rule(file, first, node.end_lineno or first, ast.unparse(text), kept=False)


RULES = [
    rule
    for path in sorted(DOMAIN.glob("*.py"))
    if path.name != "rules.py"
    for rule in rules(path.name, path.read_text())
]
CASES: list[Case] = [
    case for name in TABLES for case in getattr(importlib.import_module(f"tests.unit.{name}"), "CASES", ())
]
Place = tuple[str, int]


def at(place: Place) -> Iterator[Rule]:
    """The rule stated at a place."""
    file, line = place
    return (rule for rule in RULES if rule.file == file and rule.first <= line <= rule.last)


def broken_at(traceback: TracebackType | None) -> Place:
    """Where the rule was stated that refused."""
    frames: list[Place] = []
    while traceback is not None:
        if traceback.tb_frame.f_code is not need.__code__:
            frames.append((Path(traceback.tb_frame.f_code.co_filename).name, traceback.tb_lineno))
        traceback = traceback.tb_next
    return frames[-1]


@contextmanager
def kept_rules() -> Iterator[set[Place]]:
    """The places of the rules that hold while the block runs; a profiler watches, nothing is replaced."""
    places: set[Place] = set()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is need.__code__ and frame.f_locals["holds"]:
            caller = frame.f_back
            assert caller is not None
            places.add((Path(caller.f_code.co_filename).name, caller.f_lineno))

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield places
    finally:
        sys.setprofile(before)


def test_every_rule_is_broken_by_a_case() -> None:
    broken = {rule for case in CASES for rule in at(broken_at(case.refuse().__traceback__))}
    assert [str(rule) for rule in RULES if rule not in broken] == []


def test_every_rule_is_kept_by_the_case_beside_it() -> None:
    kept: set[Rule] = set()
    for case in CASES:
        with kept_rules() as places:
            case.allow()
        kept |= {rule for place in places for rule in at(place)}
    assert [str(rule) for rule in RULES if rule.kept and rule not in kept] == []


def test_the_tables_are_all_there() -> None:
    assert len(TABLES) >= 10
    assert len(CASES) > len(RULES) > 120


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("need(a, 'the rule', event)", ["'the rule'"]),
        ("need(\n    a,\n    f'at most {n}',\n    event,\n)", ["f'at most {n}'"]),
        ("if a:\n    raise RuleViolated('the rule', event.type)", ["'the rule'"]),
        ("raise RuleViolated(rule, a) from e", ["rule"]),
        ("x = RuleViolated", []),
    ],
)
def test_it_sees_the_rules_of_a_module(source: str, expected: list[str]) -> None:
    assert [rule.text for rule in rules("x.py", source)] == expected

"""The page of what exists: no row is missing, and what a row claims is in the code and its tests."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import runpy
from collections import Counter
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import minutebook as mb
from domain import errors
from domain.settings import Settings
from minutebook.session import Session
from recovery.coordinator import RecoveryCoordinator

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MAKER = runpy.run_path(str(DOCS / "make_coverage.py"))
ROWS: list[dict[str, Any]] = [row for section in MAKER["sections"]() for row in section["row"]]
CLAIMED = [row for row in ROWS if row["state"] in ("done", "partly")]

#: What the words that a call may begin with stand for.
ROOTS = {
    "session": Session,
    "coordinator": RecoveryCoordinator,
    "ctx": mb.ToolContext,
    "mb.errors": errors,
    "mb": mb,
}
_CALL = re.compile(r"\b(mb\.errors|mb|session|coordinator|ctx)\.(\w+)(?:\.(\w+))?(?:\(([^()]*)\))?")
_OPTION = re.compile(r"(\w+)=")


def test_every_row_is_there_once() -> None:
    assert Counter(row["id"] for row in ROWS) == Counter(f"R{number:03d}" for number in range(1, 403))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_a_row_says_what_its_state_needs(row: dict[str, Any]) -> None:
    needs = {
        "done": {"api", "tests"},
        "partly": {"api", "tests", "missing"},
        "not yet": {"api"},
        "refused": {"reason"},
    }[row["state"]]
    assert row.keys() == {"id", "item", "state"} | needs
    assert all(row.values())


@pytest.mark.parametrize("row", CLAIMED, ids=lambda row: row["id"])
def test_the_tests_that_a_row_names_exist(row: dict[str, Any]) -> None:
    assert [test for test in row["tests"] if not _exists(test)] == []


def _exists(test: str) -> bool:
    path, *names = test.split("::")
    if not (ROOT / path).is_file():
        return False
    if len(names) == 1:
        return names[0] in _functions(ROOT / path)
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    return callable(getattr(getattr(module, names[0], None), names[1], None))


@cache
def _functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_bytes())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, functions))


@pytest.mark.parametrize("row", CLAIMED, ids=lambda row: row["id"])
def test_the_calls_that_a_row_names_exist(row: dict[str, Any]) -> None:
    for root, name, attribute, options in _CALL.findall(row["api"]):
        found = _member(ROOTS[root], name)
        assert found is not None, f"{root}.{name}"
        if attribute:
            inside = _member(_returned(found), attribute)
            assert inside is not None, f"{root}.{name}.{attribute}"
        for option in _OPTION.findall(options):
            assert option in _options(found), f"{root}.{name}({option}=)"


def _member(of: Any, name: str) -> Any:
    annotations = getattr(of, "__annotations__", {})
    return getattr(of, name, annotations.get(name))


def _returned(found: Any) -> Any:
    """The class of what a property gives, or the thing itself."""
    return get_type_hints(found.fget)["return"] if isinstance(found, property) else found


def _options(of: Any) -> set[str]:
    if of is mb.tool:
        return {field.name for field in fields(mb.ToolDefinition)}
    if of is Session.change:
        return set(Settings.model_fields)
    return set(inspect.signature(of).parameters)


def test_the_page_and_its_picture_are_made_from_the_file() -> None:
    told = "run: python docs/make_coverage.py"
    assert (DOCS / "coverage.md").read_text(encoding="utf-8") == MAKER["page"](), told
    assert (DOCS / "pictures" / "coverage.svg").read_text(encoding="utf-8") == MAKER["picture"](), told

"""What importing costs, and who may import whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import minutebook

ROOT = Path(__file__).parents[2]

#: Nothing of these may come with `import minutebook` or `python -m recovery`.
SDKS = {"anthropic", "eventsourcing", "google", "httpx", "httpx2", "mcp", "openai", "psycopg", "sqlite_utils"}


def loaded_by(code: str) -> set[str]:
    """Modules that a fresh Python has after `code`, less those it starts with."""
    probe = f"import sys; before = set(sys.modules)\n{code}\nprint(*set(sys.modules) - before, sep='\\n')"
    child = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return set(child.stdout.split())


def test_import_minutebook_loads_no_sdk_and_few_modules() -> None:
    loaded = loaded_by("import minutebook")
    assert {name.partition(".")[0] for name in loaded} & SDKS == set()
    # Counted, not timed: the guard and the standard library's import machinery, nothing else.
    assert "pydantic" not in loaded
    assert len(loaded) <= 60, sorted(loaded)


def test_the_public_names_load_no_sdk() -> None:
    code = "import minutebook\nfor name in minutebook.__all__: getattr(minutebook, name)"
    assert {name.partition(".")[0] for name in loaded_by(code)} & SDKS == set()


@pytest.mark.parametrize("name", minutebook.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(minutebook, name) is getattr(minutebook, name)
    assert name in dir(minutebook)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = minutebook.no_such_name


def test_type_checkers_see_the_same_names_from_the_same_places() -> None:
    tree = ast.parse((ROOT / "minutebook" / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = [
        (statement.module, alias.name, alias.asname)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    ]
    assert sorted(seen) == sorted(
        (module, name, name) for module, names in minutebook._EXPORTS.items() for name in names
    )


def test_the_import_contracts_hold() -> None:
    child = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache", "--no-logo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert child.returncode == 0, child.stdout
    assert "Contracts: 5 kept, 0 broken." in child.stdout

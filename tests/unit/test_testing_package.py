"""`minutebook.testing` as its users import it: light, complete, documented."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import minutebook.testing as mbt

ROOT = Path(__file__).parents[2]
HEAVY = (
    "pytest",
    "_pytest",
    "openai",
    "anthropic",
    "httpx",
    "httpx2",
    "eventsourcing",
    "hypothesis",
    "trio",
)


def loaded_after(program: str) -> set[str]:
    """Which of the heavy packages a fresh process has loaded after some statements."""
    loaded = "{name.partition('.')[0] for name in sys.modules}"
    told = f"{program}\nimport sys; print(*({loaded} & {set(HEAVY)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", told], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stdout.split())


def test_importing_it_loads_neither_pytest_nor_an_sdk() -> None:
    assert loaded_after("import minutebook.testing") == set()


def test_doubles_and_crash_tests_need_neither_pytest_nor_an_sdk() -> None:
    names = "ScriptedProvider, ReplayProvider, KillAt, every_life, given, serve, CHECKS, journal_of"
    assert loaded_after(f"from minutebook.testing import {names}") == set()


def test_every_name_is_there_and_says_what_it_is() -> None:
    for name in mbt.__all__:
        value = getattr(mbt, name)
        assert name in dir(mbt)
        assert name == "Tell" or getattr(value, "__doc__", None), name  # a plain alias says nothing


def test_another_name_is_none_of_it() -> None:
    with pytest.raises(AttributeError, match="no attribute 'unheard_of'"):
        mbt.unheard_of  # noqa: B018  # looking it up is what is tested


def test_the_page_tells_of_what_there_is() -> None:
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    told = {
        "NEVER",
        "Ended",
        "Life",
        "Tell",
        "Sent",
        "Attempted",
        "Reply",
        "FakeServer",
        "serve_in_thread",
        "every_kill",
    }
    assert [name for name in mbt.__all__ if name not in page and name not in told] == []

"""The mutation gate's list is not rotten: its texts are in the code, its bugs are bugs, its tests exist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.bugs import ROOT, Bug, bugs, rotten

#: The project's own goal for the list.
ENOUGH = 12


def test_every_bug_has_its_place_in_the_code() -> None:
    found = bugs()
    assert rotten(found) == []
    assert len(found) >= ENOUGH
    assert len({bug.name for bug in found}) == len(found)


def test_every_named_test_exists() -> None:
    named = sorted({bug.test for bug in bugs()})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *named]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert collected.returncode == 0, collected.stdout[-2000:]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("is not there", "x", "found it 0 times"),
        ("a", "x", "found it 3 times"),
        ("1", "1", "it changes nothing"),
        ("# a", "# nothing", "it changes nothing"),
    ],
)
def test_a_rotten_bug_is_found(tmp_path: Path, old: str, new: str, told: str) -> None:
    (tmp_path / "module.py").write_text("b = 1\n# a\nbar = 'a'\n")
    (wrong,) = rotten([Bug("some bug", "module.py", old, new, "test")], tmp_path)
    assert told in wrong


def test_a_bug_in_a_file_that_is_gone_is_found(tmp_path: Path) -> None:
    (wrong,) = rotten([Bug("some bug", "module.py", "a", "b", "test")], tmp_path)
    assert "found it 0 times" in wrong

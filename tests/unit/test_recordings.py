"""Tests that need recordings: left out and counted where there are none; never so in the gate."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
A_SUITE = """
import pytest

@pytest.mark.parametrize("n", [1, 2, 3])
def test_wire(wire_dir, n):
    assert [file.name for file in wire_dir.iterdir()] == ["one.json"]

def test_plain():
    pass
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite of its own, with this project's conftest and three tests that need recordings."""
    place = tmp_path / "checkout" / "tests"
    place.mkdir(parents=True)
    for needed in ("conftest.py", "corpus/canary.py"):
        (place / needed).parent.mkdir(exist_ok=True)
        (place / needed).write_text((ROOT / "tests" / needed).read_text())
    (place / "test_it.py").write_text(A_SUITE)
    (place.parent / "pytest.ini").write_text("[pytest]\n")
    return place.parent


def run(suite: Path, *arguments: str, **environment: str) -> list[str]:
    child = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=suite,
        env={"PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.returncode == 0, child.stdout
    return child.stdout.splitlines()


def test_without_recordings_they_are_left_out_and_counted(suite: Path) -> None:
    *_, said, closing = run(suite)
    assert said.startswith("3 wire tests left out: no recordings in ")
    assert "1 passed, 3 deselected" in closing


@pytest.mark.parametrize("how", ["option", "variable", "neighbour"])
def test_with_recordings_they_run(suite: Path, how: str) -> None:
    place = suite.parent / "shared" / "wire" if how == "neighbour" else suite / "recordings"
    place.mkdir(parents=True)
    (place / "one.json").write_text("{}")
    if how == "option":
        lines = run(suite, f"--wire={place}")
    else:
        lines = run(suite, **({"MINUTEBOOK_WIRE": str(place)} if how == "variable" else {}))
    assert "4 passed" in lines[-1]
    assert "left out" not in "".join(lines)


def test_the_gate_fails_without_recordings(tmp_path: Path) -> None:
    child = subprocess.run(
        ["bash", ROOT / ".ci" / "run"],
        env={"MINUTEBOOK_WIRE": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.returncode == 1
    assert f"No recordings in {tmp_path}" in child.stderr
    assert child.stdout == ""

"""The mutation gate: `python -m tests.mutants [WORD...]`, or `make mutants`.

Makes each seeded bug in a copy of the tree, runs the test that has to notice it, and says which
bugs nobody noticed. Words choose bugs by what is in their names. The tree itself is not touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from tests.mutants.bugs import ROOT, Bug, bugs, rotten

#: How many bugs are tried at a time.
HANDS: Final = 2
#: What the right test may take. A bug that makes it hang was noticed by nobody.
PATIENCE_S: Final = 60
#: What every named test may take together, in the tree as it is.
PATIENCE_WITH_ALL_S: Final = 300
_LEFT_BEHIND: Final = shutil.ignore_patterns(
    ".git", ".venv", ".bench", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", "*.pyc"
)
_FAILED: Final = 1


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one bug. `trouble` is empty if its test failed."""

    bug: Bug
    trouble: str
    seconds: float


def main(words: Sequence[str]) -> int:
    chosen = [bug for bug in bugs() if all(word in bug.name for word in words)]
    wrong = rotten(chosen) or ([] if chosen else ["no bug of that name"])
    if not wrong:
        with tempfile.TemporaryDirectory(prefix="minutebook-mutants-") as place, ExitStack() as copies:
            trees = [copies.enter_context(_copy(Path(place) / str(hand))) for hand in range(HANDS)]
            wrong = _unharmed(trees[0], chosen) or _told(_tried(trees, chosen), len(chosen))
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


@contextmanager
def _copy(place: Path) -> Iterator[Path]:
    shutil.copytree(ROOT, place, ignore=_LEFT_BEHIND, symlinks=True)
    yield place


def _unharmed(tree: Path, chosen: Iterable[Bug]) -> list[str]:
    """What is wrong already where there is no bug: then a failure would prove nothing."""
    tests = sorted({bug.test for bug in chosen})
    began = time.monotonic()
    ended = _pytest(tree, tests, PATIENCE_WITH_ALL_S)
    if ended.returncode != 0:
        return [f"without any bug, expected {len(tests)} tests to pass:", ended.stdout[-3000:]]
    print(f"{len(tests)} tests pass without a bug ({time.monotonic() - began:.0f} s)")
    return []


def _tried(trees: Sequence[Path], chosen: Sequence[Bug]) -> Iterator[Tried]:
    free: SimpleQueue[Path] = SimpleQueue()
    for tree in trees:
        free.put(tree)

    def attempt(bug: Bug) -> Tried:
        tree = free.get()
        try:
            return _try(tree, bug)
        finally:
            free.put(tree)

    with ThreadPoolExecutor(len(trees)) as hands:
        yield from hands.map(attempt, chosen)


def _try(tree: Path, bug: Bug) -> Tried:
    path = tree / bug.file
    text = path.read_text()
    began = time.monotonic()
    path.write_text(bug.made_in(text))
    try:
        return Tried(bug, _trouble(tree, bug), time.monotonic() - began)
    finally:
        path.write_text(text)


def _trouble(tree: Path, bug: Bug) -> str:
    try:
        ended = _pytest(tree, [bug.test], PATIENCE_S)
    except subprocess.TimeoutExpired:
        return f"its test did not end within {PATIENCE_S} s"
    if ended.returncode == 0:
        return "SURVIVED"
    noticed = ended.returncode == _FAILED and f"FAILED {bug.test}" in ended.stdout
    return "" if noticed else f"its test did not fail but broke (exit code {ended.returncode})"


def _pytest(tree: Path, tests: Sequence[str], patience_s: float) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-B",
        "-m",
        "pytest",
        "-q",
        "-x",
        "-rfE",
        "--no-header",
        "-p",
        "no:cacheprovider",
    ]
    # Children of the tests have to see the copy too, also where the package is installed from the tree.
    world = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [*command, *tests],
        cwd=tree,
        env=world,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience_s,
    )


def _told(tried: Iterable[Tried], count: int) -> list[str]:
    """Print a row for each bug as it comes; the rows of those that nobody noticed."""
    survivors = []
    began = time.monotonic()
    for each in tried:
        row = f"{each.trouble or 'caught':<9} {each.seconds:5.1f} s  {each.bug.name:<58} {each.bug.test}"
        print(row, flush=True)
        survivors += [f"{each.bug.name}: {each.trouble}"] if each.trouble else []
    print(f"{count - len(survivors)} of {count} bugs caught ({time.monotonic() - began:.0f} s)")
    return survivors


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

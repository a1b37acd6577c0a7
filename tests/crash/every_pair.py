"""Kills in every recovery, at every point of the finest cut, at every statement, of two workers at once.

Not part of the suite, because of its name; run it by naming it, or with all the long runs:

    make test ARGS=tests/crash/every_pair.py
    make chaos

Of the pairs of a kill and a kill in the recovery from it there are about 8,000, and every third is tried.
All of them: `ARGS=--every=1`.
"""

from __future__ import annotations

import random
from typing import Final

import pytest

from minutebook.testing.crash import Ended, every_kill
from minutebook.testing.fork_server import ForkServer
from tests.crash.harness import new_life
from tests.crash.invariants import told_apart
from tests.crash.matrix import VARIANTS, Lived, Matrix, every_point, in_parallel, killed_again, unharmed
from tests.crash.test_two_workers import two_workers
from tests.long_runs import Numbers, share

SEED: Final = 1
#: The pairs, in parts that fail one by one.
PARTS: Final = 12
EVERY: Final = 3
#: Fewer pairs than this mean that the script has lost points.
FEWEST: Final = 2_000
#: How often two workers have a session, in parts.
SEEDS: Final = range(100, 200)
SEEDS_EACH: Final = 10


def told(numbers: Numbers, what: str, matrix: Matrix, seed: int | None = None) -> None:
    """Say what the lives of a matrix came to."""
    kills = sum(len(lived.kills) for lived in matrix.lives)
    counts = {"cases": len(matrix.lives), "killed": kills, **told_apart(matrix.wrong)}
    numbers.add(what, counts, seed=seed)


@pytest.mark.parametrize("part", range(PARTS))
def test_every_pair(part: int, servers: list[ForkServer], every: int | None, numbers: Numbers) -> None:
    variant, step = "as it is", every or EVERY
    matrix = unharmed(servers[0], variant)
    firsts = range(1 + part, len(matrix.points) + 1, PARTS)

    def lives(place: int) -> list[Lived]:
        return [
            lived
            for first in firsts[place :: len(servers)]
            for lived in killed_again(servers[place], variant, first, begin(first, step), step)
        ]

    for found in in_parallel(len(servers), lives):
        matrix.lives += found
    told(numbers, f"killed, and again in the recovery{share(step)}", matrix, SEED)
    assert matrix.wrong == []
    assert len(matrix.lives) * step >= FEWEST * EVERY // PARTS


def begin(first: int, step: int) -> int:
    """Which point of a recovery is the first to be tried: each has the same chance."""
    return random.Random(f"{SEED}/{first}").randint(1, step)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_point(variant: str, servers: list[ForkServer], numbers: Numbers) -> None:
    matrix = every_point(servers, variant)
    told(numbers, f"killed at every point, {variant}", matrix)
    assert matrix.wrong == []


@pytest.mark.parametrize("journal_mode", ["auto", "truncate"])
def test_every_statement(journal_mode: str, servers: list[ForkServer], numbers: Numbers) -> None:
    """Killed between the statements of any transaction, those for the lease among them."""

    def lives(place: int) -> list[list[str]]:
        """What was wrong in each."""
        found: list[list[str]] = []

        def run(statement: int) -> Ended:
            with new_life(servers[place], journal_mode=journal_mode) as life:
                ended = life.start(kill_in=("", statement))
                if ended.killed is not None:
                    wrong = [f"{ended.killed}: {w}" for w in life.examine().wrong]
                    life.start().completed()
                    last = life.examine(finished=True)
                    found.append([*wrong, *(f"{ended.killed}, at the end: {w}" for w in last.wrong)])
                return ended

        assert len(list(every_kill(run, first=1 + place, step=len(servers)))) > 40
        return found

    all_lives = [wrong for found in in_parallel(len(servers), lives) for wrong in found]
    all_wrong = [w for wrong in all_lives for w in wrong]
    counts = {"cases": len(all_lives), "killed": len(all_lives), **told_apart(all_wrong)}
    numbers.add(f"killed at every statement, journal mode {journal_mode}", counts)
    assert all_wrong == []


@pytest.mark.parametrize("first", SEEDS[::SEEDS_EACH])
def test_two_workers_that_are_killed_at_random(
    first: int, servers: list[ForkServer], numbers: Numbers
) -> None:
    all_wrong: list[str] = []
    for seed in SEEDS[first - SEEDS[0] :][:SEEDS_EACH]:
        ends, wrong = two_workers(seed, servers)
        kills = sum(ended.killed is not None for ended in ends)
        counts = {"cases": 1, "killed": kills, **told_apart(wrong)}
        numbers.add("two workers, killed at random", counts, seed=seed)
        all_wrong += wrong
    assert all_wrong == []

"""Every kill in every recovery, at every point of the finest cut, at every statement. Takes an hour.

Not part of the suite, because of its name; run it by naming it:

    make test ARGS=tests/crash/every_pair.py
"""

from __future__ import annotations

from itertools import count

import pytest

from minutebook.testing.crash import Ended, every_kill
from minutebook.testing.fork_server import ForkServer
from tests.crash.harness import new_life
from tests.crash.matrix import VARIANTS, Lived, Matrix, every_point, in_parallel, killed, unharmed
from tests.crash.test_two_workers import two_workers

#: The first kills of the pairs, in parts that fail one by one.
PARTS = 8


def told(what: str, lives: int, kills: int, wrong: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Print what some lives came to."""
    with capsys.disabled():
        print(f"\n{what}: {lives} lives, {kills} kills, {wrong} wrong")


def told_of(what: str, matrix: Matrix, capsys: pytest.CaptureFixture[str]) -> None:
    kills = sum(len(lived.kills) for lived in matrix.lives)
    told(what, len(matrix.lives), kills, len(matrix.wrong), capsys)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_point(variant: str, servers: list[ForkServer], capsys: pytest.CaptureFixture[str]) -> None:
    matrix = every_point(servers, variant)
    told_of(f"every point, {variant}", matrix, capsys)
    assert matrix.wrong == []


@pytest.mark.parametrize("part", range(PARTS))
def test_every_pair(part: int, servers: list[ForkServer], capsys: pytest.CaptureFixture[str]) -> None:
    variant = "as it is"
    matrix = unharmed(servers[0], variant)
    firsts = range(1 + part, len(matrix.points) + 1, PARTS)

    def lives(place: int) -> list[Lived]:
        return [
            lived
            for first in firsts[place :: len(servers)]
            for lived in seconds(servers[place], variant, first)
        ]

    for found in in_parallel(len(servers), lives):
        matrix.lives += found
    told_of(f"every pair, part {part + 1} of {PARTS}", matrix, capsys)
    assert matrix.wrong == []


@pytest.mark.parametrize("journal_mode", ["auto", "truncate"])
def test_every_statement(
    journal_mode: str, servers: list[ForkServer], capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed between the statements of any transaction, those for the lease among them."""

    kills: list[str] = []

    def wrong(place: int) -> list[str]:
        found: list[str] = []

        def run(statement: int) -> Ended:
            with new_life(servers[place], journal_mode=journal_mode) as life:
                ended = life.start(kill_in=("", statement))
                if ended.killed is not None:
                    kills.append(str(ended.killed))
                    found.extend(f"{ended.killed}: {w}" for w in life.examine().wrong)
                    life.start().completed()
                    found.extend(
                        f"{ended.killed}, at the end: {w}" for w in life.examine(finished=True).wrong
                    )
                return ended

        assert len(list(every_kill(run, first=1 + place, step=len(servers)))) > 40
        return found

    all_wrong = [w for found in in_parallel(len(servers), wrong) for w in found]
    told(f"every statement, journal mode {journal_mode}", len(kills), len(kills), len(all_wrong), capsys)
    assert all_wrong == []


def seconds(server: ForkServer, variant: str, first: int) -> list[Lived]:
    """A life for each point of the recovery after the first kill."""
    lived: list[Lived] = []
    for second in count(1):
        lived.append(killed(server, variant, first, second))
        if len(lived[-1].kills) < 2:
            return lived
    raise AssertionError("unreachable")


@pytest.mark.parametrize("seed", range(100, 200))
def test_two_workers_that_are_killed_at_random(
    seed: int, servers: list[ForkServer], capsys: pytest.CaptureFixture[str]
) -> None:
    ends = two_workers(seed, servers)
    kills = sum(ended.killed is not None for ended in ends)
    with capsys.disabled():
        print(f"\ntwo workers, seed {seed}: {len(ends)} lives, {kills} kills")

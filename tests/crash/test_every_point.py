"""A kill at every named point of a scripted session, and in the recovery that follows.

Each kill is proven to have happened where it was asked for. After it another
process looks at the file alone, and a third one goes on to the end. Every second
kill, and every point of the finest cut, are in `every_pair.py`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from domain.limits import SNAPSHOT_INTERVAL
from minutebook.testing.fork_server import ForkServer
from tests.crash.harness import new_life
from tests.crash.invariants import ALWAYS, everything_ended, told_apart
from tests.crash.matrix import Matrix, every_point, some_points, unharmed

#: Every name a point has, and the application's own.
POINTS = {
    *("before_commit", "after_commit", "before_emit", "after_emit"),
    *("before_send", "mid_stream", "before_effect", "effect", "after_effect"),
}
#: How many points the script has at least; fewer means that some are not reached any more.
FEWEST = 100
#: What is looked at after each kill and at the end; see `Lived.wrong`, `examination`, `invariants`.
CHECKS = (
    *(check.__name__ for check in (*ALWAYS, everything_ended)),
    *("journal", "plan", "looking", "end", "story", "again"),
)


@pytest.fixture(scope="module")
def matrix(servers: list[ForkServer]) -> Matrix:
    """A life for each point of the script."""
    return every_point(servers, "as it is")


@pytest.fixture(scope="module")
def frontiers(servers: list[ForkServer]) -> Matrix:
    """A life for every third commit, where each step is in a commit of its own."""
    return of_one_name(servers, "step by step", "after_commit", 3)


@pytest.fixture(scope="module")
def hot_journals(servers: list[ForkServer]) -> Matrix:
    """A life for every second transaction, left open where SQLite has to undo it."""
    return of_one_name(servers, "without a WAL", "before_commit", 2)


def of_one_name(servers: list[ForkServer], variant: str, name: str, step: int) -> Matrix:
    """A life for every `step`th point of one name."""
    points = unharmed(servers[0], variant).points
    numbers = [n for n, point in enumerate(points, 1) if point == name]
    return some_points(servers, variant, [(n,) for n in numbers[::step]])


@pytest.fixture(scope="module")
def pairs(servers: list[ForkServer]) -> Matrix:
    """A sample of lives that are killed twice, the second time in recovery; some three times."""
    points = len(unharmed(servers[0], "as it is").points)
    twice = [(n, 1 + (n * 7) % 41) for n in range(2, points, 7)]
    return some_points(servers, "as it is", [*twice, (20, 9, 7), (45, 3, 2), (70, 12, 1), (90, 5, 5)])


def test_every_point_is_reached_and_kills(matrix: Matrix) -> None:
    reached = Counter(lived.kills[0][1] for lived in matrix.lives)
    numbers = [lived.kills[0][0] for lived in matrix.lives]
    assert set(reached) == POINTS
    assert numbers[:FEWEST] == list(range(1, FEWEST + 1))


@pytest.mark.parametrize("check", CHECKS)
def test_a_kill_at_every_point(matrix: Matrix, check: str) -> None:
    assert about(check, matrix) == []


@pytest.mark.parametrize("check", CHECKS)
def test_a_kill_between_steps(frontiers: Matrix, check: str) -> None:
    assert about(check, frontiers) == []


@pytest.mark.parametrize("check", CHECKS)
def test_a_kill_in_a_transaction_without_a_wal(hot_journals: Matrix, check: str) -> None:
    assert about(check, hot_journals) == []


@pytest.mark.parametrize("check", CHECKS)
def test_a_kill_in_recovery(pairs: Matrix, check: str) -> None:
    assert about(check, pairs) == []


def test_the_checks_above_are_all_there_are(
    matrix: Matrix, frontiers: Matrix, hot_journals: Matrix, pairs: Matrix
) -> None:
    assert [*matrix.wrong, *frontiers.wrong, *hot_journals.wrong, *pairs.wrong] == []


def test_a_life_that_nothing_happens_to(matrix: Matrix) -> None:
    assert (matrix.reference.wrong, matrix.reference.actions) == ([], ["none"])


def test_a_snapshot_falls_due_in_the_middle(hot_journals: Matrix) -> None:
    script = len(hot_journals.reference.events) - 75
    assert 75 < SNAPSHOT_INTERVAL < 75 + script


def test_a_copied_life_has_been_the_same_until_then_and_is_another_one(server: ForkServer) -> None:
    with new_life(server) as life:
        life.start(60).killed_at(60)
        left, said = life.examine(), list(life.said)
        with life.copied() as copy:
            assert (copy.examine(), copy.said) == (left, said)
            copy.start(20).killed_at(20)
            assert copy.examine().commits != left.commits
        assert (life.examine(), life.said) == (left, said)


def test_what_is_wrong_is_told_apart() -> None:
    wrong = ["killed at [(9, 'effect')], after (9, 'effect'): visible_is_durable: r1 was shown"]
    wrong += ["at the end: effects_happen_once: pay had its effect 2 times", "story: it tells nothing"]
    wrong += ["EIO at fsync, number 3: c1 was told as committed, and it is lost"]
    assert told_apart(wrong) == {"lost": 2, "doubled": 1, "wrong": 4}
    assert told_apart([]) == {"lost": 0, "doubled": 0, "wrong": 0}


def about(check: str, matrix: Matrix) -> list[str]:
    """What one check found wrong."""
    return [wrong for wrong in matrix.wrong if f": {check}: " in wrong or f", {check}: " in wrong]

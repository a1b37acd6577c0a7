"""A kill at every named point of a scripted session, and what is left then.

Each kill is proven to have happened where it was asked for (`every_kill`). After it
another process looks at the file alone, and a third one goes on to the end.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.crash.invariants import ALWAYS, everything_ended, same_story
from tests.crash.matrix import VARIANTS, Matrix

#: Every name a point has, and the application's own.
POINTS = {
    *("before_commit", "after_commit", "before_emit", "after_emit"),
    *("before_send", "mid_stream", "before_effect", "effect", "after_effect"),
}
#: How many points the scripts have at least; fewer means that some are not reached any more.
FEWEST = {"as it is": 100, "step by step": 250}
CHECKS = [check.__name__ for check in (*ALWAYS, everything_ended)]


def test_every_point_is_reached_and_kills(matrix: Matrix) -> None:
    reached = Counter(lived.kills[0][1] for lived in matrix.lives)
    numbers = [lived.kills[0][0] for lived in matrix.lives]
    assert set(reached) == POINTS
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= FEWEST[matrix.name]


def test_every_life_is_lived_to_its_end(matrix: Matrix) -> None:
    assert [(lived.kills, lived.ended) for lived in matrix.lives if lived.ended.returncode] == []


@pytest.mark.parametrize("check", [*CHECKS, "journal", "plan", "looking"])
def test_nothing_is_wrong_after_a_kill_and_at_the_end(matrix: Matrix, check: str) -> None:
    assert [wrong for lived in matrix.lives for wrong in lived.wrong if f": {check}: " in wrong] == []


def test_every_check_has_its_test(matrix: Matrix) -> None:
    assert [wrong for lived in matrix.lives for wrong in lived.wrong] == []


def test_every_life_tells_the_same_story(matrix: Matrix) -> None:
    told = {lived.kills[0]: lived.at_last.story for lived in matrix.lives}
    assert [kill for kill, story in told.items() if not same_story(story, matrix.reference.story)] == []


def test_a_life_that_nothing_happens_to(matrix: Matrix) -> None:
    assert matrix.reference.wrong == []
    assert matrix.reference.actions == ["none"]
    assert matrix.name in VARIANTS

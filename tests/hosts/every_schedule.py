"""Every schedule of a stopped worker, on a file and on a server, and random ones. Takes half an hour.

Not part of the suite, because of its name; `make chaos` names it. Prints its numbers at the end of
each part. The same seed gives the same schedules.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import pytest

from minutebook.testing.postgres_cluster import Cluster
from tests.hosts.schedules import CLOCKS, WAKES, Outcome, Pair, Schedule, matrix, play_all
from tests.hosts.stopping import MOMENTS

#: Parts of the matrix, which fail one by one.
PARTS: Final = 6
SEEDS: Final = range(10)
RANDOM_EACH: Final = 50


def told(name: str, outcomes: Sequence[Outcome], capsys: pytest.CaptureFixture[str]) -> None:
    """Print what came of some schedules."""
    takeovers = [o.takeover_s for o in outcomes if o.takeover_s is not None]
    slowest = f"{max(takeovers):.2f} s" if takeovers else "none"
    with capsys.disabled():
        print(
            f"\n{name}: {len(outcomes)} schedules, {len(takeovers)} takeovers, slowest {slowest}, "
            f"{sum(bool(o.refused) for o in outcomes)} woken without authority, "
            f"{sum(o.timeouts > 0 for o in outcomes)} times locked out and told so, "
            f"{sum(o.stale for o in outcomes)} stale events, "
            f"{sum(o.doubled for o in outcomes)} doubled effects"
        )


def wrong(outcomes: Sequence[Outcome]) -> list[str]:
    """Everything that was wrong, and in which schedule."""
    return [f"{o.schedule}: {each}" for o in outcomes for each in o.wrong]


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
@pytest.mark.parametrize("part", range(PARTS))
def test_every_schedule(
    engine: str, part: int, pairs: list[Pair], postgres_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = play_all(matrix(engine)[part::PARTS], pairs, postgres_cluster)
    told(f"{engine}, part {part + 1} of {PARTS}", outcomes, capsys)
    assert wrong(outcomes) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_schedules_at_random(
    seed: int, pairs: list[Pair], postgres_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of any engine and of any process: the order, and what runs beside what, is another one each time."""
    dice = random.Random(seed)
    choices = (["sqlite", "postgres"], MOMENTS, WAKES, [*CLOCKS])
    schedules = [Schedule(*(dice.choice(each) for each in choices)) for _ in range(RANDOM_EACH)]
    outcomes = play_all(schedules, pairs, postgres_cluster)
    told(f"seed {seed}", outcomes, capsys)
    assert wrong(outcomes) == []

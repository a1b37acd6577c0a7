"""Every schedule of a stopped worker, on a file and on a server, and random ones.

Not part of the suite, because of its name; run it by naming it, or with all the long runs (`make chaos`).
The same seed gives the same schedules.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

import pytest

from minutebook.testing.postgres_cluster import Cluster
from tests.hosts.outcomes import CLOCKS, TAKEN_S, WAKES, Outcome, Schedule, matrix
from tests.hosts.schedules import Pair, pairs_of_servers, play_all
from tests.hosts.stopping import MOMENTS
from tests.long_runs import Numbers

ENGINES: Final = ("sqlite", "postgres")
#: Parts of the matrix, which fail one by one.
PARTS: Final = 6
SEEDS: Final = range(20)
RANDOM_EACH: Final = 50
#: Schedules at a time. A schedule mostly waits for a lease to run out.
PAIRS: Final = 3


@pytest.fixture(scope="module")
def many_pairs() -> Iterator[list[Pair]]:
    """Servers of the file's own."""
    with pairs_of_servers(PAIRS) as pairs:
        yield pairs


def played(
    what: str,
    schedules: Sequence[Schedule],
    pairs: list[Pair],
    cluster: Cluster,
    numbers: Numbers,
    seed: int | None = None,
) -> list[str]:
    """Play them and say what came of it. Returns everything that was wrong, and in which schedule."""
    outcomes = play_all(schedules, pairs, cluster)
    counts = {
        "cases": len(outcomes),
        "doubled": sum(o.doubled for o in outcomes),
        "wrong": sum(bool(o.wrong) for o in outcomes),
    }
    numbers.add(f"a worker that stands still, {what}", counts, seed=seed, note=counted(outcomes))
    return [f"{o.schedule}: {each}" for o in outcomes for each in o.wrong]


def counted(outcomes: Sequence[Outcome]) -> str:
    """What came of some schedules, in numbers."""
    taken = [(o.takeover_s, o.load_s) for o in outcomes if o.takeover_s is not None]
    slowest, load = max(taken, default=(0.0, 0.0))
    late = sum(seconds > TAKEN_S for seconds, _ in taken)
    return (
        f"{len(taken)} takeovers from a worker that stood still, the slowest {slowest:.2f} s "
        f"({load:.2f} s of it without a processor), {late} above {TAKEN_S} s; "
        f"{sum(bool(o.refused) for o in outcomes)} refused after waking, "
        f"{sum(o.timeouts > 0 for o in outcomes)} locked out and told so; "
        f"{sum(o.stale for o in outcomes)} stale events"
    )


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("engine", ENGINES)
def test_every_schedule(
    engine: str, part: int, many_pairs: list[Pair], postgres_cluster: Cluster, numbers: Numbers
) -> None:
    schedules = matrix(engine)[part::PARTS]
    assert played(engine, schedules, many_pairs, postgres_cluster, numbers) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_schedules_at_random(
    seed: int, many_pairs: list[Pair], postgres_cluster: Cluster, numbers: Numbers
) -> None:
    """Of any engine and of any process: the order, and what runs beside what, is another one each time."""
    dice = random.Random(seed)
    choices = (ENGINES, MOMENTS, WAKES, [*CLOCKS])
    schedules = [Schedule(*(dice.choice(each) for each in choices)) for _ in range(RANDOM_EACH)]
    assert played("at random", schedules, many_pairs, postgres_cluster, numbers, seed) == []

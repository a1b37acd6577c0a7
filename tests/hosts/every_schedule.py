"""Every schedule of a stopped worker, on a file and on a server, and random ones. Takes half an hour.

Not part of the suite, because of its name; `make chaos` names it. Prints its numbers as they come,
and their sums at the end. The same seed gives the same schedules.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pytest

from minutebook.testing.postgres_cluster import Cluster
from tests.hosts.outcomes import CLOCKS, TAKEN_S, WAKES, Outcome, Schedule, matrix
from tests.hosts.schedules import Pair, pairs_of_servers, play_all
from tests.hosts.stopping import MOMENTS

ENGINES: Final = ("sqlite", "postgres")
#: Parts of the matrix, which fail one by one.
PARTS: Final = 6
SEEDS: Final = range(10)
RANDOM_EACH: Final = 50
#: Schedules at a time: more than in the suite, since nothing else is to be had meanwhile.
PAIRS: Final = 3


@dataclass(slots=True)
class Sums:
    """Everything that was played, and of the matrix what was never played twice."""

    outcomes: list[Outcome] = field(default_factory=list)
    of_the_matrix: set[Schedule] = field(default_factory=set)

    def __str__(self) -> str:
        parts = []
        for engine in ENGINES:
            whole = matrix(engine)
            parts.append(f"{engine} {len(self.of_the_matrix & set(whole))} of {len(whole)}")
        return f"\nof the matrix: {', '.join(parts)}\n{counted('in all', self.outcomes)}"


@pytest.fixture(scope="module")
def sums(request: pytest.FixtureRequest) -> Iterator[Sums]:
    """The sums, printed when the file is through."""
    sums = Sums()
    yield sums
    capture = request.config.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        print(sums, flush=True)


@pytest.fixture(scope="module")
def many_pairs() -> Iterator[list[Pair]]:
    """Servers of the file's own."""
    with pairs_of_servers(PAIRS) as pairs:
        yield pairs


def counted(name: str, outcomes: Sequence[Outcome]) -> str:
    """What came of some schedules, in numbers."""
    taken = [(o.takeover_s, o.load_s) for o in outcomes if o.takeover_s is not None]
    slowest, load = max(taken, default=(0.0, 0.0))
    late = sum(seconds > TAKEN_S for seconds, _ in taken)
    return (
        f"{name}: {len(outcomes)} schedules, {sum(bool(o.wrong) for o in outcomes)} wrong; "
        f"{len(taken)} takeovers from a worker that stood still, the slowest {slowest:.2f} s "
        f"({load:.2f} s of it without a processor), {late} above {TAKEN_S} s; "
        f"{sum(bool(o.refused) for o in outcomes)} refused after waking, "
        f"{sum(o.timeouts > 0 for o in outcomes)} locked out and told so; "
        f"{sum(o.stale for o in outcomes)} stale events, {sum(o.doubled for o in outcomes)} doubled effects"
    )


def played(
    name: str, schedules: Sequence[Schedule], pairs: list[Pair], cluster: Cluster, sums: Sums
) -> tuple[str, list[str]]:
    """Play them. Their numbers, and everything that was wrong, and in which schedule."""
    began = time.monotonic()
    outcomes = play_all(schedules, pairs, cluster)
    sums.outcomes += outcomes
    wrong = [f"{o.schedule}: {each}" for o in outcomes for each in o.wrong]
    return f"\n{counted(name, outcomes)}; {time.monotonic() - began:.0f} s", wrong


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("engine", ENGINES)
def test_every_schedule(
    engine: str,
    part: int,
    many_pairs: list[Pair],
    postgres_cluster: Cluster,
    sums: Sums,
    capsys: pytest.CaptureFixture[str],
) -> None:
    schedules = matrix(engine)[part::PARTS]
    numbers, wrong = played(
        f"{engine}, part {part + 1} of {PARTS}", schedules, many_pairs, postgres_cluster, sums
    )
    sums.of_the_matrix.update(schedules)
    with capsys.disabled():
        print(numbers, flush=True)
    assert wrong == []


@pytest.mark.parametrize("seed", SEEDS)
def test_schedules_at_random(
    seed: int,
    many_pairs: list[Pair],
    postgres_cluster: Cluster,
    sums: Sums,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of any engine and of any process: the order, and what runs beside what, is another one each time."""
    dice = random.Random(seed)
    choices = (ENGINES, MOMENTS, WAKES, [*CLOCKS])
    schedules = [Schedule(*(dice.choice(each) for each in choices)) for _ in range(RANDOM_EACH)]
    numbers, wrong = played(f"at random, seed {seed}", schedules, many_pairs, postgres_cluster, sums)
    with capsys.disabled():
        print(numbers, flush=True)
    assert wrong == []

"""Every kill in every recovery, and every point of the finest cut. Takes the better part of an hour.

Not part of the suite, because of its name; run it by naming it:

    make test ARGS=tests/crash/every_pair.py
"""

from __future__ import annotations

from itertools import count

import pytest

from minutebook.testing.fork_server import ForkServer
from tests.crash.matrix import VARIANTS, Lived, every_point, in_parallel, killed, unharmed
from tests.crash.test_two_workers import two_workers

#: The first kills of the pairs, in parts that fail one by one.
PARTS = 8


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_point(variant: str, servers: list[ForkServer]) -> None:
    assert every_point(servers, variant).wrong == []


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_pair(part: int, variant: str, servers: list[ForkServer]) -> None:
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
    assert matrix.wrong == []


def seconds(server: ForkServer, variant: str, first: int) -> list[Lived]:
    """A life for each point of the recovery after the first kill."""
    lived: list[Lived] = []
    for second in count(1):
        lived.append(killed(server, variant, first, second))
        if len(lived[-1].kills) < 2:
            return lived
    raise AssertionError("unreachable")


@pytest.mark.parametrize("seed", range(100, 200))
def test_two_workers_that_are_killed_at_random(seed: int, servers: list[ForkServer]) -> None:
    two_workers(seed, servers)

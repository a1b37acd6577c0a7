"""Fork servers for the lease tests, two for each schedule that is played at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hosts.schedules import Pair, pairs_of_servers

#: Schedules at a time. A schedule mostly waits for a lease to run out.
PAIRS = 2


@pytest.fixture(scope="session")
def pairs() -> Iterator[list[Pair]]:
    """Pairs of servers that have imported the workers."""
    with pairs_of_servers(PAIRS) as pairs:
        yield pairs

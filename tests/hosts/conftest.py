"""Fork servers for the lease tests, two for each schedule that is played at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from minutebook.testing.fork_server import ForkServer
from tests.hosts.schedules import PROGRAM, Pair

#: Schedules at a time. A schedule mostly waits for a lease to run out.
PAIRS = 2


@pytest.fixture(scope="session")
def pairs() -> Iterator[list[Pair]]:
    """Pairs of servers that have imported the workers."""
    with ExitStack() as stack:
        servers = [stack.enter_context(ForkServer(PROGRAM)) for _ in range(2 * PAIRS)]
        yield list(zip(servers[::2], servers[1::2], strict=True))

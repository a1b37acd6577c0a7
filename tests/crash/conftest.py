"""Fork servers for the crash tests, and the lives that several tests look at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minutebook.testing.fork_server import ForkServer
from tests.crash.harness import APPLICATION
from tests.crash.matrix import VARIANTS, Matrix, every_point


@pytest.fixture(scope="session")
def servers() -> Iterator[list[ForkServer]]:
    """Two servers that have imported the application: one for each of two cores."""
    with ForkServer(APPLICATION) as one, ForkServer(APPLICATION) as other:
        yield [one, other]


@pytest.fixture
def server(servers: list[ForkServer]) -> ForkServer:
    """One of them."""
    return servers[0]


@pytest.fixture(scope="session", params=list(VARIANTS))
def matrix(request: pytest.FixtureRequest, servers: list[ForkServer]) -> Matrix:
    """A life for each point of the script, killed there and gone on with."""
    return every_point(servers, request.param)

"""Fork servers for the crash tests: one for each of two cores, started when first needed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minutebook.testing.fork_server import ForkServer
from tests.crash.harness import APPLICATION


@pytest.fixture(scope="session")
def servers() -> Iterator[list[ForkServer]]:
    """Two servers that have imported the application."""
    with ForkServer(APPLICATION) as one, ForkServer(APPLICATION) as other:
        yield [one, other]


@pytest.fixture
def server(servers: list[ForkServer]) -> ForkServer:
    """One of them."""
    return servers[0]

"""Fork servers for the chaos tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minutebook.testing.fork_server import ForkServer
from tests.chaos.faults import APPLICATION, untouched


@pytest.fixture(scope="session")
def writers() -> Iterator[list[ForkServer]]:
    """Two servers that have imported the programs, one for each core."""
    with ForkServer(APPLICATION) as one, ForkServer(APPLICATION) as other:
        yield [one, other]


@pytest.fixture(scope="session")
def story(writers: list[ForkServer]) -> Any:
    """What a session tells to which nothing happens."""
    return untouched(writers[0])

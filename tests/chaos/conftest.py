"""Fork servers for the chaos tests, and a place for the numbers that a long run prints."""

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


@pytest.fixture(scope="module")
def numbers(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Lines that are printed when the file is through."""
    lines: list[str] = []
    yield lines
    capture = request.config.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        print("", *lines, sep="\n", flush=True)

"""Places for sessions; what a test leaves in one is held against the order contract."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from adapters.memory_journal import MemoryStore
from adapters.sqlite_store import SqliteStore
from domain.ports import StoreDescription
from minutebook.testing.faulty_store import FaultyStore
from minutebook.testing.fork_server import ForkServer
from tests.session.harness import Hands, Place


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    """A store in memory."""
    place = Place()
    yield place
    await place.check()


@pytest.fixture(params=["memory", "sqlite"])
async def any_place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """A store in memory, then one in a file."""
    inner: StoreDescription = MemoryStore()
    if request.param == "sqlite":
        inner = SqliteStore(tmp_path / "journal.db")
    place = Place(FaultyStore(inner))
    yield place
    await place.check()


@pytest.fixture
def hands() -> Hands:
    """Tools that remember what they did."""
    return Hands()


@pytest.fixture(scope="session")
def lease_servers() -> Iterator[list[ForkServer]]:
    """Two servers that have imported the processes around one session (`lease_child.py`)."""
    script, warm = Path(__file__).with_name("lease_child.py"), ["minutebook.testing.warm"]
    with ForkServer(script, preload=warm) as one, ForkServer(script, preload=warm) as other:
        yield [one, other]

"""Counted goals where the journal is large or the session long."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.memory_journal import MemoryStore
from adapters.sqlite_reader import open_reader
from bench.conversations import Place
from bench.journals import SESSION, make
from bench.ours.counts import CountedStore
from bench.ours.talking import OfflineProvider, config
from bench.workload import PROMPT
from domain.limits import MAX_TAIL_EVENTS
from minutebook import create_session
from recovery.reading import load
from recovery.verify import Result, verify

pytestmark = pytest.mark.anyio

COPIES = 60


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with one session of 25 requests in the middle of another one, and copies of it."""
    place = Place(tmp_path_factory.mktemp("large"), "", {})
    return Path(make(place, name="large.db", requests=25, copies=COPIES, left_open=True)["file"])


@pytest.mark.parametrize("number", [0, COPIES // 2, COPIES])
async def test_a_plan_reads_the_same_in_a_large_journal(large: Path, number: int) -> None:
    async with open_reader(large) as reader:
        loaded = await load(reader, f"session-{number:04d}")
    assert loaded.state.request is not None
    assert loaded.snapshot_sequence > 0
    assert loaded.rows_read <= MAX_TAIL_EVENTS
    assert loaded.rows_read <= loaded.row.sequence - loaded.snapshot_sequence + 1


@pytest.mark.parametrize("session_id", [SESSION, f"session-{COPIES:04d}"])
async def test_the_copies_are_journals_as_good_as_the_first(large: Path, session_id: str) -> None:
    async with open_reader(large) as reader:
        found = await verify(reader, session_id)
    assert (found.result, found.problems) == (Result.CONSISTENT, ())
    assert found.snapshots > 0


async def test_a_request_stores_as_much_wherever_it_stands_in_a_long_session() -> None:
    store, sizes = CountedStore(MemoryStore()), list[int]()
    async with create_session(config(OfflineProvider(pieces=20)), store=store) as session:
        for _ in range(200):
            before = len(store.commits)
            await session.run(PROMPT)
            sizes.append(sum(size for _, size in store.commits[before:]))
    for place in (10, 50, 100, 195):
        assert sum(sizes[place : place + 5]) <= 1.05 * sum(sizes[5:10])

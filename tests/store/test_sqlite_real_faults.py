"""Faults that SQLite itself meets: no space, a file size limit, in the middle of a commit."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.sqlite_driver import sqlite
from adapters.sqlite_store import SqliteStore
from domain.cursor import Cursor
from domain.errors import MinutebookError, StoreWriteFailed
from domain.ports import Batch, CommitStatus, Journal, Receipt
from minutebook.testing.batches import dummy_batch
from tests.store.children import child

pytestmark = pytest.mark.anyio

BIG = [b"x" * 100_000] * 5


class SmallConnection(sqlite.Connection):
    """A database that may not grow beyond 60 pages."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA max_page_count = 60")


async def test_a_full_database_takes_what_still_fits(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "journal.db", connection_class=SmallConnection)
    async with store.open() as journal:
        for number in range(3):
            big = dummy_batch(Cursor.start(f"big-{number}"), "c1", BIG)
            with pytest.raises(StoreWriteFailed):
                await journal.commit(big)
            assert await journal.session(big.session_id) is None
            small = dummy_batch(Cursor.start(f"small-{number}"), "c1")
            assert (await journal.commit(small)).status is CommitStatus.COMMITTED


async def test_what_does_not_fit_takes_nothing_with_it_that_shares_its_transaction(tmp_path: Path) -> None:
    hold = threading.Event()
    store = SqliteStore(
        tmp_path / "journal.db", connection_class=SmallConnection, probe=lambda point: _wait(point, hold)
    )
    answers: dict[str, Receipt | MinutebookError] = {}

    async def commit(journal: Journal, batch: Batch) -> None:
        try:
            answers[batch.session_id] = await journal.commit(batch)
        except MinutebookError as e:
            answers[batch.session_id] = e

    async with store.open() as journal, anyio.create_task_group() as tasks:
        for name, payloads in (("first", [b"{}"]), ("a", [b"{}"]), ("big", BIG), ("b", [b"{}"])):
            tasks.start_soon(commit, journal, dummy_batch(Cursor.start(name), "c1", payloads))
        await anyio.wait_all_tasks_blocked()
        hold.set()
    assert isinstance(answers["big"], StoreWriteFailed)
    assert all(isinstance(answers[name], Receipt) for name in ("first", "a", "b"))


def _wait(point: str, hold: threading.Event) -> None:
    if point == "before_commit":
        assert hold.wait(timeout=20)


LIMITED = """
import json, os, resource, sys
import anyio
from adapters.sqlite_store import SqliteStore
from domain.errors import MinutebookError, OutcomeUnknown
from domain.cursor import Cursor
from minutebook.testing.batches import dummy_batch, end_of

async def main(path, mode, spare):
    told = []
    async with SqliteStore(path, journal_mode=mode).open() as journal:
        place = Cursor.start("session-1")
        first = dummy_batch(place, "c1")
        await journal.commit(first)
        second = dummy_batch(end_of(first), "c2", [b"x" * 20_000] * 4)
        sizes = [os.path.getsize(path + s) for s in ("", "-wal") if os.path.exists(path + s)]
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (max(sizes) + spare, most))
        try:
            await journal.commit(second)
            told.append("committed")
        except OutcomeUnknown:
            told.append("unknown")
        except MinutebookError as e:
            told.append("failed")
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        there = len(await journal.read("session-1")) == 5
        if told == ["unknown"]:
            settled = await journal.settle(second)
            told.append("there" if settled else "not there")
            assert (settled is not None) == there
        assert there == (told == ["committed"] or told[-1] == "there"), told
        receipt = await journal.commit(second)
        assert (receipt.status == "replayed") == there
        assert [row.sequence for row in await journal.read("session-1")] == [1, 2, 3, 4, 5]
    print(json.dumps(told), flush=True)

anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="file size limits as Linux has them")
@pytest.mark.parametrize("mode", ["wal", "truncate"])
def test_a_file_that_may_not_grow_any_more(tmp_path: Path, mode: str) -> None:
    outcomes = set()
    for spare in (0, 4_096, 30_000, 500_000):
        with child(LIMITED, tmp_path / f"journal-{spare}.db", mode, spare) as limited:
            outcomes.add(tuple(json.loads(limited.hear())))
            assert limited.end() == 0
    assert ("committed",) in outcomes
    assert len(outcomes) > 1, "no commit met the limit"

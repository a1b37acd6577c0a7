"""A commit that was settled as not there does not come back.

SQLite writes a commit to the WAL and then makes it durable. If that last step
fails, COMMIT fails, but the bytes stay in the file behind what counts as its
end: nobody reads them until a crash makes the next process read the WAL anew,
and then they count.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from adapters.sqlite_driver import sqlite
from adapters.sqlite_store import SqliteStore
from domain.cursor import Cursor
from domain.ports import CommitStatus
from minutebook.testing.batches import dummy_batch, end_of

pytestmark = pytest.mark.anyio

FIRST = dummy_batch(Cursor.start("session-1"), "c1", [b"first"])
SECOND = dummy_batch(end_of(FIRST), "c2", [b"second"])


async def left_by_a_failed_fsync(tmp_path: Path) -> tuple[Path, sqlite.Connection]:
    """A journal whose WAL holds FIRST, and behind its end the whole of SECOND; and who has it open."""
    async with SqliteStore(tmp_path / "made" / "j.db", journal_mode="wal").open() as journal:
        await journal.commit(FIRST)
        shutil.copytree(tmp_path / "made", tmp_path / "failed", ignore=shutil.ignore_patterns("*-shm"))
        await journal.commit(SECOND)
        whole = (tmp_path / "made" / "j.db-wal").read_bytes()
    path = tmp_path / "failed" / "j.db"
    other = sqlite.connect(path, isolation_level=None)
    assert other.execute("SELECT count(*) FROM minutebook_events").fetchone()[0] == 1
    with path.with_name("j.db-wal").open("r+b") as wal:
        wal.seek(0, 2)
        wal.write(whole[wal.tell() :])
    return path, other


async def after_a_crash(path: Path, place: Path) -> list[bytes | None]:
    """What the next process finds when everybody is killed now."""
    shutil.copytree(path.parent, place, ignore=shutil.ignore_patterns("*-shm"))
    async with SqliteStore(place / "j.db").open() as journal:
        return [row.payload for row in await journal.read("session-1")]


async def test_such_a_commit_comes_back_if_nothing_is_done_about_it(tmp_path: Path) -> None:
    path, other = await left_by_a_failed_fsync(tmp_path)
    assert other.execute("SELECT count(*) FROM minutebook_events").fetchone()[0] == 1
    assert await after_a_crash(path, tmp_path / "crashed") == [b"first", b"second"]
    other.close()


async def test_settled_as_not_there_it_does_not_come_back(tmp_path: Path) -> None:
    path, other = await left_by_a_failed_fsync(tmp_path)
    async with SqliteStore(path).open() as journal:
        assert await journal.settle(SECOND) is None
        assert await after_a_crash(path, tmp_path / "crashed") == [b"first"]
        assert (await journal.commit(SECOND)).status is CommitStatus.COMMITTED
    other.close()


async def test_settled_as_there_it_stays(tmp_path: Path) -> None:
    path = tmp_path / "made" / "j.db"
    async with SqliteStore(path).open() as journal:
        for batch in (FIRST, SECOND):
            await journal.commit(batch)
        settled = await journal.settle(SECOND)
        assert settled is not None
        assert settled.status is CommitStatus.RECONCILED
        # The file itself holds it now, and not only a WAL whose fsync may have failed.
        shutil.copyfile(path, tmp_path / "alone.db")
    async with SqliteStore(tmp_path / "alone.db").open() as journal:
        assert [row.payload for row in await journal.read("session-1")] == [b"first", b"second"]

"""One file, one store in a process; none across a fork."""

from __future__ import annotations

import os
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from anyio.from_thread import start_blocking_portal

from adapters.sqlite_driver import sqlite
from adapters.sqlite_jobs import Job
from adapters.sqlite_journal import SqliteJournal
from adapters.sqlite_registry import OPEN_FILES
from adapters.sqlite_store import SqliteStore
from domain.cursor import Cursor
from domain.envelope import Fence
from domain.errors import InvalidOptions, NotAJournal, StoreReadFailed, StoreUnsupported, StoreWriteFailed
from domain.ports import Journal
from minutebook.testing.batches import dummy_batch
from minutebook.testing.clock import ManualClock

BATCH = dummy_batch(Cursor.start("session-1"), "c1")


def file_of(journal: Journal) -> object:
    assert isinstance(journal, SqliteJournal)
    return journal.file


@pytest.mark.anyio
class TestSharing:
    async def test_one_file_is_one_store(self, tmp_path: Path) -> None:
        async with (
            SqliteStore(tmp_path / "j.db").open() as a,
            SqliteStore(str(tmp_path / "j.db")).open() as b,
        ):
            assert file_of(a) is file_of(b)
            await a.commit(BATCH)
            assert tuple(await b.read("session-1")) == BATCH.events

    async def test_two_paths_to_one_file_are_one_store(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        (tmp_path / "alias.db").symlink_to(tmp_path / "real" / "j.db")
        async with SqliteStore(tmp_path / "real" / "j.db").open() as a:
            for path in (tmp_path / "link" / "j.db", tmp_path / "alias.db", tmp_path / "real/../link/j.db"):
                async with SqliteStore(path).open() as b:
                    assert file_of(a) is file_of(b)

    async def test_two_names_of_one_inode_are_refused(self, tmp_path: Path) -> None:
        async with SqliteStore(tmp_path / "j.db").open():
            os.link(tmp_path / "j.db", tmp_path / "other.db")
            with pytest.raises(InvalidOptions):  # SQLite would keep two logs for one file
                async with SqliteStore(tmp_path / "other.db").open():
                    pass

    async def test_two_files_are_two_stores(self, tmp_path: Path) -> None:
        async with SqliteStore(tmp_path / "a.db").open() as a, SqliteStore(tmp_path / "b.db").open() as b:
            assert file_of(a) is not file_of(b)

    async def test_a_shared_store_stays_open_until_the_last_one_leaves(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path / "j.db")
        async with store.open() as a:
            async with store.open() as b:
                await b.commit(BATCH)
            assert OPEN_FILES.is_open(a.file.key)  # type: ignore[attr-defined]  # a SqliteJournal
            assert tuple(await a.read("session-1")) == BATCH.events
        assert not OPEN_FILES.is_open(a.file.key)  # type: ignore[attr-defined]
        async with store.open() as c:
            assert file_of(c) is not file_of(a)
            assert tuple(await c.read("session-1")) == BATCH.events

    async def test_sharing_with_other_settings_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "j.db"
        async with SqliteStore(path).open() as journal:
            for other in (
                SqliteStore(path, clock=ManualClock()),
                SqliteStore(path, probe=lambda point: None),
                SqliteStore(path, store_timeout_s=1),
                SqliteStore(path, journal_mode="truncate"),
            ):
                with pytest.raises(InvalidOptions):
                    async with other.open():
                        pass
            await journal.commit(BATCH)

    async def test_many_open_at_once(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path / "j.db")
        files: list[object] = []

        async def use(name: str) -> None:
            async with store.open() as journal:
                files.append(file_of(journal))
                await journal.commit(dummy_batch(Cursor.start(name), "c1"))
                await meet()

        meet = meeting(8)
        async with anyio.create_task_group() as tasks:
            for n in range(8):
                tasks.start_soon(use, f"session-{n}")
        assert len(set(map(id, files))) == 1

    async def test_work_that_comes_after_the_end_is_refused(self, tmp_path: Path) -> None:
        async with SqliteStore(tmp_path / "j.db").open() as journal:
            file = journal.file  # type: ignore[attr-defined]  # a SqliteJournal
        late: Job[sqlite.Connection, None] = Job(lambda connection: None, 0.0)
        file.writer.submit(late)
        with pytest.raises(StoreWriteFailed):
            await late.answer.wait()
        later: Job[sqlite.Connection, None] = Job(lambda connection: None, 0.0)
        file.reader.submit(later)
        with pytest.raises(StoreReadFailed):
            await later.answer.wait()

    async def test_a_failed_opening_leaves_nothing_registered(self, tmp_path: Path) -> None:
        path = tmp_path / "j.db"
        path.write_bytes(b"no database at all, but long enough to be looked at" * 20)
        for _ in range(2):
            with pytest.raises(NotAJournal):
                async with SqliteStore(path).open():
                    pass
        path.unlink()
        async with SqliteStore(path).open() as journal:
            await journal.commit(BATCH)


def meeting(count: int) -> Callable[[], Awaitable[None]]:
    """A function that returns once it was called `count` times."""
    arrived = 0
    everybody = anyio.Event()

    async def meet() -> None:
        nonlocal arrived
        arrived += 1
        if arrived == count:
            everybody.set()
        await everybody.wait()

    return meet


def in_a_fork(check: Callable[[], None]) -> int:
    """Run a check in a forked child; 0 if it held."""
    process_id = os.fork()
    if process_id == 0:
        try:
            check()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process_id, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_nothing_is_used_across_a_fork(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "j.db")
    fence = Fence("worker", "lease-1", 1)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(store.open()) as journal:
        portal.call(journal.commit, BATCH)

        async def use() -> None:
            for call in (
                lambda: journal.read("session-1"),
                lambda: journal.commit(BATCH),
                lambda: journal.settle(BATCH),
                lambda: journal.leases.validate("session-1", fence),
            ):
                with pytest.raises(StoreUnsupported):
                    await call()
            with pytest.raises(StoreUnsupported):
                async with store.open():
                    pass
            async with SqliteStore(tmp_path / "another.db").open() as another:
                await another.commit(BATCH)

        assert in_a_fork(lambda: anyio.run(use)) == 0
        assert tuple(portal.call(journal.read, "session-1")) == BATCH.events

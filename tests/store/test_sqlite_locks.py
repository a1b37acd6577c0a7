"""Another process holds the lock: wait in the thread, not on the loop, and not for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from adapters.sqlite_driver import sqlite
from adapters.sqlite_store import SqliteStore
from domain.cursor import Cursor
from domain.errors import InvalidOptions, MinutebookError, OutcomeUnknown, StoreTimeout
from domain.ports import Batch, CommitStatus, Holder, Journal, Receipt
from minutebook.testing.batches import dummy_batch, end_of
from tests.store.busy import Noticing, store_at
from tests.store.children import LOCK_HOLDER, Child, child
from tests.store.faults import Faults, faulty
from tests.store.waiting import PATIENCE_S, until

pytestmark = pytest.mark.anyio

FIRST = dummy_batch(Cursor.start("session-1"), "c1")
SECOND = dummy_batch(end_of(FIRST), "c2")


async def made(store: SqliteStore) -> None:
    async with store.open() as journal:
        await journal.commit(FIRST)


@pytest.mark.parametrize("mode", ["wal", "truncate"])
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_commit_waits_for_the_lock_while_the_loop_goes_on(tmp_path: Path, mode: str) -> None:
    """Were it the loop that waits, nobody would ever let go of the lock."""
    store = store_at(tmp_path / "j.db", mode, timeout_s=15)
    await made(store)
    receipts: list[Receipt] = []
    Noticing.kept_waiting.clear()

    async def commit(journal: Journal, batch: Batch) -> None:
        receipts.append(await journal.commit(batch))

    with child(LOCK_HOLDER, store.path) as holder:
        assert holder.hear() == "held"
        async with store.open() as journal, anyio.create_task_group() as tasks:
            tasks.start_soon(commit, journal, SECOND)
            await until(Noticing.kept_waiting.is_set)
            assert receipts == []
            assert len(await journal.read("session-1")) == 1, "reading needs no lock of a writer"
            holder.tell()
    assert [receipt.status for receipt in receipts] == [CommitStatus.COMMITTED]


@pytest.mark.parametrize("mode", ["wal", "truncate"])
async def test_a_lock_that_stays_is_a_timeout_and_nothing_is_written(tmp_path: Path, mode: str) -> None:
    store = SqliteStore(tmp_path / "j.db", store_timeout_s=0.3, journal_mode=mode)
    await made(store)
    with child(LOCK_HOLDER, store.path) as holder:
        assert holder.hear() == "held"
        async with store.open() as journal:
            with anyio.fail_after(5):
                with pytest.raises(StoreTimeout):
                    await journal.commit(SECOND)
                with pytest.raises(StoreTimeout):
                    await journal.leases.acquire("session-1", Holder("w", "l"), 1_000)
            assert tuple(await journal.read("session-1")) == FIRST.events
            holder.tell()
            assert holder.hear() == "free"
            assert (await journal.commit(SECOND)).status is CommitStatus.COMMITTED


async def test_settling_behind_a_lock_stays_undecided(tmp_path: Path) -> None:
    faults = Faults()
    store = SqliteStore(tmp_path / "j.db", store_timeout_s=0.3, connection_class=faulty(faults))
    await made(store)
    async with store.open() as journal:
        faults.arm(1, only="COMMIT")
        with pytest.raises(OutcomeUnknown):
            await journal.commit(SECOND)
        faults.disarm()
        with child(LOCK_HOLDER, store.path) as holder:
            assert holder.hear() == "held"
            with pytest.raises(OutcomeUnknown):
                await journal.settle(SECOND)
            holder.tell()
            assert holder.hear() == "free"
        assert await journal.settle(SECOND) is None
        await journal.commit(SECOND)


async def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "j.db")
    await made(store)
    with child(LOCK_HOLDER, store.path) as holder:
        assert holder.hear() == "held"
        holder.kill()
    async with store.open() as journal:
        assert (await journal.commit(SECOND)).status is CommitStatus.COMMITTED


class HangingCommit(sqlite.Connection):
    """A disk that does not answer while `hanging` is set."""

    hanging = threading.Event()
    reached = threading.Event()
    answering = threading.Event()

    def execute(self, sql: str, *parameters: object) -> sqlite.Cursor:
        if sql == "COMMIT" and self.hanging.is_set():
            self.reached.set()
            self.answering.wait()
        return super().execute(sql, *parameters)  # type: ignore[arg-type]  # handed on as it came


@pytest.fixture
def hanging_disk() -> Iterator[type[HangingCommit]]:
    yield HangingCommit
    HangingCommit.answering.set()
    for event in (HangingCommit.hanging, HangingCommit.reached, HangingCommit.answering):
        event.clear()


async def told(journal: Journal, batch: Batch, answers: list[Receipt | MinutebookError]) -> None:
    try:
        answers.append(await journal.commit(batch))
    except MinutebookError as e:
        answers.append(e)


async def test_a_disk_that_hangs_is_an_unknown_outcome_and_those_behind_it_were_not_written(
    tmp_path: Path, hanging_disk: type[HangingCommit]
) -> None:
    store = SqliteStore(tmp_path / "j.db", store_timeout_s=0.2, connection_class=hanging_disk)
    await made(store)
    ours: list[Receipt | MinutebookError] = []
    behind: list[Receipt | MinutebookError] = []
    async with store.open() as journal:
        hanging_disk.hanging.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(told, journal, SECOND, ours)
            await until(hanging_disk.reached.is_set)
            tasks.start_soon(told, journal, dummy_batch(Cursor.start("session-2"), "c1"), behind)
        assert [type(answer) for answer in (*ours, *behind)] == [OutcomeUnknown, StoreTimeout]
        with pytest.raises(OutcomeUnknown):
            await journal.settle(SECOND)  # it is still under way
        hanging_disk.hanging.clear()
        hanging_disk.answering.set()
        settled = await journal.settle(SECOND)
        assert settled is not None
        assert settled.status is CommitStatus.RECONCILED
        assert await journal.session("session-2") is None


async def test_a_disk_that_hangs_does_not_keep_a_store_from_closing(
    tmp_path: Path, hanging_disk: type[HangingCommit]
) -> None:
    store = SqliteStore(tmp_path / "j.db", store_timeout_s=0.2, connection_class=hanging_disk)
    await made(store)
    ours: list[Receipt | MinutebookError] = []
    with anyio.fail_after(PATIENCE_S):
        async with store.open() as journal, anyio.create_task_group() as tasks:
            hanging_disk.hanging.set()
            tasks.start_soon(told, journal, SECOND, ours)
    assert [type(answer) for answer in ours] == [OutcomeUnknown]


@pytest.mark.parametrize("timeout_s", [0, -1, 30.5])
async def test_a_store_timeout_has_bounds(tmp_path: Path, timeout_s: float) -> None:
    with pytest.raises(InvalidOptions):
        async with SqliteStore(tmp_path / "j.db", store_timeout_s=timeout_s).open():
            pass
    assert not (tmp_path / "j.db").exists()


def test_a_child_that_fails_says_so() -> None:
    failing = Child("raise SystemExit(3)")
    with pytest.raises(AssertionError, match="3"):
        failing.hear()
    assert failing.end() == 3

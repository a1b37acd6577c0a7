"""Every statement of a commit fails in turn: what is told is what is in the file.

The loop asks for the n-th statement to fail for n = 1, 2, ... until a commit
meets no fault any more, so that it covers every statement there is.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from adapters.sqlite_driver import CORRUPT, FULL, IO_ERROR
from adapters.sqlite_store import SqliteStore
from domain.cursor import Cursor
from domain.envelope import check_link, genesis
from domain.errors import Corrupt, MinutebookError, OutcomeUnknown, StoreReadFailed, StoreWriteFailed
from domain.ports import Batch, CommitStatus, Holder, Journal, Receipt
from minutebook.testing.batches import dummy_batch, end_of
from tests.store.faults import NAMES, Faults, faulty

pytestmark = pytest.mark.anyio

TWO = (b'{"n":1}', b'{"n":2}')


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def store(tmp_path: Path, faults: Faults) -> SqliteStore:
    return SqliteStore(tmp_path / "journal.db", connection_class=faulty(faults))


@pytest.mark.parametrize("code", [IO_ERROR, FULL])
@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT", StoreReadFailed),  # what is in the file
        ("PRAGMA journal_mode", StoreWriteFailed),
        ("BEGIN IMMEDIATE", StoreWriteFailed),
        ("CREATE TABLE", StoreWriteFailed),
        ("COMMIT", StoreWriteFailed),
    ],
)
async def test_an_opening_reads_and_only_making_a_journal_writes(
    store: SqliteStore, faults: Faults, statement: str, code: int, expected: type[MinutebookError]
) -> None:
    faults.arm(1, code, only=statement)
    with pytest.raises(expected, match=NAMES[code]):
        async with store.open():
            pass
    faults.disarm()
    async with store.open() as journal:
        assert await journal.sessions() == []
    faults.arm(1, code, only="PRAGMA journal_mode")
    with pytest.raises(StoreReadFailed):  # it is there already
        async with store.open():
            pass


@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize(
    ("code", "after"),
    # SQLite does not report "full" for a commit that it has carried out.
    [(IO_ERROR, False), (IO_ERROR, True), (CORRUPT, False), (CORRUPT, True), (FULL, False)],
)
async def test_whatever_fails_in_a_commit_the_answer_is_true(
    store: SqliteStore, faults: Faults, code: int, sticky: bool, after: bool
) -> None:
    unknown = 0
    async with store.open() as journal:
        for n in range(1, 100):
            first = dummy_batch(Cursor.start(f"session-{n}"), "c1", blobs=[b"first"])
            second = dummy_batch(end_of(first), "c2", TWO, blobs=[b"%d" % n], snapshot_state=b"state")
            await journal.commit(first)
            faults.arm(n, code, sticky=sticky, after=after)
            answer = await outcome(journal, second)
            met, failing = faults.failed, sticky and faults.failed
            if failing and isinstance(answer, OutcomeUnknown):
                with pytest.raises(OutcomeUnknown):
                    await journal.settle(second)
            faults.disarm()
            unknown += isinstance(answer, OutcomeUnknown)
            await assert_true(journal, first, second, answer)
            if not met:
                break
    assert n > 8, "a commit is more than eight statements"
    assert unknown or (code == FULL and not sticky), "a failing COMMIT leaves the outcome unknown"


async def outcome(journal: Journal, batch: Batch) -> Receipt | MinutebookError:
    try:
        return await journal.commit(batch)
    except MinutebookError as e:
        return e


async def assert_true(
    journal: Journal, first: Batch, second: Batch, answer: Receipt | MinutebookError
) -> None:
    """What was answered is what is there, and the session goes on."""
    session = first.session_id
    there = len(await journal.read(session)) == 3
    if isinstance(answer, Receipt):
        assert there
    elif isinstance(answer, OutcomeUnknown):
        with pytest.raises(OutcomeUnknown):
            await journal.commit(second)
        settled = await journal.settle(second)
        assert (settled is not None) == there
        assert settled is None or settled.status is CommitStatus.RECONCILED
    else:
        assert isinstance(answer, StoreWriteFailed | Corrupt)
        assert not there
        assert await journal.blob(second.blobs[0].digest) is None
    again = await journal.commit(second)
    assert again.status is (CommitStatus.REPLAYED if there else CommitStatus.COMMITTED)
    sequence, head = 0, genesis(session)
    for row in await journal.read(session):
        check_link(row, sequence, head)
        sequence, head = row.sequence, row.head
    assert sequence == 3


async def test_a_commit_that_happened_and_was_reported_as_failed_is_reconciled(
    store: SqliteStore, faults: Faults
) -> None:
    batch = dummy_batch(Cursor.start("session-1"), "c1", TWO)
    async with store.open() as journal:
        faults.arm(1, after=True, only="COMMIT")
        with pytest.raises(OutcomeUnknown):
            await journal.commit(batch)
        faults.disarm()
        settled = await journal.settle(batch)
        assert settled is not None
        assert settled.status is CommitStatus.RECONCILED
        assert settled.head == batch.events[-1].head


async def test_a_connection_whose_commit_failed_is_closed_before_anybody_is_told(tmp_path: Path) -> None:
    """Whoever is told settles; a handle that is still open could bring the commit about after that."""
    faults, closing, go_on = Faults(), threading.Event(), threading.Event()

    class SlowToClose(faulty(faults)):  # type: ignore[misc]  # a class that a function made
        def close(self) -> None:
            if faults.failed:
                closing.set()
                assert go_on.wait(timeout=20)
            super().close()

    told: list[Receipt | MinutebookError] = []

    async def commit(journal: Journal) -> None:
        told.append(await outcome(journal, dummy_batch(Cursor.start("session-1"), "c1")))

    async with (
        SqliteStore(tmp_path / "journal.db", connection_class=SlowToClose).open() as journal,
        anyio.create_task_group() as tasks,
    ):
        faults.arm(1, only="COMMIT")
        tasks.start_soon(commit, journal)
        assert await anyio.to_thread.run_sync(closing.wait, 20)
        await anyio.wait_all_tasks_blocked()
        assert told == []
        faults.disarm()
        go_on.set()
    assert [type(each) for each in told] == [OutcomeUnknown]


async def test_an_unknown_outcome_fences_its_session_and_no_other(store: SqliteStore, faults: Faults) -> None:
    ours = dummy_batch(Cursor.start("session-1"), "c1")
    async with store.open() as journal, store.open() as another:
        faults.arm(1, only="COMMIT")
        with pytest.raises(OutcomeUnknown):
            await journal.commit(ours)
        faults.disarm()
        for handle in (journal, another):
            with pytest.raises(OutcomeUnknown):
                await handle.commit(dummy_batch(Cursor.start("session-1"), "c9"))
        await journal.commit(dummy_batch(Cursor.start("session-2"), "c1"))
        assert await another.settle(ours) is None
        await journal.commit(ours)


async def test_no_space_is_not_an_unknown_outcome(store: SqliteStore, faults: Faults) -> None:
    batch = dummy_batch(Cursor.start("session-1"), "c1")
    async with store.open() as journal:
        faults.arm(1, FULL, only="COMMIT")
        with pytest.raises(StoreWriteFailed) as refusal:
            await journal.commit(batch)
        assert "SQLITE_FULL" in str(refusal.value)
        assert (await journal.commit(batch)).status is CommitStatus.COMMITTED


async def test_a_rollback_that_fails_leaves_the_outcome_unknown(store: SqliteStore, faults: Faults) -> None:
    batch = dummy_batch(Cursor.start("session-1"), "c1")
    async with store.open() as journal:
        faults.arm(1, FULL, sticky=True)
        faults.only = ""
        faults.at = 6  # the statement before COMMIT; then ROLLBACK fails as well
        with pytest.raises(OutcomeUnknown):
            await journal.commit(batch)
        faults.disarm()
        assert await journal.settle(batch) is None


async def test_a_lease_call_whose_outcome_is_unknown_can_be_repeated(
    store: SqliteStore, faults: Faults
) -> None:
    holder = Holder("worker", "lease-1")
    async with store.open() as journal:
        faults.arm(1, after=True, only="COMMIT")
        with pytest.raises(OutcomeUnknown):
            await journal.leases.acquire("session-1", holder, 30_000)
        faults.disarm()
        assert (await journal.leases.acquire("session-1", holder, 30_000)).token == 1


async def test_a_read_that_fails_is_told_and_the_next_one_works(store: SqliteStore, faults: Faults) -> None:
    batch = dummy_batch(Cursor.start("session-1"), "c1")
    async with store.open() as journal:
        await journal.commit(batch)
        for code in (IO_ERROR, CORRUPT):
            faults.arm(1, code, only="SELECT")
            with pytest.raises(MinutebookError) as refusal:
                await journal.read("session-1")
            assert refusal.value.__cause__ is not None
            faults.disarm()
            assert tuple(await journal.read("session-1")) == batch.events


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
async def test_failed_commits_leave_no_connection_open(store: SqliteStore, faults: Faults) -> None:
    async with store.open() as journal:
        await journal.commit(dummy_batch(Cursor.start("session-0"), "c1"))
        before = len(os.listdir("/proc/self/fd"))
        for n in range(1, 6):
            batch = dummy_batch(Cursor.start(f"session-{n}"), "c1")
            faults.arm(1, only="COMMIT")
            with pytest.raises(OutcomeUnknown):
                await journal.commit(batch)
            faults.disarm()
            await journal.settle(batch)
            await journal.commit(batch)
        assert len(os.listdir("/proc/self/fd")) == before

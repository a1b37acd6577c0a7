"""Another process holds the file: every call ends in time, with a typed answer, and the next one works.

A second process holds a lock, of each kind that SQLite has, until it is told to let go:
shorter than the store waits, or longer. Nothing here sleeps; what is waited for is a state.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from adapters.sqlite_backup import back_up, copy
from adapters.sqlite_driver import BUSY, primary_code, sqlite
from adapters.sqlite_migration import migrate, opening_of
from adapters.sqlite_reader import open_reader
from adapters.sqlite_store import SqliteStore
from domain.errors import OutcomeUnknown, StoreTimeout
from domain.ports import CommitStatus, Journal
from tests.store.busy import (
    ALONE,
    FENCE,
    FIRST,
    GRACE_S,
    HOLDER,
    READER,
    READS,
    SECOND,
    SESSION,
    THIRD,
    TIMEOUT_S,
    WRITER,
    WRITES,
    Call,
    Noticing,
    all_timed_out,
    begun,
    hold,
    let_go,
    store_at,
    timed_out,
)
from tests.store.children import child
from tests.store.faults import Faults, faulty
from tests.store.golden_files import contents, format_of, golden

pytestmark = pytest.mark.anyio

#: SQLite's extended codes of BUSY; drivers do not all name them.
BUSY_RECOVERY = 261
BUSY_SNAPSHOT = 517


@pytest.fixture(autouse=True)
def nobody_was_kept_waiting() -> None:
    Noticing.kept_waiting.clear()


@pytest.fixture(params=["wal", "truncate"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("lock", [WRITER, ALONE])
async def test_every_call_behind_a_lock_that_stays(tmp_path: Path, mode: str, lock: str) -> None:
    store = store_at(tmp_path / "j.db", mode)
    async with store.open() as journal:
        await begun(journal)
        before = await journal.session(SESSION)
        with child(HOLDER, store.path) as holder:
            hold(holder, lock)
            await all_timed_out(journal)
            readable = mode == "wal" or lock == WRITER  # only a rollback journal shuts readers out
            for call in READS.values():
                if readable:
                    await call(journal)
                else:
                    await timed_out(partial(call, journal))
            let_go(holder)
        assert await journal.session(SESSION) == before
        assert await journal.session("session-2") is None
        for name, call in WRITES.items():
            assert await call(journal) is not None or name == "release"
        events = await journal.read(SESSION)
        assert [event.sequence for event in events] == [1, 2]


async def carry_out(call: Call, journal: Journal) -> None:
    await call(journal)


@pytest.mark.parametrize("name", sorted(WRITES))
async def test_a_call_behind_a_lock_that_goes(tmp_path: Path, mode: str, name: str) -> None:
    store = store_at(tmp_path / "j.db", mode, timeout_s=20)
    async with store.open() as journal:
        await begun(journal)
        with child(HOLDER, store.path) as holder:
            hold(holder, WRITER)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(carry_out, WRITES[name], journal)
                assert await anyio.to_thread.run_sync(Noticing.kept_waiting.wait, 20)
                let_go(holder)
        events = await journal.read(SESSION)
        assert len(events) == (2 if name == "commit" else 1)
        assert (await journal.commit(FIRST)).status is CommitStatus.REPLAYED


async def test_opening_and_closing_behind_a_lock(tmp_path: Path, mode: str) -> None:
    store = store_at(tmp_path / "j.db", mode)
    async with store.open() as journal:
        await begun(journal)
    with child(HOLDER, store.path) as holder:
        for lock in (WRITER, ALONE):
            hold(holder, lock)
            began = time.monotonic()
            try:
                async with store.open() as journal:
                    await timed_out(lambda: journal.commit(SECOND))
            except StoreTimeout:
                assert (mode, lock) == ("truncate", ALONE), "only then a file cannot even be looked at"
            assert time.monotonic() - began < 2 * (TIMEOUT_S + GRACE_S)
            let_go(holder)
    async with store.open() as journal:
        assert (await journal.commit(SECOND)).status is CommitStatus.COMMITTED
        assert len(await journal.read(SESSION)) == 2


async def test_making_a_journal_behind_a_lock(tmp_path: Path, mode: str) -> None:
    store = store_at(tmp_path / "j.db", mode)
    with closing(sqlite.connect(store.path)) as made:
        made.execute("PRAGMA journal_mode = " + ("wal" if mode == "wal" else "delete"))
    with child(HOLDER, store.path) as holder:
        hold(holder, WRITER)

        async def opened() -> None:
            async with store.open():
                raise AssertionError("there is nothing to open")

        await timed_out(opened)
        let_go(holder)
    async with store.open() as journal:
        await begun(journal)


async def test_settling_behind_a_lock(tmp_path: Path, mode: str) -> None:
    """Its answer would be an outcome; without the lock there is none, and it says so."""
    faults = Faults()
    store = SqliteStore(
        tmp_path / "j.db", store_timeout_s=TIMEOUT_S, connection_class=faulty(faults), journal_mode=mode
    )
    async with store.open() as journal:
        await begun(journal)
        faults.arm(1, only="COMMIT")
        with pytest.raises(OutcomeUnknown):
            await journal.commit(SECOND)
        faults.disarm()
        with child(HOLDER, store.path) as holder:
            for lock in (WRITER, ALONE):
                hold(holder, lock)
                await timed_out(lambda: journal.settle(SECOND), OutcomeUnknown)
                await timed_out(lambda: journal.commit(SECOND), OutcomeUnknown)
                let_go(holder)
        assert await journal.settle(SECOND) is None
        assert (await journal.commit(SECOND)).status is CommitStatus.COMMITTED


@pytest.mark.parametrize("lock", [WRITER, ALONE])
async def test_looking_and_copying_behind_a_lock(tmp_path: Path, mode: str, lock: str) -> None:
    store = store_at(tmp_path / "j.db", mode)
    async with store.open() as journal:
        await begun(journal)
    readable = mode == "wal" or lock == WRITER

    async def look() -> int:
        async with open_reader(store.path, timeout_s=TIMEOUT_S) as reader:
            return len(await reader.read(SESSION))

    async def copied() -> int:
        target = tmp_path / "copy.db"
        await anyio.to_thread.run_sync(lambda: back_up(store.path, target, timeout_s=TIMEOUT_S))
        events = len(contents(target)["minutebook_events"])
        target.unlink()
        return events

    with child(HOLDER, store.path) as holder:
        hold(holder, lock)
        for call in (look, copied):
            if readable:
                assert await call() == 1
            else:
                await timed_out(call)
        let_go(holder)
    assert (await look(), await copied()) == (1, 1)
    assert not (tmp_path / "copy.db").exists()


def test_a_copy_that_meets_a_lock_late_gives_up_too(tmp_path: Path) -> None:
    """The driver's own backup would wait for ever."""
    path = golden(1, tmp_path / "kept")
    with child(HOLDER, path) as holder, closing(sqlite.connect(path)) as source:
        hold(holder, ALONE)
        with pytest.raises(StoreTimeout):
            copy(source, tmp_path / "copy.db", store="a store", timeout_s=TIMEOUT_S)
        let_go(holder)
        copy(source, tmp_path / "copy.db", store="a store", timeout_s=TIMEOUT_S)
    assert contents(tmp_path / "copy.db") == contents(path)


@pytest.mark.parametrize("lock", [WRITER, ALONE, READER])
async def test_migrating_behind_a_lock(tmp_path: Path, mode: str, lock: str) -> None:
    path = golden(1, tmp_path / "kept")
    if mode == "wal":
        with closing(sqlite.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = wal")
    before = contents(path)
    opening = replace(opening_of(path), timeout_s=TIMEOUT_S, journal_mode=mode)

    async def call() -> None:
        await anyio.to_thread.run_sync(lambda: migrate(opening))

    with child(HOLDER, path) as holder:
        hold(holder, lock)
        if (mode, lock) == ("wal", READER):
            await call()
        else:
            began = time.monotonic()
            with pytest.raises(StoreTimeout):
                await call()
            assert time.monotonic() - began < 3 * TIMEOUT_S + GRACE_S  # look, open, begin: each may wait
        let_go(holder)
    assert contents(path) == before
    await call()
    assert (format_of(path), contents(path)) == (2, before)


# --- locks that are met late ------------------------------------------------------------------


async def test_a_reader_that_stays_holds_up_the_commit_and_nothing_is_written(tmp_path: Path) -> None:
    """Without a WAL: BEGIN IMMEDIATE goes through, COMMIT does not."""
    store = store_at(tmp_path / "j.db", "truncate")
    async with store.open() as journal:
        await begun(journal)
        with child(HOLDER, store.path) as holder:
            hold(holder, READER)
            await all_timed_out(journal)
            let_go(holder)
        assert len(await journal.read(SESSION)) == 1
        assert (await journal.commit(SECOND)).status is CommitStatus.COMMITTED
        assert len(await journal.read(SESSION)) == 2


async def test_somebody_s_old_snapshot_is_their_trouble(tmp_path: Path) -> None:
    """A stranger reads, we commit, the stranger wants to write: BUSY_SNAPSHOT is for the stranger."""
    store = store_at(tmp_path / "j.db", "wal")
    async with store.open() as journal:
        await begun(journal)
        with closing(sqlite.connect(store.path, isolation_level=None, timeout=0)) as stranger:
            stranger.execute("BEGIN")
            stranger.execute("SELECT count(*) FROM minutebook_events").fetchone()
            assert (await journal.commit(SECOND)).status is CommitStatus.COMMITTED
            with pytest.raises(sqlite.OperationalError) as refusal:
                stranger.execute("UPDATE minutebook_sessions SET status = 'mine'")
            assert primary_code(refusal.value) == BUSY
            stranger.execute("ROLLBACK")
        assert (await journal.commit(THIRD)).status is CommitStatus.COMMITTED


class Upgrading(sqlite.Connection):
    """Notes every statement that changes something outside a transaction that was begun for it."""

    wrong: list[str]
    began = False

    def execute(self, sql: str, *parameters: Any) -> sqlite.Cursor:
        self._note(sql)
        return super().execute(sql, *parameters)

    def executemany(self, sql: str, *parameters: Any) -> sqlite.Cursor:
        self._note(sql)
        return super().executemany(sql, *parameters)

    def _note(self, sql: str) -> None:
        if sql.startswith("BEGIN"):
            self.began = sql == "BEGIN IMMEDIATE"
        elif sql.startswith(("INSERT", "UPDATE", "DELETE", "CREATE", "ALTER")) and not self.began:
            self.wrong.append(sql)


async def test_no_reading_transaction_of_ours_ever_becomes_a_writing_one(tmp_path: Path, mode: str) -> None:
    """So BUSY_SNAPSHOT and the deadlock of two upgrades cannot happen."""
    Upgrading.wrong = []
    store = SqliteStore(tmp_path / "j.db", journal_mode=mode, connection_class=Upgrading)
    async with store.open() as journal:
        await begun(journal)
        for call in (*READS.values(), *WRITES.values()):
            await call(journal)
        await journal.settle(SECOND)
    migrate(replace(opening_of(golden(1, tmp_path / "old")), connection_class=Upgrading))
    assert Upgrading.wrong == []


@pytest.mark.parametrize(
    ("committing", "renewing"),
    [
        ("BEGIN", "BEGIN"),
        ("SELECT", "SELECT"),
        ("INSERT INTO minutebook_events", "UPDATE"),
        ("INSERT INTO minutebook_sessions", "UPDATE"),
        ("INSERT INTO minutebook_commands", "UPDATE"),
        ("COMMIT", "COMMIT"),
    ],
)
@pytest.mark.parametrize("code", [BUSY, BUSY_RECOVERY, BUSY_SNAPSHOT])
async def test_busy_in_the_middle_is_tried_again_from_the_beginning(
    tmp_path: Path, committing: str, renewing: str, code: int
) -> None:
    faults = BusyFaults(code)
    store = SqliteStore(tmp_path / "j.db", connection_class=faulty(faults))
    async with store.open() as journal:
        await begun(journal)
        faults.arm(1, BUSY, only=committing)
        assert (await journal.commit(SECOND)).status is CommitStatus.COMMITTED
        assert faults.failed == 1
        faults.arm(1, BUSY, only=renewing)
        await journal.leases.renew(SESSION, FENCE, 60_000)
        assert faults.failed == 1
        faults.disarm()
        assert len(await journal.read(SESSION)) == 2
        assert (await journal.commit(SECOND)).status is CommitStatus.REPLAYED


class BusyFaults(Faults):
    """Faults that are one of the kinds of BUSY."""

    def __init__(self, extended: int) -> None:
        super().__init__()
        self.extended = extended

    def error(self) -> Exception:
        """With the extended code, as the driver gives it."""
        error: Any = super().error()
        error.sqlite_errorcode = self.extended
        return error  # type: ignore[no-any-return]

"""The writing thread: what waits shares one transaction, in the order in which it came."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import anyio
import pytest

from adapters.sqlite_driver import sqlite
from adapters.sqlite_journal import SqliteJournal
from adapters.sqlite_store import SqliteStore
from domain.cursor import Cursor
from domain.errors import HeadConflict, MinutebookError, OutcomeUnknown, SessionNotFound, StoreWriteFailed
from domain.ports import CommitStatus, Holder, Journal, Receipt
from minutebook.testing.batches import dummy_batch, end_of
from tests.store.held import Gate, answer, behind_a_held_commit
from tests.store.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


async def test_queued_commits_of_many_sessions_are_one_transaction(tmp_path: Path) -> None:
    gate = Gate()
    batches = [dummy_batch(Cursor.start(f"session-{n}"), f"c{n}") for n in range(20)]
    answers = await behind_a_held_commit(SqliteStore(tmp_path / "j.db", probe=gate), gate, batches)
    assert {x.status for x in answers.values() if isinstance(x, Receipt)} == {CommitStatus.COMMITTED}
    assert len(answers) == 21
    assert gate.commits() == 2


async def test_queued_commits_of_one_session_follow_one_another(tmp_path: Path) -> None:
    gate = Gate()
    batches = [dummy_batch(Cursor.start("session-1"), "c0")]
    for n in range(1, 10):
        batches.append(dummy_batch(end_of(batches[-1]), f"c{n}"))
    answers = await behind_a_held_commit(SqliteStore(tmp_path / "j.db", probe=gate), gate, batches)
    assert all(isinstance(answers[batch.command_id], Receipt) for batch in batches)
    assert gate.commits() == 2


async def test_one_batch_s_conflict_does_not_hurt_the_others(tmp_path: Path) -> None:
    gate = Gate()
    good = dummy_batch(Cursor.start("session-1"), "good")
    late = dummy_batch(Cursor.start("session-1"), "late")
    other = dummy_batch(Cursor.start("session-2"), "other")
    answers = await behind_a_held_commit(
        SqliteStore(tmp_path / "j.db", probe=gate), gate, [good, late, other]
    )
    assert isinstance(answers["good"], Receipt)
    assert isinstance(answers["late"], HeadConflict)
    assert isinstance(answers["other"], Receipt)
    assert gate.commits() == 2


async def test_one_batch_that_cannot_be_written_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    gate = Gate()
    good = dummy_batch(Cursor.start("session-1"), "good")
    whole = dummy_batch(Cursor.start("session-2"), "bad")
    bad = replace(whole, events=(replace(whole.events[0], topic="\ud800"),))  # no text that SQLite takes
    other = dummy_batch(Cursor.start("session-3"), "other")
    answers = await behind_a_held_commit(SqliteStore(tmp_path / "j.db", probe=gate), gate, [good, bad, other])
    assert isinstance(answers["good"], Receipt)
    assert isinstance(answers["bad"], StoreWriteFailed)
    assert isinstance(answers["other"], Receipt)


async def test_events_lie_in_the_order_in_which_their_commits_were_asked_for(tmp_path: Path) -> None:
    gate = Gate()
    first = dummy_batch(Cursor.start("session-2"), "c1")
    batches = [first, dummy_batch(Cursor.start("session-1"), "c2"), dummy_batch(end_of(first), "c3")]
    await behind_a_held_commit(SqliteStore(tmp_path / "j.db", probe=gate), gate, batches)
    with closing(sqlite.connect(tmp_path / "j.db")) as connection:
        rows = connection.execute("SELECT originator_id FROM minutebook_events ORDER BY rowid").fetchall()
    assert [row[0] for row in rows] == ["held", "session-2", "session-1", "session-2"]


async def test_a_lease_that_is_asked_for_behind_a_session_s_first_commit_finds_it(tmp_path: Path) -> None:
    gate = Gate()
    store = SqliteStore(tmp_path / "j.db", probe=gate)
    answers: dict[str, Receipt | MinutebookError] = {}

    async def acquire(journal: Journal) -> None:
        with pytest.raises(SessionNotFound):
            await journal.leases.acquire("session-1", Holder("worker", "l-1"), 60_000)

    async with (
        store.open() as ours,
        store.open(owner_id="another") as theirs,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(answer, ours, dummy_batch(Cursor.start("held"), "held"), answers)
        await until(gate.reached.is_set)
        tasks.start_soon(answer, ours, dummy_batch(Cursor.start("session-1"), "first"), answers)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(acquire, theirs)
        await anyio.wait_all_tasks_blocked()
        gate.opened.set()
    assert isinstance(answers["first"], Receipt)
    assert gate.commits() == 2


async def test_a_refused_or_replayed_commit_passes_no_probe(tmp_path: Path) -> None:
    gate = Gate()
    gate.reached.set()
    batch = dummy_batch(Cursor.start("session-1"), "c1")
    async with SqliteStore(tmp_path / "j.db", probe=gate).open() as journal:
        await journal.commit(batch)
        await journal.commit(batch)
        with pytest.raises(HeadConflict):
            await journal.commit(dummy_batch(Cursor.start("session-1"), "c2"))
    assert gate.points == ["before_commit", "after_commit"]


async def test_a_probe_that_fails_before_the_commit_means_not_written(tmp_path: Path) -> None:
    gate = Gate()
    gate.reached.set()
    batch = dummy_batch(Cursor.start("session-1"), "c1")
    async with SqliteStore(tmp_path / "j.db", probe=gate).open() as journal:
        gate.fail_at = "before_commit"
        with pytest.raises(StoreWriteFailed):
            await journal.commit(batch)
        gate.fail_at = ""
        assert (await journal.commit(batch)).status is CommitStatus.COMMITTED


async def test_a_probe_that_fails_after_the_commit_means_unknown(tmp_path: Path) -> None:
    gate = Gate()
    gate.reached.set()
    batch = dummy_batch(Cursor.start("session-1"), "c1")
    async with SqliteStore(tmp_path / "j.db", probe=gate).open() as journal:
        gate.fail_at = "after_commit"
        with pytest.raises(OutcomeUnknown):
            await journal.commit(batch)
        gate.fail_at = ""
        settled = await journal.settle(batch)
    assert settled is not None
    assert settled.status is CommitStatus.RECONCILED


async def open_when_closing(journal: Journal, gate: Gate) -> None:
    assert isinstance(journal, SqliteJournal)
    await until(lambda: journal.closed)
    gate.opened.set()


class NotingConnection(sqlite.Connection):
    """Notes the statements of transactions."""

    noted: ClassVar[list[str]] = []

    def execute(self, sql: str, *parameters: object) -> sqlite.Cursor:
        if sql.startswith(("BEGIN", "COMMIT", "ROLLBACK")):
            self.noted.append(sql)
        return super().execute(sql, *parameters)  # type: ignore[arg-type]  # handed on as it came


async def test_a_transaction_takes_its_lock_before_it_looks(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "j.db", connection_class=NotingConnection).open() as journal:
        NotingConnection.noted.clear()
        await journal.commit(dummy_batch(Cursor.start("session-1"), "c1"))
        assert NotingConnection.noted == ["BEGIN IMMEDIATE", "COMMIT"]


async def test_closing_waits_for_what_is_queued(tmp_path: Path) -> None:
    gate = Gate()
    store = SqliteStore(tmp_path / "j.db", probe=gate)
    answers: dict[str, Receipt | MinutebookError] = {}
    async with anyio.create_task_group() as tasks, store.open() as journal:
        tasks.start_soon(answer, journal, dummy_batch(Cursor.start("session-1"), "c1"), answers)
        await until(gate.reached.is_set)
        tasks.start_soon(answer, journal, dummy_batch(Cursor.start("session-2"), "c2"), answers)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(open_when_closing, journal, gate)
    assert [isinstance(answers[name], Receipt) for name in ("c1", "c2")] == [True, True]


async def test_a_cancelled_commit_is_told_its_outcome_first(tmp_path: Path) -> None:
    gate = Gate()
    batch = dummy_batch(Cursor.start("session-1"), "c1")
    receipts: list[Receipt] = []
    went_on = False

    async def commit(journal: Journal) -> None:
        nonlocal went_on
        receipts.append(await journal.commit(batch))
        await anyio.lowlevel.checkpoint()
        went_on = True

    async with SqliteStore(tmp_path / "j.db", probe=gate).open() as journal:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commit, journal)
            await until(gate.reached.is_set)
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.wait_all_tasks_blocked()
                assert receipts == []
                gate.opened.set()
        assert receipts == [Receipt(CommitStatus.COMMITTED, 1, 1, batch.events[-1].head)]
        assert not went_on, "the cancellation has to arrive at the next checkpoint"
        assert tuple(await journal.read("session-1")) == batch.events


async def test_a_caller_cancelled_beforehand_writes_nothing(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "j.db").open() as journal:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await journal.commit(dummy_batch(Cursor.start("session-1"), "c1"))
        assert await journal.session("session-1") is None

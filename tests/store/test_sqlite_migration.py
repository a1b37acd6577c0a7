"""Migrating a journal file: all of it or nothing, whoever kills it; refused while somebody works."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.sqlite_driver import BUSY, FULL, IO_ERROR, sqlite
from adapters.sqlite_migration import migrate, opening_of
from adapters.sqlite_reader import open_reader
from adapters.sqlite_rows import microseconds
from adapters.sqlite_schema import APPLICATION_ID, FORMAT_VERSION, TABLES_OF_FORMAT
from adapters.sqlite_store import SqliteStore
from adapters.system import this_process
from domain.cursor import Cursor
from domain.errors import (
    LeaseConflict,
    NewerFormat,
    StoreFailure,
    StoreTimeout,
    StoreWriteFailed,
)
from domain.ports import Migration
from minutebook.testing.batches import dummy_batch
from recovery import migrating
from tests.integration.command_line import call, run, traces
from tests.store.children import LOCK_HOLDER, child
from tests.store.faults import Faults, faulty
from tests.store.golden_files import contents, expected, format_of, golden, read_as

OLD = 1


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file of format 1 with sessions of every kind, alone in its directory."""
    return golden(OLD, tmp_path / "kept")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A file of format 1 with one event, for what is tried again and again."""
    path = tmp_path / "small" / "journal.db"
    path.parent.mkdir()
    with closing(sqlite.connect(path, isolation_level=None)) as connection:
        for statement in TABLES_OF_FORMAT[OLD].values():
            connection.execute(statement)
        connection.execute(
            "INSERT INTO minutebook_events VALUES (1, 's-long', 1, 't@1', x'01', x'02', x'03', x'04')"
        )
        connection.execute(
            "INSERT INTO minutebook_sessions (session_id, owner_id, sequence, head, created_at, updated_at, "
            "status, next_action) VALUES ('s-long', 'local', 1, x'04', 0, 0, 'open', 'none')"
        )
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {OLD}")
    hold(path, left_s=-1, process_id=1, started="1")
    return path


def hold(path: Path, *, left_s: float, process_id: int | None, started: str | None) -> None:
    """Give a session of the file a lease, as format 1 kept it."""
    now = datetime.now(UTC)
    until = now + timedelta(seconds=left_s)
    boot = "/".join(str(this_process().boot_id).split("/")[:2])
    with closing(sqlite.connect(path, isolation_level=None)) as connection:
        connection.execute(
            "UPDATE minutebook_sessions SET token = token + 1, lease_id = 'l', holder_id = 'worker-7', "
            "acquired_at = ?, renewed_at = ?, expires_at = ?, boot_id = ?, process_id = ?, "
            "process_started = ? WHERE session_id = 's-long'",
            (microseconds(now), microseconds(now), microseconds(until), boot, process_id, started),
        )


# --- what it does and says -------------------------------------------------------------------


def test_it_says_what_it_will_do_and_what_it_did(old: Path) -> None:
    before = traces(old)
    told = call("migrate", old, "--dry-run")
    assert (told.code, told.err) == (0, "")
    assert told.out.splitlines() == [
        f"sqlite:{old}: would migrate from format 1 to 2; 7 sessions, 359 events stay as they are",
        f"would keep a backup: {old}.format-1.backup",
    ]
    assert traces(old) == before
    assert run("migrate", old).out.splitlines() == [
        f"sqlite:{old}: migrated from format 1 to 2; 7 sessions, 359 events stay as they are",
        f"kept a backup: {old}.format-1.backup",
    ]
    after = traces(old)
    assert call("migrate", old).out == (
        f"sqlite:{old}: format 2, up to date (7 sessions, 359 events); there is nothing to do\n"
    )
    assert traces(old) == after


def test_the_backup_is_the_file_as_it_was(old: Path) -> None:
    before = contents(old)
    for number in ("", ".2"):
        backup = Path(f"{old}.format-1.backup{number}")
        copy = old.with_suffix(".copy")
        copy.write_bytes(old.read_bytes())
        assert call("migrate", old).code == 0
        assert (format_of(backup), contents(backup)) == (OLD, before)
        assert backup.stat().st_mode & 0o777 == 0o600
        assert anyio.run(read_as, backup) == expected(OLD)
        for beside in ("-wal", "-shm"):
            Path(f"{old}{beside}").unlink(missing_ok=True)
        os.replace(copy, old)  # a second time: the first backup is not written over
    assert not list(old.parent.glob("*.part"))


def test_no_backup_is_kept_where_none_is_wanted(old: Path) -> None:
    assert "kept no backup" in call("migrate", old, "--no-backup").out
    assert [path.name for path in old.parent.iterdir() if "backup" in path.name] == []
    assert format_of(old) == FORMAT_VERSION


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.anyio
async def test_from_python(old: Path) -> None:
    name, told = f"sqlite:{old}", []
    would = await migrating.migrate(str(old), dry_run=True)
    assert would == Migration(name, 1, 2, 7, 359, f"{old}.format-1.backup")
    assert format_of(old) == OLD
    done = await migrating.migrate(str(old), progress=lambda done, all_: told.append((done, all_)))
    assert done == would
    assert told[-1][0] == told[-1][1] > 0
    assert await migrating.migrate(str(old)) == Migration(name, 2, 2, 7, 359, None)


def test_a_file_that_is_open_here_is_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"

    async def inside() -> None:
        async with SqliteStore(path).open() as journal:
            await journal.commit(dummy_batch(Cursor.start("s-1"), "c1"))
            assert await migrating.migrate(str(path)) == Migration(f"sqlite:{path}", 2, 2, 1, 1, None)
            await journal.commit(dummy_batch(Cursor.start("s-2"), "c1"))

    anyio.run(inside)


def test_whoever_looks_at_the_file_meanwhile_goes_on(old: Path) -> None:
    async def inside() -> None:
        async with open_reader(old) as reader:
            before = await reader.read("s-long")
            await migrating.migrate(str(old))
            assert await reader.read("s-long") == before
            row = await reader.session("lived")
            assert row is not None
            assert row.lease is not None
            assert row.lease.lease_id == "lease-9"

    anyio.run(inside)


# --- who may not be disturbed ----------------------------------------------------------------


def test_a_live_lease_refuses_it_and_says_whose_it_is(old: Path) -> None:
    hold(old, left_s=60, process_id=os.getpid(), started=this_process().process_started)
    before = traces(old)
    for options in (["--dry-run"], [], ["--no-backup"]):
        refused = call("migrate", old, *options)
        assert refused.code == 3
        told = "DURABLE_EXECUTION_LEASE_CONFLICT: session 's-long' is held by worker-7 until 20"
        assert refused.err.startswith(told)
    assert traces(old) == before


@pytest.mark.parametrize(
    ("left_s", "process_id"), [(-1, os.getpid()), (60, 2**22 + 1)], ids=["run out", "its process is dead"]
)
def test_a_lease_that_nobody_uses_is_no_hindrance(old: Path, left_s: float, process_id: int) -> None:
    hold(old, left_s=left_s, process_id=process_id, started="1" if left_s > 0 else None)
    before = contents(old)
    assert call("migrate", old).code == 0
    assert contents(old) == before


def test_a_lease_taken_at_the_last_moment_is_seen(old: Path) -> None:
    """Between the plan and the lock."""

    def take() -> None:
        hold(old, left_s=60, process_id=os.getpid(), started=this_process().process_started)

    with pytest.raises(LeaseConflict):
        migrate(before_the_lock(old, take))
    assert (format_of(old), list(old.parent.glob("*.backup*"))) == (OLD, [])


def test_two_migrations_at_once_are_one(old: Path) -> None:
    done = migrate(before_the_lock(old, lambda: migrate(opening_of(old))))
    assert (done.found, done.target) == (FORMAT_VERSION, FORMAT_VERSION)
    assert len(list(old.parent.glob("*.backup*"))) == 1


def before_the_lock(path: Path, act: Callable[[], object]) -> Any:
    """How to open a file so that something happens just before the write lock is asked for."""
    acts = [act]

    class Late(sqlite.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite.Cursor:
            if sql == "BEGIN IMMEDIATE" and acts:
                acts.pop()()
            return super().execute(sql, *parameters)

    return replace(opening_of(path), connection_class=Late)


def test_a_process_of_the_version_before_writes_nothing_any_more(old: Path) -> None:
    """It has had the file open all the time; its statements name a column that is gone."""
    with closing(sqlite.connect(old, isolation_level=None)) as before:
        before.execute("SELECT boot_id FROM minutebook_sessions").fetchall()
        migrate(opening_of(old))
        with pytest.raises(sqlite.OperationalError, match="no such column: boot_id"):
            before.execute("UPDATE minutebook_sessions SET expires_at = 0, boot_id = ''")


@pytest.mark.anyio
async def test_a_process_of_this_version_writes_nothing_after_a_later_one_migrated(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with SqliteStore(path).open() as journal:
        await journal.commit(dummy_batch(Cursor.start("s-1"), "c1"))
        with closing(sqlite.connect(path, isolation_level=None)) as later:
            later.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
        batch = dummy_batch(Cursor.start("s-2"), "c1")
        with pytest.raises(NewerFormat):
            await journal.commit(batch)
        with closing(sqlite.connect(path, isolation_level=None)) as later:
            assert later.execute("SELECT count(*) FROM minutebook_events").fetchone()[0] == 1
            assert format_of(path) == FORMAT_VERSION + 1


# --- what goes wrong -------------------------------------------------------------------------


def test_a_lock_that_stays_is_a_timeout_and_nothing_is_changed(old: Path) -> None:
    before = contents(old)
    with child(LOCK_HOLDER, old) as holder:
        assert holder.hear() == "held"
        began = time.monotonic()
        with pytest.raises(StoreTimeout):
            migrate(replace(opening_of(old), timeout_s=0.3))
        assert time.monotonic() - began < 1.3
        holder.tell()
        assert holder.hear() == "free"
    assert (format_of(old), contents(old)) == (OLD, before)
    assert migrate(opening_of(old)).target == FORMAT_VERSION


def test_a_backup_that_fails_is_no_backup_and_no_migration(old: Path) -> None:
    before = contents(old)
    Path(f"{old}.format-1.backup.part").mkdir()
    with pytest.raises(StoreWriteFailed, match="nothing was written"):
        migrate(opening_of(old))
    assert (format_of(old), contents(old)) == (OLD, before)
    assert list(old.parent.glob("*.backup")) == []


@pytest.mark.parametrize(
    ("code", "after"), [(BUSY, False), (FULL, False), (IO_ERROR, False), (IO_ERROR, True)]
)
def test_every_statement_fails_once(small: Path, code: int, after: bool) -> None:
    """Old or new, whatever was reported, and the next call goes on from there."""
    untouched, before, faults = small.read_bytes(), contents(small), Faults()
    opening = replace(opening_of(small), connection_class=faulty(faults), timeout_s=0.1)
    for statement in range(1, 100):
        for file in small.parent.iterdir():
            file.unlink()
        small.write_bytes(untouched)
        faults.arm(statement, code, after=after)
        try:
            migrate(opening, backup=statement % 2 == 0)
        except StoreFailure:
            assert faults.failed
        failed = faults.failed
        faults.disarm()
        assert contents(small) == before
        migrate(opening, backup=False)
        assert (format_of(small), contents(small)) == (FORMAT_VERSION, before)
        assert list(small.parent.glob("*.part")) == []
        if not failed:
            break
    assert 10 < statement < 99


KILLED = """
import json, os, shutil, signal, sys
from dataclasses import replace
from adapters.sqlite_connections import Opening
from adapters.sqlite_driver import sqlite
from adapters.sqlite_migration import migrate

golden, place, mode, backup = sys.argv[1:5]
left = 0

def count(*_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

class Killing(sqlite.Connection):
    def execute(self, sql, *parameters):
        count()
        result = super().execute(sql, *parameters)
        return result
    def close(self):
        count()
        super().close()

for n in range(1, 200):
    path = f"{place}/{n}/journal.db"
    os.mkdir(f"{place}/{n}")
    shutil.copyfile(golden, path)
    process = os.fork()
    if process == 0:
        left = n
        migrate(Opening(path, mode, 5.0, Killing), progress=count, backup=backup == "True")
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert status in (0, -signal.SIGKILL), status
    if status == 0:
        break
print(json.dumps(n), flush=True)
"""


@pytest.mark.parametrize(("mode", "backup"), [("wal", True), ("truncate", False)])
def test_killed_anywhere_it_is_old_or_new(tmp_path: Path, small: Path, mode: str, backup: bool) -> None:
    """Before every statement, at the backup's progress, before connections are closed."""
    before, formats, backups = contents(small), [], []
    place = tmp_path / "killed"
    place.mkdir()
    with child(KILLED, small, place, mode, backup) as killed:
        lives = int(json.loads(killed.hear()))
        assert killed.end() == 0
    for life in range(1, lives + 1):
        path = place / str(life) / "journal.db"
        assert contents(path) == before
        formats.append(format_of(path))
        backups.append(len(list(path.parent.glob("*.backup"))))
        migrate(opening_of(path), backup=False)
        assert (format_of(path), contents(path)) == (FORMAT_VERSION, before)
    assert formats == sorted(formats), "once new, it stays new"
    assert {*formats} == {OLD, FORMAT_VERSION}
    assert backups == sorted(backups)
    assert {*backups} == ({0, 1} if backup else {0})
    assert lives > (30 if backup else 15)


def test_what_is_left_of_a_killed_backup_is_cleared_away(old: Path) -> None:
    Path(f"{old}.format-1.backup.part").write_bytes(b"half")
    assert call("migrate", old).code == 0
    assert list(old.parent.glob("*.part*")) == []

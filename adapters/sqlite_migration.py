"""Bringing a journal file of an older format up to date: one transaction, all of it or nothing.

Imported by `recovery.stores`. Events, commands, snapshots and blobs are not touched;
what changes is how a lease is kept. Reading older formats does not need this.
"""

from __future__ import annotations

import os
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from adapters import lease_rules, sqlite_files, sqlite_rows, sqlite_schema
from adapters.lease_rules import Instant
from adapters.sqlite_backup import Progress, copy
from adapters.sqlite_connections import Opening, connect_as_it_is, until_free
from adapters.sqlite_driver import is_busy, sqlite, wal_is_safe
from adapters.sqlite_errors import read_error, write_error
from adapters.sqlite_registry import OPEN_FILES
from adapters.sqlite_schema import FORMAT_VERSION, SESSIONS_TABLE, WAY_UP
from adapters.sqlite_view import SqliteView
from adapters.system import SystemClock, holder_is_dead
from domain.errors import StoreFailure
from domain.ports import Clock, Migration

TIMEOUT_S: Final = 15.0

_LEASES: Final = f"SELECT * FROM {SESSIONS_TABLE} WHERE lease_id IS NOT NULL ORDER BY session_id"
_COUNTS: Final = f"SELECT (SELECT count(*) FROM {SESSIONS_TABLE}), (SELECT count(*) FROM minutebook_events)"


def opening_of(path: str | os.PathLike[str]) -> Opening:
    """How to open a file in order to migrate it.

    Raises:
        NotAJournal, InvalidOptions: there is no such file.
    """
    real = sqlite_files.resolved(path)
    sqlite_files.check_is_file(real)
    return Opening(real, "wal" if wal_is_safe else "truncate", TIMEOUT_S)


def planned(opening: Opening, *, backup: bool = True, clock: Clock | None = None) -> Migration:
    """What `migrate` would do to a file. Blocks; writes nothing.

    Raises:
        As `migrate`.
    """
    at = Instant.of(clock or SystemClock())
    view = SqliteView(opening.path, opening.timeout_s)
    try:
        return view.look(lambda connection: _planned(connection, opening, at, backup=backup))
    except sqlite.Error as e:
        raise read_error(opening.name, e) from e
    finally:
        view.let_go()


def migrate(
    opening: Opening,
    *,
    backup: bool = True,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Migration:
    """Bring a file up to date. Blocks; a second call finds nothing to do.

    Args:
        backup: copy the file first, while nobody writes, to a new file beside it.
        clock: by which leases are judged.
        progress: told how the copy gets on.

    Raises:
        LeaseConflict: somebody holds a session; nothing was changed.
        NotAJournal, NewerFormat, StoreTimeout, StoreWriteFailed, Corrupt: nothing was changed.
        StoreFailure: the disk failed at the end. Call again: it finds the old file or the new one.
    """
    found = planned(opening, backup=backup, clock=clock)
    if found.found == FORMAT_VERSION:
        return found
    with OPEN_FILES.unseen(sqlite_files.file_key(opening.path)):
        connection = _connected(opening)
        try:
            return _migrated(connection, opening, Instant.of(clock or SystemClock()), backup, progress)
        finally:
            connection.close()


def _connected(opening: Opening) -> sqlite.Connection:
    try:
        return connect_as_it_is(opening)
    except sqlite.Error as e:
        raise write_error(opening.name, e) from e


def _planned(connection: sqlite.Connection, opening: Opening, at: Instant, *, backup: bool) -> Migration:
    version = sqlite_schema.format_of(connection, opening.name)
    sessions, events = connection.execute(_COUNTS).fetchone()
    if version == FORMAT_VERSION:
        return Migration(opening.name, version, version, sessions, events, None)
    check_nobody_works(connection, at)
    copy = _free_name(opening, version) if backup else None
    return Migration(opening.name, version, FORMAT_VERSION, sessions, events, copy)


def _migrated(
    connection: sqlite.Connection, opening: Opening, at: Instant, backup: bool, progress: Progress | None
) -> Migration:
    try:
        until_free(lambda: connection.execute("BEGIN IMMEDIATE"), time.monotonic() + opening.timeout_s)
        # Asked again: another process may have been first, or taken a lease.
        plan = _planned(connection, opening, at, backup=backup)
        if plan.found == plan.target:
            return plan
        if plan.backup is not None:
            _back_up(opening, plan.backup, progress)
        _change(connection, opening, plan.found)
    except BaseException as e:
        _roll_back(connection)
        if isinstance(e, sqlite.Error | OSError):
            raise write_error(opening.name, e) from e
        raise
    _commit(connection, opening)
    return plan


def check_nobody_works(connection: sqlite.Connection, at: Instant) -> None:
    """Raise LeaseConflict if a session is held: its holder writes in the old format."""
    for row in connection.execute(_LEASES):
        lease = sqlite_rows.lease_row(row)
        if lease is not None and lease_rules.lives(lease, at, holder_is_dead):
            raise lease_rules.conflict(row["session_id"], lease, at)


def _change(connection: sqlite.Connection, opening: Opening, version: int) -> None:
    for step in range(version, FORMAT_VERSION):
        for statement in WAY_UP[step]:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
    sqlite_schema.format_of(connection, opening.name)  # what is committed is what can be opened


def _commit(connection: sqlite.Connection, opening: Opening) -> None:
    try:
        until_free(lambda: connection.execute("COMMIT"), time.monotonic() + opening.timeout_s)
    except sqlite.Error as e:
        _roll_back(connection)
        if is_busy(e):
            raise write_error(opening.name, e) from e
        raise StoreFailure(
            opening.name,
            f"the disk failed at the end of the migration ({e}). The file is of the old format or of the "
            "new one, nothing between; run the same command again, and it goes on from there",
        ) from e


def _roll_back(connection: sqlite.Connection) -> None:
    with suppress(sqlite.Error):  # closing the connection does the same
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _free_name(opening: Opening, version: int) -> str:
    """A name beside the file that nothing has: an earlier backup is never written over."""
    first = f"{opening.path}.format-{version}.backup"
    name, number = first, 1
    while os.path.lexists(name):
        number += 1
        name = f"{first}.{number}"
    return name


def _back_up(opening: Opening, target: str, progress: Progress | None) -> None:
    """Copy the file as it is under our lock; the name appears when the copy is whole and durable."""
    part = f"{target}.part"
    Path(part).unlink(missing_ok=True)  # of a migration that was killed; we hold the lock, so it is nobody's
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, sqlite_files.FILE_MODE))
    try:
        # A second connection: the engine copies nothing out of a transaction that may write.
        with closing(connect_as_it_is(opening)) as source:
            copy(source, part, store=opening.name, timeout_s=opening.timeout_s, progress=progress)
        os.rename(part, target)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
    sqlite_files.sync_directory(Path(target).parent)

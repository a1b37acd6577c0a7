"""The description of a journal in a SQLite file.

Imported by `minutebook.compose`. A description opens nothing; what is open in
this process is in the registry.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field

from adapters import sqlite_files
from adapters.sqlite_connections import Opening
from adapters.sqlite_driver import sqlite, sqlite_version, wal_is_safe
from adapters.sqlite_file import FileSettings
from adapters.sqlite_jobs import GRACE_S
from adapters.sqlite_journal import SqliteJournal
from adapters.sqlite_registry import OPEN_FILES
from adapters.system import SystemClock, no_probe
from adapters.threads import entered
from domain import ids
from domain.errors import InvalidOptions, StoreTimeout, StoreUnsupported
from domain.limits import MAX_STORE_TIMEOUT_S, STORE_TIMEOUT_S
from domain.ports import Clock, Journal, Probe


@dataclass(frozen=True, slots=True)
class SqliteStore:
    """Where a journal file is; nothing is opened before `open`.

    Args:
        path: the file; it and missing directories are made, readable by their owner only.
        probe: called at before_commit and after_commit, in the writing thread.
        clock: the store's clock, by which leases run out.
        store_timeout_s: how long a call waits for another process's lock, at most 30.
        journal_mode: "auto" takes "wal" where the SQLite at hand is safe with it, else "truncate".
        connection_class: what the driver makes; a subclass may inject faults.
    """

    path: str | os.PathLike[str]
    probe: Probe = no_probe
    clock: Clock = field(default_factory=SystemClock)
    store_timeout_s: float = STORE_TIMEOUT_S
    journal_mode: str = "auto"
    connection_class: type[sqlite.Connection] = sqlite.Connection

    @property
    def durable(self) -> bool:
        """True: the journal outlives the process."""
        return True

    @asynccontextmanager
    async def open(self, *, owner_id: str = "local") -> AsyncIterator[Journal]:
        """Open the journal for one owner, making it if it does not exist.

        Raises:
            InvalidOptions: nothing was touched.
            NotAJournal, NewerFormat, StoreUnsupported: the file was not touched.
            StoreTimeout: it stayed locked, or the disk does not answer.
            StoreReadFailed, Corrupt: the engine could not open it.
            StoreWriteFailed: it could not be made.
        """
        _check_options(self)
        owner_id, name = ids.owner_id(owner_id), f"opens {os.fspath(self.path)}"
        told = f"the disk does not answer; a thread {name!r} waits on. Nothing was written. Try again."
        async with entered(
            lambda: OPEN_FILES.enter(checked_settings(self)),
            OPEN_FILES.leave,
            name=name,
            seconds=self.store_timeout_s + GRACE_S,
            late=StoreTimeout(sqlite_files.store_name(os.fspath(self.path)), told),
        ) as open_file:
            with closing(SqliteJournal(open_file, owner_id)) as journal:
                yield journal


def _check_options(store: SqliteStore) -> None:
    if not 0 < store.store_timeout_s <= MAX_STORE_TIMEOUT_S:
        raise InvalidOptions(
            "store_timeout_s", f"more than 0, at most {MAX_STORE_TIMEOUT_S}", store.store_timeout_s
        )
    if store.journal_mode not in ("auto", "wal", "truncate"):
        raise InvalidOptions("journal_mode", "auto, wal or truncate", store.journal_mode)


def checked_settings(store: SqliteStore) -> FileSettings:
    """How to open a store's file. Looks at the directories that lead to it.

    Raises:
        InvalidOptions: the options cannot work.
        StoreUnsupported: WAL was asked for and the SQLite at hand corrupts it.
    """
    _check_options(store)
    path = sqlite_files.resolved(store.path)
    if store.journal_mode == "wal" and not wal_is_safe:
        raise StoreUnsupported(
            sqlite_files.store_name(path),
            "expected SQLite 3.51.3 or newer for a WAL, "
            f"found {sqlite_version}; use journal_mode='auto' or install pysqlite3",
        )
    auto = "wal" if wal_is_safe else "truncate"
    mode = auto if store.journal_mode == "auto" else store.journal_mode
    opening = Opening(path, mode, store.store_timeout_s, store.connection_class)
    return FileSettings(opening, store.probe, store.clock)

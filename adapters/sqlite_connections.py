"""Opening one SQLite connection the way a journal needs it.

Imported by the SQLite modules. Every connection of this library that may write
comes from here, with its settings read back: durability is not assumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from adapters import sqlite_schema
from adapters.sqlite_driver import is_busy, sqlite
from adapters.sqlite_errors import write_error
from adapters.sqlite_files import store_name
from domain.errors import NotAJournal, StoreUnsupported

T = TypeVar("T")

#: How long SQLite itself waits for a lock before we look at our deadlines.
BUSY_SLICE_S: Final = 0.25
_PAUSE_S: Final = 0.005
_SYNCHRONOUS_FULL: Final = 2

_PRAGMAS: Final = (
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # where an fsync alone does not reach the disk (macOS)
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    "PRAGMA mmap_size = 0",
)


@dataclass(frozen=True, slots=True)
class Opening:
    """How to open a journal file for writing.

    Args:
        path: real and absolute.
        journal_mode: "wal" or "truncate".
        timeout_s: how long to wait for another process's lock.
        connection_class: what the driver makes; a subclass may inject faults.
    """

    path: str
    journal_mode: str
    timeout_s: float
    connection_class: type[sqlite.Connection] = sqlite.Connection

    @property
    def name(self) -> str:
        """What to call the store in a message."""
        return store_name(self.path)


def connect(opening: Opening) -> sqlite.Connection:
    """Open the journal file, which exists; make its tables if it is empty.

    Raises:
        sqlite.Error: it could not be looked at.
        NotAJournal, NewerFormat, OlderFormat: it is not ours to write; it was not touched.
        StoreUnsupported: it cannot be had with the durability that a journal needs.
        StoreFailure: the tables could not be made.
    """
    connection = _opened(opening)
    try:
        deadline = time.monotonic() + opening.timeout_s
        _prepare(connection, opening, deadline)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_as_it_is(opening: Opening) -> sqlite.Connection:
    """Open a journal file of any format as durably, and leave its tables alone: for migrating them.

    Raises:
        sqlite.Error, NotAJournal, NewerFormat, StoreUnsupported: as `connect`.
    """
    connection = _opened(opening)
    try:
        deadline = time.monotonic() + opening.timeout_s
        until_free(lambda: _set_up_existing(connection, opening), deadline)
    except BaseException:
        connection.close()
        raise
    return connection


def until_free(action: Callable[[], T], deadline: float) -> T:
    """Do something again while another process holds the lock, until a moment of `time.monotonic`."""
    while True:
        try:
            return action()
        except sqlite.Error as e:
            if not is_busy(e) or time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_S)  # SQLite waits by itself, but not before every kind of lock


def _prepare(connection: sqlite.Connection, opening: Opening, deadline: float) -> None:
    # What the file is comes first: a stranger's file is left exactly as it was.
    if until_free(lambda: sqlite_schema.is_ready(connection, opening.name), deadline):
        until_free(lambda: _set_up(connection, opening), deadline)
        return
    try:
        until_free(lambda: _make(connection, opening), deadline)
    except sqlite.Error as e:
        raise write_error(opening.name, e) from e


def _set_up_existing(connection: sqlite.Connection, opening: Opening) -> None:
    if not sqlite_schema.format_of(connection, opening.name):
        raise NotAJournal(opening.name, "expected a minutebook journal, found an empty database")
    _set_up(connection, opening)


def _opened(opening: Opening) -> sqlite.Connection:
    connection = sqlite.connect(
        Path(opening.path).as_uri() + "?mode=rw",
        uri=True,
        timeout=BUSY_SLICE_S,
        isolation_level=None,
        check_same_thread=False,
        factory=opening.connection_class,
    )
    connection.row_factory = sqlite.Row
    return connection


def _set_up(connection: sqlite.Connection, opening: Opening) -> None:
    mode = connection.execute(f"PRAGMA journal_mode = {opening.journal_mode}").fetchone()[0]
    for pragma in _PRAGMAS:
        connection.execute(pragma)
    synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
    _expect(opening, "journal_mode", opening.journal_mode, mode)
    _expect(opening, "synchronous", _SYNCHRONOUS_FULL, synchronous)


def _make(connection: sqlite.Connection, opening: Opening) -> None:
    _set_up(connection, opening)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not sqlite_schema.is_ready(connection, opening.name):  # another process may have been first
            sqlite_schema.create_tables(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _expect(opening: Opening, pragma: str, expected: object, actual: object) -> None:
    if actual != expected:
        raise StoreUnsupported(
            opening.name,
            f"expected PRAGMA {pragma} = {expected}, found {actual}. Another program may have the file open "
            "in another mode, or the file system cannot do it; close that program or move the file.",
        )

"""Connections, transactions and the pool that the eventsourcing library works through.

Imported by the recorder and the store. They differ from the library's own in
three ways: a connection that failed in COMMIT is closed and never used again,
a writing transaction takes its lock at once, and errors of whichever driver
was chosen are understood.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, cast

from eventsourcing import persistence
from eventsourcing.persistence import ConnectionPool
from eventsourcing.sqlite import SQLiteConnection, SQLiteCursor, SQLiteDatastore

from adapters.sqlite_connections import Opening, connect
from adapters.sqlite_driver import sqlite

_THEIRS: Final[tuple[tuple[type[Exception], type[Exception]], ...]] = (
    (sqlite.InterfaceError, persistence.InterfaceError),
    (sqlite.DataError, persistence.DataError),
    (sqlite.OperationalError, persistence.OperationalError),
    (sqlite.IntegrityError, persistence.IntegrityError),
    (sqlite.InternalError, persistence.InternalError),
    (sqlite.ProgrammingError, persistence.ProgrammingError),
    (sqlite.NotSupportedError, persistence.NotSupportedError),
    (sqlite.DatabaseError, persistence.DatabaseError),
    (sqlite.Error, persistence.PersistenceError),
)


class SqliteTransaction:
    """One transaction: BEGIN IMMEDIATE for writing, BEGIN for reading."""

    def __init__(self, connection: SqliteConnection, *, commit: bool) -> None:
        self._connection = connection
        self._commit = commit

    def __enter__(self) -> SQLiteCursor:
        cursor = self._connection.cursor()
        try:
            cursor.execute("BEGIN IMMEDIATE" if self._commit else "BEGIN")
        except sqlite.Error as e:
            raise _translated(e) from e
        return cursor

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._commit:
            self._do_commit()
            return
        self._do_rollback()
        if isinstance(error, sqlite.Error):
            raise _translated(error) from error

    def _do_commit(self) -> None:
        try:
            self._connection.commit()
        except sqlite.Error as e:
            # Nobody knows what it left behind. Closed, it can do nothing any more.
            self._connection.close()
            raise _translated(e) from e

    def _do_rollback(self) -> None:
        try:
            self._connection.rollback()
        except sqlite.Error:
            self._connection.close()


class SqliteConnection(SQLiteConnection):
    """A pooled connection; `raw` is the driver's own."""

    @property
    def raw(self) -> sqlite.Connection:
        """The driver's connection."""
        return self._sqlite_conn

    @contextmanager
    def transaction(self, *, commit: bool) -> Iterator[SQLiteCursor]:
        """A cursor inside a transaction."""
        with SqliteTransaction(self, commit=commit) as cursor, cursor:
            yield cursor


class SqliteConnectionPool(ConnectionPool[SqliteConnection]):
    """The open connections of one journal file."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        super().__init__(pool_timeout=opening.timeout_s)

    def _create_connection(self) -> SqliteConnection:
        try:
            return SqliteConnection(connect(self._opening), max_age=None)
        except sqlite.Error as e:
            raise _translated(e) from e


class SqliteDatastore(SQLiteDatastore):
    """The library's datastore over our pool. Its own constructor would open the file its own way."""

    def __init__(self, opening: Opening) -> None:
        self.pool = cast("persistence.ConnectionPool[SQLiteConnection]", SqliteConnectionPool(opening))  # type: ignore[assignment]
        self.single_row_tracking = True
        self.originator_id_type = "text"

    @property
    def journal_pool(self) -> SqliteConnectionPool:
        """The pool, as what it is."""
        return cast(SqliteConnectionPool, self.pool)


def _translated(error: sqlite.Error) -> Exception:
    for ours, theirs in _THEIRS:
        if isinstance(error, ours):
            return theirs(error)
    return error

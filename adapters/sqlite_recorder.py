"""The eventsourcing library's recorder and application over the journal's own table.

Imported by the store. The library gives the notification log (a feed of every
session's events without their content), tracking and projections. It does not
write here: events reach a journal through `Journal.commit` and no other way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

from eventsourcing.persistence import InfrastructureFactory
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteFactory
from eventsourcing.utils import Environment

from adapters.reading_application import ReadingApplication
from adapters.sqlite_connections import Opening
from adapters.sqlite_driver import blob, sqlite
from adapters.sqlite_pool import SqliteConnectionPool, SqliteDatastore
from adapters.sqlite_schema import EVENTS_DDL, EVENTS_TABLE
from domain.envelope import Stored

_INSERT: Final = (
    f"INSERT INTO {EVENTS_TABLE} "
    "(originator_id, originator_version, topic, state, payload, salt, head) VALUES (?,?,?,?,?,?,?)"
)
_INSERT_BARE: Final = (
    f"INSERT INTO {EVENTS_TABLE} (originator_id, originator_version, topic, state) VALUES (?,?,?,?)"
)


class JournalRecorder(SQLiteApplicationRecorder):
    """The library's recorder over `minutebook_events`."""

    datastore: SqliteDatastore

    def __init__(self, datastore: SqliteDatastore) -> None:
        super().__init__(datastore, EVENTS_TABLE)
        self.insert_events_statement = _INSERT_BARE

    def construct_create_table_statements(self) -> list[str]:
        """The events table; the store has made it already."""
        return [EVENTS_DDL.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS")]

    @staticmethod
    def append(connection: sqlite.Connection, events: Iterable[Stored]) -> None:
        """Insert whole rows; the caller holds the transaction."""
        connection.executemany(_INSERT, map(_row, events))


def _row(event: Stored) -> tuple[Any, ...]:
    payload = None if event.payload is None else blob(event.payload)
    salt = None if event.salt is None else blob(event.salt)
    envelope, head = blob(event.envelope), blob(event.head)
    return event.session_id, event.sequence, event.topic, envelope, payload, salt, head


class SqliteApplicationFactory(SQLiteFactory):
    """The library's factory, given its datastore instead of an environment."""

    def __init__(self, env: Environment, datastore: SqliteDatastore) -> None:
        InfrastructureFactory.__init__(self, env)
        self.datastore: SqliteDatastore = datastore

    def application_recorder(self) -> JournalRecorder:
        """The recorder over the journal's table."""
        return JournalRecorder(self.datastore)


class SqliteApplication(ReadingApplication):
    """The library's application around one journal file; for reading and for projections."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        super().__init__()

    def construct_factory(  # type: ignore[override]  # the supertype leaves its type argument open
        self, env: Environment
    ) -> SqliteApplicationFactory:
        """The factory with our datastore."""
        return SqliteApplicationFactory(env, SqliteDatastore(self._opening))

    @property
    def pool(self) -> SqliteConnectionPool:
        """The open connections of the file."""
        return cast(JournalRecorder, self.recorder).datastore.journal_pool

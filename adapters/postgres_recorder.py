"""The eventsourcing library's recorder and application over the journal's own table.

Imported by whoever builds projections over the feed. The library gives the
notification log (a feed of every session's events without their content), tracking
and projections. It does not write here: events reach a journal through
`Journal.commit` and no other way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import psycopg
from eventsourcing.persistence import (
    InfrastructureFactory,
    Notification,
    OperationalError,
    StoredEvent,
)
from eventsourcing.postgres import (
    PostgresApplicationRecorder,
    PostgresDatastore,
    PostgresFactory,
    PostgresSubscription,
)
from eventsourcing.utils import Environment
from psycopg_pool import ConnectionPool

from adapters.postgres_connections import Opening, configure, parameters
from adapters.postgres_driver import Row
from adapters.postgres_listener import channel_of
from adapters.postgres_schema import EVENTS_TABLE, make_journal
from adapters.reading_application import ReadingApplication
from domain.errors import StoreUnsupported

_INSERT: Final = (
    "INSERT INTO {s}.minutebook_events (originator_id, originator_version, topic, state) "
    "SELECT * FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::bytea[]) ORDER BY 2 "
    "RETURNING notification_id"
)
_NOTIFY: Final = b"SELECT pg_notify(%s, '')"
_LAST: Final = "SELECT max(notification_id) AS last FROM {s}.minutebook_events"
#: Who is inserting at this moment: the lock is taken before a position is, and kept to the end.
_WRITERS: Final = (
    b"SELECT virtualtransaction AS writer FROM pg_locks WHERE locktype = 'relation' AND granted "
    b"AND mode = 'RowExclusiveLock' AND relation = %s::regclass AND pid IS DISTINCT FROM pg_backend_pid() "
    b"AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_PAUSE_S: Final = 0.002
#: How soon a commit is noticed of which nobody was notified.
_POLL_S: Final = 1.0
_LOOK_S: Final = 0.1


class JournalDatastore(PostgresDatastore):
    """The library's datastore over connections of ours. Its own constructor would connect its own way.

    Raises:
        StoreUnsupported: the library's database functions were asked for; they write another way.
    """

    def __init__(self, opening: Opening, *, pool_size: int = 2, enable_db_functions: bool = False) -> None:
        if enable_db_functions:
            raise _no_functions()
        self.opening = opening
        self.schema = opening.schema
        self.single_row_tracking = True
        self.originator_id_type = "text"
        self.enable_db_functions = False
        self.pre_ping = False
        self.pool_open_timeout = None
        self.lock_timeout = 0
        self.idle_in_transaction_session_timeout = 0
        self.db_type_names = set()
        self.psycopg_type_adapters = {}
        self.psycopg_python_types = {}
        self.pool = ConnectionPool(  # type: ignore[assignment]  # the library's differs in passwords only
            connection_class=opening.connection_class,
            kwargs=parameters(opening),
            min_size=1,
            max_size=pool_size,
            open=False,
            configure=lambda connection: _configure(connection, opening),
            timeout=opening.timeout_s,
        )

    def register_type_adapters(self) -> None:
        """Nothing to do: no composite types are used."""


class JournalRecorder(PostgresApplicationRecorder):
    """The library's recorder over `minutebook_events`."""

    datastore: JournalDatastore

    def __init__(self, datastore: JournalDatastore) -> None:
        if datastore.enable_db_functions:
            raise _no_functions()
        super().__init__(datastore, events_table_name=EVENTS_TABLE)
        self.channel_name = channel_of(datastore.schema)
        self._table = f"{datastore.schema}.{EVENTS_TABLE}"

    def create_table(self) -> None:
        """The journal's tables, if they are not there; nothing of the library's own."""
        with self.datastore.get_connection() as connection:
            make_journal(connection, self.datastore.schema, self.datastore.opening.name)

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Insert bare rows in one statement, without a lock on the table and without trying again.

        The library's own test cases write this way. A journal's rows are written by `commit`.
        """
        if not stored_events:
            return []
        columns = (
            [str(event.originator_id) for event in stored_events],
            [event.originator_version for event in stored_events],
            [event.topic for event in stored_events],
            [event.state for event in stored_events],
        )
        statement = _INSERT.format(s=self.datastore.schema).encode()
        with self.datastore.get_connection() as connection:
            rows = connection.execute(statement, columns, prepare=True).fetchall()
            connection.execute(_NOTIFY, (self.channel_name,))
        return [row["notification_id"] for row in rows]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Rows of the feed, in order; none that an earlier one could still come before.

        Positions are given out before the commit, so a lower one may become visible later.
        Rows without a gap before them cannot be overtaken. Otherwise those who are inserting
        are waited for.
        """

        theirs: Callable[..., Sequence[Notification]] = super().select_notifications

        def select(upto: int | None) -> Sequence[Notification]:
            return theirs(start, limit, upto, topics, inclusive_of_start=inclusive_of_start)

        found = select(stop)
        first = (start or 1) + (0 if inclusive_of_start or start is None else 1)
        if not found or (not topics and _without_gap(found, first)):
            return found
        settled = self._settled()
        return select(settled if stop is None else min(stop, settled))

    def max_notification_id(self) -> int | None:
        """The last position, none below which can be filled later."""
        return self._settled() or None

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> JournalSubscription:
        """The feed as it grows."""
        return JournalSubscription(recorder=self, gt=gt, topics=topics)

    def _settled(self) -> int:
        """The last position whose predecessors are all visible, or will never be.

        Raises:
            OperationalError: somebody has been inserting all the time.
        """
        with self.datastore.get_connection() as connection:
            row = connection.execute(_LAST.format(s=self.datastore.schema).encode()).fetchone()
            waiting, deadline = self._writers(connection), time.monotonic() + self.datastore.opening.timeout_s
            while waiting:
                if time.monotonic() >= deadline:
                    raise OperationalError("the feed is held up by a transaction that does not end")
                time.sleep(_PAUSE_S)
                waiting &= self._writers(connection)
        return (row or {})["last"] or 0

    def _writers(self, connection: psycopg.Connection[Row]) -> set[str]:
        return {row["writer"] for row in connection.execute(_WRITERS, (self._table,)).fetchall()}


class JournalSubscription(PostgresSubscription):
    """The library's subscription, which also looks when nobody told it to."""

    def _listen(self) -> None:
        try:
            with self._recorder.datastore.get_connection() as connection:
                connection.execute(f'LISTEN "{self._recorder.channel_name}"'.encode())
                next_look = time.monotonic() + _POLL_S
                while not self._has_been_stopped and not self._thread_error:
                    told = list(connection.notifies(timeout=_LOOK_S, stop_after=1))
                    if told or time.monotonic() >= next_look:
                        next_look = time.monotonic() + _POLL_S
                        self._has_been_notified.set()
        except BaseException as e:
            self._thread_error = self._thread_error or e
            self.stop()


class PostgresApplicationFactory(PostgresFactory):
    """The library's factory, given its datastore instead of an environment."""

    def __init__(self, env: Environment, datastore: JournalDatastore) -> None:
        InfrastructureFactory.__init__(self, env)
        self.datastore: JournalDatastore = datastore

    def application_recorder(self) -> JournalRecorder:
        """The recorder over the journal's table."""
        return JournalRecorder(self.datastore)


class PostgresApplication(ReadingApplication):
    """The library's application around one journal; for reading and for projections."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        super().__init__()

    def construct_factory(  # type: ignore[override]  # the supertype leaves its type argument open
        self, env: Environment
    ) -> PostgresApplicationFactory:
        """The factory with our datastore."""
        return PostgresApplicationFactory(env, JournalDatastore(self._opening))


def _configure(connection: Any, opening: Opening) -> None:
    configure(connection, opening)


def _without_gap(found: Sequence[Notification], first: int) -> bool:
    return found[0].id == first and found[-1].id == first + len(found) - 1


def _no_functions() -> StoreUnsupported:
    return StoreUnsupported(
        "eventsourcing recorder",
        "expected enable_db_functions off: the library's database functions write another way than a journal "
        "is written. Leave it off.",
    )

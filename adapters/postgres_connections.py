"""Opening one PostgreSQL connection the way a journal needs it, and keeping it for one thread.

Imported by the PostgreSQL modules. Every connection of this library comes from
here, with its settings read back: durability is not assumed.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from adapters import postgres_schema
from adapters.postgres_address import Address
from adapters.postgres_driver import Connection
from adapters.postgres_errors import is_passing, text_of, turned_away, was_turned_away, write_error
from domain.errors import NotAJournal, StoreUnsupported

T = TypeVar("T")

_MIN_CONNECT_TIMEOUT_S: Final = 2  # libpq takes less for no limit worth naming
_MAX_CONNECT_TIMEOUT_S: Final = 10
_PING_TIMEOUT_S: Final = "2"
PAUSE_S: Final = 0.05
_MIN_SERVER_VERSION: Final = 130000


class Backend(NamedTuple):
    """One server process, told apart from every other that ever had its number."""

    process_id: int
    started: datetime


@dataclass(frozen=True, slots=True)
class Opening:
    """How to connect to a journal.

    Args:
        address: where it is.
        schema: the PostgreSQL schema of its tables, a plain identifier.
        timeout_s: how long a statement or a lock is waited for.
        writes: whether the connection may write; otherwise every transaction is read-only.
        standby_will_do: whether it may be to a server that only follows another one. Never for whoever
            decides anything by what is read: it may not be the last that was committed.
        connection_class: what the driver makes; a subclass may count or inject faults.
    """

    address: Address
    schema: str
    timeout_s: float
    writes: bool = True
    standby_will_do: bool = False
    connection_class: type[Connection] = field(default=Connection, repr=False)

    @property
    def name(self) -> str:
        """What to call the store in a message."""
        return self.address.name


def connect(opening: Opening) -> Connection:
    """Connect, and refuse a server that would not keep what it is given.

    Raises:
        psycopg.Error: the server's or the driver's own error.
        StoreUnsupported: it lets us in under no circumstances, or cannot be had with the
            durability that a journal needs.
    """
    return _connected(opening)[0]


def parameters(opening: Opening) -> dict[str, Any]:
    """What the driver is given to connect."""
    limit = int(min(max(opening.timeout_s, _MIN_CONNECT_TIMEOUT_S), _MAX_CONNECT_TIMEOUT_S))
    given: dict[str, Any] = {
        "connect_timeout": limit,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": int(opening.timeout_s * 1000),
        **{
            key: value for key, value in opening.address.parameters if value != "" or key != "connect_timeout"
        },
        "application_name": "minutebook",
        "client_encoding": "UTF8",
        "autocommit": True,
        "row_factory": dict_row,
    }
    if not opening.standby_will_do and "," in given.get("host", ""):
        given["target_session_attrs"] = "read-write"
    return given


def configure(connection: Connection, opening: Opening) -> Backend | None:
    """Give a new connection its settings and read back what it got; the server process behind it.

    Raises:
        StoreUnsupported: the server would not keep what it is given.
    """
    settings = connection.execute(_settings_statement(opening).encode()).fetchone() or {}
    _check(opening, settings, connection.info.server_version)
    started = settings["backend_start"]
    return Backend(connection.info.backend_pid, started) if started is not None else None


def _connected(opening: Opening) -> tuple[Connection, Backend | None]:
    connection = _let_in(opening)
    try:
        return connection, configure(connection, opening)
    except BaseException:
        connection.close()
        raise


def _let_in(opening: Opening) -> Connection:
    try:
        return opening.connection_class.connect(**parameters(opening))
    except psycopg.OperationalError as e:
        if not was_turned_away(e) or not _takes_connections(opening):
            raise
        said = text_of(e)
    # It may have come up between its answer and our question: only the same answer again is one.
    try:
        return opening.connection_class.connect(**parameters(opening))
    except psycopg.OperationalError as e:
        if text_of(e) != said:
            raise
        raise turned_away(opening.name, e) from e


def _takes_connections(opening: Opening) -> bool:
    """Whether the server runs and takes connections, if not ours."""
    given = dict(opening.address.parameters) | {"connect_timeout": _PING_TIMEOUT_S}
    return pq.PGconn.ping(make_conninfo(**given).encode()) == pq.Ping.OK


def check_journal(connection: Connection, opening: Opening) -> None:
    """See that the journal is there; make its tables if they are not and we may write.

    Raises:
        NotAJournal, NewerFormat: it is not ours; it was not touched.
        StoreFailure: the tables could not be made.
        psycopg.Error: it could not be looked at.
    """
    if postgres_schema.is_journal(connection, opening.schema, opening.name):
        return
    if not opening.writes:
        raise NotAJournal(opening.name, f"expected a minutebook journal in schema {opening.schema!r}")
    try:
        postgres_schema.make_journal(connection, opening.schema, opening.name)
    except psycopg.Error as e:
        raise write_error(opening.name, e) from e


class Line:
    """One thread's connection: opened when it is needed, closed when anything about it is odd.

    `cut` may be called from any thread; everything else from one.
    """

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._connection: Connection | None = None
        self._socket: socket.socket | None = None
        self.backend: Backend | None = None

    def opened(self, deadline: float) -> Connection:
        """A connection that nothing is known against.

        Args:
            deadline: a moment of `time.monotonic`; a server that is away is tried again until then.
        """
        if self._connection is not None and not is_sound(self._connection):
            self.drop()
        if self._connection is None:
            self._connection, self.backend = _until_there(lambda: _connected(self._opening), deadline)
            self._socket = socket.socket(fileno=os.dup(self._connection.fileno()))
        return self._connection

    def drop(self) -> None:
        """Close the connection; the next call gets another one."""
        connection, self._connection = self._connection, None
        handle, self._socket = self._socket, None
        if connection is not None:
            connection.close()
        if handle is not None:
            handle.close()

    def drop_if_odd(self) -> None:
        """Close the connection unless it is as idle as it was."""
        if self._connection is not None and not is_sound(self._connection):
            self.drop()

    def cut(self) -> None:
        """End whatever the thread waits for: it gets an error at once."""
        handle = self._socket
        if handle is not None:
            with contextlib.suppress(OSError):
                handle.shutdown(socket.SHUT_RDWR)


def is_sound(connection: Connection) -> bool:
    """Whether a connection that nobody waits on is idle and silent.

    A server that goes away says so before it is asked. Anything else that it says
    unasked is not worth understanding: a new connection costs milliseconds.
    """
    raw = connection.pgconn
    if raw.status != pq.ConnStatus.OK or raw.transaction_status != pq.TransactionStatus.IDLE:
        return False
    poll = select.poll()
    poll.register(raw.socket, select.POLLIN)
    return not poll.poll(0)


def _until_there(open_one: Callable[[], T], deadline: float) -> T:
    while True:
        try:
            return open_one()
        except psycopg.Error as e:
            if not is_passing(e) or time.monotonic() + PAUSE_S >= deadline:
                raise
        time.sleep(PAUSE_S)  # the server starts, or is full: nothing tells us when it is ready


def _settings_statement(opening: Opening) -> str:
    limit = str(int(opening.timeout_s * 1000))
    settings = {
        "statement_timeout": limit,
        "lock_timeout": limit,
        "idle_in_transaction_session_timeout": "5000",
        "TimeZone": "UTC",
        "DateStyle": "ISO",
        "default_transaction_isolation": "read committed",
        "default_transaction_deferrable": "off",
        "search_path": "pg_catalog",
        # Every statement is a look-up by a key; a plan made while a table was small must not stay a scan.
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
    }
    if not opening.writes:
        settings["default_transaction_read_only"] = "on"
    done = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
    return (
        f"SELECT {done}, current_setting('synchronous_commit') AS synchronous_commit, "
        "current_setting('default_transaction_read_only') AS read_only, "
        "pg_is_in_recovery() AS standby, "
        "(SELECT backend_start FROM pg_stat_get_activity(pg_backend_pid())) AS backend_start"
    )


def _check(opening: Opening, found: dict[str, Any], version: int) -> None:
    if version < _MIN_SERVER_VERSION:
        raise StoreUnsupported(opening.name, f"expected PostgreSQL 13 or newer, found {version // 10000}")
    if found["standby"] and not opening.standby_will_do:
        raise StoreUnsupported(opening.name, "expected a server that takes writes, found a standby")
    if not opening.writes:
        return
    if found["read_only"] == "on":
        raise StoreUnsupported(opening.name, "expected a database that takes writes, found a read-only one")
    if found["synchronous_commit"] == "off":
        raise StoreUnsupported(
            opening.name,
            "expected synchronous_commit on (or local, remote_write, remote_apply), found off: a crash of "
            "the server would lose what was acknowledged. Change it for this role or database.",
        )

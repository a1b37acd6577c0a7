"""The description of a journal in PostgreSQL.

Imported by `minutebook.compose`. A description connects to nothing; what is open in
this process is in `postgres_database`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import Final

from adapters.postgres_address import address, checked_schema
from adapters.postgres_connections import Opening
from adapters.postgres_database import OPEN_DATABASES, DatabaseSettings
from adapters.postgres_driver import Connection
from adapters.postgres_journal import PostgresJournal
from adapters.system import no_probe
from adapters.threads import entered
from domain import ids
from domain.errors import InvalidOptions
from domain.limits import MAX_STORE_TIMEOUT_S, STORE_TIMEOUT_S
from domain.ports import Clock, Journal, Probe

DEFAULT_SCHEMA: Final = "minutebook"
DEFAULT_CONNECTIONS: Final = 4
MAX_CONNECTIONS: Final = 64


@dataclass(frozen=True, slots=True)
class PostgresStore:
    """Where a journal is; nothing is connected before `open`.

    Args:
        url: `postgresql://user:password@host:port/database`, as libpq reads it. What it does not
            say is not looked up in the environment.
        schema: the PostgreSQL schema of the tables; made with them if it does not exist.
        probe: called at before_commit and after_commit, in a writing thread.
        clock: a test's clock, by which leases run out; None: the database's own.
        store_timeout_s: how long a call waits for the server or a lock, at most 30.
        connections: how many commits may be under way at once; half as many reads.
        connection_class: what the driver makes; a subclass may count or inject faults.
    """

    url: str = field(repr=False)
    schema: str = DEFAULT_SCHEMA
    probe: Probe = no_probe
    clock: Clock | None = None
    store_timeout_s: float = STORE_TIMEOUT_S
    connections: int = DEFAULT_CONNECTIONS
    connection_class: type[Connection] = field(default=Connection, repr=False)

    @property
    def durable(self) -> bool:
        """True: the journal outlives the process."""
        return True

    @asynccontextmanager
    async def open(self, *, owner_id: str = "local") -> AsyncIterator[Journal]:
        """Open the journal for one owner, making its tables if they do not exist.

        Raises:
            InvalidOptions: nothing was touched.
            NotAJournal, NewerFormat, StoreUnsupported: the database was not touched.
            StoreTimeout, StoreReadFailed: the server could not be had.
            StoreWriteFailed: the tables could not be made.
        """
        settings, owner_id = checked_settings(self), ids.owner_id(owner_id)
        name = f"opens {settings.opening.name}"
        async with entered(
            lambda: OPEN_DATABASES.enter(settings), OPEN_DATABASES.leave, name=name
        ) as database:
            with closing(PostgresJournal(database, owner_id)) as journal:
                yield journal


def checked_settings(store: PostgresStore) -> DatabaseSettings:
    """How to open a store's database.

    Raises:
        InvalidOptions: the options cannot work.
    """
    timeout_s, count = store.store_timeout_s, store.connections
    if not 0 < timeout_s <= MAX_STORE_TIMEOUT_S:
        raise InvalidOptions("store_timeout_s", f"more than 0, at most {MAX_STORE_TIMEOUT_S}", timeout_s)
    if not 1 <= count <= MAX_CONNECTIONS:
        raise InvalidOptions("connections", f"1 to {MAX_CONNECTIONS}", count)
    place, schema = address(store.url), checked_schema(store.schema)
    opening = Opening(place, schema, timeout_s, connection_class=store.connection_class)
    return DatabaseSettings(opening, count, store.probe, store.clock)

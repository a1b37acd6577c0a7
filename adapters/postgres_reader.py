"""The reading half of the journal port over a PostgreSQL database that is only looked at.

For inspection, verification and export: every transaction is read-only, a standby
will do, and no table is made. It may be used while sessions run.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from typing import Any, Final, TypeVar

import anyio
import psycopg

from adapters.postgres_address import address, checked_schema
from adapters.postgres_connections import Opening, check_journal, connect
from adapters.postgres_driver import Connection
from adapters.postgres_errors import read_error
from adapters.postgres_reads import PostgresReads
from adapters.postgres_threads import Job, PostgresThreads, Unsettled
from adapters.threads import in_thread
from domain.limits import STORE_TIMEOUT_S

T = TypeVar("T")

_STANDBY: Final = (
    b"SELECT pg_is_in_recovery() AS standby, pg_last_xact_replay_timestamp() AS last, "
    b"pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())::bigint AS waiting, "
    b"EXISTS (SELECT 1 FROM pg_stat_wal_receiver) AS follows"
)


class PostgresJournalReader(PostgresReads):
    """`domain.ports.JournalReader` over a database. Made by `open_reader`.

    Args:
        caveats: what a reader of this database has to know, as it was when it was opened.
    """

    def __init__(self, opening: Opening, owner_id: str | None, caveats: Sequence[str]) -> None:
        super().__init__(opening, owner_id)
        self.caveats = caveats
        self._timeout_s = opening.timeout_s
        self._threads = PostgresThreads(opening, 1, Unsettled())
        self._threads.start()

    async def look(self, read: Callable[[Connection], T]) -> T:
        """Have the reading thread do something."""
        job: Job[T] = Job(read, time.monotonic() + self._timeout_s, object(), reads=True)
        self._threads.submit(job)
        return await job.answer.wait()

    def close(self) -> None:
        """End the thread and its connection. Blocks; call it from a worker thread."""
        self._threads.close()


@asynccontextmanager
async def open_reader(
    url: str,
    *,
    owner_id: str | None = None,
    schema: str = "minutebook",
    timeout_s: float = STORE_TIMEOUT_S,
) -> AsyncIterator[PostgresJournalReader]:
    """Open a journal in PostgreSQL to look at it. Nothing in the database is changed.

    Args:
        url: `postgresql://user:password@host:port/database`; a role that may only read will do.
        owner_id: whose sessions to show; None: everybody's.
        schema: the PostgreSQL schema of its tables.
        timeout_s: how long to wait for the server.

    Raises:
        InvalidOptions: the URL or the schema is none.
        NotAJournal: there are no tables of ours.
        NewerFormat: a newer version of this library made them.
        StoreTimeout, StoreUnsupported, StoreReadFailed: it could not be read now.
    """
    opening = Opening(address(url), checked_schema(schema), timeout_s, writes=False, standby_will_do=True)
    caveats = await in_thread(lambda: _checked(opening))
    reader = PostgresJournalReader(opening, owner_id, caveats)
    try:
        yield reader
    finally:
        with anyio.CancelScope(shield=True):
            await in_thread(reader.close)


def _checked(opening: Opening) -> list[str]:
    """See that there is a journal of this format; a server that is not there is not waited for."""
    try:
        with closing(connect(opening)) as connection:
            check_journal(connection, opening)
            found = connection.execute(_STANDBY).fetchone() or {}
    except psycopg.Error as e:
        raise read_error(opening.name, e) from e
    return [_as_a_standby(opening.name, found)] if found["standby"] else []


def _as_a_standby(name: str, found: dict[str, Any]) -> str:
    """What may be missing from what a standby shows."""
    told = ["It has shown no new commit since it was started"]
    if found["last"]:
        told = [f"The last commit that it shows is from {found['last']:%Y-%m-%d %H:%M:%S} UTC"]
    if found["waiting"]:
        told.append(f"{found['waiting']:,} bytes that it received are not shown yet")
    if not found["follows"]:
        told.append("it is not connected to its primary")
    return (
        f"{name} is a standby. {'; '.join(told)}. What the primary has committed since is not in here, "
        "and somebody may hold a session by now: decide by what the primary shows."
    )

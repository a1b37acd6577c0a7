"""The journal port over PostgreSQL.

Imported by the store. Nothing here runs SQL: calls are handed to the open
database's threads, so that no lock and no server can hold up an event loop.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from datetime import datetime
from typing import TypeVar

import anyio.lowlevel

from adapters import commit_rules, postgres_changes, postgres_leases, postgres_rows
from adapters.commit_signal import PAGE, CommitListener, Subscription
from adapters.postgres_database import OpenDatabase
from adapters.postgres_driver import Connection
from adapters.postgres_errors import text_of
from adapters.postgres_reads import PostgresReads
from adapters.postgres_rows import keepable
from adapters.postgres_threads import GRACE_S, Job
from adapters.threads import in_time
from domain import ids
from domain.cursor import Cursor
from domain.envelope import Fence, Stored
from domain.errors import LeaseLost, OutcomeUnknown, StoreReadFailed, StoreUnsupported, StoreWriteFailed
from domain.ports import Batch, CommitStatus, Holder, LeaseRow, LeaseStore, Receipt, SessionRow

T = TypeVar("T")


class PostgresJournal(PostgresReads):
    """`domain.ports.Journal` over PostgreSQL, for one owner."""

    def __init__(self, database: OpenDatabase, owner_id: str) -> None:
        super().__init__(database.opening, owner_id)
        self.database = database
        self.owner_id = owner_id
        self._closed = False
        self._listeners: weakref.WeakSet[CommitListener] = weakref.WeakSet()
        self._leases = PostgresLeaseStore(self)

    @property
    def leases(self) -> LeaseStore:
        """The leases of this journal's sessions."""
        return self._leases

    def close(self) -> None:
        """End this handle's subscriptions and refuse its further calls."""
        self._closed = True
        for listener in list(self._listeners):
            listener.close()

    def subscribe(self, session_id: str, *, after: Cursor | None = None) -> AsyncIterator[Stored]:
        """Rows after a place, then as they are committed; ends when this handle is closed."""
        listener = self.database.signal.listen(session_id)
        self._listeners.add(listener)
        if self._closed:
            listener.close()
        else:
            self.database.ear.nudge()
        return Subscription(lambda n: self.read(session_id, after=n, limit=PAGE), listener, after)

    async def commit(self, batch: Batch) -> Receipt:
        """Append a batch, all of it or nothing; see the port."""
        self.check_usable()
        commit_rules.check_shape(batch, self.owner_id, self.name)
        postgres_changes.check_texts(batch)
        if batch.session_id in self.database.unsettled:
            raise OutcomeUnknown(batch.session_id, "an earlier commit's outcome is unknown; settle it first")
        return await self.change(batch.session_id, lambda c: self._commit(c, batch), appends=True)

    async def settle(self, batch: Batch) -> Receipt | None:
        """Decide an unknown outcome on a new connection; see the port."""
        self.check_usable()
        commit_rules.check_shape(batch, self.owner_id, self.name)
        seconds = self.database.opening.timeout_s + GRACE_S
        database, session_id = self.database, batch.session_id
        unknown = database.unsettled.of(session_id)
        return await in_time(
            lambda: database.find(batch),
            lambda: database.unsettled.discard(session_id, unknown),
            seconds,
            session_id,
        )

    # --- the threads -----------------------------------------------------------------

    async def look(self, read: Callable[[Connection], T]) -> T:
        """Have a reading thread do something."""
        self.check_usable()
        job: Job[T] = Job(read, self._deadline(), object(), reads=True)
        self.database.readers.submit(job)
        return await job.answer.wait()

    async def change(self, session_id: str, write: Callable[[Connection], T], *, appends: bool = False) -> T:
        """Have a writing thread do something; a cancelled caller waits for the outcome."""
        self.check_usable()
        await anyio.lowlevel.checkpoint_if_cancelled()
        self.check_usable()
        job: Job[T] = Job(write, self._deadline(), session_id, appends)
        self.database.writers.submit(job)
        return await job.answer.outcome()

    def now(self) -> datetime | None:
        """A test's clock; None: the database's own."""
        clock = self.database.settings.clock
        return clock.now() if clock is not None else None

    def check_usable(self) -> None:
        """Refuse a handle that is closed, or from before a fork."""
        if os.getpid() != self.database.process_id:
            raise StoreUnsupported(
                self.name,
                "it was opened before this process was forked; open the store again in a process of its own",
            )
        if self._closed:
            raise StoreReadFailed(self.name, "this handle is closed; open the store again")

    def _commit(self, connection: Connection, batch: Batch) -> Receipt:
        """In a writing thread."""
        probe = self.database.settings.probe
        if batch.blobs:
            commit_rules.check_blobs(batch.blobs)
        try:
            probe("before_commit")
        except Exception as e:
            raise StoreWriteFailed(self.name, f"nothing was written: {text_of(e)}") from e
        receipt = postgres_changes.commit(connection, batch, self.database.opening, self.now())
        if receipt.status is CommitStatus.COMMITTED:
            probe("after_commit")
        return receipt

    def _deadline(self) -> float:
        return time.monotonic() + self.database.opening.timeout_s


class PostgresLeaseStore:
    """`domain.ports.LeaseStore` over the same database."""

    def __init__(self, journal: PostgresJournal) -> None:
        self._journal = journal
        self._opening = journal.database.opening
        self._owner_id = journal.owner_id

    async def acquire(self, session_id: str, holder: Holder, ttl_ms: int) -> LeaseRow:
        """Take a session's lease; see the port."""
        self._journal.check_usable()
        ids.session_id(session_id)
        opening, owner, now = self._opening, self._owner_id, self._journal.now
        return await self._journal.change(
            session_id,
            lambda c: postgres_leases.acquire(c, opening, owner, session_id, holder, ttl_ms, now()),
        )

    async def renew(self, session_id: str, fence: Fence, ttl_ms: int) -> LeaseRow:
        """Extend a live lease. Raises LeaseLost."""
        opening, owner, now = self._opening, self._owner_id, self._journal.now
        _check_askable(session_id)
        return await self._journal.change(
            session_id,
            lambda c: postgres_leases.renew(c, opening, owner, session_id, fence, ttl_ms, now()),
        )

    async def validate(self, session_id: str, fence: Fence) -> LeaseRow:
        """Return the row if the fence is the live lease. Raises LeaseLost."""
        opening, owner, now = self._opening, self._owner_id, self._journal.now
        return await self._journal.look(
            lambda c: postgres_leases.validate(c, opening, owner, session_id, fence, now())
        )

    async def release(self, session_id: str, fence: Fence) -> None:
        """Give the lease back; the token stays. Not ours any more: nothing happens."""
        opening, owner, now = self._opening, self._owner_id, self._journal.now
        await self._journal.change(
            session_id, lambda c: postgres_leases.release(c, opening, owner, session_id, fence, now())
        )

    async def free(
        self, actions: Collection[str], *, after: str = "", limit: int = 100
    ) -> Sequence[SessionRow]:
        """Rows of sessions with work that nobody holds, by id; see the port."""
        schema, owner, now = self._opening.schema, self._owner_id, self._journal.now
        return await self._journal.look(
            lambda c: postgres_rows.list_free(c, schema, owner, actions, after, limit, now())
        )


def _check_askable(session_id: str) -> None:
    if not keepable(session_id):
        raise LeaseLost(session_id, "the store has no lease for it")

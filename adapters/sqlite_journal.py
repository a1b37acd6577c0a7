"""The journal port over an open SQLite file.

Imported by the store. Nothing here runs SQL: calls are handed to the file's
threads, so that no lock and no disk can hold up an event loop.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import anyio.lowlevel

from adapters import commit_rules, lease_rules, sqlite_rows
from adapters.commit_signal import PAGE, CommitListener, Subscription
from adapters.lease_rules import Instant
from adapters.sqlite_changes import Changes, held_lease
from adapters.sqlite_driver import sqlite
from adapters.sqlite_jobs import GRACE_S, Job, answered
from adapters.system import holder_is_dead
from adapters.threads import in_time
from domain import ids
from domain.cursor import Cursor
from domain.envelope import Fence, Stored
from domain.errors import (
    OutcomeUnknown,
    StoreReadFailed,
    StoreUnsupported,
)
from domain.ports import Batch, CommitStatus, Holder, LeaseRow, LeaseStore, Receipt, SessionRow, Snapshot

if TYPE_CHECKING:
    from adapters.sqlite_file import OpenFile

T = TypeVar("T")


class SqliteJournal:
    """`domain.ports.Journal` over a SQLite file, for one owner."""

    def __init__(self, file: OpenFile, owner_id: str) -> None:
        self.file = file
        self._owner_id = owner_id
        self._closed = False
        self._listeners: weakref.WeakSet[CommitListener] = weakref.WeakSet()
        self._leases = SqliteLeaseStore(self, owner_id)

    @property
    def name(self) -> str:
        """What to call this store in a message."""
        return self.file.name

    @property
    def closed(self) -> bool:
        """Whether this handle takes no more calls."""
        return self._closed

    @property
    def leases(self) -> LeaseStore:
        """The leases of this journal's sessions."""
        return self._leases

    def close(self) -> None:
        """End this handle's subscriptions and refuse its further calls."""
        self._closed = True
        for listener in list(self._listeners):
            listener.close()

    # --- reading ---------------------------------------------------------------------

    async def session(self, session_id: str) -> SessionRow | None:
        """One session's row, or None."""
        return await self.look(lambda c: sqlite_rows.find_session(c, session_id, self._owner_id))

    async def sessions(self, *, after: str = "", limit: int = 100) -> Sequence[SessionRow]:
        """Session rows by id, those after `after`."""
        return await self.look(lambda c: sqlite_rows.list_sessions(c, self._owner_id, after, limit))

    async def read(
        self, session_id: str, *, after: int = 0, upto: int | None = None, limit: int = 256
    ) -> Sequence[Stored]:
        """Rows with `after < sequence <= upto`, in order, at most `limit`."""
        return await self.look(
            lambda c: sqlite_rows.read_events(c, self._owner_id, session_id, after, upto, limit)
        )

    async def snapshot(self, session_id: str, *, upto: int | None = None) -> Snapshot | None:
        """The latest snapshot at or before `upto`."""
        return await self.look(lambda c: sqlite_rows.find_snapshot(c, self._owner_id, session_id, upto))

    async def blob(self, digest: str) -> bytes | None:
        """A blob's bytes, or None."""
        return await self.look(lambda c: sqlite_rows.find_blob(c, digest))

    async def command(self, session_id: str, command_id: str) -> tuple[bytes, Receipt] | None:
        """The fingerprint and receipt of a command that is in the journal, or None."""
        return await self.look(lambda c: sqlite_rows.find_command(c, self._owner_id, session_id, command_id))

    async def commands(
        self, session_id: str, command_ids: Sequence[str]
    ) -> Mapping[str, tuple[bytes, Receipt]]:
        """What `command` gives, for many commands at once; those that are there."""
        return await self.look(
            lambda c: sqlite_rows.find_commands(c, self._owner_id, session_id, command_ids)
        )

    async def lease_lives(self, lease: LeaseRow) -> bool:
        """Whether a lease holds now, by the store's clock: that of this host."""
        await anyio.lowlevel.checkpoint()
        self._check_usable()
        return lease_rules.lives(lease, Instant.of(self.file.clock), holder_is_dead)

    def subscribe(self, session_id: str, *, after: Cursor | None = None) -> AsyncIterator[Stored]:
        """Rows after a place, then as they are committed; ends when this handle is closed."""
        listener = self.file.signal.listen(session_id)
        self._listeners.add(listener)
        if self._closed:
            listener.close()
        self.file.reader.nudge()
        return Subscription(lambda n: self.read(session_id, after=n, limit=PAGE), listener, after)

    # --- writing ---------------------------------------------------------------------

    async def commit(self, batch: Batch) -> Receipt:
        """Append a batch, all of it or nothing; see the port."""
        commit_rules.check_shape(batch, self._owner_id, self.name)
        if batch.session_id in self.file.writer.unknown:
            raise OutcomeUnknown(batch.session_id, "an earlier commit's outcome is unknown; settle it first")
        return await self.change(batch.session_id, lambda changes: changes.commit(batch), appends=True)

    async def settle(self, batch: Batch) -> Receipt | None:
        """Decide an unknown outcome on a new connection; see the port."""
        self._check_usable()
        writer, session_id = self.file.writer, batch.session_id
        unknown = writer.unknown.get(session_id)
        found = await in_time(
            lambda: self.file.find(batch),
            lambda: writer.settled(session_id, unknown),
            self.file.opening.timeout_s + GRACE_S,
            session_id,
        )
        return commit_rules.found_again(batch, *found, CommitStatus.RECONCILED) if found else None

    # --- the threads -----------------------------------------------------------------

    async def look(self, read: Callable[[sqlite.Connection], T]) -> T:
        """Have the reading thread do something."""
        self._check_usable()
        job: Job[sqlite.Connection, T] = Job(read, self._deadline())
        self.file.reader.submit(job)
        return await answered(job, self.name)

    async def change(self, session_id: str, write: Callable[[Changes], T], *, appends: bool = False) -> T:
        """Have the writing thread do something; a cancelled caller waits for the outcome."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        self._check_usable()
        job: Job[Changes, T] = Job(write, self._deadline(), session_id, appends)
        self.file.writer.submit(job)
        return await job.answer.outcome()

    def _deadline(self) -> float:
        return time.monotonic() + self.file.opening.timeout_s

    def _check_usable(self) -> None:
        if os.getpid() != self.file.process_id:
            raise StoreUnsupported(
                self.name,
                "it was opened before this process was forked; open the store again in a process of its own",
            )
        if self._closed:
            raise StoreReadFailed(self.name, "this handle is closed; open the store again")


class SqliteLeaseStore:
    """`domain.ports.LeaseStore` over the same file."""

    def __init__(self, journal: SqliteJournal, owner_id: str) -> None:
        self._journal = journal
        self._owner_id = owner_id

    async def acquire(self, session_id: str, holder: Holder, ttl_ms: int) -> LeaseRow:
        """Take a session's lease; see the port."""
        ids.session_id(session_id)
        owner = self._owner_id
        return await self._journal.change(
            session_id, lambda changes: changes.acquire(session_id, owner, holder, ttl_ms)
        )

    async def renew(self, session_id: str, fence: Fence, ttl_ms: int) -> LeaseRow:
        """Extend a live lease. Raises LeaseLost."""
        owner = self._owner_id
        return await self._journal.change(
            session_id, lambda changes: changes.renew(session_id, owner, fence, ttl_ms)
        )

    async def validate(self, session_id: str, fence: Fence) -> LeaseRow:
        """Return the row if the fence is the live lease. Raises LeaseLost."""
        clock = self._journal.file.clock

        def look(connection: sqlite.Connection) -> LeaseRow:
            held = held_lease(connection, session_id, self._owner_id)
            return lease_rules.live(session_id, held, fence, Instant.of(clock))

        return await self._journal.look(look)

    async def release(self, session_id: str, fence: Fence) -> None:
        """Give the lease back; the token stays. Not ours any more: nothing happens."""
        owner = self._owner_id
        await self._journal.change(session_id, lambda changes: changes.release(session_id, owner, fence))

    async def free(
        self, actions: Collection[str], *, after: str = "", limit: int = 100
    ) -> Sequence[SessionRow]:
        """Rows of sessions with work that nobody holds, by id; see the port."""
        owner, clock = self._owner_id, self._journal.file.clock

        def look(connection: sqlite.Connection) -> list[SessionRow]:
            at = Instant.of(clock)
            return sqlite_rows.list_free(
                connection,
                owner,
                actions,
                after,
                limit,
                lambda lease: lease_rules.is_free(lease, at, holder_is_dead),
            )

        return await self._journal.look(look)

"""The journal in memory: the reference for what every store must do.

Used in tests and for sessions that need not outlive the process. It keeps the
same rules as the durable stores, in the same order, with one lock in place of
a transaction.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

import anyio.lowlevel

from adapters import commit_rules, lease_rules
from adapters.commit_rules import Standing
from adapters.commit_signal import PAGE, CommitListener, CommitSignal, Subscription
from adapters.lease_rules import Instant
from adapters.system import SystemClock, holder_is_dead, no_probe
from domain import ids
from domain.cursor import Cursor
from domain.envelope import Fence, Stored, genesis
from domain.errors import (
    LeaseLost,
    OutcomeUnknown,
    SessionNotFound,
    StoreReadFailed,
    StoreWriteFailed,
)
from domain.ports import (
    Batch,
    Clock,
    CommitStatus,
    Holder,
    Journal,
    LeaseRow,
    LeaseStore,
    Listing,
    Probe,
    Receipt,
    SessionRow,
    Snapshot,
)

T = TypeVar("T")


@dataclass(slots=True)
class _Session:
    row: SessionRow
    events: list[Stored] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    commands: dict[str, tuple[bytes, Receipt]] = field(default_factory=dict)


@dataclass(slots=True)
class _Contents:
    """Everything a memory store holds; the lock stands for the transaction."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    sessions: dict[str, _Session] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    signal: CommitSignal = field(default_factory=CommitSignal)


@dataclass(frozen=True, slots=True, eq=False)
class MemoryStore:
    """A journal in this process's memory. All openings of one description share it.

    Args:
        clock: the store's clock, by which leases run out.
        probe: called at before_commit and after_commit.
    """

    clock: Clock = field(default_factory=SystemClock)
    probe: Probe = no_probe
    _contents: _Contents = field(default_factory=_Contents, repr=False)

    @property
    def durable(self) -> bool:
        """False: the journal ends with the process."""
        return False

    @asynccontextmanager
    async def open(self, *, owner_id: str = "local") -> AsyncIterator[Journal]:
        """Open the journal for one owner. Raises InvalidOptions."""
        journal = MemoryJournal(self._contents, ids.owner_id(owner_id), self.clock, self.probe)
        try:
            yield journal
        finally:
            journal.close()


class MemoryJournal:
    """`domain.ports.Journal` over dictionaries."""

    def __init__(self, contents: _Contents, owner_id: str, clock: Clock, probe: Probe) -> None:
        self._contents = contents
        self._owner_id = owner_id
        self._clock = clock
        self._probe = probe
        self._closed = False
        self._listeners: weakref.WeakSet[CommitListener] = weakref.WeakSet()
        self._leases = MemoryLeases(self, contents, owner_id, clock)

    @property
    def name(self) -> str:
        """What to call this store in a message."""
        return "memory"

    @property
    def leases(self) -> LeaseStore:
        """The leases of this journal's sessions."""
        return self._leases

    def check_open(self) -> None:
        """Raise StoreReadFailed once this handle is closed."""
        if self._closed:
            raise StoreReadFailed(self.name, "this handle is closed; open the store again")

    def close(self) -> None:
        """End this handle's subscriptions and refuse its further calls."""
        self._closed = True
        for listener in list(self._listeners):
            listener.close()

    async def session(self, session_id: str) -> SessionRow | None:
        """One session's row, or None."""
        return await self._read(lambda: self._row(session_id))

    async def sessions(self, *, after: str = "", limit: int = 100) -> Sequence[SessionRow]:
        """Session rows by id, those after `after`."""
        return await self._read(lambda: self._rows(after, limit))

    async def read(
        self, session_id: str, *, after: int = 0, upto: int | None = None, limit: int = 256
    ) -> Sequence[Stored]:
        """Rows with `after < sequence <= upto`, in order, at most `limit`."""
        return await self._read(lambda: self._events(session_id)[max(after, 0) : upto][:limit])

    async def snapshot(self, session_id: str, *, upto: int | None = None) -> Snapshot | None:
        """The latest snapshot at or before `upto`."""
        return await self._read(lambda: self._snapshot(session_id, upto))

    async def blob(self, digest: str) -> bytes | None:
        """A blob's bytes, or None."""
        return await self._read(lambda: self._contents.blobs.get(digest))

    async def command(self, session_id: str, command_id: str) -> tuple[bytes, Receipt] | None:
        """The fingerprint and receipt of a command that is in the journal, or None."""
        return await self._read(lambda: self._command(session_id, command_id))

    async def commands(
        self, session_id: str, command_ids: Sequence[str]
    ) -> Mapping[str, tuple[bytes, Receipt]]:
        """What `command` gives, for many commands at once; those that are there."""
        kept = await self._read(lambda: [self._command(session_id, each) for each in command_ids])
        return {each: found for each, found in zip(command_ids, kept, strict=True) if found is not None}

    async def lease_lives(self, lease: LeaseRow) -> bool:
        """Whether a lease holds now, by the store's clock."""
        return await self._read(lambda: lease_rules.lives(lease, Instant.of(self._clock), holder_is_dead))

    async def commit(self, batch: Batch) -> Receipt:
        """Append a batch, all of it or nothing; see the port."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        self.check_open()
        commit_rules.check_shape(batch, self._owner_id, self.name)
        commit_rules.check_blobs(batch.blobs)
        with self._contents.lock:
            receipt = self._commit(batch)
        self._contents.signal.ring([batch.session_id])
        return receipt

    async def settle(self, batch: Batch) -> Receipt | None:
        """Say whether a batch is there; the session takes events again."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        self.check_open()
        with self._contents.lock:
            found = self._command(batch.session_id, batch.command_id)
            receipt = commit_rules.found_again(batch, *found, CommitStatus.RECONCILED) if found else None
            self._contents.unknown.discard(batch.session_id)
        return receipt

    def subscribe(self, session_id: str, *, after: Cursor | None = None) -> AsyncIterator[Stored]:
        """Rows after a place, then as they are committed; ends when this handle is closed."""
        listener = self._contents.signal.listen(session_id)
        self._listeners.add(listener)
        if self._closed:
            listener.close()
        return Subscription(lambda n: self.read(session_id, after=n, limit=PAGE), listener, after)

    # --- under the lock ---------------------------------------------------------

    def _commit(self, batch: Batch) -> Receipt:
        if batch.session_id in self._contents.unknown:
            raise OutcomeUnknown(batch.session_id, "an earlier commit's outcome is unknown; settle it first")
        session = self._contents.sessions.get(batch.session_id)
        standing = _standing(session)
        commit_rules.check_owner(batch, standing, self.name)
        found = session.commands.get(batch.command_id) if session else None
        if found is not None:
            return commit_rules.found_again(batch, *found, CommitStatus.REPLAYED)
        commit_rules.check_standing(batch, standing, Instant.of(self._clock))
        self._reach("before_commit", StoreWriteFailed(self.name, "a probe failed before the commit"))
        self._append(batch, session)
        unknown = OutcomeUnknown(batch.session_id, "a probe failed after the commit; settle it")
        self._reach("after_commit", unknown, batch.session_id)
        return commit_rules.receipt(batch)

    def _reach(
        self, point: str, error: StoreWriteFailed | OutcomeUnknown, unknown: str | None = None
    ) -> None:
        try:
            self._probe(point)
        except Exception as e:
            if unknown is not None:
                self._contents.unknown.add(unknown)
            raise error from e

    def _append(self, batch: Batch, session: _Session | None) -> None:
        now, last = self._clock.now(), batch.events[-1]
        session = session or _new_session(batch.session_id, batch.owner_id, self._clock)
        session.row = replace(
            session.row, sequence=last.sequence, head=last.head, updated_at=now, listing=batch.listing
        )
        session.events.extend(batch.events)
        if batch.snapshot is not None:
            session.snapshots.append(batch.snapshot)
        session.commands[batch.command_id] = (batch.fingerprint, commit_rules.receipt(batch))
        for blob in batch.blobs:
            self._contents.blobs.setdefault(blob.digest, blob.data)
        self._contents.sessions[batch.session_id] = session

    def _session(self, session_id: str) -> _Session | None:
        session = self._contents.sessions.get(session_id)
        return session if session is not None and session.row.owner_id == self._owner_id else None

    def _row(self, session_id: str) -> SessionRow | None:
        session = self._session(session_id)
        return session.row if session is not None and session.events else None

    def _rows(self, after: str, limit: int) -> list[SessionRow]:
        later = sorted(session_id for session_id in self._contents.sessions if session_id > after)
        rows = (self._row(session_id) for session_id in later)
        return [row for row in rows if row is not None][:limit]

    def _events(self, session_id: str) -> list[Stored]:
        session = self._session(session_id)
        return session.events if session is not None else []

    def _snapshot(self, session_id: str, upto: int | None) -> Snapshot | None:
        session = self._session(session_id)
        found = [x for x in session.snapshots if upto is None or x.sequence <= upto] if session else []
        return found[-1] if found else None

    def _command(self, session_id: str, command_id: str) -> tuple[bytes, Receipt] | None:
        session = self._session(session_id)
        return session.commands.get(command_id) if session is not None else None

    async def _read(self, look: Callable[[], T]) -> T:
        self.check_open()
        await anyio.lowlevel.checkpoint()
        with self._contents.lock:
            return look()


class MemoryLeases:
    """`domain.ports.LeaseStore` over the same dictionaries."""

    def __init__(self, journal: MemoryJournal, contents: _Contents, owner_id: str, clock: Clock) -> None:
        self._journal = journal
        self._contents = contents
        self._owner_id = owner_id
        self._clock = clock

    async def acquire(self, session_id: str, holder: Holder, ttl_ms: int) -> LeaseRow:
        """Take a session's lease; see the port."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        self._journal.check_open()
        ids.session_id(session_id)
        with self._contents.lock:
            session = self._contents.sessions.get(session_id)
            if session is not None and session.row.owner_id != self._owner_id:
                raise SessionNotFound(session_id, "memory")
            held, at = session.row.lease if session else None, Instant.of(self._clock)
            lease = lease_rules.granted(session_id, held, holder, ttl_ms, at, holder_is_dead)
            session = session or _new_session(session_id, self._owner_id, self._clock)
            self._contents.sessions[session_id] = session
            session.row = replace(session.row, lease=lease)
        return lease

    async def renew(self, session_id: str, fence: Fence, ttl_ms: int) -> LeaseRow:
        """Extend a live lease. Raises LeaseLost."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        self._journal.check_open()
        with self._contents.lock:
            session = self._held(session_id)
            lease = lease_rules.renewed(session_id, session.row.lease, fence, ttl_ms, Instant.of(self._clock))
            session.row = replace(session.row, lease=lease)
        return lease

    async def validate(self, session_id: str, fence: Fence) -> LeaseRow:
        """Return the row if the fence is the live lease. Raises LeaseLost."""
        await anyio.lowlevel.checkpoint()
        self._journal.check_open()
        with self._contents.lock:
            held = self._held(session_id).row.lease
            return lease_rules.live(session_id, held, fence, Instant.of(self._clock))

    async def release(self, session_id: str, fence: Fence) -> None:
        """Give the lease back; the token stays. Not ours any more: nothing happens."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        self._journal.check_open()
        with self._contents.lock:
            session = self._contents.sessions.get(session_id)
            held = session.row.lease if session else None
            lease = lease_rules.released(held, fence, Instant.of(self._clock))
            if session is not None and lease is not None:
                session.row = replace(session.row, lease=lease)

    async def free(
        self, actions: Collection[str], *, after: str = "", limit: int = 100
    ) -> Sequence[SessionRow]:
        """Rows of sessions with work that nobody holds, by id; see the port."""
        await anyio.lowlevel.checkpoint()
        self._journal.check_open()
        with self._contents.lock:
            at, kept = Instant.of(self._clock), self._contents.sessions
            rows = (kept[name].row for name in sorted(kept) if name > after)
            found = (row for row in rows if self._is_free(row, actions, at))
            return list(islice(found, limit))

    def _is_free(self, row: SessionRow, actions: Collection[str], at: Instant) -> bool:
        wanted = row.owner_id == self._owner_id and row.sequence > 0 and row.listing.next_action in actions
        return wanted and lease_rules.is_free(row.lease, at, holder_is_dead)

    def _held(self, session_id: str) -> _Session:
        session = self._contents.sessions.get(session_id)
        if session is None or session.row.owner_id != self._owner_id:
            raise LeaseLost(session_id, "the store has no lease for it")
        return session


def _standing(session: _Session | None) -> Standing | None:
    if session is None:
        return None
    row = session.row
    return Standing(row.owner_id, row.sequence, row.head, row.lease)


def _new_session(session_id: str, owner_id: str, clock: Clock) -> _Session:
    now = clock.now()
    return _Session(
        SessionRow(session_id, owner_id, 0, genesis(session_id), now, now, Listing("none", "none"))
    )

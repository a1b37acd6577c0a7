"""What the library needs from the world, as protocols. Adapters implement them.

Kept by contract suites in `minutebook.testing`, run over every implementation.
All methods may be cancelled; a cancelled `commit` is settled by its command.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from domain.cursor import Cursor
from domain.envelope import Fence, Stored
from domain.errors import MinutebookError

# --- the journal ----------------------------------------------------------------


class CommitStatus(StrEnum):
    """How a commit came to be in the journal."""

    COMMITTED = "committed"
    REPLAYED = "replayed"  # the same command was there already
    RECONCILED = "reconciled"  # found there after its outcome had been unknown


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that a command's events are durable: sequences inclusive, `head` after the last."""

    status: CommitStatus
    first_sequence: int
    last_sequence: int
    head: bytes


@dataclass(frozen=True, slots=True)
class Blob:
    """Content-addressed bytes; `digest` is SHA-256 in hex."""

    digest: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Control state at `sequence`, written in the commit that crossed the boundary."""

    session_id: str
    sequence: int
    version: int
    head: bytes
    state: bytes


@dataclass(frozen=True, slots=True)
class Listing:
    """What a listing of sessions shows; a hint, the journal decides.

    status: none, open, closed; next_action: headline of the plan at the head.
    """

    status: str
    next_action: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything one commit writes, already stamped and encoded.

    Args:
        command_id: unique in the session; every event of the batch carries it.
        fingerprint: SHA-256 over the command's kind and arguments (32 bytes).
        events: 1 to `MAX_EVENTS_PER_COMMIT` rows, contiguous from `expected_sequence + 1`.
        expected_sequence, expected_head: where the session has to stand.
        owner_id: the session's owner, written with the first event.
        blobs: written (if absent) before the events, in the same transaction or an earlier one.
    """

    session_id: str
    command_id: str
    fingerprint: bytes
    events: tuple[Stored, ...]
    expected_sequence: int
    expected_head: bytes
    owner_id: str
    listing: Listing
    fence: Fence | None = None
    snapshot: Snapshot | None = None
    blobs: tuple[Blob, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A session's lease as the store knows it. Times are the store's clock, aware UTC.

    `boot_id`, `process_id` and `process_started` name the process that holds it, so that
    a dead one on the same host can be told from a slow one elsewhere.

    Args:
        expires_at: when it runs out by the wall clock: for people, and for other hosts.
        runs_out: when it runs out by the clock of the boot that `boot_id` names, in
            seconds since then; on that host this decides. None where the store has a
            clock of its own, or the holder named no boot.
    """

    token: int
    lease_id: str | None
    holder_id: str
    acquired_at: datetime
    renewed_at: datetime
    expires_at: datetime
    boot_id: str | None = None
    process_id: int | None = None
    process_started: str | None = None
    runs_out: float | None = None


@dataclass(frozen=True, slots=True)
class SessionRow:
    """The row beside a session's events. `sequence`/`head` always equal the last event's."""

    session_id: str
    owner_id: str
    sequence: int
    head: bytes
    created_at: datetime
    updated_at: datetime
    listing: Listing
    lease: LeaseRow | None = None


@dataclass(frozen=True, slots=True)
class Migration:
    """What bringing a journal's tables up to date did, or would do.

    Args:
        store: what to call the store in a message.
        found, target: the format's number before and after; equal: there is nothing to do.
        sessions, events: how many are in it; they stay as they are.
        backup: the copy of the journal as it was; None: none.
    """

    store: str
    found: int
    target: int
    sessions: int
    events: int
    backup: str | None


class JournalReader(Protocol):
    """Reading a journal. Never writes; pages; never holds the whole journal."""

    @property
    def name(self) -> str:
        """What to call this store in a message (no credentials)."""

    async def session(self, session_id: str) -> SessionRow | None:
        """One session's row, or None (also where it belongs to another owner)."""

    async def sessions(self, *, after: str = "", limit: int = 100) -> Sequence[SessionRow]:
        """Session rows by id, those after `after`."""

    async def read(
        self, session_id: str, *, after: int = 0, upto: int | None = None, limit: int = 256
    ) -> Sequence[Stored]:
        """Rows with `after < sequence <= upto`, in order, at most `limit`."""

    async def snapshot(self, session_id: str, *, upto: int | None = None) -> Snapshot | None:
        """The latest snapshot at or before `upto`."""

    async def blob(self, digest: str) -> bytes | None:
        """A blob's bytes, or None."""

    async def command(self, session_id: str, command_id: str) -> tuple[bytes, Receipt] | None:
        """The fingerprint and receipt of a command that is in the journal, or None."""

    async def commands(
        self, session_id: str, command_ids: Sequence[str]
    ) -> Mapping[str, tuple[bytes, Receipt]]:
        """What `command` gives, for a page's worth of commands at once; those that are there."""

    async def lease_lives(self, lease: LeaseRow) -> bool:
        """Whether a lease of this journal holds at this moment, by the store's clock, judged as
        `LeaseStore.acquire` would: not given back, not run out, its process not provably dead."""


class Journal(JournalReader, Protocol):
    """The append-only journal."""

    async def commit(self, batch: Batch) -> Receipt:
        """Append a batch, all of it or nothing.

        In one transaction: the command is looked up first (same fingerprint:
        `replayed`; other: CommandConflict), then the fence is checked, then the
        head is compared, then everything is written.

        Raises:
            CommandConflict, HeadConflict, LeaseLost, LeaseRequired: nothing written.
            StoreTimeout, StoreWriteFailed: nothing written.
            OutcomeUnknown: it may be there. The session is refused by this store
                until `settle` says which.
        """

    async def settle(self, batch: Batch) -> Receipt | None:
        """Decide an unknown outcome by contending for the command on a new connection.

        Returns the receipt (`reconciled`) if the batch is there, None if it is
        not and cannot come any more; either way the session takes events again.

        Raises:
            OutcomeUnknown: still undecided.
        """

    def subscribe(self, session_id: str, *, after: Cursor | None = None) -> AsyncIterator[Stored]:
        """Rows after a place (None: all), from the store first, then as they are committed by
        any process; strictly in order, no hole, none dropped. Ends when closed.

        Iterating raises CursorMismatch as soon as a look finds that the journal does not have the
        place, or has not any more what was given out last.
        """

    @property
    def leases(self) -> LeaseStore:
        """The leases of this journal's sessions."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who asks for a lease. `lease_id` is random per run; the host fields are optional."""

    worker_id: str
    lease_id: str
    boot_id: str | None = None
    process_id: int | None = None
    process_started: str | None = None


class LeaseStore(Protocol):
    """Leases: each call is one statement or one transaction of the store."""

    async def acquire(self, session_id: str, holder: Holder, ttl_ms: int) -> LeaseRow:
        """Take a session's lease; the session need not exist yet.

        Another live holder: LeaseConflict. A holder on this host that is provably
        dead, or one whose lease ran out by the store's clock: taken over with
        token + 1. Same worker and lease id: the same token again, renewed, and
        the row names the process that asked last.
        """

    async def renew(self, session_id: str, fence: Fence, ttl_ms: int) -> LeaseRow:
        """Extend a live lease. Raises LeaseLost."""

    async def validate(self, session_id: str, fence: Fence) -> LeaseRow:
        """Return the row if the fence is the live lease. Raises LeaseLost."""

    async def release(self, session_id: str, fence: Fence) -> None:
        """Give the lease back; the token stays. Not ours any more: nothing happens."""

    async def free(
        self, actions: Collection[str], *, after: str = "", limit: int = 100
    ) -> Sequence[SessionRow]:
        """Rows of sessions that nobody holds and whose listing names one of `actions`, by id, those
        after `after`, at most `limit`.

        Whether somebody holds a session is judged as `acquire` would. A hint for those who look
        for work: what is free now may be taken a moment later.
        """


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How a lease is kept, in seconds.

    Args:
        ttl_s: how long it lasts without a renewal.
        heartbeat_s: how often it is renewed.
        store_timeout_s: how long one call of the store may take.
    """

    ttl_s: float
    heartbeat_s: float
    store_timeout_s: float

    @property
    def ttl_ms(self) -> int:
        """The length as a store is told it."""
        return round(self.ttl_s * 1000)


class HeldLease(Protocol):
    """A lease that somebody keeps renewed, until it is lost or given back."""

    @property
    def row(self) -> LeaseRow:
        """The lease as last renewed; without its id once it was given back."""

    @property
    def fence(self) -> Fence:
        """What every event under it carries."""

    def check(self) -> None:
        """Return if it is ours at this moment; from any thread, without asking the store.

        Raises:
            LeaseLost: it is not, or nobody knows any more: its time ran out by the clock of
                the boot, counted from before the last renewal that succeeded was asked for.
        """

    async def lost(self) -> MinutebookError:
        """Return once it is lost or given back, with the reason."""

    async def release(self) -> None:
        """Stop renewing it and give it back. A store that cannot be reached lets it run out."""

    async def let_run_out(self) -> None:
        """Stop renewing it and do not give it back: something of ours may still act. As `release`,
        this happens once; whichever comes second does nothing."""


class LeaseKeeper(Protocol):
    """Keeps leases renewed, whatever the event loop of the application is doing."""

    async def hold(self, leases: LeaseStore, session_id: str, holder: Holder, times: LeaseTimes) -> HeldLease:
        """Acquire a session's lease and keep it.

        Raises:
            LeaseConflict: another live holder has it.
            StoreFailure: the store did not say. Nothing is kept.
        """


class StoreDescription(Protocol):
    """What `mb.sqlite(path)` and `mb.memory()` return: where a journal is, not an open one."""

    @property
    def durable(self) -> bool:
        """Whether the journal outlives the process."""

    def open(self, *, owner_id: str = "local") -> AbstractAsyncContextManager[Journal]:
        """Open the journal (making it if it does not exist) for one owner."""


# --- the rest of the world ------------------------------------------------------------


class Clock(Protocol):
    """Wall time for the journal, a monotonic clock for waiting and for leases."""

    @property
    def boot_id(self) -> str | None:
        """From which boot of which host `monotonic` counts, so that other processes there can
        compare it with theirs; None where they cannot."""

    def now(self) -> datetime:
        """Aware UTC."""

    def monotonic(self) -> float:
        """Seconds, never going back."""


class Timer(Clock, Protocol):
    """A clock that can be waited for; what a running session goes by."""

    async def sleep_until(self, moment: float) -> None:
        """Return once `monotonic` has reached `moment`; at once if it has."""


class IdSource(Protocol):
    """Randomness: ids and salts."""

    def new(self, prefix: str) -> str:
        """A new id, unique for all practical purposes: `prefix-` and 20 characters."""

    def salt(self) -> bytes:
        """`SALT_BYTES` random bytes."""


class Probe(Protocol):
    """Named points a test may act on (kill, fail, wait). A no-op in production."""

    def __call__(self, point: str) -> None:
        """Called at `point`: before_commit, after_commit, before_emit, after_emit,
        before_effect, after_effect, before_send, mid_stream."""

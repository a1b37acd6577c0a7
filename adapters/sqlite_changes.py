"""Changing a journal's tables: commits and the lease calls of one transaction.

Imported by the store. Rules are checked before the first row is written, so a
refused change leaves the transaction as it was and others may share it.
"""

from __future__ import annotations

from typing import Any, Final

from adapters import commit_rules, lease_rules, sqlite_rows, sqlite_schema
from adapters.commit_rules import Standing
from adapters.lease_rules import Instant
from adapters.sqlite_connections import until_free
from adapters.sqlite_driver import blob, sqlite
from adapters.sqlite_recorder import JournalRecorder
from adapters.sqlite_rows import MICROSECONDS, microseconds
from adapters.system import holder_is_dead
from domain.envelope import Fence, genesis
from domain.errors import LeaseLost, SessionNotFound
from domain.ports import Batch, CommitStatus, Holder, LeaseRow, Receipt, Snapshot

_COMMAND_COLUMNS: Final = "c.fingerprint, c.first_sequence, c.last_sequence, c.head AS command_head"
_STANDING: Final = "SELECT * FROM minutebook_sessions WHERE session_id = ?"
_COMMAND: Final = (
    f"SELECT {_COMMAND_COLUMNS} FROM minutebook_commands c WHERE c.session_id = ? AND c.command_id = ?"
)
_STANDING_AND_COMMAND: Final = (
    "SELECT s.owner_id, s.sequence, s.head, s.token, s.lease_id, s.holder_id, s.acquired_at, s.renewed_at, "
    f"s.expires_at, s.boot, s.process_id, s.process_started, s.runs_out, {_COMMAND_COLUMNS} "
    "FROM (SELECT 1) LEFT JOIN minutebook_sessions s ON s.session_id = ? "
    "LEFT JOIN minutebook_commands c ON c.session_id = ? AND c.command_id = ?"
)
_INSERT_BLOB: Final = "INSERT OR IGNORE INTO minutebook_blobs (digest, data) VALUES (?, ?)"
_INSERT_SNAPSHOT: Final = (
    "INSERT INTO minutebook_snapshots (session_id, sequence, version, head, state) VALUES (?,?,?,?,?)"
)
_INSERT_COMMAND: Final = (
    "INSERT INTO minutebook_commands "
    "(session_id, command_id, fingerprint, first_sequence, last_sequence, head) VALUES (?,?,?,?,?,?)"
)
_INSERT_SESSION: Final = (
    "INSERT INTO minutebook_sessions (session_id, owner_id, sequence, head, created_at, updated_at, "
    "status, next_action) VALUES (?,?,?,?,?,?,?,?)"
)
_MOVE_SESSION: Final = (
    f"{_INSERT_SESSION} ON CONFLICT (session_id) DO UPDATE SET sequence = excluded.sequence, "
    "head = excluded.head, updated_at = excluded.updated_at, status = excluded.status, "
    "next_action = excluded.next_action"
)
_UPDATE_LEASE: Final = (
    "UPDATE minutebook_sessions SET token = ?, lease_id = ?, holder_id = ?, acquired_at = ?, "
    "renewed_at = ?, expires_at = ?, boot = ?, process_id = ?, process_started = ?, runs_out = ? "
    "WHERE session_id = ?"
)


class Changes:
    """What one transaction changes.

    A commit is decided at once. Its rows are written with those of the others, table by
    table: at `write`, or before its session is looked at again.

    Args:
        connection: has a transaction open, which the caller ends.
        at: the store's clock, read inside the transaction.
        store: what to call the store in a message.
    """

    def __init__(self, connection: sqlite.Connection, at: Instant, store: str) -> None:
        self.appends = False
        self.connection = connection
        self._at = at
        self._now = microseconds(at.now)
        self._store = store
        self._accepted: dict[str, Batch] = {}

    def commit(self, batch: Batch) -> Receipt:
        """Check one batch and accept it; see `domain.ports.Journal.commit`."""
        if batch.blobs:
            commit_rules.check_blobs(batch.blobs)
        asked = (batch.session_id, batch.session_id, batch.command_id)
        row = self._up_to_date(batch.session_id).execute(_STANDING_AND_COMMAND, asked).fetchone()
        standing = _standing(row)
        commit_rules.check_owner(batch, standing, self._store)
        if row["fingerprint"] is not None:
            return commit_rules.found_again(batch, *_command(row), CommitStatus.REPLAYED)
        commit_rules.check_standing(batch, standing, self._at)
        self._accepted[batch.session_id] = batch
        self.appends = True
        return commit_rules.receipt(batch)

    def write(self) -> None:
        """Write the rows of what was accepted."""
        batches, self._accepted = list(self._accepted.values()), {}
        if not batches:
            return
        many = self.connection.executemany
        if blobs := [(each.digest, each.data) for batch in batches for each in batch.blobs]:
            many(_INSERT_BLOB, blobs)
        JournalRecorder.append(self.connection, (event for batch in batches for event in batch.events))
        if snapshots := [batch.snapshot for batch in batches if batch.snapshot is not None]:
            many(_INSERT_SNAPSHOT, map(_snapshot_row, snapshots))
        many(_MOVE_SESSION, [_session_row(batch, self._now) for batch in batches])
        many(_INSERT_COMMAND, map(_command_row, batches))

    def acquire(self, session_id: str, owner_id: str, holder: Holder, ttl_ms: int) -> LeaseRow:
        """Take a session's lease; see `domain.ports.LeaseStore.acquire`."""
        row = self._up_to_date(session_id).execute(_STANDING, (session_id,)).fetchone()
        if row is not None and row["owner_id"] != owner_id:
            raise SessionNotFound(session_id, self._store)
        held = sqlite_rows.lease_row(row) if row is not None else None
        lease = lease_rules.granted(session_id, held, holder, ttl_ms, self._at, holder_is_dead)
        if row is None:
            new = (session_id, owner_id, 0, genesis(session_id), self._now, self._now, "none", "none")
            self.connection.execute(_INSERT_SESSION, new)
        self._write_lease(session_id, lease)
        return lease

    def renew(self, session_id: str, owner_id: str, fence: Fence, ttl_ms: int) -> LeaseRow:
        """Extend a live lease. Raises LeaseLost."""
        held = held_lease(self._up_to_date(session_id), session_id, owner_id)
        lease = lease_rules.renewed(session_id, held, fence, ttl_ms, self._at)
        self._write_lease(session_id, lease)
        return lease

    def release(self, session_id: str, owner_id: str, fence: Fence) -> None:
        """Give a lease back; the token stays. Not ours any more: nothing happens."""
        held = _lease(self._up_to_date(session_id), session_id, owner_id)
        lease = lease_rules.released(held, fence, self._at)
        if lease is not None:
            self._write_lease(session_id, lease)

    def _up_to_date(self, session_id: str) -> sqlite.Connection:
        """The connection, once the tables say all that was accepted for a session."""
        if session_id in self._accepted:
            self.write()
        return self.connection

    def _write_lease(self, session_id: str, lease: LeaseRow) -> None:
        self.connection.execute(_UPDATE_LEASE, (*_lease_columns(lease), session_id))


def settle(connection: sqlite.Connection, batch: Batch, deadline: float) -> tuple[bytes, Receipt] | None:
    """Contend for a batch's command; its fingerprint and receipt if it is there, None if not.

    The connection is a new one, and the one that failed is closed. Whichever
    it is, it is made to stay so: the bytes of a commit that failed late can
    still lie behind the end of the WAL, where a crash would find them again.
    Committing anything at all writes over them, and a checkpoint takes what is
    there to the file by another way than the one whose fsync failed.

    Args:
        deadline: a moment of `time.monotonic`, until which to wait for the lock.

    Raises:
        sqlite.Error: undecided.
    """
    until_free(lambda: connection.execute("BEGIN IMMEDIATE"), deadline)
    sqlite_schema.check_still(connection, "the journal")
    row = connection.execute(_COMMAND, (batch.session_id, batch.command_id)).fetchone()
    connection.execute(f"PRAGMA user_version = {sqlite_schema.FORMAT_VERSION}")
    until_free(lambda: connection.execute("COMMIT"), deadline)
    connection.execute("PRAGMA wal_checkpoint(FULL)")
    return _command(row) if row is not None else None


def held_lease(connection: sqlite.Connection, session_id: str, owner_id: str) -> LeaseRow | None:
    """A session's lease row, None if it was never leased. Raises LeaseLost where there is no session."""
    row = connection.execute(_STANDING, (session_id,)).fetchone()
    if row is None or row["owner_id"] != owner_id:
        raise LeaseLost(session_id, "the store has no lease for it")
    return sqlite_rows.lease_row(row)


def _standing(row: sqlite.Row) -> Standing | None:
    if row["owner_id"] is None:
        return None
    return Standing(row["owner_id"], row["sequence"], row["head"], sqlite_rows.lease_row(row))


def _command(row: sqlite.Row) -> tuple[bytes, Receipt]:
    receipt = Receipt(
        CommitStatus.COMMITTED, row["first_sequence"], row["last_sequence"], row["command_head"]
    )
    return row["fingerprint"], receipt


def _session_row(batch: Batch, at: int) -> tuple[Any, ...]:
    last, shown = batch.events[-1], batch.listing
    owner, head = batch.owner_id, blob(last.head)
    return batch.session_id, owner, last.sequence, head, at, at, shown.status, shown.next_action


def _command_row(batch: Batch) -> tuple[Any, ...]:
    first, last = batch.events[0].sequence, batch.events[-1]
    fingerprint, head = blob(batch.fingerprint), blob(last.head)
    return batch.session_id, batch.command_id, fingerprint, first, last.sequence, head


def _snapshot_row(snapshot: Snapshot) -> tuple[Any, ...]:
    return snapshot.session_id, snapshot.sequence, snapshot.version, snapshot.head, snapshot.state


def _lease(connection: sqlite.Connection, session_id: str, owner_id: str) -> LeaseRow | None:
    row = connection.execute(_STANDING, (session_id,)).fetchone()
    return sqlite_rows.lease_row(row) if row is not None and row["owner_id"] == owner_id else None


def _lease_columns(lease: LeaseRow) -> tuple[Any, ...]:
    return (
        lease.token,
        lease.lease_id,
        lease.holder_id,
        microseconds(lease.acquired_at),
        microseconds(lease.renewed_at),
        microseconds(lease.expires_at),
        lease.boot_id,
        lease.process_id,
        lease.process_started,
        None if lease.runs_out is None else round(lease.runs_out * MICROSECONDS),
    )

"""Changing a journal's tables: a commit and the lease calls, inside the caller's transaction.

Imported by the store. Rules are checked before the first row is written, so a
refused change leaves the transaction as it was and others may share it.
"""

from __future__ import annotations

from typing import Final

from adapters import commit_rules, lease_rules, sqlite_rows, sqlite_schema
from adapters.commit_rules import Standing
from adapters.lease_rules import Instant
from adapters.sqlite_connections import until_free
from adapters.sqlite_driver import sqlite
from adapters.sqlite_recorder import JournalRecorder
from adapters.sqlite_rows import MICROSECONDS, microseconds
from adapters.system import holder_is_dead
from domain.envelope import Fence, genesis
from domain.errors import LeaseLost, SessionNotFound
from domain.ports import Batch, CommitStatus, Holder, LeaseRow, Receipt

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
_UPDATE_SESSION: Final = (
    "UPDATE minutebook_sessions SET sequence = ?, head = ?, updated_at = ?, status = ?, next_action = ? "
    "WHERE session_id = ?"
)
_UPDATE_LEASE: Final = (
    "UPDATE minutebook_sessions SET token = ?, lease_id = ?, holder_id = ?, acquired_at = ?, "
    "renewed_at = ?, expires_at = ?, boot = ?, process_id = ?, process_started = ?, runs_out = ? "
    "WHERE session_id = ?"
)


def commit(connection: sqlite.Connection, batch: Batch, at: Instant, store: str) -> Receipt:
    """Check and write one batch; see `domain.ports.Journal.commit`.

    Args:
        at: the store's clock, read inside the transaction.
    """
    if batch.blobs:
        commit_rules.check_blobs(batch.blobs)
    asked = (batch.session_id, batch.session_id, batch.command_id)
    row = connection.execute(_STANDING_AND_COMMAND, asked).fetchone()
    standing = _standing(row)
    commit_rules.check_owner(batch, standing, store)
    if row["fingerprint"] is not None:
        return commit_rules.found_again(batch, *_command(row), CommitStatus.REPLAYED)
    commit_rules.check_standing(batch, standing, at)
    _write(connection, batch, microseconds(at.now), new=standing is None)
    return commit_rules.receipt(batch)


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


def acquire(
    connection: sqlite.Connection,
    session_id: str,
    owner_id: str,
    holder: Holder,
    ttl_ms: int,
    at: Instant,
    store: str,
) -> LeaseRow:
    """Take a session's lease; see `domain.ports.LeaseStore.acquire`."""
    row = connection.execute(_STANDING, (session_id,)).fetchone()
    if row is not None and row["owner_id"] != owner_id:
        raise SessionNotFound(session_id, store)
    held = sqlite_rows.lease_row(row) if row is not None else None
    lease = lease_rules.granted(session_id, held, holder, ttl_ms, at, holder_is_dead)
    if row is None:
        now = microseconds(at.now)
        new = (session_id, owner_id, 0, genesis(session_id), now, now, "none", "none")
        connection.execute(_INSERT_SESSION, new)
    _write_lease(connection, session_id, lease)
    return lease


def renew(
    connection: sqlite.Connection, session_id: str, owner_id: str, fence: Fence, ttl_ms: int, at: Instant
) -> LeaseRow:
    """Extend a live lease. Raises LeaseLost."""
    held = held_lease(connection, session_id, owner_id)
    lease = lease_rules.renewed(session_id, held, fence, ttl_ms, at)
    _write_lease(connection, session_id, lease)
    return lease


def release(connection: sqlite.Connection, session_id: str, owner_id: str, fence: Fence, at: Instant) -> None:
    """Give a lease back; the token stays. Not ours any more: nothing happens."""
    lease = lease_rules.released(_lease(connection, session_id, owner_id), fence, at)
    if lease is not None:
        _write_lease(connection, session_id, lease)


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


def _write(connection: sqlite.Connection, batch: Batch, at: int, *, new: bool) -> None:
    if batch.blobs:
        connection.executemany(_INSERT_BLOB, [(blob.digest, blob.data) for blob in batch.blobs])
    JournalRecorder.append(connection, batch.events)
    if batch.snapshot is not None:
        s = batch.snapshot
        connection.execute(_INSERT_SNAPSHOT, (s.session_id, s.sequence, s.version, s.head, s.state))
    last, shown = batch.events[-1], batch.listing
    if new:
        row = (
            batch.session_id,
            batch.owner_id,
            last.sequence,
            last.head,
            at,
            at,
            shown.status,
            shown.next_action,
        )
        connection.execute(_INSERT_SESSION, row)
    else:
        change = (last.sequence, last.head, at, shown.status, shown.next_action, batch.session_id)
        connection.execute(_UPDATE_SESSION, change)
    command = (
        batch.session_id,
        batch.command_id,
        batch.fingerprint,
        batch.events[0].sequence,
        last.sequence,
        last.head,
    )
    connection.execute(_INSERT_COMMAND, command)


def _lease(connection: sqlite.Connection, session_id: str, owner_id: str) -> LeaseRow | None:
    row = connection.execute(_STANDING, (session_id,)).fetchone()
    return sqlite_rows.lease_row(row) if row is not None and row["owner_id"] == owner_id else None


def _write_lease(connection: sqlite.Connection, session_id: str, lease: LeaseRow) -> None:
    connection.execute(
        _UPDATE_LEASE,
        (
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
            session_id,
        ),
    )

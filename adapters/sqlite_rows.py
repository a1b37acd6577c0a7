"""Reading a journal's tables: statements, and rows to values.

Imported by the SQLite store and its offline reader. Every function takes an
open connection; none writes. `owner_id` None means: of every owner.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final

from adapters.sqlite_driver import sqlite
from domain import canonical
from domain.envelope import Stored
from domain.errors import Corrupt
from domain.ports import CommitStatus, LeaseRow, Listing, Receipt, SessionRow, Snapshot

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
MICROSECONDS: Final = 1_000_000
_MAX_NUMBER: Final = 2**63 - 1

_OWNED: Final = "(:owner IS NULL OR owner_id = :owner)"
_OWNED_SESSION: Final = (
    "EXISTS (SELECT 1 FROM minutebook_sessions s WHERE s.session_id = :session "
    "AND (:owner IS NULL OR s.owner_id = :owner))"
)
# One statement, so that row and last event are seen at the same moment.
_LAST_EVENT: Final = (
    "FROM minutebook_events e WHERE e.originator_id = s.session_id ORDER BY e.originator_version DESC LIMIT 1"
)
_SESSION: Final = (
    f"SELECT s.*, (SELECT e.originator_version {_LAST_EVENT}) AS last_sequence, "
    f"(SELECT e.head {_LAST_EVENT}) AS last_head "
    f"FROM minutebook_sessions s WHERE session_id = :session AND {_OWNED}"
)
_SESSIONS: Final = (
    f"SELECT * FROM minutebook_sessions WHERE session_id > :after AND sequence > 0 AND {_OWNED} "
    "ORDER BY session_id LIMIT :limit"
)
# An index would cost every commit; a scan of the rows costs a worker that looks for work.
_WITH_WORK: Final = (
    f"SELECT * FROM minutebook_sessions WHERE session_id > :after AND sequence > 0 AND {_OWNED} "
    "AND next_action IN (SELECT value FROM json_each(:actions)) ORDER BY session_id"
)
_EVENTS: Final = (
    "SELECT originator_version, topic, state, payload, salt, head FROM minutebook_events "
    f"WHERE originator_id = :session AND originator_version > :after AND originator_version <= :upto "
    f"AND {_OWNED_SESSION} ORDER BY originator_version LIMIT :limit"
)
_SNAPSHOT: Final = (
    "SELECT sequence, version, head, state FROM minutebook_snapshots "
    f"WHERE session_id = :session AND sequence <= :upto AND {_OWNED_SESSION} "
    "ORDER BY sequence DESC LIMIT 1"
)
_COMMAND: Final = (
    "SELECT fingerprint, first_sequence, last_sequence, head FROM minutebook_commands "
    f"WHERE session_id = :session AND command_id = :command AND {_OWNED_SESSION}"
)
_BLOBS: Final = "SELECT digest FROM minutebook_blobs WHERE digest > :after ORDER BY digest LIMIT :limit"
_BLOB: Final = "SELECT data FROM minutebook_blobs WHERE digest = :digest"


def microseconds(moment: datetime) -> int:
    """A moment as the tables keep it."""
    return (moment - _EPOCH) // _MICROSECOND


def find_session(connection: sqlite.Connection, session_id: str, owner_id: str | None) -> SessionRow | None:
    """A session's row; None where there is none, or no event yet.

    Raises:
        Corrupt: the row does not say what the last event says.
    """
    found = connection.execute(_SESSION, {"session": session_id, "owner": owner_id}).fetchone()
    if found is None:
        return None
    row = session_row(found)
    sequence = found["last_sequence"] or 0
    if row.sequence != sequence or (sequence and row.head != found["last_head"]):
        raise Corrupt(
            f"session {session_id!r}",
            f"its row to stand at the last event, sequence {sequence}",
            f"sequence {row.sequence}, head {row.head!r}",
            sequence,
        )
    return row if row.sequence else None


def list_sessions(
    connection: sqlite.Connection, owner_id: str | None, after: str, limit: int
) -> list[SessionRow]:
    """Session rows by id, those after `after` that have an event."""
    asked = {"after": after, "owner": owner_id, "limit": limit}
    return [session_row(row) for row in connection.execute(_SESSIONS, asked)]


def list_free(
    connection: sqlite.Connection,
    owner_id: str,
    actions: Collection[str],
    after: str,
    limit: int,
    is_free: Callable[[LeaseRow | None], bool],
) -> list[SessionRow]:
    """Rows of sessions with one of these actions whose lease is free, by id, at most `limit`."""
    asked = {"after": after, "owner": owner_id, "actions": canonical.encode(sorted(actions)).decode()}
    rows = map(session_row, connection.execute(_WITH_WORK, asked))
    return list(islice((row for row in rows if is_free(row.lease)), limit))


def read_events(
    connection: sqlite.Connection,
    owner_id: str | None,
    session_id: str,
    after: int,
    upto: int | None,
    limit: int,
) -> list[Stored]:
    """Rows with `after < sequence <= upto`, in order, at most `limit`.

    Raises:
        Corrupt: a row holds something that no commit wrote.
    """
    asked = {
        "session": session_id,
        "owner": owner_id,
        "after": _number(after),
        "upto": _number(upto),
        "limit": limit,
    }
    return [_stored(session_id, row) for row in connection.execute(_EVENTS, asked)]


def find_snapshot(
    connection: sqlite.Connection, owner_id: str | None, session_id: str, upto: int | None
) -> Snapshot | None:
    """The latest snapshot at or before `upto`."""
    asked = {"session": session_id, "owner": owner_id, "upto": _number(upto)}
    row = connection.execute(_SNAPSHOT, asked).fetchone()
    if row is None:
        return None
    if not (isinstance(row[2], bytes) and isinstance(row[3], bytes)):
        raise Corrupt("snapshot", "a head and a state", (row[2], row[3]), row[0])
    return Snapshot(session_id, row[0], row[1], row[2], row[3])


def find_command(
    connection: sqlite.Connection, owner_id: str | None, session_id: str, command_id: str
) -> tuple[bytes, Receipt] | None:
    """A command's fingerprint and receipt, or None."""
    asked = {"session": session_id, "owner": owner_id, "command": command_id}
    row = connection.execute(_COMMAND, asked).fetchone()
    return (row[0], Receipt(CommitStatus.COMMITTED, row[1], row[2], row[3])) if row else None


def find_commands(
    connection: sqlite.Connection, owner_id: str | None, session_id: str, command_ids: Sequence[str]
) -> dict[str, tuple[bytes, Receipt]]:
    """The fingerprints and receipts of those commands that are there."""
    found = ((each, find_command(connection, owner_id, session_id, each)) for each in command_ids)
    return {each: kept for each, kept in found if kept is not None}


def find_blob(connection: sqlite.Connection, digest: str) -> bytes | None:
    """A blob's bytes, or None."""
    row = connection.execute(_BLOB, {"digest": digest}).fetchone()
    return bytes(row[0]) if row else None


def list_blobs(connection: sqlite.Connection, after: str, limit: int) -> list[str]:
    """The digests of blobs, those after `after`."""
    return [row[0] for row in connection.execute(_BLOBS, {"after": after, "limit": limit})]


def find_damage(connection: sqlite.Connection) -> list[str]:
    """What SQLite's check of the whole file finds wrong."""
    return [row[0] for row in connection.execute("PRAGMA quick_check") if row[0] != "ok"]


def session_row(row: sqlite.Row) -> SessionRow:
    """A row of `minutebook_sessions` as a value."""
    try:
        return SessionRow(
            session_id=row["session_id"],
            owner_id=row["owner_id"],
            sequence=row["sequence"],
            head=row["head"],
            created_at=_moment(row["created_at"]),
            updated_at=_moment(row["updated_at"]),
            listing=Listing(row["status"], row["next_action"]),
            lease=lease_row(row),
        )
    except (TypeError, ValueError, OverflowError) as e:
        raise Corrupt(f"session {row['session_id']!r}", "a session row of this format", e) from e


def lease_row(row: sqlite.Row) -> LeaseRow | None:
    """The lease columns of a session row; None where it was never leased."""
    if row["token"] == 0:
        return None
    boot_id, runs_out = _host_columns(row)
    return LeaseRow(
        token=row["token"],
        lease_id=row["lease_id"],
        holder_id=row["holder_id"],
        acquired_at=_moment(row["acquired_at"]),
        renewed_at=_moment(row["renewed_at"]),
        expires_at=_moment(row["expires_at"]),
        boot_id=boot_id,
        process_id=row["process_id"],
        process_started=row["process_started"],
        runs_out=None if runs_out is None else runs_out / MICROSECONDS,
    )


def _host_columns(row: sqlite.Row) -> tuple[str | None, int | None]:
    try:
        return row["boot"], row["runs_out"]
    except IndexError:  # format 1, which is read as it is
        return row["boot_id"], None


def _number(value: int | None) -> int:
    return _MAX_NUMBER if value is None else max(-_MAX_NUMBER, min(value, _MAX_NUMBER))


def _moment(value: Any) -> datetime:
    return _EPOCH + timedelta(microseconds=value)


def _stored(session_id: str, row: Sequence[Any]) -> Stored:
    sequence, topic, envelope, payload, salt, head = row
    if not (isinstance(topic, str) and isinstance(envelope, bytes) and isinstance(head, bytes)):
        raise Corrupt("event", "a topic, an envelope and a head", (topic, envelope, head), sequence)
    for content in (payload, salt):
        if content is not None and not isinstance(content, bytes):
            raise Corrupt("event", "payload and salt as bytes", content, sequence)
    return Stored(session_id, sequence, topic, envelope, payload, salt, head)

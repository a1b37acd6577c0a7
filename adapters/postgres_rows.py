"""Reading a journal's tables in PostgreSQL: statements, and rows to values.

Imported by the store and the reader. Every function takes an open connection;
none writes. `owner_id` None means: of every owner.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from adapters import lease_rules
from adapters.lease_rules import Instant
from adapters.postgres_driver import Connection, texts
from adapters.system import holder_is_dead
from domain.envelope import Stored
from domain.errors import Corrupt
from domain.ports import CommitStatus, LeaseRow, Listing, Receipt, SessionRow, Snapshot

#: The largest number that a column can hold.
MAX_NUMBER: Final = 2**63 - 1
#: Sessions looked at together for free ones: any number may be held.
_FREE_PAGE: Final = 100
_OWNED: Final = "(%(owner)s::text IS NULL OR s.owner_id = %(owner)s::text)"
_OWNED_SESSION: Final = (
    f"EXISTS (SELECT 1 FROM {{s}}.minutebook_sessions s WHERE s.session_id = %(session)s::text AND {_OWNED})"
)
# One statement, so that row and last event are seen at the same moment.
_SESSION: Final = (
    "SELECT s.*, e.originator_version AS last_sequence, e.head AS last_head "
    "FROM {s}.minutebook_sessions s LEFT JOIN LATERAL (SELECT originator_version, head "
    "FROM {s}.minutebook_events WHERE originator_id = s.session_id "
    "ORDER BY originator_version DESC LIMIT 1) e ON true "
    f"WHERE s.session_id = %(session)s::text AND {_OWNED}"
)
_SESSIONS: Final = (
    "SELECT s.* FROM {s}.minutebook_sessions s "
    f'WHERE s.session_id > %(after)s::text COLLATE "C" AND s.sequence > 0 AND {_OWNED} '
    "ORDER BY s.session_id LIMIT %(limit)s"
)
_WITH_WORK: Final = (
    "SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now, s.* FROM {s}.minutebook_sessions s "
    'WHERE s.session_id > %(after)s::text COLLATE "C" AND s.sequence > 0 AND s.owner_id = %(owner)s::text '
    "AND s.next_action = ANY(%(actions)s::text[]) ORDER BY s.session_id LIMIT %(limit)s"
)
_EVENTS: Final = (
    "SELECT originator_version, topic, state, payload, salt, head FROM {s}.minutebook_events "
    "WHERE originator_id = %(session)s::text AND originator_version > %(after)s "
    f"AND originator_version <= %(upto)s AND {_OWNED_SESSION} "
    "ORDER BY originator_version LIMIT %(limit)s"
)
_SNAPSHOT: Final = (
    "SELECT sequence, version, head, state FROM {s}.minutebook_snapshots "
    f"WHERE session_id = %(session)s::text AND sequence <= %(upto)s AND {_OWNED_SESSION} "
    "ORDER BY sequence DESC LIMIT 1"
)
_COMMANDS: Final = (
    "SELECT command_id, fingerprint, first_sequence, last_sequence, head FROM {s}.minutebook_commands "
    "WHERE session_id = %(session)s::text AND command_id = ANY(%(commands)s::text[]) "
    f"AND first_sequence IS NOT NULL AND {_OWNED_SESSION}"
)
_BLOBS: Final = (
    'SELECT digest FROM {s}.minutebook_blobs WHERE digest > %(after)s::text COLLATE "C" '
    "ORDER BY digest LIMIT %(limit)s"
)
_CLOCK: Final = "SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS now"
_BLOB: Final = "SELECT data FROM {s}.minutebook_blobs WHERE digest = %(digest)s::text"


def find_session(
    connection: Connection, schema: str, owner_id: str | None, session_id: str
) -> SessionRow | None:
    """A session's row; None where there is none, or no event yet.

    Raises:
        Corrupt: the row does not say what the last event says.
    """
    if not keepable(session_id):
        return None
    found = _ask(connection, _SESSION, schema, session=session_id, owner=owner_id)
    if not found:
        return None
    row, last_sequence = session_row(found[0]), found[0]["last_sequence"] or 0
    if row.sequence != last_sequence or (last_sequence and row.head != found[0]["last_head"]):
        raise Corrupt(
            f"session {session_id!r}",
            f"its row to stand at the last event, sequence {last_sequence}",
            f"sequence {row.sequence}, head {row.head!r}",
            last_sequence,
        )
    return row if row.sequence else None


def list_sessions(
    connection: Connection, schema: str, owner_id: str | None, after: str, limit: int
) -> list[SessionRow]:
    """Session rows by id, those after `after` that have an event."""
    if limit <= 0 or not keepable(after):
        return []
    rows = _ask(connection, _SESSIONS, schema, after=after, owner=owner_id, limit=_number(limit))
    return [session_row(row) for row in rows]


def list_free(
    connection: Connection,
    schema: str,
    owner_id: str,
    actions: Collection[str],
    after: str,
    limit: int,
    now: datetime | None,
) -> list[SessionRow]:
    """Rows of sessions with one of these actions whose lease is free, by id, at most `limit`."""
    wanted = sorted(each for each in actions if keepable(each))
    if limit <= 0 or not wanted or not keepable(after):
        return []
    free: list[SessionRow] = []
    while len(free) < limit:
        asked = {"now": now, "owner": owner_id, "after": after, "actions": texts(wanted), "limit": _FREE_PAGE}
        found = _ask(connection, _WITH_WORK, schema, **asked)
        free += [session_row(row) for row in found if _is_free(row)]
        if len(found) < _FREE_PAGE:
            break
        after = found[-1]["session_id"]
    return free[:limit]


def now(connection: Connection, given: datetime | None) -> datetime:
    """The store's clock: what a test gave, otherwise the database's."""
    moment: datetime = _ask(connection, _CLOCK, "", now=given)[0]["now"]
    return moment.astimezone(UTC)


def _is_free(row: dict[str, Any]) -> bool:
    return lease_rules.is_free(lease_row(row), Instant(row["now"]), holder_is_dead)


def read_events(
    connection: Connection,
    schema: str,
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
    if limit <= 0 or not keepable(session_id):
        return []
    asked = {"after": _number(after), "upto": _number(upto), "limit": _number(limit)}
    rows = _ask(connection, _EVENTS, schema, session=session_id, owner=owner_id, **asked)
    return [_stored(session_id, row) for row in rows]


def find_snapshot(
    connection: Connection, schema: str, owner_id: str | None, session_id: str, upto: int | None
) -> Snapshot | None:
    """The latest snapshot at or before `upto`."""
    if not keepable(session_id):
        return None
    rows = _ask(connection, _SNAPSHOT, schema, session=session_id, owner=owner_id, upto=_number(upto))
    return Snapshot(session_id, *(rows[0].values())) if rows else None


def find_commands(
    connection: Connection, schema: str, owner_id: str | None, session_id: str, command_ids: Sequence[str]
) -> dict[str, tuple[bytes, Receipt]]:
    """The fingerprints and receipts of those commands that are in the journal."""
    wanted = [each for each in command_ids if keepable(each)]
    if not wanted or not keepable(session_id):
        return {}
    rows = _ask(connection, _COMMANDS, schema, session=session_id, owner=owner_id, commands=texts(wanted))
    return {row["command_id"]: command_of(row) for row in rows}


def command_of(row: dict[str, Any], head: str = "head") -> tuple[bytes, Receipt]:
    """A command's fingerprint and receipt, from its row."""
    receipt = Receipt(CommitStatus.COMMITTED, row["first_sequence"], row["last_sequence"], row[head])
    return row["fingerprint"], receipt


def find_blob(connection: Connection, schema: str, digest: str) -> bytes | None:
    """A blob's bytes, or None."""
    rows = _ask(connection, _BLOB, schema, digest=digest) if keepable(digest) else []
    return rows[0]["data"] if rows else None


def list_blobs(connection: Connection, schema: str, after: str, limit: int) -> list[str]:
    """The digests of blobs, those after `after`."""
    if limit <= 0 or not keepable(after):
        return []
    return [row["digest"] for row in _ask(connection, _BLOBS, schema, after=after, limit=_number(limit))]


def session_row(row: dict[str, Any]) -> SessionRow:
    """A row of `minutebook_sessions` as a value."""
    return SessionRow(
        session_id=row["session_id"],
        owner_id=row["owner_id"],
        sequence=row["sequence"],
        head=row["head"],
        created_at=row["created_at"].astimezone(UTC),
        updated_at=row["updated_at"].astimezone(UTC),
        listing=Listing(row["status"], row["next_action"]),
        lease=lease_row(row),
    )


def lease_row(row: dict[str, Any]) -> LeaseRow | None:
    """The lease columns of a session row; None where it was never leased."""
    if not row["token"]:
        return None
    acquired, renewed, expires = row["acquired_at"], row["renewed_at"], row["expires_at"]
    if None in (acquired, renewed, expires, row["holder_id"]):
        raise Corrupt("lease", "a holder and its times", row["holder_id"])
    return LeaseRow(
        token=row["token"],
        lease_id=row["lease_id"],
        holder_id=row["holder_id"],
        acquired_at=acquired.astimezone(UTC),
        renewed_at=renewed.astimezone(UTC),
        expires_at=expires.astimezone(UTC),
        boot_id=row["boot_id"],
        process_id=row["process_id"],
        process_started=row["process_started"],
    )


def keepable(text: str) -> bool:
    """Whether PostgreSQL can hold a text at all; one that it cannot is nowhere in it."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def _ask(connection: Connection, statement: str, schema: str, **asked: Any) -> list[dict[str, Any]]:
    return connection.ask(statement.format(s=schema).encode(), asked)


def _number(value: int | None) -> int:
    return MAX_NUMBER if value is None else max(-MAX_NUMBER, min(value, MAX_NUMBER))


def _stored(session_id: str, row: dict[str, Any]) -> Stored:
    if row["head"] is None:
        raise Corrupt("event", "a head", None, row["originator_version"])
    return Stored(
        session_id,
        row["originator_version"],
        row["topic"],
        row["state"],
        row["payload"],
        row["salt"],
        row["head"],
    )

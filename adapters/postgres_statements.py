"""The statements that change a journal in PostgreSQL.

Imported by the modules that run them. A commit is one statement: it moves the
session's row if everything about it fits, and writes the rest only if that row
moved. Text is put together here and nowhere else; values are always parameters.
"""

from __future__ import annotations

import functools
from enum import Enum, auto
from typing import Final

# A store's clock: the database's own, read when a row is looked at. A test may give another.
_NOW: Final = "COALESCE(%(now)s::timestamptz, clock_timestamp())"
_TTL: Final = "%(ttl_ms)s::bigint * interval '1 millisecond'"
_OWN_SESSION: Final = "s.session_id = %(session)s::text AND s.owner_id = %(owner)s::text"
_OWN_FENCE: Final = "s.token = %(token)s AND s.lease_id = %(lease)s::text AND s.holder_id = %(holder)s::text"
_THIS_COMMAND: Final = "c.session_id = %(session)s::text AND c.command_id = %(command)s::text"
_LEASE_COLUMNS: Final = (
    "s.token, s.lease_id, s.holder_id, s.acquired_at, s.renewed_at, s.expires_at, "
    "s.boot_id, s.process_id, s.process_started"
)


class Place(Enum):
    """What a commit expects of its session's row."""

    NEW = auto()
    UNLEASED = auto()
    FENCED = auto()


_ABSENT: Final = f"NOT EXISTS (SELECT 1 FROM {{s}}.minutebook_commands c WHERE {_THIS_COMMAND})"
_VOID: Final = f"{_THIS_COMMAND} AND c.first_sequence IS NULL AND c.voided = %(voided)s"
_EXISTS_VOID: Final = f"EXISTS (SELECT 1 FROM {{s}}.minutebook_commands c WHERE {_VOID})"

_INSERT_SESSION: Final = (
    "INSERT INTO {s}.minutebook_sessions "
    "(session_id, owner_id, sequence, head, created_at, updated_at, status, next_action) "
    "SELECT %(session)s::text, %(owner)s::text, %(last_sequence)s, %(last_head)s, t.now, t.now, "
    f"%(status)s::text, %(next_action)s::text FROM (SELECT {_NOW} AS now) t WHERE {{command}} "
    "ON CONFLICT (session_id) DO NOTHING RETURNING session_id"
)
_UPDATE_SESSION: Final = (
    "UPDATE {s}.minutebook_sessions s SET sequence = %(last_sequence)s, head = %(last_head)s, "
    f"updated_at = {_NOW}, status = %(status)s::text, next_action = %(next_action)s::text "
    f"WHERE {_OWN_SESSION} AND s.sequence = %(expected_sequence)s AND s.head = %(expected_head)s "
    "AND {fence} AND {command} RETURNING s.session_id, s.expires_at"
)
_FENCES: Final = {
    Place.UNLEASED: "s.token = 0",
    Place.FENCED: f"{_OWN_FENCE} AND s.expires_at > {_NOW}",
}
_INSERT_COMMAND: Final = (
    "INSERT INTO {s}.minutebook_commands "
    "(session_id, command_id, fingerprint, first_sequence, last_sequence, head) "
    "SELECT moved.session_id, %(command)s::text, %(fingerprint)s, %(first_sequence)s, %(last_sequence)s, "
    "%(last_head)s FROM moved RETURNING 1"
)
_TAKE_VOID: Final = (
    "UPDATE {s}.minutebook_commands c SET fingerprint = %(fingerprint)s, "
    "first_sequence = %(first_sequence)s, last_sequence = %(last_sequence)s, head = %(last_head)s "
    f"FROM moved WHERE {_VOID} RETURNING 1"
)
_INSERT_EVENTS: Final = (
    "INSERT INTO {s}.minutebook_events "
    "(originator_id, originator_version, topic, state, payload, salt, head) "
    "SELECT moved.session_id, %(expected_sequence)s + e.n, e.topic, e.state, e.payload, e.salt, e.head "
    "FROM moved, unnest(%(topics)s::text[], %(envelopes)s::bytea[], %(payloads)s::bytea[], "
    "%(salts)s::bytea[], %(heads)s::bytea[]) WITH ORDINALITY AS e (topic, state, payload, salt, head, n) "
    "ORDER BY 2"
)
_INSERT_SNAPSHOT: Final = (
    "INSERT INTO {s}.minutebook_snapshots (session_id, sequence, version, head, state) "
    "SELECT moved.session_id, %(snapshot_sequence)s, %(snapshot_version)s, %(snapshot_head)s, "
    "%(snapshot_state)s FROM moved"
)
# In the order of the digests: two commits with the same blobs must not wait for each other.
_INSERT_BLOBS: Final = (
    "INSERT INTO {s}.minutebook_blobs (digest, data) SELECT b.* FROM moved, "
    "unnest(%(digests)s::text[], %(blobs)s::bytea[]) AS b ORDER BY 1 ON CONFLICT (digest) DO NOTHING"
)
# Undone as a whole where somebody else took the command's place meanwhile, or where the
# lease ran out while the row was waited for.
_OUTCOME: Final = (
    "SELECT CASE WHEN m.n = c.n AND m.live IS NOT FALSE THEN m.n ELSE 1 / (m.n - m.n) END AS moved "
    "FROM (SELECT count(*) AS n, {live} AS live FROM moved) m, (SELECT count(*) AS n FROM command) c"
)
_STILL_LIVE: Final = f"bool_and(expires_at > {_NOW})"


@functools.lru_cache(maxsize=256)
def commit(schema: str, place: Place, *, over_void: bool, snapshot: bool, blobs: bool) -> bytes:
    """The statement of a commit; its one row's `moved` is 1 if everything was written, else 0.

    Args:
        over_void: the command was settled as not there, and is now committed after all.
        snapshot, blobs: whether there is one to be kept.
    """
    moved = _INSERT_SESSION if place is Place.NEW else _UPDATE_SESSION
    command = (_EXISTS_VOID if over_void else _ABSENT).format(s=schema)
    parts = {
        "moved": moved.format(s=schema, command=command, fence=_FENCES.get(place, "")),
        "command": (_TAKE_VOID if over_void else _INSERT_COMMAND).format(s=schema),
        "events": _INSERT_EVENTS.format(s=schema),
    }
    if snapshot:
        parts["snapshot"] = _INSERT_SNAPSHOT.format(s=schema)
    if blobs:
        parts["blobs"] = _INSERT_BLOBS.format(s=schema)
    outcome = _OUTCOME.format(live=_STILL_LIVE if place is Place.FENCED else "true")
    return f"WITH {', '.join(f'{name} AS ({text})' for name, text in parts.items())} {outcome}".encode()


@functools.lru_cache(maxsize=256)
def standing_and_command(schema: str) -> bytes:
    """One row: the store's clock, the session's row and the command's, as far as they are there."""
    return (
        f"SELECT {_NOW} AS now, s.owner_id, s.sequence, s.head, {_LEASE_COLUMNS}, "
        "c.fingerprint, c.first_sequence, c.last_sequence, c.head AS command_head, c.voided "
        f"FROM (SELECT 1) one LEFT JOIN {schema}.minutebook_sessions s ON s.session_id = %(session)s::text "
        f"LEFT JOIN {schema}.minutebook_commands c ON {_THIS_COMMAND}"
    ).encode()


@functools.lru_cache(maxsize=256)
def void_command(schema: str) -> bytes:
    """Take a command's place, so that a statement that is still under way writes nothing.

    Waits for one that has written already. No row: the command is there, or is none of ours.
    """
    return (
        f"INSERT INTO {schema}.minutebook_commands AS c (session_id, command_id, fingerprint, voided) "
        "SELECT %(session)s::text, %(command)s::text, %(fingerprint)s, 1 WHERE NOT EXISTS "
        f"(SELECT 1 FROM {schema}.minutebook_sessions s "
        "WHERE s.session_id = %(session)s::text AND s.owner_id <> %(owner)s::text) "
        "ON CONFLICT (session_id, command_id) DO UPDATE SET voided = c.voided + 1 "
        "WHERE c.first_sequence IS NULL RETURNING c.voided"
    ).encode()


#: Ends the server process whose answer never came; it may be there still, holding locks.
END_BACKEND: Final = (
    b"SELECT pg_terminate_backend(a.pid) FROM pg_stat_get_activity(%(pid)s::int) a "
    b"WHERE a.backend_start = %(started)s"
)

# --- leases -----------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def acquire(schema: str) -> bytes:
    """Take a lease that is free, run out or the holder's own. No row: it is somebody's."""
    same = "s.lease_id = EXCLUDED.lease_id AND s.holder_id = EXCLUDED.holder_id"
    return (
        f"INSERT INTO {schema}.minutebook_sessions AS s "
        "(session_id, owner_id, sequence, head, created_at, updated_at, status, next_action, token, "
        "lease_id, holder_id, acquired_at, renewed_at, expires_at, boot_id, process_id, process_started) "
        "SELECT %(session)s::text, %(owner)s::text, 0, %(genesis)s, t.now, t.now, 'none', 'none', 1, "
        f"%(lease)s::text, %(holder)s::text, t.now, t.now, t.now + {_TTL}, %(boot)s::text, "
        f"%(process)s::bigint, %(process_started)s::text FROM (SELECT {_NOW} AS now) t "
        "ON CONFLICT (session_id) DO UPDATE SET "
        f"token = CASE WHEN {same} THEN s.token ELSE s.token + 1 END, "
        f"acquired_at = CASE WHEN {same} THEN s.acquired_at ELSE EXCLUDED.acquired_at END, {_TAKEN} "
        f"WHERE s.owner_id = EXCLUDED.owner_id AND (s.lease_id IS NULL OR {same} "
        f"OR s.expires_at <= EXCLUDED.renewed_at) RETURNING {_LEASE_COLUMNS}"
    ).encode()


_TAKEN: Final = ", ".join(
    f"{column} = EXCLUDED.{column}"
    for column in (
        "lease_id",
        "holder_id",
        "renewed_at",
        "expires_at",
        "boot_id",
        "process_id",
        "process_started",
    )
)


@functools.lru_cache(maxsize=256)
def take_over(schema: str) -> bytes:
    """Take the lease of a holder that is provably dead, if it is still that holder's."""
    return (
        f"UPDATE {schema}.minutebook_sessions s SET token = s.token + 1, lease_id = %(lease)s::text, "
        "holder_id = %(holder)s::text, acquired_at = t.now, renewed_at = t.now, "
        f"expires_at = t.now + {_TTL}, boot_id = %(boot)s::text, process_id = %(process)s::bigint, "
        f"process_started = %(process_started)s::text FROM (SELECT {_NOW} AS now) t "
        f"WHERE {_OWN_SESSION} AND s.token = %(dead_token)s AND s.lease_id = %(dead_lease)s::text "
        f"AND s.holder_id = %(dead_holder)s::text AND s.renewed_at = %(dead_renewed)s "
        f"RETURNING {_LEASE_COLUMNS}"
    ).encode()


@functools.lru_cache(maxsize=256)
def renew(schema: str) -> bytes:
    """Extend a live lease. No row: it is not live, or not this one."""
    return (
        f"UPDATE {schema}.minutebook_sessions s SET renewed_at = {_NOW}, expires_at = {_NOW} + {_TTL} "
        f"WHERE {_OWN_SESSION} AND {_OWN_FENCE} AND s.expires_at > {_NOW} RETURNING {_LEASE_COLUMNS}"
    ).encode()


@functools.lru_cache(maxsize=256)
def release(schema: str) -> bytes:
    """Give a lease back; the token stays."""
    return (
        f"UPDATE {schema}.minutebook_sessions s SET lease_id = NULL, "
        f"expires_at = LEAST({_NOW}, s.expires_at) WHERE {_OWN_SESSION} AND {_OWN_FENCE}"
    ).encode()


@functools.lru_cache(maxsize=256)
def held(schema: str) -> bytes:
    """The store's clock, and a session's owner and lease columns."""
    return (
        f"SELECT {_NOW} AS now, s.owner_id, {_LEASE_COLUMNS} FROM (SELECT 1) one "
        f"LEFT JOIN {schema}.minutebook_sessions s ON s.session_id = %(session)s::text"
    ).encode()

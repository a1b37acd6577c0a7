"""The tables of a journal file, and how to tell one from every other file.

Imported by the SQLite modules. The statements here are the format: a change
needs a new `FORMAT_VERSION` and a way up from the old one.
"""

from __future__ import annotations

from typing import Final

from adapters.sqlite_driver import NOT_A_DATABASE, primary_code, sqlite
from domain.errors import NewerFormat, NotAJournal

#: "mbk1", in the file's header: this file is a journal of ours.
APPLICATION_ID: Final = 0x6D626B31
FORMAT_VERSION: Final = 1

EVENTS_TABLE: Final = "minutebook_events"

# AUTOINCREMENT: without it, the position of a deleted row would be given out again.
# payload and salt are NULL after a redaction; a row without a head is never read back.
EVENTS_DDL: Final = (
    "CREATE TABLE minutebook_events ("
    "rowid INTEGER PRIMARY KEY AUTOINCREMENT, "
    "originator_id TEXT NOT NULL, originator_version INTEGER NOT NULL, "
    "topic TEXT NOT NULL, state BLOB NOT NULL, "
    "payload BLOB, salt BLOB, head BLOB, "
    "UNIQUE (originator_id, originator_version))"
)

# token 0: never leased. sequence 0: leased before its first event. Times: microseconds since 1970, UTC.
_SESSIONS_DDL: Final = (
    "CREATE TABLE minutebook_sessions ("
    "session_id TEXT PRIMARY KEY, owner_id TEXT NOT NULL, "
    "sequence INTEGER NOT NULL, head BLOB NOT NULL, "
    "created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, "
    "status TEXT NOT NULL, next_action TEXT NOT NULL, "
    "token INTEGER NOT NULL DEFAULT 0, lease_id TEXT, holder_id TEXT, "
    "acquired_at INTEGER, renewed_at INTEGER, expires_at INTEGER, "
    "boot_id TEXT, process_id INTEGER, process_started TEXT) WITHOUT ROWID"
)
_COMMANDS_DDL: Final = (
    "CREATE TABLE minutebook_commands ("
    "session_id TEXT NOT NULL, command_id TEXT NOT NULL, fingerprint BLOB NOT NULL, "
    "first_sequence INTEGER NOT NULL, last_sequence INTEGER NOT NULL, head BLOB NOT NULL, "
    "PRIMARY KEY (session_id, command_id)) WITHOUT ROWID"
)
_SNAPSHOTS_DDL: Final = (
    "CREATE TABLE minutebook_snapshots ("
    "session_id TEXT NOT NULL, sequence INTEGER NOT NULL, version INTEGER NOT NULL, "
    "head BLOB NOT NULL, state BLOB NOT NULL, PRIMARY KEY (session_id, sequence))"
)
_BLOBS_DDL: Final = "CREATE TABLE minutebook_blobs (digest TEXT PRIMARY KEY, data BLOB NOT NULL)"

TABLES: Final = {
    EVENTS_TABLE: EVENTS_DDL,
    "minutebook_sessions": _SESSIONS_DDL,
    "minutebook_commands": _COMMANDS_DDL,
    "minutebook_snapshots": _SNAPSHOTS_DDL,
    "minutebook_blobs": _BLOBS_DDL,
}


def is_journal(connection: sqlite.Connection, store: str) -> bool:
    """Whether an open database is a journal of this format; False where it is still empty.

    Raises:
        NewerFormat: a later version of this library wrote it.
        NotAJournal: it is something else.
        sqlite.Error: the engine's own error.
    """
    try:
        return _at_one_moment(connection, store)
    except sqlite.Error as e:
        if primary_code(e) == NOT_A_DATABASE:
            raise NotAJournal(
                store, "expected a minutebook journal, found a file that is no SQLite database"
            ) from e
        raise


def _at_one_moment(connection: sqlite.Connection, store: str) -> bool:
    # In one transaction: another process may be making the tables just now.
    if connection.in_transaction:
        return _is_ours(connection, store)
    connection.execute("BEGIN")
    try:
        return _is_ours(connection, store)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _is_ours(connection: sqlite.Connection, store: str) -> bool:
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    found = {
        name: (kind, sql)
        for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_schema")
    }
    if application_id == 0 and version == 0 and not found:
        return False
    if application_id != APPLICATION_ID:
        raise NotAJournal(
            store,
            f"expected a minutebook journal (application id {APPLICATION_ID}), found an "
            f"SQLite database with application id {application_id}. Give another path.",
        )
    if version > FORMAT_VERSION:
        raise NewerFormat(
            store,
            f"expected journal format {FORMAT_VERSION} or older, found {version}; it "
            "was not touched. Use a newer minutebook.",
        )
    _check_tables(found, store)
    return True


def create_tables(connection: sqlite.Connection) -> None:
    """Write the tables and the marks of the format; the caller holds the transaction."""
    for statement in TABLES.values():
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")


def _check_tables(found: dict[str, tuple[str, str]], store: str) -> None:
    # Triggers and views would run a stranger's SQL inside our statements.
    for name, (kind, _) in found.items():
        if kind in ("trigger", "view"):
            raise NotAJournal(store, f"expected no triggers and no views in a journal, found {kind} {name!r}")
    for name, statement in TABLES.items():
        if found.get(name) != ("table", statement):
            raise NotAJournal(
                store,
                f"expected table {name} of journal format {FORMAT_VERSION}, "
                "found none or another one; the file was not written by minutebook",
            )

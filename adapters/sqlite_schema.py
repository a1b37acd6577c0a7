"""The tables of a journal file, and how to tell one from every other file.

Imported by the SQLite modules. The statements here are the format: a change
needs a new `FORMAT_VERSION` and a way up from the old one in `WAY_UP`. Files of
every older format can be read as they are; only those of this one are written.
"""

from __future__ import annotations

import shlex
from typing import Final

from adapters.sqlite_driver import NOT_A_DATABASE, primary_code, sqlite
from domain.errors import NewerFormat, NotAJournal, OlderFormat

#: "mbk1", in the file's header: this file is a journal of ours.
APPLICATION_ID: Final = 0x6D626B31
FORMAT_VERSION: Final = 2

EVENTS_TABLE: Final = "minutebook_events"
SESSIONS_TABLE: Final = "minutebook_sessions"

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

# token 0: never leased. sequence 0: leased before its first event. Times: microseconds since 1970, UTC;
# runs_out: microseconds since the start of the host that boot names.
_SESSIONS_DDL: Final = (
    "CREATE TABLE minutebook_sessions ("
    "session_id TEXT PRIMARY KEY, owner_id TEXT NOT NULL, "
    "sequence INTEGER NOT NULL, head BLOB NOT NULL, "
    "created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, "
    "status TEXT NOT NULL, next_action TEXT NOT NULL, "
    "token INTEGER NOT NULL DEFAULT 0, lease_id TEXT, holder_id TEXT, "
    "acquired_at INTEGER, renewed_at INTEGER, expires_at INTEGER, "
    "boot TEXT, process_id INTEGER, process_started TEXT, runs_out INTEGER) WITHOUT ROWID"
)
_SESSIONS_DDL_1: Final = _SESSIONS_DDL.replace("boot TEXT", "boot_id TEXT").replace(", runs_out INTEGER", "")
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
    SESSIONS_TABLE: _SESSIONS_DDL,
    "minutebook_commands": _COMMANDS_DDL,
    "minutebook_snapshots": _SNAPSHOTS_DDL,
    "minutebook_blobs": _BLOBS_DDL,
}
TABLES_OF_FORMAT: Final = {
    1: {**TABLES, SESSIONS_TABLE: _SESSIONS_DDL_1},
    FORMAT_VERSION: TABLES,
}

#: By format: the statements that turn its tables into the next one's. SQLite edits the text that it
#: keeps of a table, so that the result is the new format's to the letter, and no row is rewritten.
#: The new name makes the statements of format 1 fail: a process of the version before, which may
#: have had the file open all the time, writes nothing any more.
WAY_UP: Final = {
    1: (
        f"ALTER TABLE {SESSIONS_TABLE} RENAME COLUMN boot_id TO boot",
        f"ALTER TABLE {SESSIONS_TABLE} ADD COLUMN runs_out INTEGER",
    ),
}


def is_ready(connection: sqlite.Connection, store: str) -> bool:
    """Whether an open database is a journal that can be written; False where it is still empty.

    Raises:
        OlderFormat: it can only be read.
        As `format_of`.
    """
    version = format_of(connection, store)
    if version and version < FORMAT_VERSION:
        path = shlex.quote(store.removeprefix("sqlite:"))
        raise OlderFormat(
            store,
            f"expected journal format {FORMAT_VERSION}, found {version}; it was not touched. It can be read "
            f"as it is. To write to it, bring it up to date once: python -m recovery migrate {path}",
        )
    return version > 0


def check_still(connection: sqlite.Connection, store: str) -> None:
    """Raise NewerFormat if a later version of this library migrated the file while it was open here."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != FORMAT_VERSION:
        raise _newer(store, version)


def format_of(connection: sqlite.Connection, store: str) -> int:
    """The format of an open database that is a journal; 0 where it is still empty.

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


def _at_one_moment(connection: sqlite.Connection, store: str) -> int:
    # In one transaction: another process may be making the tables just now.
    if connection.in_transaction:
        return _found_in(connection, store)
    connection.execute("BEGIN")
    try:
        return _found_in(connection, store)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _found_in(connection: sqlite.Connection, store: str) -> int:
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    found = {
        name: (kind, sql)
        for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_schema")
    }
    if application_id == 0 and version == 0 and not found:
        return 0
    if application_id != APPLICATION_ID:
        raise NotAJournal(
            store,
            f"expected a minutebook journal (application id {APPLICATION_ID}), found an "
            f"SQLite database with application id {application_id}. Give another path.",
        )
    if version > FORMAT_VERSION:
        raise _newer(store, version)
    if version not in TABLES_OF_FORMAT:
        raise NotAJournal(store, f"expected journal format 1 to {FORMAT_VERSION}, found {version}")
    _check_tables(found, version, store)
    return int(version)


def _newer(store: str, version: int) -> NewerFormat:
    return NewerFormat(
        store,
        f"expected journal format {FORMAT_VERSION} or older, found {version}; it "
        "was not touched. Use a newer minutebook.",
    )


def create_tables(connection: sqlite.Connection) -> None:
    """Write the tables and the marks of the format; the caller holds the transaction."""
    for statement in TABLES.values():
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")


def _check_tables(found: dict[str, tuple[str, str]], version: int, store: str) -> None:
    # Triggers and views would run a stranger's SQL inside our statements.
    for name, (kind, _) in found.items():
        if kind in ("trigger", "view"):
            raise NotAJournal(store, f"expected no triggers and no views in a journal, found {kind} {name!r}")
    for name, statement in TABLES_OF_FORMAT[version].items():
        if found.get(name) != ("table", statement):
            raise NotAJournal(
                store,
                f"expected table {name} of journal format {version}, "
                "found none or another one; the file was not written by minutebook",
            )

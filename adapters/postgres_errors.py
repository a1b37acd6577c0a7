"""What an error of the PostgreSQL driver means to the caller.

Imported by the PostgreSQL modules. Nothing here touches a database. The
question that matters is whether a statement may have been carried out.
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

import psycopg

from domain.errors import (
    Corrupt,
    MinutebookError,
    StoreReadFailed,
    StoreTimeout,
    StoreUnsupported,
    StoreWriteFailed,
)

E = TypeVar("E", bound=MinutebookError)

#: A statement or a lock was waited for too long, or a deadlock was broken up.
_BUSY: Final = ("55P03", "57014", "40P01", "40001")
_FULL: Final = {"53100": "the server's disk is full", "53200": "the server has no memory left"}
#: What is found out only by trying: starting up, too many connections, a cut of the line.
_PASSING: Final = ("57P01", "57P02", "57P03", "57P05", "53300")
#: Where our rules look for what came first; a double key elsewhere is no conflict but damage.
_CONTENDED: Final = ("minutebook_commands", "minutebook_sessions")
# How libpq repeats what a server said: the severity, in any language, and two spaces.
_SAID_BY_SERVER: Final = re.compile(r": [^:\n]+:  \S")
_TOO_MANY: Final = re.compile("too many (clients|connections)|connection slots", re.IGNORECASE)
_DAMAGED: Final = ("XX001", "XX002")
_REFUSED: Final = {
    "42501": "the database role lacks a right; grant it USAGE and CREATE on the schema, "
    "or SELECT, INSERT and UPDATE on its tables",
    "25006": "the database takes no writes (a standby, or read-only); give the primary's address",
    "28P01": "the server refused the password",
    "28000": "the server refused the role",
    "3D000": "there is no such database; create it first",
}


def was_refused(error: BaseException) -> bool:
    """Whether the server (or the driver, before it sent anything) refused, so that nothing was written.

    A FATAL error is none: it can be told to us after the commit has happened.
    """
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is not None:
        return error.diag.severity_nonlocalized == "ERROR"
    return isinstance(error, psycopg.DataError | psycopg.ProgrammingError | psycopg.NotSupportedError)


def is_passing(error: BaseException) -> bool:
    """Whether the line or the server is away, so that a new connection may do better."""
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    return error.sqlstate is None or error.sqlstate in _PASSING


def was_turned_away(error: psycopg.OperationalError) -> bool:
    """Whether a server answered a new connection with a no that more patience will hardly change.

    The driver gives no SQLSTATE for it. A server that is full says no as well, but that
    passes. One that is starting is told apart by asking it again.
    """
    if error.sqlstate is not None:
        return False
    if error.pgconn is not None and error.pgconn.needs_password:
        return True
    said = str(error)
    return _SAID_BY_SERVER.search(said) is not None and _TOO_MANY.search(said) is None


def turned_away(store: str, error: psycopg.OperationalError) -> StoreUnsupported:
    """The error for a server that lets this user in under no circumstances we can wait for."""
    told = (
        "the server is there and refuses the connection. Check the user, the password, the database's name, "
        f"and the server's rules for who may connect (pg_hba.conf, LOGIN, CONNECT) ({text_of(error)})"
    )
    return _because(StoreUnsupported(store, told), error)


def is_conflict(error: BaseException) -> bool:
    """Whether a statement was undone because another one came first (see `postgres_statements`)."""
    if isinstance(error, psycopg.errors.UniqueViolation):
        return error.diag.table_name in _CONTENDED
    return isinstance(error, psycopg.errors.DivisionByZero)


def write_error(store: str, error: BaseException) -> MinutebookError:
    """The error for a change that certainly did not happen; its cause is the driver's."""
    if isinstance(error, MinutebookError):
        return error
    state = getattr(error, "sqlstate", None)
    if state in _BUSY:
        told = "the database stayed locked or too slow; nothing was written. Try again."
        return _because(StoreTimeout(store, told), error)
    if state in _FULL:
        told = f"nothing was written: {_FULL[state]} ({text_of(error)})"
        return _because(StoreWriteFailed(store, told), error)
    return _known(store, error) or _because(
        StoreWriteFailed(store, f"nothing was written: {text_of(error)}"), error
    )


def read_error(store: str, error: BaseException) -> MinutebookError:
    """The error for a read that failed."""
    if isinstance(error, MinutebookError):
        return error
    if getattr(error, "sqlstate", None) in _BUSY:
        return _because(StoreTimeout(store, "the database stayed locked or too slow; try again"), error)
    return _known(store, error) or _because(
        StoreReadFailed(store, f"reading failed: {text_of(error)}"), error
    )


def text_of(error: BaseException) -> str:
    """What an error says, on one line. The driver's own texts name no password (a test sees to it)."""
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    lines = (primary or str(error)).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0].strip()}"


def _known(store: str, error: BaseException) -> MinutebookError | None:
    state = getattr(error, "sqlstate", None)
    if state in _DAMAGED:
        return _because(Corrupt(store, "sound tables", text_of(error)), error)
    if state in _REFUSED:
        return _because(StoreUnsupported(store, f"{_REFUSED[state]} ({text_of(error)})"), error)
    return None


def _because(error: E, cause: BaseException) -> E:
    error.__cause__ = cause
    return error

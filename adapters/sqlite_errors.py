"""What an error of the SQLite driver means to the caller.

Imported by the SQLite modules. Nothing here touches a database.
"""

from __future__ import annotations

from adapters import sqlite_driver
from adapters.sqlite_driver import sqlite
from domain.errors import Corrupt, MinutebookError, StoreReadFailed, StoreTimeout, StoreWriteFailed

_DAMAGED = (sqlite_driver.CORRUPT, sqlite_driver.NOT_A_DATABASE, sqlite_driver.FORMAT)


def write_error(store: str, error: BaseException) -> MinutebookError:
    """The error for a write that certainly did not happen; its cause is the driver's."""
    if isinstance(error, MinutebookError):
        return error
    if sqlite_driver.is_busy(error):
        return _because(
            StoreTimeout(
                store,
                "the file stayed locked by another process; nothing was "
                "written. Try again, or find out who holds the lock.",
            ),
            error,
        )
    return _damage(store, error) or _because(
        StoreWriteFailed(store, f"nothing was written: {_text(error)}"), error
    )


def read_error(store: str, error: BaseException) -> MinutebookError:
    """The error for a read that failed."""
    if isinstance(error, MinutebookError):
        return error
    if sqlite_driver.is_busy(error):
        return _because(StoreTimeout(store, "the file stayed locked by another process; try again"), error)
    return _damage(store, error) or _because(StoreReadFailed(store, f"reading failed: {_text(error)}"), error)


def _damage(store: str, error: BaseException) -> MinutebookError | None:
    # Text that is no text is reported by the driver, not by SQLite, and has no code.
    undecodable = isinstance(error, sqlite.OperationalError) and sqlite_driver.primary_code(error) == 0
    if not undecodable and sqlite_driver.primary_code(error) not in _DAMAGED:
        return None
    return _because(Corrupt(store, "a sound SQLite file", str(error)), error)


def _because(error: MinutebookError, cause: BaseException) -> MinutebookError:
    error.__cause__ = cause
    return error


def _text(error: BaseException) -> str:
    return f"{getattr(error, 'sqlite_errorname', type(error).__name__)}: {error}"

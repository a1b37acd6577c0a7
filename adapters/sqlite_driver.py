"""Which SQLite this process uses: the newer of the standard library's and pysqlite3's.

Imported by the other SQLite modules, which take `sqlite` from here and never
import a driver themselves. One process must use one copy of SQLite for a file:
two copies do not see each other's locks.
"""

from __future__ import annotations

import importlib
import sqlite3
from types import ModuleType
from typing import TYPE_CHECKING, Final

__all__ = [
    "blob",
    "driver_name",
    "is_busy",
    "newest_driver",
    "primary_code",
    "sqlite",
    "sqlite_version",
    "wal_is_safe",
]

#: From 3.7.0 on, a WAL written over several connections could be corrupted; fixed here.
FIRST_SAFE_WAL: Final = (3, 51, 3)

#: Bytes in the form that the driver binds at once. For `bytes` it looks for an adapter first, value by
#: value; that was half of what a row cost.
blob: Final = bytearray

# Primary result codes of SQLite (the low byte of an extended code).
BUSY: Final = 5
LOCKED: Final = 6
READ_ONLY: Final = 8
IO_ERROR: Final = 10
CORRUPT: Final = 11
FULL: Final = 13
CANNOT_OPEN: Final = 14
FORMAT: Final = 24
NOT_A_DATABASE: Final = 26


def newest_driver() -> ModuleType:
    """The driver module with the newest SQLite; the standard library's where both are the same."""
    try:
        other = importlib.import_module("pysqlite3")
    except ImportError:
        return sqlite3
    return other if other.sqlite_version_info > sqlite3.sqlite_version_info else sqlite3


if TYPE_CHECKING:
    import sqlite3 as sqlite
else:
    sqlite = newest_driver()

driver_name: Final[str] = sqlite.__name__
sqlite_version: Final[str] = sqlite.sqlite_version
wal_is_safe: Final[bool] = sqlite.sqlite_version_info >= FIRST_SAFE_WAL


def primary_code(error: BaseException) -> int:
    """SQLite's primary result code of an error or of its cause; 0 where the driver gave none."""
    for e in (error, error.__cause__):
        code = getattr(e, "sqlite_errorcode", None)
        if isinstance(code, int):
            return code & 0xFF
    return 0


def is_busy(error: BaseException) -> bool:
    """Whether somebody else holds the lock that was needed; nothing was done."""
    return primary_code(error) in (BUSY, LOCKED)

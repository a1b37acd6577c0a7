"""Looking at a SQLite journal file without changing a byte of it or beside it.

Imported by the offline reader. How a file may be opened depends on how it was
left, and that can change while it is looked at:

    open here for writing         in place, sharing this process's locks
    rollback journal, none hot    in place, with locks
    WAL, nothing left in it       in place, without locks, watched for changes
    WAL with something in it      in place, with the writers' shared memory read-only
    hot rollback journal, a WAL
    with its header only, or one
    that cannot be read so        a private copy of all files, recovered there

A file with anything to recover is never opened as immutable: after a kill in a
large transaction it would show as committed what was not.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path
from typing import Final, TypeVar

from adapters import sqlite_files, sqlite_schema
from adapters.sqlite_connections import BUSY_SLICE_S, until_free
from adapters.sqlite_driver import CANNOT_OPEN, READ_ONLY, primary_code, sqlite
from adapters.sqlite_registry import OPEN_FILES
from domain.errors import NotAJournal, StoreReadFailed

T = TypeVar("T")

_ATTEMPTS: Final = 8
#: Where SQLite's header says how the file is written; 2 and 2: with a WAL.
_FORMAT_BYTES: Final = slice(18, 20)
_WAL_FORMAT: Final = b"\x02\x02"
#: A WAL of this length was begun, and nothing is in it yet.
_WAL_HEADER: Final = 32
_PRAGMAS: Final = (
    "PRAGMA query_only = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    "PRAGMA mmap_size = 0",
)

Signature = tuple[tuple[int, int, int] | None, ...]


class _Way(Enum):
    SHARED = auto()
    LOCKED = auto()
    WATCHED = auto()
    SHARED_MEMORY = auto()
    COPY = auto()


_QUERIES: Final = {
    _Way.SHARED: "?mode=ro",
    _Way.LOCKED: "?mode=ro",
    _Way.WATCHED: "?mode=ro&immutable=1",
    _Way.SHARED_MEMORY: "?mode=ro&readonly_shm=1",
    _Way.COPY: "?mode=rw",
}


class SqliteView:
    """One journal file, looked at from one thread at a time.

    Args:
        path: real and absolute.
        timeout_s: how long to wait for a writer's lock.

    Raises:
        NotAJournal: there is no file.
    """

    def __init__(self, path: str, timeout_s: float) -> None:
        sqlite_files.check_is_file(path)
        self.key = sqlite_files.file_key(path)
        self._path = path
        self._name = sqlite_files.store_name(path)
        self._timeout_s = timeout_s
        self._connection: sqlite.Connection | None = None
        self._way = _Way.LOCKED
        self._seen: Signature = ()
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self._lock = OPEN_FILES.look_at(self)

    def look(self, read: Callable[[sqlite.Connection], T]) -> T:
        """What `read` finds, as it was committed at one moment.

        Raises:
            sqlite.Error: the engine's own error.
            NotAJournal, NewerFormat, Corrupt: see `sqlite_schema.format_of`.
            StoreReadFailed: the file changed every time while it was read.
        """
        with self._lock:
            deadline = time.monotonic() + self._timeout_s
            for _ in range(_ATTEMPTS):
                done, value = self._try(read, deadline)
                if done:
                    return value  # type: ignore[return-value]  # a T whenever it is done
        raise StoreReadFailed(self._name, "the file changed whenever it was read; try again")

    def close(self) -> None:
        """As `let_go`."""
        self.let_go()

    def let_go(self) -> None:
        """Close the connection and remove a private copy; the next look opens again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
            copy, self._copy = self._copy, None
            if copy is not None:
                copy.cleanup()

    def _try(self, read: Callable[[sqlite.Connection], T], deadline: float) -> tuple[bool, T | None]:
        try:
            connection = self._opened(deadline)
            value = until_free(lambda: read(connection), deadline)
        except Exception as e:
            if self._stale() or self._needs_copy(e):
                return False, None
            if isinstance(e, OSError):
                raise StoreReadFailed(self._name, f"expected to read the file, got: {e}") from e
            raise
        return (False, None) if self._stale() else (True, value)

    def _stale(self) -> bool:
        """Whether what was opened is no longer what is there; then it is closed."""
        if self._way not in (_Way.WATCHED, _Way.COPY) or _signature(self._path) == self._seen:
            return False
        self.let_go()
        self._way = _Way.LOCKED
        return True

    def _needs_copy(self, error: Exception) -> bool:
        """Whether only a private copy can be read; then the next look makes one."""
        if self._way in (_Way.COPY, _Way.SHARED) or primary_code(error) not in (READ_ONLY, CANNOT_OPEN):
            return False
        self.let_go()
        self._way = _Way.COPY
        return True

    # --- opening ---------------------------------------------------------------------

    def _opened(self, deadline: float) -> sqlite.Connection:
        if self._connection is None:
            sqlite_files.check_is_file(self._path)
            self._way = self._choose()
            self._seen = _signature(self._path)
            target = self._copied() if self._way is _Way.COPY else self._path
            self._connection = self._connect(target, deadline)
        return self._connection

    def _connect(self, target: str, deadline: float) -> sqlite.Connection:
        connection = sqlite.connect(
            Path(target).as_uri() + _QUERIES[self._way],
            uri=True,
            timeout=BUSY_SLICE_S,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.row_factory = sqlite.Row
            for pragma in _PRAGMAS:
                connection.execute(pragma)
            until_free(lambda: self._check(connection), deadline)
        except BaseException:
            connection.close()
            raise
        return connection

    def _choose(self) -> _Way:
        if OPEN_FILES.is_open(self.key):
            return _Way.SHARED
        if self._way is _Way.COPY:
            return _Way.COPY
        if not _has_wal_format(self._path):
            return _Way.LOCKED
        if _nothing_to_recover(self._path):
            return _Way.WATCHED
        return _Way.COPY if _has_no_frame(self._path) else _Way.SHARED_MEMORY

    def _check(self, connection: sqlite.Connection) -> None:
        if not sqlite_schema.format_of(connection, self._name):
            raise NotAJournal(self._name, "expected a minutebook journal, found an empty database")

    def _copied(self) -> str:
        self._copy = tempfile.TemporaryDirectory(prefix="minutebook-")
        target = os.path.join(self._copy.name, "journal")
        # The shared memory is not copied: it belongs to processes, and is made anew.
        for suffix in ("", "-journal", "-wal"):
            if os.path.exists(self._path + suffix):
                shutil.copyfile(self._path + suffix, target + suffix)
        if _signature(self._path) != self._seen:
            raise StoreReadFailed(self._name, "the file changed while it was copied; try again")
        return target


def _signature(path: str) -> Signature:
    return tuple(_stat(path + suffix) for suffix in ("", "-journal", "-wal"))


def _stat(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _has_wal_format(path: str) -> bool:
    # Opening and closing the file by hand is safe only because it is not open here,
    # and whoever else looks at it in this process waits for our lock.
    with open(path, "rb") as file:
        return file.read(_FORMAT_BYTES.stop)[_FORMAT_BYTES] == _WAL_FORMAT


def _nothing_to_recover(path: str) -> bool:
    wal = _stat(path + "-wal")
    return wal is None or (wal[1] == 0 and _stat(path + "-shm") is None)


def _has_no_frame(path: str) -> bool:
    # With read-only shared memory SQLite reads such a log again for ten seconds, and gives up.
    wal = _stat(path + "-wal")
    return wal is not None and wal[1] == _WAL_HEADER

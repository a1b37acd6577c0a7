"""Copying a journal file with the engine's own backup, while others write to it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

from adapters import sqlite_driver, sqlite_files
from adapters.sqlite_driver import sqlite
from adapters.sqlite_errors import read_error
from adapters.sqlite_view import SqliteView
from domain.errors import InvalidOptions, StoreTimeout, StoreWriteFailed

TIMEOUT_S: Final = 15.0
#: So much is copied at a time, and between two reports of progress.
_PAGES: Final = 1024
_PAUSE_S: Final = 0.02
_BUSY: Final = (sqlite_driver.BUSY, sqlite_driver.LOCKED)

#: Called with what is done and what there is to do, in pages of the file.
Progress = Callable[[int, int], None]


def back_up(
    path: str | os.PathLike[str], target: str | os.PathLike[str], *, timeout_s: float = TIMEOUT_S
) -> None:
    """Copy a journal as it is committed at one moment. Blocks; call it from a worker thread.

    Args:
        target: a file that does not exist; made readable by its owner only, without side files.
        timeout_s: how long to wait for a lock.

    Raises:
        InvalidOptions: the target exists, or cannot be made.
        NotAJournal, NewerFormat, Corrupt, StoreFailure: about the journal; no target is left.
        StoreWriteFailed: about the target, of which nothing is left.
    """
    real = sqlite_files.resolved(path)
    name, view = sqlite_files.store_name(real), SqliteView(real, timeout_s)
    _make(target)
    try:
        view.look(lambda source: copy(source, target, store=name, timeout_s=timeout_s))
    except BaseException as e:
        os.unlink(target)
        if isinstance(e, sqlite.Error):
            raise read_error(name, e) from e
        raise
    finally:
        view.let_go()


def _make(target: str | os.PathLike[str]) -> None:
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as e:
        raise InvalidOptions("FILE", f"the path of a new file ({e.strerror})", target) from e


def copy(
    source: sqlite.Connection,
    target: str | os.PathLike[str],
    *,
    store: str,
    timeout_s: float,
    progress: Progress | None = None,
) -> None:
    """Copy an open database into an empty file, durably.

    Args:
        source: not in a writing transaction of its own: the engine would wait for that for ever.
        timeout_s: how long to wait for somebody's lock.

    Raises:
        StoreTimeout: the source stayed locked.
        StoreWriteFailed: the copy could not be made.
    """
    waiting_since: float | None = None

    def told(status: int, left: int, all_: int) -> None:
        nonlocal waiting_since
        if status not in _BUSY:
            waiting_since = None
            if progress is not None:
                progress(all_ - left, all_)
            return
        waiting_since = waiting_since or time.monotonic()
        if time.monotonic() - waiting_since > timeout_s:  # the driver itself would never give up
            raise StoreTimeout(store, "the file stayed locked by another process; nothing was copied")

    made = sqlite.connect(target, isolation_level=None)
    try:
        source.backup(made, pages=_PAGES, progress=told, sleep=_PAUSE_S)
        # One file, whatever the journal's own mode: nothing beside it to lose.
        made.execute("PRAGMA journal_mode = DELETE")
    except sqlite.Error as e:
        # Which of the two files it is about, the engine does not say; the source has been read before.
        name = sqlite_files.store_name(os.fspath(target))
        raise StoreWriteFailed(name, f"nothing was copied from {store}: {e}") from e
    finally:
        made.close()

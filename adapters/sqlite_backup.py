"""Copying a journal file with the engine's own backup, while others write to it."""

from __future__ import annotations

import os
from typing import Final

from adapters import sqlite_files
from adapters.sqlite_driver import sqlite
from adapters.sqlite_errors import read_error
from adapters.sqlite_view import SqliteView
from domain.errors import InvalidOptions

TIMEOUT_S: Final = 15.0


def back_up(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copy a journal as it is committed at one moment. Blocks; call it from a worker thread.

    Args:
        target: a file that does not exist; made readable by its owner only, without side files.

    Raises:
        InvalidOptions: the target exists, or cannot be made.
        NotAJournal, NewerFormat, Corrupt, StoreFailure: about the journal; no target is left.
    """
    real = sqlite_files.resolved(path)
    view = SqliteView(real, TIMEOUT_S)
    _make(target)
    try:
        view.look(lambda source: _copy(source, target))
    except BaseException as e:
        os.unlink(target)
        if isinstance(e, sqlite.Error):
            raise read_error(sqlite_files.store_name(real), e) from e
        raise
    finally:
        view.let_go()


def _make(target: str | os.PathLike[str]) -> None:
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as e:
        raise InvalidOptions("FILE", f"the path of a new file ({e.strerror})", target) from e


def _copy(source: sqlite.Connection, target: str | os.PathLike[str]) -> None:
    copy = sqlite.connect(target, isolation_level=None)
    try:
        source.backup(copy)
        # One file, whatever the journal's own mode: nothing beside it to lose.
        copy.execute("PRAGMA journal_mode = DELETE")
    finally:
        copy.close()

"""The files of a SQLite journal: making them private, and telling them apart.

Imported by the SQLite modules. A file that may be open in this process must
never be opened and closed here: closing any descriptor of a file drops every
lock that the process has on it, SQLite's too.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Final

from domain.errors import InvalidOptions, NotAJournal, StoreWriteFailed

FileKey = tuple[int, int]

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600


def resolved(path: str | os.PathLike[str]) -> str:
    """The real, absolute path; SQLite names its side files after it.

    Raises:
        InvalidOptions: no file can have this path.
    """
    text = os.fspath(path)
    if not text or "\0" in text or text.startswith((":memory:", "file:")):
        raise InvalidOptions("path", "a file's path (for a journal in memory: the memory store)", text)
    return os.path.realpath(text)


def store_name(path: str) -> str:
    """What to call the store at a path in a message."""
    return f"sqlite:{path}"


def make_private(path: str) -> None:
    """Make an empty file only its owner can read, and the directories that lead to it.

    What exists is left alone. Returns when the new directory entries are durable.

    Raises:
        NotAJournal: the path is something other than a file.
        StoreWriteFailed: the file cannot be made.
    """
    try:
        _make_directories(Path(path).parent)
        _make_file(path)
    except OSError as e:
        raise StoreWriteFailed(store_name(path), f"expected to create the file, got: {e}") from e
    check_is_file(path)


def check_is_file(path: str) -> None:
    """Raise NotAJournal unless there is a regular file at `path`."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise NotAJournal(
            store_name(path), "expected a journal file, found nothing; check the path"
        ) from None
    except OSError as e:
        raise NotAJournal(store_name(path), f"expected a journal file, got: {e}") from e
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "something that is no regular file"
        raise NotAJournal(store_name(path), f"expected a journal file, found {kind}; check the path")


def file_key(path: str) -> FileKey:
    """Which file a path leads to: its device and inode."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _make_directories(directory: Path) -> None:
    missing = [d for d in (directory, *directory.parents) if not d.exists()]
    for new in reversed(missing):
        new.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        sync_directory(new.parent)


def _make_file(path: str) -> None:
    # Private before SQLite opens it: SQLite itself would make it readable for others,
    # and its side files take the mode of this one.
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, FILE_MODE))
    except FileExistsError:
        return
    sync_directory(Path(path).parent)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    if sys.platform == "win32":
        return  # a directory cannot be opened there, and needs no sync
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

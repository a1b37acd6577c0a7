"""The journal files that this process has open, by device and inode.

Imported by the store and the offline reader. SQLite keeps its locks per
process and file, so whoever opens a file in this process has to know of the
others: one file has one writing thread, looking at a file never disturbs it,
and nothing is used across a fork.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from adapters import sqlite_files
from adapters.sqlite_file import FileSettings, OpenFile
from adapters.sqlite_files import FileKey
from domain.errors import InvalidOptions, StoreUnsupported


class Looker(Protocol):
    """Somebody who looks at a file without opening it for writing."""

    key: FileKey

    def let_go(self) -> None:
        """Close whatever is open; it may be opened again when next needed."""


class OpenFiles:
    """The open files, counted, and who else looks at them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[FileKey, OpenFile] = {}
        self._lookers: weakref.WeakSet[Looker] = weakref.WeakSet()
        self._hanging: list[OpenFile] = []
        self._looking: dict[FileKey, threading.RLock] = {}

    def enter(self, settings: FileSettings) -> OpenFile:
        """The open file of these settings, opened if it is not yet; `leave` it when done."""
        path = settings.opening.path
        sqlite_files.make_private(path)
        key = sqlite_files.file_key(path)
        with self._lock:
            file = self._files.get(key)
            if file is None:
                file = self._files[key] = OpenFile(settings, key)
            _check_shareable(file, settings)
            file.references += 1
        try:
            self._ask_lookers(key)
            file.start()
        except BaseException:
            self.leave(file)
            raise
        return file

    def leave(self, file: OpenFile) -> None:
        """Give a reference back; the last one closes the file."""
        if file.process_id != os.getpid():
            return  # after a fork these are the parent's connections; not even closing is safe
        with self._lock:
            file.references -= 1
            last = file.references == 0
            if last:
                del self._files[file.key]
        if last:
            self._ask_lookers(file.key)  # so that the writer is the last to close, and clears up
            if not file.stop():
                self._hanging.append(file)  # collected, it would be closed, and hang whoever collects

    @contextmanager
    def unseen(self, key: FileKey) -> Iterator[None]:
        """Nobody in this process looks at the file meanwhile; for a writer that is not registered here."""
        with self._lock:
            lock = self._looking.setdefault(key, threading.RLock())
        with lock:
            self._ask_lookers(key)
            yield

    def is_open(self, key: FileKey) -> bool:
        """Whether this process has the file open for writing."""
        with self._lock:
            return key in self._files

    def look_at(self, looker: Looker) -> threading.RLock:
        """Make a looker known; it holds the lock given back while it opens or reads anything."""
        with self._lock:
            self._lookers.add(looker)
            return self._looking.setdefault(looker.key, threading.RLock())

    def _ask_lookers(self, key: FileKey) -> None:
        # A file opened to be looked at is open read-only, shared memory included, and
        # SQLite would share that with a writer in the same process.
        with self._lock:
            lookers = [looker for looker in self._lookers if looker.key == key]
            lock = self._looking.setdefault(key, threading.RLock())
        with lock:
            for looker in lookers:
                looker.let_go()


def _check_shareable(file: OpenFile, settings: FileSettings) -> None:
    if file.process_id != os.getpid():
        raise StoreUnsupported(
            file.name,
            "the file was open when this process was forked; SQLite cannot be used across a fork. "
            "Start the process anew (spawn), or close the store before forking.",
        )
    if file.settings != settings:
        raise InvalidOptions(
            "store",
            "the probe, clock, journal mode and timeout with which this process has the file open",
            settings.opening.path,
        )


OPEN_FILES: Final = OpenFiles()

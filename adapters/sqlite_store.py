"""Open journal files of this process: described, registered, shared, closed.

Imported by `minutebook.compose`. Two openings of one file in one process share
its threads and connections: SQLite's locks are per process, and one file must
have one writer thread.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from adapters import commit_rules, sqlite_changes, sqlite_files
from adapters.commit_signal import CommitSignal
from adapters.sqlite_connections import Opening, connect
from adapters.sqlite_driver import sqlite, sqlite_version, wal_is_safe
from adapters.sqlite_errors import write_error
from adapters.sqlite_files import FileKey
from adapters.sqlite_jobs import ReadingThread
from adapters.sqlite_journal import SqliteJournal
from adapters.sqlite_recorder import SqliteApplication
from adapters.sqlite_writer import SqliteWriter
from adapters.system import SystemClock, no_probe
from domain.errors import InvalidOptions, OutcomeUnknown, StoreUnsupported
from domain.ports import Batch, Clock, CommitStatus, Journal, Probe, Receipt

T = TypeVar("T")

DEFAULT_STORE_TIMEOUT_S: Final = 15.0
MAX_STORE_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class SqliteStore:
    """Where a journal file is; nothing is opened before `open`.

    Args:
        path: the file; it and missing directories are made, readable by their owner only.
        probe: called at before_commit and after_commit, in the writing thread.
        clock: the store's clock, by which leases run out.
        store_timeout_s: how long a call waits for another process's lock, at most 30.
        journal_mode: "auto" takes "wal" where the SQLite at hand is safe with it, else "truncate".
        connection_class: what the driver makes; a subclass may inject faults.
    """

    path: str | os.PathLike[str]
    probe: Probe = no_probe
    clock: Clock = field(default_factory=SystemClock)
    store_timeout_s: float = DEFAULT_STORE_TIMEOUT_S
    journal_mode: str = "auto"
    connection_class: type[sqlite.Connection] = sqlite.Connection

    @property
    def durable(self) -> bool:
        """True: the journal outlives the process."""
        return True

    @asynccontextmanager
    async def open(self, *, owner_id: str = "local") -> AsyncIterator[Journal]:
        """Open the journal for one owner, making it if it does not exist.

        Raises:
            InvalidOptions: nothing was touched.
            NotAJournal, NewerFormat, StoreUnsupported: the file was not touched.
            StoreTimeout, StoreWriteFailed, Corrupt: the engine could not open it.
        """
        open_file = await _in_thread(lambda: _REGISTRY.enter(self))
        journal = SqliteJournal(open_file, owner_id)
        try:
            yield journal
        finally:
            journal.close()
            with anyio.CancelScope(shield=True):
                await _in_thread(lambda: _REGISTRY.leave(open_file))


def checked_opening(store: SqliteStore) -> Opening:
    """How to open a store's file.

    Raises:
        InvalidOptions: the options cannot work.
        StoreUnsupported: WAL was asked for and the SQLite at hand corrupts it.
    """
    if not 0 < store.store_timeout_s <= MAX_STORE_TIMEOUT_S:
        raise InvalidOptions(
            "store_timeout_s", f"more than 0, at most {MAX_STORE_TIMEOUT_S}", store.store_timeout_s
        )
    if store.journal_mode not in ("auto", "wal", "truncate"):
        raise InvalidOptions("journal_mode", "auto, wal or truncate", store.journal_mode)
    path = sqlite_files.resolved(store.path)
    if store.journal_mode == "wal" and not wal_is_safe:
        raise StoreUnsupported(
            sqlite_files.store_name(path),
            "expected SQLite 3.51.3 or newer for a WAL, "
            f"found {sqlite_version}; use journal_mode='auto' or install pysqlite3",
        )
    auto = "wal" if wal_is_safe else "truncate"
    mode = auto if store.journal_mode == "auto" else store.journal_mode
    return Opening(path, mode, store.store_timeout_s, store.connection_class)


class OpenFile:
    """One open journal file: its writing thread, its reading thread, the library's application."""

    def __init__(self, store: SqliteStore, opening: Opening, key: FileKey) -> None:
        self.key = key
        self.process_id = os.getpid()
        self.references = 0
        self.opening = opening
        self.store = store
        self.clock = store.clock
        self.signal = CommitSignal()
        self.application: SqliteApplication
        self.writer: SqliteWriter
        self.reader: ReadingThread
        self._starting = threading.Lock()
        self._started = False

    @property
    def name(self) -> str:
        """What to call the store in a message."""
        return self.opening.name

    def start(self) -> None:
        """Open the file and start the threads; later calls find it done."""
        with self._starting:
            if self._started:
                return
            self.application = SqliteApplication(self.opening)
            pool = self.application.pool
            try:
                pool.put_connection(pool.get_connection())
            except Exception as e:
                self.application.close()
                raise write_error(self.name, e) from (e.__cause__ or e)
            self.writer = SqliteWriter(pool, self.name, self.store.probe, self.signal)
            self.reader = ReadingThread(
                lambda: connect(self.opening), self.name, lambda: bool(self.signal), self.signal.ring
            )
            self.writer.start()
            self.reader.start()
            self._started = True

    def stop(self) -> None:
        """Finish what is queued and close every connection."""
        if self._started:
            self.writer.close()
            self.reader.close()
            self.application.close()

    def settle(self, batch: Batch) -> Receipt | None:
        """Find out whether a batch is in the file, and make sure that it stays so.

        Raises:
            OutcomeUnknown: still undecided.
            CommandConflict: the command is there with other content.
        """
        if not self.writer.busy.acquire(timeout=self.opening.timeout_s):
            raise OutcomeUnknown(batch.session_id, "the commit is still under way; settle it later")
        try:
            return self._contend(batch)
        except (sqlite.Error, StoreUnsupported) as e:
            raise OutcomeUnknown(batch.session_id, f"the store does not answer ({e}); settle it later") from e
        finally:
            self.writer.busy.release()

    def _contend(self, batch: Batch) -> Receipt | None:
        connection = connect(self.opening)
        try:
            deadline = time.monotonic() + self.opening.timeout_s
            found = sqlite_changes.settle(connection, batch, deadline)
        finally:
            connection.close()
        self.writer.unknown.discard(batch.session_id)
        return commit_rules.found_again(batch, *found, CommitStatus.RECONCILED) if found else None


class OpenFiles:
    """The open journal files of this process by device and inode."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[FileKey, OpenFile] = {}

    def enter(self, store: SqliteStore) -> OpenFile:
        """The open file of a description, opened if it is not yet; `leave` it when done."""
        opening = checked_opening(store)
        sqlite_files.make_private(opening.path)
        with self._lock:
            file = self._find(store, opening)
            file.references += 1
        try:
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
            file.stop()

    def is_open(self, key: FileKey) -> bool:
        """Whether this process has the file open."""
        with self._lock:
            return key in self._files

    def _find(self, store: SqliteStore, opening: Opening) -> OpenFile:
        key = sqlite_files.file_key(opening.path)
        file = self._files.get(key)
        if file is None:
            file = self._files[key] = OpenFile(store, opening, key)
        _check_shareable(file, store, opening)
        return file


def _check_shareable(file: OpenFile, store: SqliteStore, opening: Opening) -> None:
    if file.process_id != os.getpid():
        raise StoreUnsupported(
            file.name,
            "the file was open when this process was forked; SQLite cannot be "
            "used across a fork. Start the process anew (spawn) or close the store first.",
        )
    ours = (file.store.probe, file.clock, file.opening.journal_mode, file.opening.timeout_s)
    if ours != (store.probe, store.clock, opening.journal_mode, opening.timeout_s):
        raise InvalidOptions(
            "store",
            "the probe, clock, journal mode and timeout with which this process has the file open already",
            opening.path,
        )


_REGISTRY: Final = OpenFiles()


def is_open_here(key: FileKey) -> bool:
    """Whether this process has the journal file with this key open."""
    return _REGISTRY.is_open(key)


async def _in_thread(call: Callable[[], T]) -> T:
    # A limiter of its own: an application's blocked worker threads must not keep a store from closing.
    return await anyio.to_thread.run_sync(call, limiter=anyio.CapacityLimiter(1))

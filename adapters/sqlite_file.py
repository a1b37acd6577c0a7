"""One open journal file: its threads, and settling what they could not decide.

Imported by the registry. Journals of several owners in one process share it.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass

from adapters import sqlite_changes
from adapters.commit_signal import CommitSignal
from adapters.sqlite_connections import Opening, connect
from adapters.sqlite_driver import sqlite
from adapters.sqlite_errors import read_error
from adapters.sqlite_files import FileKey
from adapters.sqlite_jobs import ReadingThread
from adapters.sqlite_recorder import SqliteApplication
from adapters.sqlite_writer import SqliteWriter
from domain.errors import OutcomeUnknown, StoreFailure
from domain.ports import Batch, Clock, Probe, Receipt

#: A command's fingerprint and receipt; None: it is not there.
Found = tuple[bytes, Receipt] | None


@dataclass(frozen=True, slots=True)
class FileSettings:
    """What everybody who shares an open file has to agree on."""

    opening: Opening
    probe: Probe
    clock: Clock


class OtherCommits:
    """Notices that another connection has committed, and rings for everybody."""

    def __init__(self, signal: CommitSignal) -> None:
        self._signal = signal
        self._version: int | None = None

    def __call__(self, connection: sqlite.Connection) -> None:
        version = connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self._version = version
            self._signal.ring()


class OpenFile:
    """One open journal file: its writing thread, its reading thread, the library's application."""

    def __init__(self, settings: FileSettings, key: FileKey) -> None:
        self.key = key
        self.settings = settings
        self.opening = settings.opening
        self.clock = settings.clock
        #: What to call the store in a message.
        self.name = settings.opening.name
        self.process_id = os.getpid()
        self.references = 0
        self.signal = CommitSignal()
        self.application: SqliteApplication
        self.writer: SqliteWriter
        self.reader: ReadingThread[sqlite.Connection]
        self._starting = threading.Lock()
        self._started = False

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
                raise read_error(self.name, e) from (e.__cause__ or e)
            self.writer = SqliteWriter(pool, self.opening, self.clock, self.settings.probe, self.signal)
            self.reader = ReadingThread(
                lambda: connect(self.opening),
                self.name,
                self.opening.timeout_s,
                lambda: bool(self.signal),
                OtherCommits(self.signal),
            )
            self.writer.start()
            self.reader.start()
            self._started = True

    def stop(self) -> bool:
        """Finish what is queued and close every connection; False if the disk hangs."""
        if not self._started:
            return True
        if not all((self.writer.close(), self.reader.close())):
            return False
        self.application.close()
        return True

    def find(self, batch: Batch) -> Found:
        """Find out whether a batch is in the file, and make sure that it stays so. Blocks.

        Raises:
            OutcomeUnknown: still undecided.
        """
        if not self.writer.busy.acquire(timeout=self.opening.timeout_s):
            raise OutcomeUnknown(batch.session_id, "the commit is still under way; settle it later")
        try:
            return self._contend(batch)
        except (sqlite.Error, StoreFailure) as e:
            raise OutcomeUnknown(batch.session_id, f"the store does not answer ({e}); settle it later") from e
        finally:
            self.writer.busy.release()

    def _contend(self, batch: Batch) -> Found:
        connection = connect(self.opening)
        try:
            deadline = time.monotonic() + self.opening.timeout_s
            return sqlite_changes.settle(connection, batch, deadline)
        finally:
            connection.close()

"""One journal in PostgreSQL that this process has open: its threads, and settling.

Imported by the store. Everybody in this process who opens the same journal in the
same way shares it, so that many sessions need few connections.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Final

from adapters import postgres_changes
from adapters.commit_signal import CommitSignal
from adapters.postgres_connections import Line, Opening, check_journal
from adapters.postgres_errors import read_error
from adapters.postgres_listener import CommitEar, CommitNotifier
from adapters.postgres_threads import PostgresThreads, Unsettled
from domain.ports import Batch, Clock, Probe, Receipt


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """What everybody who shares an open journal has in common.

    Args:
        connections: how many threads write; half as many read.
        clock: a test's; None: the database's own.
    """

    opening: Opening
    connections: int
    probe: Probe
    clock: Clock | None


class OpenDatabase:
    """The threads of one open journal."""

    def __init__(self, settings: DatabaseSettings) -> None:
        self.settings = settings
        self.process_id = os.getpid()
        self.references = 0
        self.signal = CommitSignal()
        self.unsettled = Unsettled()
        opening = settings.opening
        self.notifier = CommitNotifier(opening)
        self.ear = CommitEar(opening, self.signal)
        self._first = Line(opening)
        self.writers = PostgresThreads(
            opening, settings.connections, self.unsettled, self._committed, self._first
        )
        reading = replace(opening, writes=False)
        self.readers = PostgresThreads(reading, max(1, settings.connections // 2), self.unsettled)
        self._starting = threading.Lock()
        self._started = False

    @property
    def opening(self) -> Opening:
        """How its connections are opened."""
        return self.settings.opening

    def start(self) -> None:
        """See that the journal is there, make it if it is not, and start; later calls find it done."""
        with self._starting:
            if self._started:
                return
            try:
                check_journal(self._first.opened(deadline=0.0), self.opening)
            except Exception as e:
                self._first.drop()
                raise read_error(self.opening.name, e) from (e.__cause__ or e)
            self.writers.start()
            self.readers.start()
            self._started = True

    def stop(self) -> None:
        """Finish what is queued and close every connection."""
        if self._started:
            self.writers.close()
            self.readers.close()
        self.notifier.close()
        self.ear.close()

    def find(self, batch: Batch) -> Receipt | None:
        """Find out whether a batch is there, and make sure that it stays so. Raises OutcomeUnknown."""
        backends = self.unsettled.backends(batch.session_id)
        return postgres_changes.settle(self.opening, batch, backends)

    def _committed(self, session_id: Hashable) -> None:
        self.signal.ring([str(session_id)])
        self.notifier.tell(session_id)


class OpenDatabases:
    """The journals that this process has open, counted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._databases: dict[Hashable, OpenDatabase] = {}

    def enter(self, settings: DatabaseSettings) -> OpenDatabase:
        """The open journal of these settings, opened if it is not yet; `leave` it when done."""
        with self._lock:
            database = self._databases.get(_key(settings))
            if database is None:
                database = self._databases[_key(settings)] = OpenDatabase(settings)
            database.references += 1
        try:
            database.start()
        except BaseException:
            self.leave(database)
            raise
        return database

    def leave(self, database: OpenDatabase) -> None:
        """Give a reference back; the last one closes the connections."""
        if database.process_id != os.getpid():
            return  # after a fork these are the parent's connections
        with self._lock:
            database.references -= 1
            last = database.references == 0
            if last:
                del self._databases[_key(database.settings)]
        if last:
            database.stop()


def _key(settings: DatabaseSettings) -> Hashable:
    # A clock and a probe are told apart by which they are; the open journal keeps them alive.
    return os.getpid(), settings.opening, settings.connections, id(settings.probe), id(settings.clock)


OPEN_DATABASES: Final = OpenDatabases()

"""The reading half of the journal port over a SQLite file that is only looked at.

For inspection, verification and export: it may be used on a journal whose
process crashed, and while another process writes to it. It never writes.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import anyio
import anyio.lowlevel

from adapters import lease_rules, sqlite_files, sqlite_rows
from adapters.lease_rules import Instant
from adapters.sqlite_driver import sqlite
from adapters.sqlite_files import FileKey
from adapters.sqlite_jobs import Job, ReadingThread, answered
from adapters.sqlite_view import SqliteView
from adapters.system import SystemClock, holder_is_dead
from adapters.threads import in_thread
from domain.envelope import Stored
from domain.limits import STORE_TIMEOUT_S
from domain.ports import Clock, LeaseRow, Receipt, SessionRow, Snapshot

T = TypeVar("T")

_HANGING: Final[list[SqliteView]] = []


class SqliteJournalReader:
    """`domain.ports.JournalReader` over a file. Made by `open_reader`."""

    def __init__(
        self, path: str, view: SqliteView, owner_id: str | None, timeout_s: float, clock: Clock
    ) -> None:
        self._path = path
        self._view = view
        self._owner_id = owner_id
        self._timeout_s = timeout_s
        self._clock = clock
        self._thread: ReadingThread[SqliteView] = ReadingThread(lambda: view, self.name, timeout_s)
        self._thread.start()

    @property
    def key(self) -> FileKey:
        """Which file it is, for whoever else has it open in this process."""
        return self._view.key

    @property
    def name(self) -> str:
        """What to call this store in a message."""
        return sqlite_files.store_name(self._path)

    async def session(self, session_id: str) -> SessionRow | None:
        """One session's row, or None. Raises Corrupt if it contradicts the last event."""
        return await self._look(lambda c: sqlite_rows.find_session(c, session_id, self._owner_id))

    async def sessions(self, *, after: str = "", limit: int = 100) -> Sequence[SessionRow]:
        """Session rows by id, those after `after`."""
        return await self._look(lambda c: sqlite_rows.list_sessions(c, self._owner_id, after, limit))

    async def read(
        self, session_id: str, *, after: int = 0, upto: int | None = None, limit: int = 256
    ) -> Sequence[Stored]:
        """Rows with `after < sequence <= upto`, in order, at most `limit`."""
        return await self._look(
            lambda c: sqlite_rows.read_events(c, self._owner_id, session_id, after, upto, limit)
        )

    async def snapshot(self, session_id: str, *, upto: int | None = None) -> Snapshot | None:
        """The latest snapshot at or before `upto`."""
        return await self._look(lambda c: sqlite_rows.find_snapshot(c, self._owner_id, session_id, upto))

    async def blob(self, digest: str) -> bytes | None:
        """A blob's bytes, or None."""
        return await self._look(lambda c: sqlite_rows.find_blob(c, digest))

    async def blobs(self, *, after: str = "", limit: int = 1000) -> Sequence[str]:
        """The digests of blobs, those after `after`."""
        return await self._look(lambda c: sqlite_rows.list_blobs(c, after, limit))

    async def command(self, session_id: str, command_id: str) -> tuple[bytes, Receipt] | None:
        """The fingerprint and receipt of a command that is in the journal, or None."""
        return await self._look(lambda c: sqlite_rows.find_command(c, self._owner_id, session_id, command_id))

    async def commands(
        self, session_id: str, command_ids: Sequence[str]
    ) -> Mapping[str, tuple[bytes, Receipt]]:
        """What `command` gives, for many commands at once; those that are there."""
        return await self._look(
            lambda c: sqlite_rows.find_commands(c, self._owner_id, session_id, command_ids)
        )

    async def lease_lives(self, lease: LeaseRow) -> bool:
        """Whether a lease holds now, by the store's clock: that of this host."""
        await anyio.lowlevel.checkpoint()
        return lease_rules.lives(lease, Instant.of(self._clock), holder_is_dead)

    async def damage(self) -> Sequence[str]:
        """What SQLite's own check of the whole file finds wrong; nothing if it is sound."""
        return await self._look(sqlite_rows.find_damage, math.inf)

    def close(self) -> None:
        """End the thread and let the file go. Blocks; call it from a worker thread."""
        if self._thread.close():
            self._view.let_go()
        else:
            _HANGING.append(self._view)  # collected, it would be closed, and hang whoever collects

    async def open(self) -> None:
        """See that there is a journal. It takes as long as it takes: a crashed one may have to be copied."""
        await self._look(lambda connection: None, math.inf)

    async def _look(self, read: Callable[[sqlite.Connection], T], limit_s: float | None = None) -> T:
        deadline = time.monotonic() + (self._timeout_s if limit_s is None else limit_s)
        job: Job[SqliteView, T] = Job(lambda view: view.look(read), deadline)
        self._thread.submit(job)
        return await answered(job, self.name)


@asynccontextmanager
async def open_reader(
    path: str | os.PathLike[str],
    *,
    owner_id: str | None = None,
    timeout_s: float = STORE_TIMEOUT_S,
    clock: Clock | None = None,
) -> AsyncIterator[SqliteJournalReader]:
    """Open a journal file to look at it. Not a byte of it or beside it is changed.

    Args:
        path: the file.
        owner_id: whose sessions to show; None: everybody's.
        timeout_s: how long to wait for a writer's lock.
        clock: the store's clock, by which leases run out; None: this host's.

    Raises:
        NotAJournal: missing, a directory, not SQLite, or another schema.
        NewerFormat: a newer version of this library wrote it.
        Corrupt: the file is damaged.
        StoreTimeout, StoreReadFailed: it could not be read now.
    """
    real = sqlite_files.resolved(path)
    view = await in_thread(lambda: SqliteView(real, timeout_s))
    reader = SqliteJournalReader(real, view, owner_id, timeout_s, clock or SystemClock())
    try:
        await reader.open()
        yield reader
    finally:
        with anyio.CancelScope(shield=True):
            await in_thread(reader.close)

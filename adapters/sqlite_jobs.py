"""Work that is handed to a store's threads, and the thread that reads.

Imported by the store and the offline reader. A job is a function of an open
connection; who waits for it is an `Answer`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from adapters.answers import Answer, wake
from adapters.sqlite_connections import until_free
from adapters.sqlite_driver import sqlite
from adapters.sqlite_errors import read_error

T = TypeVar("T")

#: How soon another process's commit is noticed while somebody subscribes.
POLL_S: Final = 0.025


@dataclass(slots=True, eq=False)
class Job(Generic[T]):
    """One piece of work: what to run, until when, and for whom.

    Args:
        run: does the work; refuses (with an error of ours) before it changes anything.
        deadline: a moment of `time.monotonic`; waiting for a lock ends there.
        session_id: whose work it is.
        appends: whether it appends events, so that an unknown outcome fences the session.
    """

    run: Callable[[sqlite.Connection], T]
    deadline: float
    session_id: str = ""
    appends: bool = False
    answer: Answer[T] = field(default_factory=Answer)
    _claimed: threading.Lock = field(default_factory=threading.Lock)

    def claim(self) -> bool:
        """True for the first caller only: the thread that does it, or the task that gave up on it."""
        return self._claimed.acquire(blocking=False)

    def expired(self, grace_s: float = 0.0) -> bool:
        """Whether its deadline passed `grace_s` seconds ago."""
        return time.monotonic() >= self.deadline + grace_s


class ReadingThread:
    """One thread with one connection that answers reads, and looks for other processes' commits.

    Args:
        open_connection: called in the thread, again after an error of the engine.
        name: what to call the store in a message.
        watched: whether anybody wants to know of other processes' commits.
        changed: called when another connection has committed.
    """

    def __init__(
        self,
        open_connection: Callable[[], sqlite.Connection],
        name: str,
        watched: Callable[[], bool] = lambda: False,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._open_connection = open_connection
        self._name = name
        self._watched = watched
        self._changed = changed
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._next_look = 0.0
        self._connection: sqlite.Connection | None = None
        self._version: int | None = None
        self._thread = threading.Thread(target=self._run, name=f"reads {name}", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def submit(self, job: Job[Any]) -> None:
        """Queue a read; its answer is woken when it is done."""
        self._work.put(lambda: self._answer(job))

    def nudge(self) -> None:
        """Look for other processes' commits, now and then again while anybody wants to know."""
        self._work.put(self._look)

    def close(self) -> None:
        """Answer what is queued, close the connection, end the thread."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        work: Callable[[], None] | None
        while True:
            try:
                work = self._work.get(timeout=self._time_to_look())
            except queue.Empty:
                work = self._look
            if work is None:
                break
            work()
        self._drop()

    def _time_to_look(self) -> float | None:
        return max(0.0, self._next_look - time.monotonic()) if self._watched() else None

    def _answer(self, job: Job[Any]) -> None:
        try:
            job.answer.put(until_free(lambda: job.run(self._opened()), job.deadline))
        except Exception as e:  # whatever went wrong belongs to the one who asked
            if isinstance(e, sqlite.Error):
                self._drop()
            job.answer.refuse(read_error(self._name, e))
        wake([job.answer])

    def _look(self) -> None:
        self._next_look = time.monotonic() + POLL_S
        try:
            version = self._opened().execute("PRAGMA data_version").fetchone()[0]
        except sqlite.Error:
            return  # locked, or broken: a read will say so
        if version != self._version:
            self._version = version
            self._changed()

    def _opened(self) -> sqlite.Connection:
        if self._connection is None:
            self._connection = self._open_connection()
        return self._connection

    def _drop(self) -> None:
        connection, self._connection, self._version = self._connection, None, None
        if connection is not None:
            connection.close()

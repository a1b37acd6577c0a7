"""Work that is handed to a store's threads, and the thread that reads.

Imported by the store and the offline reader. A job is a function of what the
thread has open; who waits for it is an `Answer`.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from adapters.answers import Answer, wake
from adapters.sqlite_connections import until_free
from adapters.sqlite_driver import sqlite
from adapters.sqlite_errors import read_error
from domain.errors import StoreReadFailed, StoreTimeout

T = TypeVar("T")


class Source(Protocol):
    """What a reading thread has open."""

    def close(self) -> None:
        """Close it; it is opened again for the next job."""


S = TypeVar("S", bound=Source)
W = TypeVar("W")

#: How soon another process's commit is noticed while somebody subscribes.
POLL_S: Final = 0.025
#: How long after its deadline a caller gets an answer although the disk gave none.
GRACE_S: Final = 0.5


@dataclass(slots=True, eq=False)
class Job(Generic[W, T]):
    """One piece of work: what to run, until when, and for whom.

    Args:
        run: does the work; refuses (with an error of ours) before it changes anything.
        deadline: a moment of `time.monotonic`; waiting for a lock ends there. Infinite: a read that
            may take as long as it takes.
        session_id: whose work it is.
        appends: whether it appends events, so that an unknown outcome fences the session.
    """

    run: Callable[[W], T]
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


async def answered(job: Job[Any, T], name: str) -> T:
    """What a reading thread answers.

    Raises:
        StoreTimeout: it has not in time: the disk hangs, or another read does.
    """
    if math.isinf(job.deadline):
        return await job.answer.wait()
    late = StoreTimeout(name, "the disk has not answered in time; ask again")
    return await job.answer.within(job.deadline + GRACE_S - time.monotonic(), late)


class ReadingThread(Generic[S]):
    """One thread that answers reads, and looks about from time to time.

    Args:
        open_source: called in the thread, again after an error of the engine.
        name: what to call the store in a message.
        timeout_s: how long a lock is waited for, and how long looking about may take.
        watched: whether to look about.
        look_about: called every `POLL_S` seconds while watched.
    """

    def __init__(
        self,
        open_source: Callable[[], S],
        name: str,
        timeout_s: float,
        watched: Callable[[], bool] = lambda: False,
        look_about: Callable[[S], None] = lambda source: None,
    ) -> None:
        self._open_source = open_source
        self._name = name
        self._timeout_s = timeout_s
        self._watched = watched
        self._look_about = look_about
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._door = threading.Lock()
        self._closed = False
        self._next_look = 0.0
        self._source: S | None = None
        self._until = math.inf
        self._thread = threading.Thread(target=self._run, name=f"reads {name}", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def submit(self, job: Job[S, Any]) -> None:
        """Queue a read; its answer is woken when it is done."""
        with self._door:
            if not self._closed:
                self._work.put(lambda: self._answer(job))
                return
        job.answer.refuse(StoreReadFailed(self._name, "the store is closed"))
        wake([job.answer])

    def nudge(self) -> None:
        """Look about now, and then again for as long as it is watched."""
        self._work.put(self._look)

    def close(self) -> bool:
        """Answer what is queued, close what is open, end the thread.

        Returns:
            False if the disk does not answer; then the thread and what it has open are left alone.
        """
        with self._door:
            self._closed = True
            self._work.put(None)
        while self._thread.is_alive():
            if time.monotonic() >= self._until + GRACE_S:
                return False
            self._thread.join(POLL_S)
        return True

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
            self._until = math.inf
        self._drop()

    def _time_to_look(self) -> float | None:
        return max(0.0, self._next_look - time.monotonic()) if self._watched() else None

    def _answer(self, job: Job[S, Any]) -> None:
        if job.answer.done:  # nobody waits for it any more
            return
        self._until = job.deadline
        free_by = min(job.deadline, time.monotonic() + self._timeout_s)  # a lock is never waited for longer
        try:
            job.answer.put(until_free(lambda: job.run(self._opened()), free_by))
        except Exception as e:  # whatever went wrong belongs to the one who asked
            if isinstance(e, sqlite.Error):
                self._drop()
            job.answer.refuse(read_error(self._name, e))
        wake([job.answer])

    def _look(self) -> None:
        self._next_look = time.monotonic() + POLL_S
        self._until = time.monotonic() + self._timeout_s
        try:
            self._look_about(self._opened())
        except Exception:  # locked, or broken: a read will say so
            return

    def _opened(self) -> S:
        if self._source is None:
            self._source = self._open_source()
        return self._source

    def _drop(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()

"""Threads that do a PostgreSQL store's work, each with a connection of its own.

Imported by the store and the reader. What concerns one session is done in the order
in which it was asked, one thing at a time; sessions do not wait for each other. What
a failure means is decided here: not written, or unknown.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from adapters.answers import Answer, wake
from adapters.postgres_connections import PAUSE_S, Backend, Line, Opening
from adapters.postgres_driver import Connection
from adapters.postgres_errors import is_passing, read_error, text_of, was_refused, write_error
from domain.errors import MinutebookError, OutcomeUnknown, StoreReadFailed, StoreTimeout, StoreWriteFailed

T = TypeVar("T")

#: How long after its deadline a caller gets an answer although the server gave none.
GRACE_S: Final = 0.5
#: How often the watch looks for such callers.
TICK_S: Final = 0.25


@dataclass(slots=True, eq=False)
class Job(Generic[T]):
    """One piece of work: what to run, until when, and for whom.

    Args:
        run: does the work on a connection.
        deadline: a moment of `time.monotonic`.
        key: what has to be done in order; a session's id, or anything for what stands alone.
        appends: a commit, done once and never again by itself. Everything else may be repeated.
        reads: whether it changes nothing.
    """

    run: Callable[[Connection], T]
    deadline: float
    key: Hashable
    appends: bool = False
    reads: bool = False
    answer: Answer[T] = field(default_factory=Answer)
    line: Line | None = None
    _begun: threading.Lock = field(default_factory=threading.Lock)
    _told: threading.Lock = field(default_factory=threading.Lock)

    def claim(self) -> bool:
        """True for the first caller only: the thread that is about to ask the server, or the
        watch that gives up on it."""
        return self._begun.acquire(blocking=False)

    def may_tell(self) -> bool:
        """True for the first caller only: who says what came of it."""
        return self._told.acquire(blocking=False)

    def expired(self, grace_s: float = 0.0) -> bool:
        """Whether its deadline passed `grace_s` seconds ago."""
        return time.monotonic() >= self.deadline + grace_s


AnyJob = Job[Any]


class Unsettled:
    """The sessions whose last commit has an unknown outcome, and who was asked to commit it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[Hashable, set[Backend]] = {}

    def __contains__(self, session_id: Hashable) -> bool:
        return session_id in self._sessions

    def add(self, session_id: Hashable, backend: Backend | None) -> None:
        """Fence a session."""
        with self._lock:
            self._sessions.setdefault(session_id, set()).update([backend] if backend else [])

    def backends(self, session_id: Hashable) -> tuple[Backend, ...]:
        """The server processes that may still be at it."""
        with self._lock:
            return tuple(self._sessions.get(session_id, ()))

    def of(self, session_id: Hashable) -> object | None:
        """What tells a session's unknown outcome from a later one; None: none is unknown."""
        return self._sessions.get(session_id)

    def discard(self, session_id: Hashable, unknown: object | None) -> None:
        """It is settled, unless another outcome has become unknown since."""
        with self._lock:
            if unknown is not None and self._sessions.get(session_id) is unknown:
                del self._sessions[session_id]


@dataclass(slots=True, eq=False)
class _Worker:
    """One thread's connection, and what it is to work for next; None: to go home."""

    line: Line
    turn: queue.SimpleQueue[Hashable | None] = field(default_factory=queue.SimpleQueue)


class PostgresThreads:
    """Some threads with a connection each, and a watch over them.

    Whoever was idle last works next, so that one session keeps to one connection and to
    what is prepared on it. Others connect when there is more to do at once.

    Args:
        opening: how they connect, each when it is first needed.
        count: how many.
        unsettled: sessions to refuse commits for; added to.
        first: a connection that is open already, for one of them.
        committed: called with a session's id after a commit of its, before the caller knows.
    """

    def __init__(
        self,
        opening: Opening,
        count: int,
        unsettled: Unsettled,
        committed: Callable[[Hashable], None] = lambda session_id: None,
        first: Line | None = None,
    ) -> None:
        self._opening = opening
        self._name = opening.name
        self._unsettled = unsettled
        self._committed = committed
        self._door = threading.Lock()
        self._waiting: dict[Hashable, deque[AnyJob]] = {}
        self._ready: deque[Hashable] = deque()
        self._open_jobs: set[AnyJob] = set()
        self._closed = False
        self._ended = threading.Event()
        lines = [first or Line(opening), *(Line(opening) for _ in range(count - 1))]
        self._workers = [_Worker(line) for line in lines]
        self._idle = self._workers[::-1]
        self._threads = [
            threading.Thread(target=self._run, args=(worker,), name=f"works on {self._name}", daemon=True)
            for worker in self._workers
        ]
        self._watch = threading.Thread(target=self._watch_over, name=f"watches {self._name}", daemon=True)

    def start(self) -> None:
        """Begin to work. Nothing is connected yet."""
        for thread in (*self._threads, self._watch):
            thread.start()

    def submit(self, job: AnyJob) -> None:
        """Queue a job; its answer is woken when it is done or refused."""
        with self._door:
            if not self._closed:
                self._open_jobs.add(job)
                waiting = self._waiting.setdefault(job.key, deque())
                waiting.append(job)
                if len(waiting) == 1:
                    self._give_out(job.key)
                return
        self._refuse(job, self._closed_error(job))
        self._wake(job)

    def close(self) -> None:
        """Do what is queued, close the connections, end the threads. What hangs is cut off."""
        with self._door:
            self._closed = True
            idle = not self._waiting
        if idle:
            self._send_home()
        for thread in self._threads:
            thread.join(self._opening.timeout_s + 4 * GRACE_S)
        self._ended.set()
        self._watch.join()

    def _give_out(self, key: Hashable) -> None:
        """Let somebody work for a session. The door is held."""
        if self._idle:
            self._idle.pop().turn.put(key)
        else:
            self._ready.append(key)

    def _send_home(self) -> None:
        for worker in self._workers:
            worker.turn.put(None)

    # --- one thread -------------------------------------------------------------------

    def _run(self, worker: _Worker) -> None:
        while (key := worker.turn.get()) is not None:
            job = self._waiting[key][0]
            self._carry_out(job, worker.line)
            self._finished(key, job, worker)
            # Only now, or who is woken would find this thread busy and open another connection.
            self._wake(job)
        worker.line.drop()

    def _finished(self, key: Hashable, job: AnyJob, worker: _Worker) -> None:
        with self._door:
            waiting = self._waiting[key]
            waiting.popleft()
            self._open_jobs.discard(job)
            if waiting:
                self._ready.append(key)
            else:
                del self._waiting[key]
            if self._ready:
                worker.turn.put(self._ready.popleft())
            else:
                self._idle.append(worker)
            last = self._closed and not self._waiting
        if last:
            self._send_home()

    def _carry_out(self, job: AnyJob, line: Line) -> None:
        job.line = line
        if job.appends and job.key in self._unsettled:
            told = "an earlier commit's outcome is unknown; settle it first"
            self._refuse(job, OutcomeUnknown(str(job.key), told))
            return
        connection = self._connection(job, line)
        if connection is not None and job.claim():
            self._ask(job, line, connection)

    def _connection(self, job: AnyJob, line: Line) -> Connection | None:
        try:
            return line.opened(job.deadline)
        except Exception as e:  # whatever it was: nothing has been asked of the server
            self._refuse(job, self._error(job, e))
            return None

    def _ask(self, job: AnyJob, line: Line, connection: Connection | None) -> None:
        while connection is not None:
            try:
                value = job.run(connection)
            except Exception as e:
                if not self._may_repeat(job, line, e):
                    return
                time.sleep(PAUSE_S)  # a server that ends every connection is not to be stormed
                connection = self._connection(job, line)
            else:
                self._done(job, value)
                return

    def _done(self, job: AnyJob, value: object) -> None:
        if job.may_tell():
            if job.appends:
                self._committed(job.key)
            job.answer.put(value)

    def _may_repeat(self, job: AnyJob, line: Line, error: Exception) -> bool:
        """Whether a failed job is to be run again, on a new connection; otherwise it is answered."""
        backend = line.backend
        line.drop_if_odd()
        if isinstance(error, MinutebookError) or was_refused(error):
            self._refuse(job, self._error(job, error))
            return False
        line.drop()  # from here on this connection cannot bring a commit about
        if job.appends:
            self._unknown(job, backend, error)
            return False
        if is_passing(error) and not job.expired() and not job.answer.done:
            return True
        self._refuse(job, self._error(job, error))
        return False

    # --- how it ended -----------------------------------------------------------------

    def _refuse(self, job: AnyJob, error: MinutebookError) -> None:
        if job.may_tell():
            job.answer.refuse(error)

    def _unknown(self, job: AnyJob, backend: Backend | None, error: Exception | None) -> None:
        if not job.may_tell():
            return
        self._unsettled.add(job.key, backend)
        what = f"the commit may have happened ({text_of(error)})" if error else "the server has not answered"
        refusal = OutcomeUnknown(str(job.key), f"{what}; settle it")
        refusal.__cause__ = error
        job.answer.refuse(refusal)

    def _wake(self, job: AnyJob) -> None:
        if job.answer.done:  # or somebody is about to fill it, and wakes then
            wake([job.answer])

    def _error(self, job: AnyJob, error: Exception) -> MinutebookError:
        if is_passing(error):
            what = "" if job.reads else "; nothing was written"
            refusal = StoreTimeout(self._name, f"the server was away all the time{what} ({text_of(error)})")
            refusal.__cause__ = error
            return refusal
        return read_error(self._name, error) if job.reads else write_error(self._name, error)

    def _closed_error(self, job: AnyJob) -> MinutebookError:
        if job.reads:
            return StoreReadFailed(self._name, "the store is closed")
        return StoreWriteFailed(self._name, "nothing was written: the store is closed")

    # --- a server that hangs ----------------------------------------------------------

    def _watch_over(self) -> None:
        while not self._ended.wait(TICK_S):
            with self._door:
                overdue = [job for job in self._open_jobs if job.expired(GRACE_S)]
            for job in overdue:
                self._give_up(job)

    def _give_up(self, job: AnyJob) -> None:
        line = job.line
        if job.claim():
            self._refuse(job, StoreTimeout(self._name, "it was busy all the time; nothing was written"))
        elif job.appends:
            self._unknown(job, line.backend if line else None, None)
        else:
            self._refuse(job, StoreTimeout(self._name, "the server has not answered in time; ask again"))
        self._wake(job)
        with self._door:  # nobody else's work is on that connection while this job is open
            if line is not None and job in self._open_jobs:
                line.cut()

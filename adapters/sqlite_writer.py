"""The one thread that writes to a journal file, in the order in which it was asked.

Imported by the store. Everything that waits in the queue shares one
transaction and one COMMIT; nothing waits for company. What a failure means is
decided here: not written, or unknown.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from typing import Any, Final

from adapters import sqlite_schema
from adapters.answers import wake
from adapters.commit_signal import CommitSignal
from adapters.lease_rules import Instant
from adapters.sqlite_changes import Changes
from adapters.sqlite_connections import Opening
from adapters.sqlite_driver import FULL, is_busy, primary_code, sqlite
from adapters.sqlite_errors import write_error
from adapters.sqlite_jobs import GRACE_S, Job
from adapters.sqlite_pool import SqliteConnection, SqliteConnectionPool
from domain.errors import MinutebookError, OutcomeUnknown, StoreTimeout, StoreUnsupported, StoreWriteFailed
from domain.ports import Clock, Probe

WriteJob = Job[Changes, Any]
Jobs = Sequence[WriteJob]

#: How often the watch looks for callers whose time is over.
TICK_S: Final = 0.25


class SqliteWriter:
    """The writing thread of one store.

    `unknown` holds the sessions whose last commit has an unknown outcome; they
    are refused. What stands beside one tells that outcome from a later one.
    `busy` is held while a group is carried out: who holds it knows that nothing
    is under way.

    Args:
        pool: gives the connection; a broken one goes back closed.
        opening: how the file is opened.
        clock: read once for each group.
        probe: called around the COMMIT of a group that appends events.
        signal: rung after it.
    """

    def __init__(
        self,
        pool: SqliteConnectionPool,
        opening: Opening,
        clock: Clock,
        probe: Probe,
        signal: CommitSignal,
    ) -> None:
        self.unknown: dict[str, object] = {}
        self.busy = threading.Lock()
        self._pool = pool
        self._name = name = opening.name
        self._journal_mode = opening.journal_mode
        self._timeout_s = opening.timeout_s
        self._clock = clock
        self._probe = probe
        self._signal = signal
        self._jobs: queue.SimpleQueue[WriteJob | None] = queue.SimpleQueue()
        self._open_jobs: set[WriteJob] = set()
        self._door = threading.Lock()
        self._closed = False
        self._stopping = False
        self._ended = threading.Event()
        self._connection: SqliteConnection | None = None
        self._thread = threading.Thread(target=self._run, name=f"writes {name}", daemon=True)
        self._watch = threading.Thread(target=self._watch_over, name=f"watches {name}", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()
        self._watch.start()

    def submit(self, job: WriteJob) -> None:
        """Queue a change; its answer is woken when it is durable or refused."""
        with self._door:
            if not self._closed:
                self._open_jobs.add(job)
                self._jobs.put(job)
                return
        job.answer.refuse(StoreWriteFailed(self._name, "nothing was written: the store is closed"))
        wake([job.answer])

    def settled(self, session_id: str, unknown: object | None) -> None:
        """Take a session's events again, unless another outcome has become unknown since."""
        if unknown is not None and self.unknown.get(session_id) is unknown:
            del self.unknown[session_id]

    def close(self) -> bool:
        """Write what is queued, close the connection, end the threads.

        Returns:
            False if the disk does not answer; then the threads and the connection are left alone.
        """
        with self._door:
            self._closed = True
            self._jobs.put(None)
        self._thread.join(self._timeout_s + 2 * GRACE_S)
        if self._thread.is_alive():
            return False
        self._ended.set()
        self._watch.join()
        return True

    def _run(self) -> None:
        while not self._stopping:
            first = self._jobs.get()
            with self.busy:
                jobs = self._queued_from(first)
                self._carry_out([job for job in jobs if job.claim()])
                self._open_jobs.difference_update(jobs)
        self._drop_connection()

    def _queued_from(self, first: WriteJob | None) -> list[WriteJob]:
        jobs: list[WriteJob] = []
        job = first
        while job is not None:
            jobs.append(job)
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return jobs
        self._stopping = True
        return jobs

    # --- one group ------------------------------------------------------------------

    def _carry_out(self, jobs: Jobs) -> None:
        while jobs:
            jobs = self._attempt(jobs)

    def _attempt(self, jobs: Jobs) -> Jobs:
        """Try a group once; what has to be tried again."""
        try:
            raw = self._opened().raw
            self._begin(raw)
            changes = Changes(raw, Instant.of(self._clock), self._name)
            outcomes = [self._outcome(changes, job) for job in jobs]
            changes.write()
            if changes.appends:
                self._probe("before_commit")
        except Exception as e:  # whatever it was: there has been no COMMIT
            return self._not_written(jobs, e)
        try:
            self._commit(raw, jobs)
            if changes.appends:
                self._probe("after_commit")
        except Exception as e:
            if is_busy(e) or primary_code(e) == FULL:
                return self._not_written(jobs, e)
            self._unknown(jobs, e)
            return ()
        self._written(jobs, outcomes)
        return ()

    def _begin(self, raw: sqlite.Connection) -> None:
        raw.execute("BEGIN IMMEDIATE")
        sqlite_schema.check_still(raw, self._name)
        if self._journal_mode == "wal":
            return
        # A WAL is avoided where this SQLite may corrupt it; another program can switch one on.
        mode = raw.execute("PRAGMA journal_mode").fetchone()[0]
        if mode != self._journal_mode:
            raise StoreUnsupported(
                self._name,
                f"expected journal_mode {self._journal_mode}, found {mode}: another program has switched it. "
                "Nothing was written; close that program, or give both the same SQLite.",
            )

    def _outcome(self, changes: Changes, job: WriteJob) -> Any:
        """What a job gives; a refusal (an error of ours) comes back as a value."""
        if job.appends and job.session_id in self.unknown:
            return OutcomeUnknown(job.session_id, "an earlier commit's outcome is unknown; settle it first")
        try:
            return job.run(changes)
        except MinutebookError as e:
            return e

    def _commit(self, raw: sqlite.Connection, jobs: Jobs) -> None:
        while True:
            try:
                raw.execute("COMMIT")
                return
            except sqlite.Error as e:
                if not is_busy(e) or any(job.expired() for job in jobs):
                    raise

    # --- how it ended ----------------------------------------------------------------

    def _written(self, jobs: Jobs, outcomes: Sequence[Any]) -> None:
        for job, outcome in zip(jobs, outcomes, strict=True):
            if isinstance(outcome, MinutebookError):
                job.answer.refuse(outcome)
            else:
                job.answer.put(outcome)
        wake(job.answer for job in jobs)
        if self._signal:
            self._signal.ring({job.session_id for job in jobs if job.appends})

    def _not_written(self, jobs: Jobs, error: Exception) -> Jobs:
        if not self._rolled_back():
            self._unknown(jobs, error)
            return ()
        if is_busy(error):
            self._refuse([job for job in jobs if job.expired()], error)
            return [job for job in jobs if not job.expired() and not job.answer.done]
        if len(jobs) > 1:  # one of them may be the reason: it must not take the others with it
            for job in jobs:
                self._carry_out([job])
            return ()
        self._refuse(jobs, error)
        return ()

    def _refuse(self, jobs: Jobs, error: Exception) -> None:
        for job in jobs:
            job.answer.refuse(write_error(self._name, error))
        wake(job.answer for job in jobs)

    def _unknown(self, jobs: Jobs, error: Exception) -> None:
        # Closed first: from here on this handle cannot bring the commit about.
        self._drop_connection()
        for job in jobs:
            self._fence(job)
            refusal = OutcomeUnknown(job.session_id, f"the commit may have happened ({error}); settle it")
            refusal.__cause__ = error
            job.answer.refuse(refusal)
        wake(job.answer for job in jobs)

    def _rolled_back(self) -> bool:
        if self._connection is None:
            return True
        try:
            if self._connection.raw.in_transaction:
                self._connection.raw.execute("ROLLBACK")
        except sqlite.Error:
            return False
        return True

    # --- a disk that hangs -----------------------------------------------------------

    def _watch_over(self) -> None:
        while not self._ended.wait(TICK_S):
            overdue = [job for job in list(self._open_jobs) if job.expired(GRACE_S) and not job.answer.done]
            for job in overdue:
                job.answer.refuse(self._overdue(job))
            wake(job.answer for job in overdue)

    def _overdue(self, job: WriteJob) -> MinutebookError:
        if job.claim():
            return StoreTimeout(
                self._name, "the store was busy all the time; nothing was written. Try again."
            )
        self._fence(job)
        return OutcomeUnknown(job.session_id, "the store has not answered in time; settle it")

    def _fence(self, job: WriteJob) -> None:
        if job.appends:  # it may be told twice of one commit: given up on, and failed later
            self.unknown.setdefault(job.session_id, object())

    # --- the connection --------------------------------------------------------------

    def _opened(self) -> SqliteConnection:
        if self._connection is None:
            self._connection = self._pool.get_connection()
        return self._connection

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        connection.close()
        self._pool.put_connection(connection)

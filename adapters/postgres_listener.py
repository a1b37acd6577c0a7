"""Telling other processes of a commit, and hearing of theirs: NOTIFY and LISTEN.

Imported by the open database. Neither carries events, and neither is needed for
anything to be right: who is told reads the store again, and who is not told looks
every second. A commit never waits for it: NOTIFY inside a commit would let only one
commit of the whole database reach the disk at a time.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Hashable
from dataclasses import replace
from typing import Final

import psycopg

from adapters.commit_signal import CommitSignal
from adapters.postgres_connections import Opening, connect
from adapters.postgres_driver import Connection, texts
from adapters.postgres_rows import keepable
from adapters.postgres_schema import EVENTS_TABLE
from domain.errors import MinutebookError

#: How soon another process's commit is noticed without a notification.
POLL_S: Final = 1.0
#: How soon while there is no connection that listens.
_RETRY_S: Final = 0.1
#: How much later than the one before it a commit is told at the soonest; those meanwhile go together.
_BREATH_S: Final = 0.005
_MAX_JOIN_S: Final = 1.0

_NOTIFY: Final = b"SELECT pg_notify(%(channel)s::text, x) FROM unnest(%(sessions)s::text[]) AS x"
_REACHED: Final = (
    "SELECT session_id, sequence FROM {s}.minutebook_sessions WHERE session_id = ANY(%(sessions)s::text[])"
)
_UNHURRIED: Final = b"SET synchronous_commit = off"


def channel_of(schema: str) -> str:
    """The name under which commits to a schema are told; notifications know no schemas."""
    return f"{schema}.{EVENTS_TABLE}"[:63]


class CommitNotifier:
    """Tells other processes which sessions have new events. What piles up is told together."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._lock = threading.Condition()
        self._sessions: set[Hashable] = set()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def tell(self, session_id: Hashable) -> None:
        """Tell of a commit, soon. Never waits, never fails."""
        with self._lock:
            self._sessions.add(session_id)
            if self._thread is None and not self._closed.is_set():
                thread = threading.Thread(target=self._run, name="notifies", daemon=True)
                with contextlib.suppress(RuntimeError):  # no thread to be had: they look by themselves
                    thread.start()
                    self._thread = thread
            self._lock.notify()

    def close(self) -> None:
        """Tell what is left, and end."""
        with self._lock:
            self._closed.set()
            self._lock.notify()
            thread = self._thread
        if thread is not None:
            thread.join(_MAX_JOIN_S)

    def _run(self) -> None:
        connection: Connection | None = None
        while sessions := self._next():
            try:
                if connection is None:
                    connection = connect(self._opening)
                    connection.execute(_UNHURRIED)
                channel = channel_of(self._opening.schema)
                connection.ask(_NOTIFY, {"channel": channel, "sessions": texts(sessions)})
            except (psycopg.Error, MinutebookError):  # they look by themselves
                if connection is not None:
                    connection.close()
                connection = None
            self._closed.wait(_BREATH_S)
        if connection is not None:
            connection.close()

    def _next(self) -> list[str]:
        with self._lock:
            while not self._sessions and not self._closed.is_set():
                self._lock.wait()
            told = [str(session_id) for session_id in self._sessions]
            self._sessions.clear()
            return told


class CommitEar:
    """Hears of other processes' commits while somebody subscribes, and rings for them."""

    def __init__(self, opening: Opening, signal: CommitSignal) -> None:
        self._opening = replace(opening, writes=False)
        self._signal = signal
        self._door = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake_read, self._wake_write = os.pipe()
        self._closed = False
        self._seen: dict[str, int] = {}

    def nudge(self) -> None:
        """Begin to listen, if nobody did yet."""
        with self._door:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="listens", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        with self._door:
            self._closed = True
            thread = self._thread
        os.write(self._wake_write, b".")
        if thread is not None:
            thread.join(_MAX_JOIN_S)
            if thread.is_alive():
                return  # it waits for a server; its end of the pipe is still in use
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _run(self) -> None:
        while not self._closed:
            try:
                connection = connect(self._opening)
                try:
                    self._listen(connection)
                finally:
                    connection.close()
            except MinutebookError:  # it will hardly be otherwise in a moment
                self._wait(None, POLL_S)
            except (psycopg.Error, OSError):
                self._wait(None, _RETRY_S)

    def _listen(self, connection: Connection) -> None:
        connection.execute(f'LISTEN "{channel_of(self._opening.schema)}"'.encode())
        self._signal.ring()  # for what was committed while nobody listened
        while not self._closed:
            self._wait(connection, POLL_S)
            self._look(connection)
            self._signal.ring(_told(connection))

    def _look(self, connection: Connection) -> None:
        """Ring for sessions with anything new that we were not told of.

        The last position of all events would not show it: a lower one may be committed later.
        """
        listening = sorted(each for each in self._signal.session_ids() if keepable(each))
        if not listening:
            return
        asked = _REACHED.format(s=self._opening.schema).encode()
        rows = connection.ask(asked, {"sessions": texts(listening)})
        reached = {row["session_id"]: row["sequence"] for row in rows}
        self._signal.ring({each for each in reached if reached[each] != self._seen.get(each)})
        self._seen = reached

    def _wait(self, connection: Connection | None, timeout_s: float) -> None:
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        if connection is not None:
            poll.register(connection.fileno(), select.POLLIN)
        poll.poll(timeout_s * 1000)


def _told(connection: Connection) -> set[str]:
    """The sessions that notifications name; those too that came with the answer to a look."""
    connection.pgconn.consume_input()
    return {note.extra.decode() for note in iter(connection.pgconn.notifies, None)}

"""Ways to die or to fail at a chosen place, and the cut that makes every place one of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from itertools import count
from typing import Any

from adapters import sqlite_rows
from adapters.sqlite_driver import FULL, IO_ERROR, sqlite
from domain import catalogue
from domain.envelope import Recorded
from minutebook import loop
from minutebook.testing.crash import NEVER, KillAt, Tell
from tests.crash.script import SESSION


def label(event: Recorded) -> str:
    """An event's type and what it is about."""
    data = event.data
    of_input = [data.input_id] if hasattr(data, "input_id") else list(getattr(data, "input_ids", ()))
    about = event.tool_id or event.model_attempt_id or event.turn_id
    if about is None:
        about = of_input[0] if event.type.startswith("input_") else event.request_id
    return f"{event.type} {about or ''}".rstrip()


def last_event(journal: str) -> str:
    """The label of the last event in the file; empty if there is none."""
    connection = sqlite.connect(journal)
    try:
        connection.row_factory = sqlite.Row
        if not connection.execute("SELECT 1 FROM sqlite_master").fetchall():
            return ""
        row = sqlite_rows.find_session(connection, SESSION, None)
        if row is None:
            return ""
        rows = sqlite_rows.read_events(connection, None, SESSION, row.sequence - 1, None, 1)
        return label(catalogue.open_stored(rows[0]))
    finally:
        connection.close()


class KillAfter(KillAt):
    """Kills its process when a commit that ends with a certain event is durable."""

    def __init__(self, event: str, journal: str, tell: Tell, let_run: Callable[[], None]) -> None:
        super().__init__(NEVER, tell, let_run)
        self._event, self._journal = event, journal

    def is_due(self, point: str) -> bool:
        return point == "after_commit" and last_event(self._journal) == self._event


def dying_connection(after: str, statement: int, journal: str, tell: Tell) -> type[sqlite.Connection]:
    """A connection that kills its process before a statement of a transaction.

    Args:
        after: the last event in the file when the transaction begins; "" for all transactions
            of the process, one after the other.
        statement: which of their statements, from 1; BEGIN and COMMIT are statements.
    """
    counted = count(1)

    class DyingConnection(sqlite.Connection):
        counts = False

        def execute(self, sql: str, *arguments: Any) -> Any:
            if sql == "BEGIN IMMEDIATE":
                self.counts = not after or last_event(journal) == after
            self._pass(sql)
            return super().execute(sql, *arguments)

        def executemany(self, sql: str, *arguments: Any) -> Any:
            self._pass(sql)
            return super().executemany(sql, *arguments)

        def _pass(self, sql: str) -> None:
            if self.counts and next(counted) == statement:
                tell(killed=statement, point=sql[:40])
                os.kill(os.getpid(), signal.SIGKILL)
            self.counts = self.counts and sql != "COMMIT"

    return DyingConnection


def failing_connection(number: int, how: str) -> type[sqlite.Connection]:
    """A connection whose process cannot carry out one COMMIT of events.

    Args:
        number: which of those COMMITs of the process, from 1.
        how: "full" (the disk is), "unanswered" (it happens, and the error says otherwise) or
            "undone" (it does not happen, and the error does not say so).
    """
    commits = count(1)

    class FailingConnection(sqlite.Connection):
        has_events = False

        def executemany(self, sql: str, *arguments: Any) -> Any:
            self.has_events = True
            return super().executemany(sql, *arguments)

        def execute(self, sql: str, *arguments: Any) -> Any:
            due = sql == "COMMIT" and self.has_events and next(commits) == number
            self.has_events = self.has_events and sql != "COMMIT"
            if not due:
                return super().execute(sql, *arguments)
            if how != "full":
                super().execute("COMMIT" if how == "unanswered" else "ROLLBACK")
            error = sqlite.OperationalError(f"made up: {how}")
            error.sqlite_errorcode = FULL if how == "full" else IO_ERROR
            raise error

    return FailingConnection


def cut_finely() -> None:
    """Let the loop of this process put one step into each commit.

    The same loop, rules and store; but every frontier between two steps becomes a
    place where the journal may end, also those that a loop with room never shows.
    """
    assert callable(loop._room)
    loop._room = lambda entry, needed=0: not entry.events

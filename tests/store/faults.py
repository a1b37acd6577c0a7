"""Connections that fail on demand: at the n-th statement, once or from then on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adapters.sqlite_driver import BUSY, CORRUPT, FULL, IO_ERROR, sqlite

NAMES = {BUSY: "SQLITE_BUSY", CORRUPT: "SQLITE_CORRUPT", FULL: "SQLITE_FULL", IO_ERROR: "SQLITE_IOERR"}


@dataclass(slots=True)
class Faults:
    """What goes wrong next; shared by all connections made by one class.

    Args:
        at: the statement that fails, counted from 1 when armed; 0: none.
        code: SQLite's result code.
        sticky: whether every later statement fails too.
        after: whether the statement is carried out before it is reported as failed.
        only: fail statements that begin like this, and count no others.
    """

    at: int = 0
    code: int = IO_ERROR
    sticky: bool = False
    after: bool = False
    only: str = ""
    seen: int = 0
    failed: int = 0

    def arm(
        self, at: int, code: int = IO_ERROR, *, sticky: bool = False, after: bool = False, only: str = ""
    ) -> None:
        """Begin to count."""
        self.at, self.code, self.sticky, self.after, self.only = at, code, sticky, after, only
        self.seen = self.failed = 0

    def disarm(self) -> None:
        """Nothing fails any more."""
        self.at = 0

    def due(self, statement: str) -> bool:
        """Whether this statement fails."""
        if not self.at or not statement.startswith(self.only):
            return False
        self.seen += 1
        due = self.seen == self.at or (self.sticky and self.seen > self.at)
        self.failed += due
        return due

    def error(self) -> Exception:
        """The error as the driver would raise it."""
        error = sqlite.OperationalError(f"injected {NAMES[self.code]}")
        error.sqlite_errorcode = self.code
        error.sqlite_errorname = NAMES[self.code]
        return error


def faulty(faults: Faults) -> type[sqlite.Connection]:
    """A connection class that fails as `faults` says."""

    class FaultyConnection(sqlite.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite.Cursor:
            if not faults.due(sql):
                return super().execute(sql, *parameters)
            if faults.after:
                super().execute(sql, *parameters)
            raise faults.error()

        def executemany(self, sql: str, *parameters: Any) -> sqlite.Cursor:
            if not faults.due(sql):
                return super().executemany(sql, *parameters)
            if faults.after:
                super().executemany(sql, *parameters)
            raise faults.error()

    return FaultyConnection

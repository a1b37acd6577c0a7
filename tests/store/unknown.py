"""Engines whose commits end in an unknown outcome, fail and hang as a test wants."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from adapters.postgres_store import PostgresStore
from adapters.sqlite_driver import sqlite
from adapters.sqlite_store import SqliteStore
from domain.ports import StoreDescription
from tests.postgres.cutting import COMMIT
from tests.postgres.proxy import Place, Proxy
from tests.store.faults import Faults, faulty

#: Of each engine's store; nothing here may take longer than this and the grace.
TIMEOUT_S = 0.3
#: How long after that a call may end: a second (measured on two cores under a load of twelve: 0.75 s at
#: most), and half of one for a test that is itself kept waiting.
OVER_S = 1.0 + 0.5
#: Where nothing hangs: what works takes as long as the machine needs.
ENOUGH_S = 15.0


class Engine(Protocol):
    """A store, and what is done to it."""

    @property
    def store(self) -> StoreDescription:
        """Where the journal is."""

    def lose_commit(self, *, there: bool) -> None:
        """The next commit's outcome is unknown; it is in the journal, or is not."""

    def fail(self) -> None:
        """From now on nothing can be had of the store."""

    def hang(self) -> None:
        """From now on the store takes calls and says nothing."""

    def heal(self) -> None:
        """Everything works again; what hung is answered."""


class SqliteEngine:
    """A file on a disk that fails and hangs."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._faults, self._answering = Faults(), threading.Event()
        self._answering.set()
        kind = hanging(faulty(self._faults), self._answering)
        self.store = SqliteStore(path, store_timeout_s=timeout_s, connection_class=kind)

    def lose_commit(self, *, there: bool) -> None:
        self._faults.arm(1, after=there, only="COMMIT")

    def fail(self) -> None:
        self._faults.arm(1, sticky=True)

    def hang(self) -> None:
        self._answering.clear()

    def heal(self) -> None:
        self._faults.disarm()
        self._answering.set()


def hanging(
    kind: type[sqlite.Connection], answering: threading.Event, only: str = ""
) -> type[sqlite.Connection]:
    """A connection class that waits in every statement that begins like this until somebody answers."""

    class HangingConnection(kind):  # type: ignore[misc, valid-type]  # a class made by a function
        def execute(self, sql: str, *parameters: Any) -> sqlite.Cursor:
            if sql.startswith(only):
                answering.wait()
            found: sqlite.Cursor = super().execute(sql, *parameters)
            return found

    return HangingConnection


class PostgresEngine:
    """A database behind a line that breaks and hangs."""

    def __init__(self, proxy: Proxy, timeout_s: float) -> None:
        self._proxy = proxy
        self.store = PostgresStore(proxy.url, store_timeout_s=timeout_s, connections=2)

    def lose_commit(self, *, there: bool) -> None:
        self._proxy.arm(Place.COMMITTED if there else Place.BEFORE, COMMIT)

    def fail(self) -> None:
        self._proxy.refuse()

    def hang(self) -> None:
        self._proxy.freeze()

    def heal(self) -> None:
        self._proxy.accept()
        self._proxy.thaw()


@contextmanager
def healed(engine: Engine) -> Iterator[Engine]:
    """An engine that ends well, so that its store can be closed and its threads end."""
    try:
        yield engine
    finally:
        engine.heal()

"""A second process that holds a journal's lock, and every call that may meet it."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from adapters.sqlite_driver import is_busy, sqlite
from adapters.sqlite_store import SqliteStore
from domain.cursor import Cursor
from domain.envelope import Fence
from domain.errors import MinutebookError, StoreTimeout
from domain.ports import Holder, Journal
from minutebook.testing.batches import dummy_batch, end_of
from tests.store.children import Child

TIMEOUT_S: Final = 0.3
GRACE_S: Final = 1.0
SESSION: Final = "session-1"
OURS: Final = Holder("ours", "lease-1")
FENCE: Final = Fence("ours", "lease-1", 1)
FIRST: Final = dummy_batch(Cursor.start(SESSION), "c1", fence=FENCE)
SECOND: Final = dummy_batch(end_of(FIRST), "c2", fence=FENCE)
THIRD: Final = dummy_batch(end_of(SECOND), "c3", fence=FENCE)

#: Takes a lock when told its statements, says "held", and lets go of it when told again.
HOLDER: Final = """
import sys
from adapters.sqlite_driver import sqlite
connection = sqlite.connect(sys.argv[1], isolation_level=None)
for line in sys.stdin:
    for statement in line.strip().split(";"):
        connection.execute(statement).fetchall()
    print("held", flush=True)
    sys.stdin.readline()
    connection.execute("ROLLBACK")
    print("free", flush=True)
"""

WRITER: Final = "BEGIN IMMEDIATE"
ALONE: Final = "BEGIN EXCLUSIVE"
READER: Final = "BEGIN;SELECT count(*) FROM minutebook_events"


def hold(holder: Child, lock: str) -> None:
    """Have it take a lock."""
    holder.tell(lock)
    assert holder.hear() == "held"


def let_go(holder: Child) -> None:
    """Have it end its transaction."""
    holder.tell("")
    assert holder.hear() == "free"


class Noticing(sqlite.Connection):
    """Says when it was kept waiting for the first time."""

    kept_waiting = threading.Event()

    def execute(self, sql: str, *parameters: Any) -> sqlite.Cursor:
        try:
            return super().execute(sql, *parameters)
        except sqlite.Error as e:
            if is_busy(e):
                Noticing.kept_waiting.set()
            raise


def store_at(path: Path, mode: str, timeout_s: float = TIMEOUT_S) -> SqliteStore:
    """A store that does not wait long, and says when it is kept waiting."""
    return SqliteStore(path, journal_mode=mode, store_timeout_s=timeout_s, connection_class=Noticing)


async def begun(journal: Journal) -> None:
    """A session with a lease and one event."""
    await journal.leases.acquire(SESSION, OURS, 60_000)
    await journal.commit(FIRST)


Call = Callable[[Journal], Awaitable[Any]]
WRITES: dict[str, Call] = {
    "commit": lambda journal: journal.commit(SECOND),
    "acquire": lambda journal: journal.leases.acquire("session-2", OURS, 60_000),
    "take again": lambda journal: journal.leases.acquire(SESSION, OURS, 60_000),
    "renew": lambda journal: journal.leases.renew(SESSION, FENCE, 60_000),
    "release": lambda journal: journal.leases.release(SESSION, FENCE),
}
READS: dict[str, Call] = {
    "session": lambda journal: journal.session(SESSION),
    "read": lambda journal: journal.read(SESSION),
    "validate": lambda journal: journal.leases.validate(SESSION, FENCE),
}


async def timed_out(call: Callable[[], Awaitable[Any]], error: type[Exception] = StoreTimeout) -> None:
    """The call is refused for the lock, in the time that the store has and a little."""
    began = time.monotonic()
    with pytest.raises(error) as refusal:
        await call()
    assert isinstance(refusal.value, MinutebookError)
    assert time.monotonic() - began < TIMEOUT_S + GRACE_S


async def all_timed_out(journal: Journal) -> None:
    """Every writing call, at once."""
    async with anyio.create_task_group() as tasks:
        for call in WRITES.values():
            tasks.start_soon(timed_out, partial(call, journal))

"""What a durable commit costs beside its fsync, counted: statements, values, wake-ups, calls of ours."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import pytest

import adapters
import domain
from adapters.sqlite_driver import sqlite
from adapters.sqlite_store import SqliteStore
from adapters.system import SystemClock
from domain.cursor import Cursor
from domain.envelope import Fence
from domain.ports import Batch, Holder, Journal
from minutebook.testing.batches import dummy_batch, end_of
from tests.store.held import Gate, behind_a_held_commit

pytestmark = pytest.mark.anyio

WAITING = 20
PAYLOADS = [b'{"text":"hello"}'] * 3


class CountingConnection(sqlite.Connection):
    """Notes every statement, and the types of the values in rows that are written."""

    statements: ClassVar[list[str]] = []
    types: ClassVar[set[type]] = set()

    def execute(self, sql: str, *parameters: Any) -> sqlite.Cursor:
        self.statements.append(_title(sql))
        return super().execute(sql, *parameters)

    def executemany(self, sql: str, rows: Iterable[Any]) -> sqlite.Cursor:
        self.statements.append(_title(sql))
        kept = [tuple(row) for row in rows]
        self.types.update(type(value) for row in kept for value in row)
        return super().executemany(sql, kept)


def _title(sql: str) -> str:
    words = sql.split()
    return " ".join(words[: 3 if words[0] == "INSERT" else 2]).removeprefix("INSERT INTO minutebook_")


class CountingClock(SystemClock):
    """Counts how often it is looked at."""

    looks: ClassVar[list[datetime]] = []

    def now(self) -> datetime:
        self.looks.append(super().now())
        return self.looks[-1]


LOOK = "SELECT s.owner_id,"
AROUND = ["BEGIN IMMEDIATE", "PRAGMA user_version", "events", "sessions", "commands", "COMMIT"]


def waiting_batches() -> list[Batch]:
    """A commit of three events for each of so many sessions."""
    return [dummy_batch(Cursor.start(f"session-{n}"), f"c{n}", PAYLOADS) for n in range(WAITING)]


async def test_a_commit_takes_seven_statements(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "j.db", connection_class=CountingConnection).open() as journal:
        CountingConnection.statements.clear()
        await journal.commit(dummy_batch(Cursor.start("session-1"), "c1", PAYLOADS))
        assert CountingConnection.statements == [*AROUND[:2], LOOK, *AROUND[2:]]


async def test_a_group_takes_one_look_for_each_commit_and_six_statements_for_all(tmp_path: Path) -> None:
    gate = Gate()
    store = SqliteStore(tmp_path / "j.db", probe=gate, connection_class=CountingConnection)
    async with store.open():
        CountingConnection.statements.clear()
        await behind_a_held_commit(store, gate, waiting_batches())
    group = CountingConnection.statements[len(AROUND) + 1 :]
    assert group == [*AROUND[:2], *[LOOK] * WAITING, *AROUND[2:]]


async def test_no_value_of_a_commit_s_rows_needs_an_adapter_of_the_driver(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "j.db", connection_class=CountingConnection).open() as journal:
        CountingConnection.types.clear()
        await journal.commit(dummy_batch(Cursor.start("session-1"), "c1", PAYLOADS))
        assert CountingConnection.types == {str, int, bytearray}


async def test_a_group_looks_at_the_clock_once(tmp_path: Path) -> None:
    gate = Gate()
    CountingClock.looks.clear()
    store = SqliteStore(tmp_path / "j.db", probe=gate, clock=CountingClock())
    await behind_a_held_commit(store, gate, waiting_batches())
    assert len(CountingClock.looks) == 2


async def test_a_group_wakes_its_event_loop_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, wakes = asyncio.get_running_loop(), list[object]()
    soon = loop.call_soon_threadsafe

    def counted(call: Any, *arguments: Any, **more: Any) -> asyncio.Handle:
        if threading.current_thread().name.startswith("writes"):
            wakes.append(call)
        return soon(call, *arguments, **more)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    gate = Gate()
    await behind_a_held_commit(SqliteStore(tmp_path / "j.db", probe=gate), gate, waiting_batches())
    assert len(wakes) == 2


# --- calls of our own functions ------------------------------------------------------------------


@contextmanager
def calls_of_ours() -> Iterator[Counter[str]]:
    """Counts calls of functions of the store and the domain, by thread, in threads begun inside too."""
    ours = tuple(f"{Path(file).parent}/" for file in (adapters.__file__, domain.__file__))
    counts = Counter[str]()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ours):
            counts[threading.current_thread().name.split()[0]] += 1

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield counts
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def fence_of(journal: Journal, session_id: str) -> Fence:
    lease = await journal.leases.acquire(session_id, Holder("worker", "l-1"), 60_000)
    return Fence("worker", "l-1", lease.token)


async def test_a_fenced_commit_of_three_events_takes_few_calls_in_either_thread(tmp_path: Path) -> None:
    with calls_of_ours() as calls:
        async with SqliteStore(tmp_path / "j.db").open() as journal:
            fence = await fence_of(journal, "session-1")
            first = dummy_batch(Cursor.start("session-1"), "c1", PAYLOADS, fence=fence)
            second = dummy_batch(end_of(first), "c2", PAYLOADS, fence=fence)
            await journal.commit(first)
            calls.clear()
            await journal.commit(second)
            found = dict(calls)

    assert found["MainThread"] <= 28
    assert found["writes"] <= 62


async def test_a_commit_in_a_group_takes_fewer(tmp_path: Path) -> None:
    gate = Gate()
    with calls_of_ours() as calls:
        store = SqliteStore(tmp_path / "j.db", probe=gate)
        answers = await behind_a_held_commit(store, gate, waiting_batches())

    assert calls["writes"] <= 27 * len(answers)

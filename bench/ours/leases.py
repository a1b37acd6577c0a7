"""L1: renewing and taking over the leases of many sessions, beside a plain UPDATE of as many rows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import minutebook as mb
from adapters.sqlite_driver import sqlite
from bench.conversations import Place
from bench.limits.postgres import RawLeases, fresh_database
from bench.workload import Metrics
from domain.cursor import Cursor
from domain.envelope import Fence
from domain.ports import Holder, Journal, StoreDescription
from minutebook.testing.batches import dummy_batch

TTL_MS: Final = 600_000
#: A lease that has run out when the next one asks.
SHORT_MS: Final = 1


def many_sessions(place: Place, *, engine: str, sessions: int, times: int) -> Metrics:
    """Leases of `sessions` sessions, each renewed and taken over `times` times.

    `renew_us`, `raw_us`: one after the other, each call. `renew_per_s`, `takeover_per_s`: all
    sessions at once, as a worker's heartbeat asks. `renew_all_ms`: one such heartbeat.
    """
    with _engine(engine, place.directory, [f"s{n}" for n in range(sessions)]) as (store, raw):
        return asyncio.run(_many_sessions(store, raw, sessions, times))


class Raw(Protocol):
    """A plain UPDATE."""

    def renew(self, session: str) -> None:
        """Of one row."""

    def close(self) -> None:
        """Let go."""


class RawSqliteLeases:
    """A row for each session, renewed in a transaction of its own, with the pragmas of our store."""

    def __init__(self, path: Path, sessions: Sequence[str]) -> None:
        self._connection = sqlite.connect(path, isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute(
            "CREATE TABLE leases(session TEXT PRIMARY KEY, token INTEGER, expires INTEGER)"
        )
        self._connection.executemany("INSERT INTO leases VALUES (?, 1, 0)", [(each,) for each in sessions])

    def renew(self, session: str) -> None:
        """Move the end of a lease."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute(
            "UPDATE leases SET expires = expires + 30 WHERE session = ? AND token = 1", (session,)
        )
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


@contextmanager
def _engine(engine: str, directory: Path, sessions: Sequence[str]) -> Iterator[tuple[StoreDescription, Raw]]:
    if engine == "sqlite":
        yield mb.sqlite(directory / "journal.db"), RawSqliteLeases(directory / "raw.db", sessions)
        return
    with fresh_database() as url:
        yield mb.postgres(url), RawLeases(url, sessions)


async def _many_sessions(store: StoreDescription, raw: Raw, sessions: int, times: int) -> Metrics:
    names = [f"s{n}" for n in range(sessions)]
    async with store.open() as journal:
        for name in names:
            await journal.commit(dummy_batch(Cursor.start(name), "c1"))
        fences = {name: await _acquired(journal, name, "l-0", TTL_MS) for name in names}

        async def renew(name: str) -> object:
            return await journal.leases.renew(name, fences[name], TTL_MS)

        found = {"raw_us": _raw_us(raw, names), "renew_us": await _one_by_one(renew, names)}
        per_s = await _all_at_once(renew, names, times)
        found |= {"renew_per_s": per_s, "renew_all_ms": sessions / per_s * 1e3}
        found["takeover_per_s"] = await _takeovers(journal, names, times)
    raw.close()
    return found


async def _acquired(journal: Journal, name: str, lease_id: str, ttl_ms: int) -> Fence:
    lease = await journal.leases.acquire(name, Holder("bench", lease_id), ttl_ms)
    return Fence("bench", lease_id, lease.token)


def _raw_us(raw: Raw, names: Sequence[str]) -> float:
    start = time.perf_counter()
    for name in names:
        raw.renew(name)
    return (time.perf_counter() - start) / len(names) * 1e6


Call = Callable[[str], Awaitable[object]]


async def _one_by_one(call: Call, names: Sequence[str]) -> float:
    start = time.perf_counter()
    for name in names:
        await call(name)
    return (time.perf_counter() - start) / len(names) * 1e6


async def _all_at_once(call: Call, names: Sequence[str], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        await asyncio.gather(*(call(name) for name in names))
    return times * len(names) / (time.perf_counter() - start)


async def _takeovers(journal: Journal, names: Sequence[str], times: int) -> float:
    """Each one finds a lease of somebody else that has run out."""
    for name in names:
        fence = Fence("bench", "l-0", 1)
        await journal.leases.renew(name, fence, SHORT_MS)
    spent = 0.0
    for number in range(1, times + 1):
        await asyncio.sleep(2 * SHORT_MS / 1e3)
        start = time.perf_counter()
        await asyncio.gather(*(_acquired(journal, name, f"l-{number}", SHORT_MS) for name in names))
        spent += time.perf_counter() - start
    return times * len(names) / spent

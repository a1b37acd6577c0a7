"""What the disk and SQLite take for one durable write, without anything around it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from adapters.sqlite_driver import sqlite
from bench.conversations import Place
from bench.floor import INSERT, SCHEMA
from bench.workload import Metrics

SIZE: Final = 600


def probe(place: Place, *, times: int) -> Metrics:
    """Microseconds of an fsync after 600 bytes, and of a commit of one such row, synced or not."""
    return {
        "fsync_us": _fsync(place.directory / "plain", times),
        "commit_us": _commits(place.directory / "full.db", "FULL", times),
        "unsynced_commit_us": _commits(place.directory / "normal.db", "NORMAL", times * 4),
        "version": f"SQLite {sqlite.sqlite_version}",
    }


def each_us(action: Callable[[int], object], times: int) -> float:
    """Microseconds that each of `times` calls takes."""
    start = time.perf_counter()
    for number in range(times):
        action(number)
    return (time.perf_counter() - start) / times * 1e6


def _fsync(path: Path, times: int) -> float:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    data = b"x" * SIZE

    def write(_: int) -> None:
        os.write(file, data)
        os.fsync(file)

    try:
        return each_us(write, times)
    finally:
        os.close(file)


def _commits(path: Path, synchronous: str, times: int) -> float:
    raw = RawCommits(path, synchronous)
    row = b"x" * SIZE
    try:
        return each_us(lambda n: raw.commit("s", n, [row]), times)
    finally:
        raw.close()


class RawCommits:
    """BEGIN, INSERT, COMMIT with the driver and the pragmas of our store, and nothing else."""

    def __init__(self, path: Path, synchronous: str = "FULL") -> None:
        self._connection = sqlite.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA synchronous = {synchronous}")
        self._connection.executescript(SCHEMA)

    def commit(self, stream: str, after: int, bodies: list[bytes]) -> None:
        """Write rows of a stream and wait for the disk."""
        self.begin()
        self.put(stream, after, bodies)
        self.end()

    def begin(self) -> None:
        """BEGIN."""
        self._connection.execute("BEGIN IMMEDIATE")

    def put(self, stream: str, after: int, bodies: list[bytes]) -> None:
        """The rows, inside a transaction."""
        rows = [(stream, n, "notice_recorded@1", body) for n, body in enumerate(bodies, after + 1)]
        self._connection.executemany(INSERT, rows)

    def end(self) -> None:
        """COMMIT."""
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

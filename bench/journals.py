"""Journals to be read by the cases, made before the first one and thrown away with the run.

A session is made by having the conversation with a model that is a function. More
sessions are copies of it under other names, chained again, so that a file of a
million events takes seconds and every copy passes `verify`.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import anyio

import minutebook as mb
from adapters.sqlite_driver import sqlite
from bench.conversations import Place
from bench.ours.talking import OfflineProvider, config
from bench.workload import PROMPT, Metrics
from domain.envelope import commitment, genesis, link
from domain.model_ports import Signal

#: The session that is measured. Names of copies have the same length.
SESSION: Final = "session-0000"

_EVENTS: Final = (
    "INSERT INTO minutebook_events (originator_id, originator_version, topic, state, payload, salt, head) "
    "VALUES (?,?,?,?,?,?,?)"
)
_SNAPSHOTS: Final = (
    "INSERT INTO minutebook_snapshots (session_id, sequence, version, head, state) VALUES (?,?,?,?,?)"
)


def make(place: Place, *, name: str, requests: int, copies: int = 0, left_open: bool = False) -> Metrics:
    """A file `name`: one session of `requests` requests, and so many copies of it.

    Args:
        left_open: whether the session was left in the middle of one more request.
    """
    file = place.directory / name
    asyncio.run(_session(file, requests, left_open))
    connection = sqlite.connect(file, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN")
    for number in range(1, copies + 1):
        _copy(connection, f"session-{number:04d}")
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    events = connection.execute("SELECT count(*) FROM minutebook_events").fetchone()[0]
    connection.close()
    return {"file": str(file), "events": events}


async def _session(file: Path, requests: int, left_open: bool) -> None:
    provider = _Stopping()
    async with mb.create_session(config(provider), store=mb.sqlite(file), session_id=SESSION) as session:
        for _ in range(requests):
            await session.run(PROMPT)
        if left_open:
            provider.stops = True
            await session.send(PROMPT)
            await provider.stopped.wait()


class _Stopping(OfflineProvider):
    """Answers until it is told to be silent."""

    def __init__(self) -> None:
        super().__init__()
        self.stops = False
        self.stopped = anyio.Event()

    async def send(self, body: bytes, *, attempt_id: str) -> AsyncIterator[Signal]:
        """As the model that is a function, or nothing."""
        if self.stops:
            self.stopped.set()
            await anyio.sleep_forever()
        async for signal in super().send(body, attempt_id=attempt_id):
            yield signal


def _copy(connection: sqlite3.Connection, name: str) -> None:
    old, new = SESSION.encode(), name.encode()
    heads = {0: genesis(name)}
    rows: list[tuple[Any, ...]] = []
    source = "SELECT * FROM minutebook_{} WHERE {} = ? ORDER BY {}"
    for _, _, n, topic, state, payload, salt, _ in connection.execute(
        source.format("events", "originator_id", "originator_version"), (SESSION,)
    ):
        envelope = state.replace(old, new)
        if old in payload:
            said, payload = commitment(salt, payload).hex(), payload.replace(old, new)
            envelope = envelope.replace(said.encode(), commitment(salt, payload).hex().encode())
        heads[n] = link(heads[n - 1], envelope)
        rows.append((name, n, topic, envelope, payload, salt, heads[n]))
    connection.executemany(_EVENTS, rows)
    kept = connection.execute(
        "SELECT sequence, version, state FROM minutebook_snapshots WHERE session_id = ?", (SESSION,)
    ).fetchall()
    connection.executemany(_SNAPSHOTS, [(name, n, v, heads[n], s.replace(old, new)) for n, v, s in kept])
    _copy_beside(connection, name, heads)


def _copy_beside(connection: sqlite3.Connection, name: str, heads: dict[int, bytes]) -> None:
    """The rows of commands and of the session."""
    for table in ("commands", "sessions"):
        cursor = connection.execute(f"SELECT * FROM minutebook_{table} WHERE session_id = ?", (SESSION,))
        columns = [column[0] for column in cursor.description]
        last = "last_sequence" if table == "commands" else "sequence"
        copies = []
        for values in cursor.fetchall():
            row = dict(zip(columns, values, strict=True))
            row |= {"session_id": name, "head": heads[row[last]]}
            copies.append(tuple(row.values()))
        marks = ", ".join("?" * len(columns))
        connection.executemany(f"INSERT INTO minutebook_{table} VALUES ({marks})", copies)

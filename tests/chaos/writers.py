"""Programs that write to a journal while somebody watches their disk, and say what they were promised.

What they say goes to a file beside the journal, one write for each thing, so that the
moment of a promise is in the same log as the writes. That file and the witness stand for
the world: a power cut takes nothing from them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import anyio
import orjson

from adapters.sqlite_driver import sqlite
from adapters.sqlite_store import SqliteStore
from adapters.system import no_probe
from domain.cursor import Cursor
from domain.ports import Batch, Journal
from minutebook.testing.batches import dummy_batch, end_of
from minutebook.testing.crash import Tell, Witness
from tests.crash.program import Program, Story
from tests.crash.script import World, worlds

SESSIONS: Final = ("a", "b", "c")
COMMITS: Final = 6
#: So small that checkpoints and spilled transactions happen in a short script.
CHECKPOINT_PAGES: Final = 12
CACHE_PAGES: Final = 10


def tuned(synchronous: str = "FULL") -> type[sqlite.Connection]:
    """A connection with small buffers.

    Args:
        synchronous: FULL is what a journal insists on. Another one is what these tests have to
            find out about: the store asks for FULL, asks what it got, and is lied to.
    """

    class TunedConnection(sqlite.Connection):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            super().execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            super().execute(f"PRAGMA cache_size = {CACHE_PAGES}")

        def execute(self, sql: str, *arguments: Any) -> sqlite.Cursor:
            if synchronous != "FULL":
                sql = {
                    "PRAGMA synchronous = FULL": f"PRAGMA synchronous = {synchronous}",
                    "PRAGMA synchronous": "SELECT 2",
                }.get(sql, sql)
            return super().execute(sql, *arguments)

    return TunedConnection


@cache
def batches(session: str) -> Sequence[Batch]:
    """The batches of one session: small and large ones, with blobs and snapshots."""
    made, place = [], Cursor.start(session)
    for number in range(COMMITS + 1):
        large = b'{"text":"' + b"x" * (30_000 if number % 3 == 1 else 200) + b'"}'
        batch = dummy_batch(
            place,
            f"c{number}",
            [large] * (1 + number % 3),
            blobs=[b"%s %d" % (session.encode(), number)] if number % 2 else [],
            snapshot_state=b"state" * 100 if number % 4 == 2 else None,
        )
        made.append(batch)
        place = end_of(batch)
    return made


def commits(tell: Tell, place: Path, mode: str, synchronous: str) -> None:
    """Three sessions commit at the same time; each commit that returns is told."""

    async def write(journal: Journal, session: str) -> None:
        for batch in batches(session)[:COMMITS]:
            receipt = await journal.commit(batch)
            tell(session=session, sequence=receipt.last_sequence, head=receipt.head.hex())

    async def main() -> None:
        store = SqliteStore(place / "journal.db", journal_mode=mode, connection_class=tuned(synchronous))
        async with store.open() as journal, anyio.create_task_group() as tasks:
            for session in SESSIONS:
                tasks.start_soon(write, journal, session)

    anyio.run(main)


def session(tell: Tell, place: Path, mode: str, synchronous: str) -> None:
    """The application of the crash tests, from its beginning to its end."""

    async def main() -> None:
        store = SqliteStore(place / "journal.db", journal_mode=mode, connection_class=tuned(synchronous))
        world = World(Witness(place / "witness"), no_probe)
        worlds.append(world)
        await Program(tell, store, world, Story()).run()

    anyio.run(main)


def opened(tell: Tell, place: Path, mode: str, synchronous: str) -> None:
    """Make a store and close it."""

    async def main() -> None:
        store = SqliteStore(place / "journal.db", journal_mode=mode, connection_class=tuned(synchronous))
        async with store.open():
            tell(opened=True)

    anyio.run(main)


def tell_file(path: Path) -> Tell:
    """Say things by appending lines to a file, each in one piece."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def tell(**values: Any) -> None:
        line = orjson.dumps(values) + b"\n"
        assert os.write(file, line) == len(line)

    return tell


def boundaries(session: str) -> dict[int, bytes]:
    """Where a session may stand: the head after each of its batches."""
    ends = {0: Cursor.start(session).head}
    return ends | {b.events[-1].sequence: b.events[-1].head for b in batches(session)}


def next_batch(session: str, sequence: int) -> Batch:
    """The batch that follows when a session stands at a boundary."""
    return next(b for b in batches(session) if b.expected_sequence == sequence)


FUNCTIONS: Final[dict[str, Callable[..., None]]] = {
    "commits": commits,
    "session": session,
    "opened": opened,
}

if __name__ == "__main__":
    where = Path(sys.argv[2])
    FUNCTIONS[sys.argv[1]](tell_file(where / "acks"), where, *sys.argv[3:])

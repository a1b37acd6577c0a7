"""What it costs to tell others of a commit on PostgreSQL: NOTIFY in it, beside it, or not at all.

A command of its own, no case of the suites: it measures what we decided against.
`python -m bench.ours.postgres_telling` prints a table for docs/adr/0022-postgresql.md.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

import minutebook as mb
from bench.limits.postgres import fresh_database
from bench.ours.commit import batches, run_writers

if TYPE_CHECKING:
    from adapters.postgres_journal import PostgresJournal
    from adapters.postgres_store import PostgresStore

EVENTS: Final = 3
#: Each goes into a schema of its own.
WAYS: Final = ("nobody is told", "told beside it", "NOTIFY inside")
_OUTCOME: Final = b"END AS moved "
_AND_TELL: Final = b"END AS moved, pg_notify('minutebook', %(session)s::text) "


def store_of(url: str, schema: str, way: str, connections: int) -> PostgresStore:
    """A store that tells of its commits in this way."""
    from adapters.postgres_driver import Connection, Row, Value

    class Telling(Connection):
        """Notifies in the commit itself."""

        def ask(self, statement: bytes, values: Mapping[str, Value]) -> list[Row]:
            return super().ask(statement.replace(_OUTCOME, _AND_TELL), values)

    made = replace(mb.postgres(url, schema=schema), connections=connections)
    return replace(made, connection_class=Telling) if way == WAYS[2] else made


async def commits_per_s(make: Callable[[], PostgresStore], way: str, sessions: int, commits: int) -> float:
    """Durable commits of three events in a second."""
    made = [batches(f"s{n}", EVENTS, commits) for n in range(sessions)]
    async with make().open() as opened:
        journal: PostgresJournal = opened  # type: ignore[assignment]  # it is that store's
        if way != WAYS[1]:
            journal.database.notifier.close()
        start = time.perf_counter()
        await run_writers(journal, made)
        return sessions * commits / (time.perf_counter() - start)


def measured(url: str, sessions: int, rounds: int, commits: int, connections: int) -> list[list[float]]:
    """The rounds of each way; the ways take turns."""
    found: list[list[float]] = [[] for _ in WAYS]
    for number in range(rounds):
        for at, way in enumerate(WAYS):
            make = partial(store_of, url, f"t_{sessions}_{number}_{at}", way, connections)
            found[at].append(asyncio.run(commits_per_s(make, way, sessions, commits)))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the table: the median of the rounds, and the lowest and the highest."""
    parser = argparse.ArgumentParser(prog="python -m bench.ours.postgres_telling", description=__doc__)
    parser.add_argument("--sessions", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--commits", type=int, default=40, help="of each session")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=16)
    given = parser.parse_args(arguments)
    print(f"| sessions | {' | '.join(WAYS)} |\n|{'---|' * (len(WAYS) + 1)}")
    with fresh_database() as url:
        for sessions in given.sessions:
            found = measured(url, sessions, given.rounds, given.commits, given.connections)
            cells = (f"{median(each):.0f} ({min(each):.0f}-{max(each):.0f})" for each in found)
            print(f"| {sessions} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

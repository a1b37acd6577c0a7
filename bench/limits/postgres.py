"""PostgreSQL without a library: one INSERT of some rows for each commit, and a plain UPDATE of a row.

The server is one of our own, with its defaults: every commit waits for the disk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Final

from bench.workload import NotHereError

if TYPE_CHECKING:
    import psycopg

_SCHEMA: Final = (
    "CREATE TABLE events(position bigserial PRIMARY KEY, stream text NOT NULL, version integer NOT NULL, "
    "type text NOT NULL, body bytea NOT NULL, UNIQUE (stream, version))"
)
_TYPE: Final = "notice_recorded@1"
#: (stream, version before, bodies) of each commit.
Commits = Sequence[tuple[str, int, list[bytes]]]


@contextmanager
def fresh_database() -> Iterator[str]:
    """The address of an empty database on a server that is gone afterwards.

    Raises:
        NotHereError: there is no PostgreSQL, or no driver.
    """
    from domain.errors import StoreUnsupported
    from minutebook.testing.postgres_cluster import Cluster

    with ExitStack() as stack:
        try:
            import psycopg  # noqa: F401

            cluster = stack.enter_context(Cluster(durable=True))
        except (ImportError, StoreUnsupported) as e:
            raise NotHereError(str(e)) from e
        yield cluster.new_database()


def statement(rows: int) -> str:
    """One INSERT of so many rows."""
    values = ", ".join(["(%s, %s, %s, %b)"] * rows)
    return f"INSERT INTO events(stream, version, type, body) VALUES {values}"


def parameters(stream: str, after: int, bodies: Sequence[bytes]) -> list[object]:
    """What goes with it."""
    return list(chain.from_iterable((stream, n, _TYPE, body) for n, body in enumerate(bodies, after + 1)))


class RawCommits:
    """One connection that commits with one statement, as `bench.limits.disk.RawCommits` does on a file."""

    def __init__(self, url: str) -> None:
        import psycopg

        self._connection: psycopg.Connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(_SCHEMA)

    def commit(self, stream: str, after: int, bodies: list[bytes]) -> None:
        """Write rows of a stream; returns when they are on the disk."""
        self._connection.execute(statement(len(bodies)).encode(), parameters(stream, after, bodies))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


async def many_writers(url: str, connections: int, made: Sequence[Commits]) -> float:
    """Commits in a second: one task for each of `made`, sharing so many connections."""
    import psycopg

    opened = [await psycopg.AsyncConnection.connect(url, autocommit=True) for _ in range(connections)]
    free: asyncio.Queue[psycopg.AsyncConnection] = asyncio.Queue()
    for each in opened:
        free.put_nowait(each)

    async def write(commits: Commits) -> None:
        for stream, after, bodies in commits:
            connection = await free.get()
            await connection.execute(statement(len(bodies)).encode(), parameters(stream, after, bodies))
            free.put_nowait(connection)

    start = time.perf_counter()
    await asyncio.gather(*(write(each) for each in made))
    rate = sum(map(len, made)) / (time.perf_counter() - start)
    for each in opened:
        await each.close()
    return rate


class RawLeases:
    """A row for each session, renewed by one UPDATE that compares the token."""

    def __init__(self, url: str, sessions: Sequence[str]) -> None:
        import psycopg

        self._connection: psycopg.Connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(
            "CREATE TABLE leases(session text PRIMARY KEY, token integer NOT NULL, expires timestamptz)"
        )
        for session in sessions:
            self._connection.execute("INSERT INTO leases VALUES (%s, 1, clock_timestamp())", [session])

    def renew(self, session: str) -> None:
        """Move the end of a lease."""
        self._connection.execute(
            "UPDATE leases SET expires = clock_timestamp() + interval '30 s' "
            "WHERE session = %s AND token = 1",
            [session],
        )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

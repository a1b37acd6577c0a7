"""How many connections sessions need, and that each prepares its statements once."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import anyio
import psycopg
import pytest

from adapters.postgres_connections import PAUSE_S
from adapters.postgres_driver import Connection, Row, Value
from adapters.postgres_store import PostgresStore
from domain.cursor import Cursor
from domain.envelope import Fence
from domain.errors import StoreTimeout
from domain.ports import CommitStatus, Holder, Journal
from minutebook.testing.batches import dummy_batch, end_of
from minutebook.testing.postgres_cluster import Cluster
from tests.postgres.test_postgres_commit import WAITING, Traced, name_of, until

pytestmark = pytest.mark.anyio

SESSION = "session-1"
OURS = Holder("ours", "lease-1")
CONNECTED = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'minutebook' AND datname = %s"


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[Journal]:
    async with PostgresStore(url, **options).open() as journal:
        yield journal


async def work(journal: Journal, session_id: str, times: int) -> None:
    """What a session does to its store."""
    lease = await journal.leases.acquire(session_id, OURS, 30_000)
    fence, place = Fence("ours", "lease-1", lease.token), Cursor.start(session_id)
    for number in range(times):
        batch = dummy_batch(place, f"c{number}", [b"{}"] * 3, fence=fence)
        assert (await journal.commit(batch)).status is CommitStatus.COMMITTED
        place = end_of(batch)
        for _ in range(5):
            assert len(await journal.read(session_id, after=place.sequence - 1)) == 1
        await journal.leases.renew(session_id, fence, 30_000)
    await journal.leases.release(session_id, fence)


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads interrupt each other all the time, so that who is woken too early gets ahead."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_one_session_writes_on_one_connection(postgres_url: str, postgres_cluster: Cluster) -> None:
    """One that writes, one that reads, one that tells others; the rest stays closed."""
    async with opened(postgres_url, connections=8) as journal:
        await work(journal, SESSION, 20)
        await until(postgres_cluster, f"{CONNECTED} HAVING count(*) = 3", name_of(postgres_url))


async def test_more_are_opened_when_there_is_more_to_do_at_once(
    postgres_url: str, postgres_cluster: Cluster
) -> None:
    """And are kept, but one session alone goes back to one of them."""
    name = name_of(postgres_url)
    async with opened(postgres_url) as journal:
        for number in range(3):
            await work(journal, f"session-{number}", 1)
        with psycopg.connect(postgres_url) as other:
            other.execute("SELECT 1 FROM minutebook.minutebook_sessions FOR UPDATE")
            async with anyio.create_task_group() as tasks:
                for number in range(3):
                    tasks.start_soon(journal.leases.acquire, f"session-{number}", OURS, 30_000)
                await until(postgres_cluster, f"{WAITING} HAVING count(*) = 3", name)
                other.rollback()
        await work(journal, "session-3", 3)
        await until(postgres_cluster, f"{CONNECTED} HAVING count(*) = 5", name)


class Cutting(Connection):
    """Loses its connection with each look, so often."""

    losses: ClassVar[int] = 0

    def ask(self, statement: bytes, values: Mapping[str, Value]) -> list[Row]:
        if b"minutebook_events" in statement and Cutting.losses:
            Cutting.losses -= 1
            self.pgconn.finish()
        return super().ask(statement, values)


async def test_a_read_is_repeated_until_its_time_is_up_and_no_thread_is_lost(postgres_url: str) -> None:
    options: dict[str, Any] = {"connection_class": Cutting, "connections": 1}
    async with opened(postgres_url, **options) as journal:
        await work(journal, SESSION, 1)
        Cutting.losses = 4
        assert len(await journal.read(SESSION)) == 3
    async with opened(postgres_url, **options, store_timeout_s=1.0) as journal:
        Cutting.losses = 10_000
        with pytest.raises(StoreTimeout, match="away all the time"):
            await journal.read(SESSION)
        assert Cutting.losses >= 10_000 - 1 / PAUSE_S - 1, "it takes a breath between two"
        Cutting.losses = 0
        assert len(await journal.read(SESSION)) == 3


def parsed(directory: Path) -> int:
    """How many statements the server was asked to prepare."""
    traces = [path.read_text() for path in directory.iterdir()]
    return sum(line.split("\t")[1:4:2] == ["F", "Parse"] for text in traces for line in text.splitlines())


async def test_large_numbers_are_prepared_no_differently(
    postgres_url: str, postgres_cluster: Cluster, tmp_path: Path
) -> None:
    """A driver that sends each number in the smallest type would prepare everything again at each size."""
    Traced.directory = tmp_path
    async with opened(postgres_url, connection_class=Traced, connections=1) as journal:
        counts = [
            await everything_at(journal, sequence, postgres_cluster, postgres_url, tmp_path)
            for sequence in (0, 2**7 - 2, 2**15 - 2, 2**31 - 2, 2**33)  # over an edge, most of them
        ]
    assert counts[0] > 8
    assert set(counts[1:]) == {counts[0]}


async def everything_at(journal: Journal, sequence: int, cluster: Cluster, url: str, directory: Path) -> int:
    """Commits and looks with numbers of a size; the number of prepared statements so far."""
    token = max(sequence, 1)
    lease = await journal.leases.acquire(SESSION, OURS, 30_000)
    cluster.execute(
        "UPDATE minutebook.minutebook_sessions SET sequence = %s, token = %s", (sequence, token), url=url
    )
    (head,) = cluster.execute("SELECT head FROM minutebook.minutebook_sessions", url=url)[0]
    fence = Fence("ours", "lease-1", token)
    place = Cursor(SESSION, sequence, bytes(head))
    for count in (1, 3):
        batch = dummy_batch(place, f"c{place.sequence}", [b"{}"] * count, fence=fence)
        assert (await journal.commit(batch)).status is CommitStatus.COMMITTED
        place = end_of(batch)
    batch = dummy_batch(place, f"c{place.sequence}", fence=fence, blobs=[b"x"], snapshot_state=b"x")
    await journal.commit(batch)
    assert (await journal.commit(batch)).status is CommitStatus.REPLAYED
    await journal.leases.renew(SESSION, fence, 30_000 + sequence % 40_000)
    await journal.leases.validate(SESSION, fence)
    assert len(await journal.read(SESSION, after=sequence, upto=sequence + 4, limit=sequence + 9)) == 4
    assert await journal.snapshot(SESSION, upto=sequence + 5) == batch.snapshot
    assert lease.token <= token
    return parsed(directory)

"""Leases by the database's own clock, and hearing of other processes' commits."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import psycopg
import pytest

from adapters.commit_signal import CommitSignal
from adapters.postgres_address import address
from adapters.postgres_connections import Opening
from adapters.postgres_driver import Connection, Row, Value
from adapters.postgres_listener import CommitEar, channel_of
from adapters.postgres_store import PostgresStore
from adapters.system import this_process
from domain.cursor import Cursor
from domain.envelope import Fence, Stored
from domain.errors import LeaseConflict, LeaseLost
from domain.ports import CommitStatus, Holder, Journal
from minutebook.testing.batches import dummy_batch, end_of
from minutebook.testing.postgres_cluster import Cluster
from tests.postgres.test_postgres_commit import WAITING, name_of, uncommitted, until
from tests.store.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio

SESSION = "session-1"
START = Cursor.start(SESSION)
OURS, THEIRS = Holder("ours", "lease-1"), Holder("theirs", "lease-2")
RAN_OUT = "SELECT 1 FROM minutebook.minutebook_sessions WHERE expires_at <= clock_timestamp()"
RUN_OUT = "UPDATE minutebook.minutebook_sessions SET expires_at = clock_timestamp()"
REACHED = "SELECT session_id, sequence FROM %"
TELL = b"SELECT pg_notify(%(channel)s::text, %(session)s::text)"
LISTENING = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND query LIKE %s"


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[Journal]:
    async with PostgresStore(url, **options).open() as journal:
        yield journal


async def until_in(url: str, cluster: Cluster, statement: str) -> None:
    """Wait until a statement gives a row in a test's database."""

    class There:
        def execute(self, statement: str, parameters: Any) -> Any:
            return cluster.execute(statement, parameters, url=url)

    await until(There(), statement)  # type: ignore[arg-type]  # all that is used of a cluster


async def test_a_lease_runs_out_by_the_database_s_clock(postgres_url: str, postgres_cluster: Cluster) -> None:
    async with opened(postgres_url) as journal:
        before = postgres_cluster.execute("SELECT clock_timestamp()")[0][0]
        lease = await journal.leases.acquire(SESSION, OURS, 30_000)
        assert lease.acquired_at >= before
        assert lease.runs_out is None
        with pytest.raises(LeaseConflict, match="by the store's clock"):
            await journal.leases.acquire(SESSION, THEIRS, 30_000)
        postgres_cluster.execute(RUN_OUT, url=postgres_url)
        old = Fence("ours", "lease-1", lease.token)
        with pytest.raises(LeaseLost, match="by the store's clock"):
            await journal.commit(dummy_batch(START, "c1", fence=old))
        assert (await journal.leases.acquire(SESSION, THEIRS, 30_000)).token == 2
        with pytest.raises(LeaseLost):
            await journal.leases.renew(SESSION, old, 30_000)


async def test_a_lease_that_runs_out_while_the_row_is_waited_for_is_lost(
    postgres_url: str, postgres_cluster: Cluster
) -> None:
    """Nobody took over and the row is as it was: only the clock went on."""

    async def commit(journal: Journal, fence: Fence) -> None:
        with pytest.raises(LeaseLost):
            await journal.commit(dummy_batch(START, "c1", fence=fence))

    async with opened(postgres_url) as journal:
        lease = await journal.leases.acquire(SESSION, OURS, 1500)
        with psycopg.connect(postgres_url) as other:
            other.execute("SELECT 1 FROM minutebook.minutebook_sessions FOR UPDATE")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(commit, journal, Fence("ours", "lease-1", lease.token))
                await until(postgres_cluster, WAITING, name_of(postgres_url))
                await until_in(postgres_url, postgres_cluster, RAN_OUT)
                other.rollback()
        assert await journal.session(SESSION) is None
        assert await journal.command(SESSION, "c1") is None


async def test_of_two_that_take_over_at_once_one_wins(postgres_url: str) -> None:
    tokens: list[int] = []

    async def take(journal: Journal, holder: Holder) -> None:
        try:
            tokens.append((await journal.leases.acquire(SESSION, holder, 30_000)).token)
        except LeaseConflict:
            tokens.append(0)

    async with (
        opened(postgres_url) as journal,
        opened(postgres_url, connections=3) as other,
        anyio.create_task_group() as tasks,
    ):
        for number in range(8):
            holder = Holder(f"worker-{number}", f"lease-{number}")
            tasks.start_soon(take, (journal, other)[number % 2], holder)
    assert sorted(tokens) == [0] * 7 + [1]


async def test_a_holder_that_is_provably_dead_is_taken_over_at_once(postgres_url: str) -> None:
    here = this_process()
    child = subprocess.Popen([sys.executable, "-c", "pass"])  # noqa: ASYNC220  # it ends at once
    child.wait()
    dead = Holder("dead", "lease-d", here.boot_id, child.pid, "1")
    alive = Holder("alive", "lease-a", here.boot_id, here.process_id, here.process_started)
    async with opened(postgres_url) as journal:
        await journal.leases.acquire(SESSION, dead, 86_400_000)
        await journal.leases.acquire("session-2", alive, 86_400_000)
        taken = await journal.leases.acquire(SESSION, THEIRS, 30_000)
        assert (taken.token, taken.holder_id) == (2, "theirs")
        with pytest.raises(LeaseConflict):
            await journal.leases.acquire("session-2", THEIRS, 30_000)


async def test_an_hour_s_difference_of_this_host_s_clock_changes_nothing(postgres_url: str) -> None:
    """No moment of this process is ever sent: there is nothing to get wrong."""
    sent: list[Mapping[str, Value]] = []

    class Noting(Connection):
        def ask(self, statement: bytes, values: Mapping[str, Value]) -> list[Row]:
            sent.append(values)
            return super().ask(statement, values)

    async with opened(postgres_url, connection_class=Noting) as journal:
        lease = await journal.leases.acquire(SESSION, OURS, 30_000)
        fence = Fence("ours", "lease-1", lease.token)
        await journal.leases.renew(SESSION, fence, 30_000)
        await journal.leases.validate(SESSION, fence)
        await journal.commit(dummy_batch(START, "c1", fence=fence))
        await journal.leases.release(SESSION, fence)
    clocks = [values["now"] for values in sent if "now" in values]
    assert len(clocks) >= 5
    assert set(clocks) == {None}


# --- hearing of commits ---------------------------------------------------------------------------


async def take(rows: AsyncIterator[Stored], count: int) -> list[int]:
    with anyio.fail_after(PATIENCE_S):
        return [(await anext(rows)).sequence for _ in range(count)]


async def test_another_process_s_commit_is_told(postgres_url: str) -> None:
    """To whoever listens, with the session's id, and without holding up the commit."""
    first = dummy_batch(START, "c1", (b"{}", b"{}"))
    with psycopg.connect(postgres_url, autocommit=True) as listener:
        listener.execute(f'LISTEN "{channel_of("minutebook")}"'.encode())
        async with opened(postgres_url) as journal, opened(postgres_url, connections=3) as other:
            rows = journal.subscribe(SESSION)
            await other.commit(first)
            assert await take(rows, 2) == [1, 2]
        assert [note.payload for note in listener.notifies(timeout=PATIENCE_S, stop_after=1)] == [SESSION]


async def test_a_commit_of_which_nobody_told_is_found(postgres_url: str) -> None:
    """Its process ended between the commit and the telling."""
    first = dummy_batch(START, "c1", (b"{}", b"{}"))
    async with opened(postgres_url) as journal:
        rows = journal.subscribe(SESSION)
        with uncommitted(postgres_url, first) as connection:
            connection.commit()
        assert await take(rows, 2) == [1, 2]
        second = dummy_batch(end_of(first), "c2")
        with uncommitted(postgres_url, second) as connection:
            connection.commit()
        assert await take(rows, 1) == [3]


async def test_a_commit_that_comes_out_of_order_is_found_too(
    postgres_url: str, postgres_cluster: Cluster
) -> None:
    """It had its position before another one, and is visible after it; nobody tells of it."""
    first, other = dummy_batch(START, "c1"), dummy_batch(Cursor.start("session-2"), "c1")
    looked = f"{LISTENING} AND state = 'idle' AND query_start > %s"
    taken: list[int] = []

    async def listen(rows: AsyncIterator[Stored]) -> None:
        taken.extend(await take(rows, 1))

    async with opened(postgres_url) as journal:
        await journal.commit(first)
        rows = journal.subscribe(SESSION)
        assert await take(rows, 1) == [1]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen, rows)
            with uncommitted(postgres_url, dummy_batch(end_of(first), "c2")) as connection:
                await journal.commit(other)
                ((after,),) = postgres_cluster.execute("SELECT clock_timestamp()")
                await until(postgres_cluster, looked, name_of(postgres_url), REACHED, after)
                connection.commit()
    assert taken == [2]


async def test_a_telling_that_comes_with_the_answer_to_a_look_is_heard(postgres_url: str) -> None:
    """The look itself has seen nothing, and the connection stays silent afterwards."""
    may_tell = threading.Event()

    class Overhearing(Connection):
        def ask(self, statement: bytes, values: Mapping[str, Value]) -> list[Row]:
            rows = super().ask(statement, values)
            if may_tell.is_set():
                may_tell.clear()
                super().ask(TELL, {"channel": channel_of("minutebook"), "session": SESSION})
            return rows

    async with opened(postgres_url):
        signal = CommitSignal()
        listener = signal.listen(SESSION)
        opening = Opening(address(postgres_url), "minutebook", 5.0, connection_class=Overhearing)
        ear = CommitEar(opening, signal)
        ear.nudge()
        try:
            with anyio.fail_after(PATIENCE_S):
                await listener.wait()  # it has begun to listen
                may_tell.set()
                await listener.wait()
        finally:
            await anyio.to_thread.run_sync(ear.close)


async def test_free_sessions_are_found_behind_any_number_of_held_ones(postgres_url: str) -> None:
    async with opened(postgres_url) as journal:
        for session_id in ("a", "z1", "z2"):
            await journal.commit(dummy_batch(Cursor.start(session_id), "c1"))
        with psycopg.connect(postgres_url) as connection:
            connection.execute(
                "INSERT INTO minutebook.minutebook_sessions SELECT 'held-' || n, owner_id, sequence, head, "
                "created_at, updated_at, status, next_action, 1, 'l', 'h', now(), now(), now() + '1 h' "
                "FROM minutebook.minutebook_sessions, generate_series(1, 300) n WHERE session_id = 'a'"
            )
        found = await journal.leases.free(["none"], limit=10)
        assert [row.session_id for row in found] == ["a", "z1", "z2"]
        assert [row.session_id for row in await journal.leases.free(["none"], after="a", limit=1)] == ["z1"]


async def test_a_listener_that_is_cut_off_listens_again(postgres_url: str, postgres_cluster: Cluster) -> None:
    first = dummy_batch(START, "c1")
    place, name = end_of(first), name_of(postgres_url)
    async with opened(postgres_url) as journal, opened(postgres_url, connections=3) as other:
        rows = journal.subscribe(SESSION)
        await other.commit(first)
        assert await take(rows, 1) == [1]
        for number in range(2, 5):
            await until(postgres_cluster, LISTENING, name, REACHED)
            postgres_cluster.execute(
                LISTENING.replace("pid", "pg_terminate_backend(pid)", 1), (name, REACHED)
            )
            batch = dummy_batch(place, f"c{number}")
            assert (await other.commit(batch)).status is CommitStatus.COMMITTED
            place = end_of(batch)
            assert await take(rows, 1) == [number]

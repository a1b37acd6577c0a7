"""A commit on PostgreSQL: one trip to the server, and what is known after a failure."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import anyio
import anyio.to_thread
import psycopg
import pytest

from adapters import postgres_changes
from adapters.postgres_address import address
from adapters.postgres_connections import Backend, Opening, connect
from adapters.postgres_driver import Connection
from adapters.postgres_store import PostgresStore
from domain.cursor import Cursor
from domain.envelope import Fence
from domain.errors import HeadConflict, OutcomeUnknown, StoreTimeout, StoreWriteFailed
from domain.ports import Batch, CommitStatus, Holder, Journal, Receipt
from minutebook.testing.batches import dummy_batch, end_of
from minutebook.testing.postgres_cluster import Cluster
from tests.postgres.cutting import committed, settled_for_sure
from tests.postgres.waiting import KILL, end_connections, wait_until
from tests.store.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio

START = Cursor.start("session-1")
FIRST = dummy_batch(START, "c1", (b'{"n":1}', b'{"n":2}'))
SECOND = dummy_batch(end_of(FIRST), "c2", blobs=[b"blob"], snapshot_state=b"state")
THIRD = dummy_batch(end_of(SECOND), "c3")
COMMITTED, REPLAYED, RECONCILED = CommitStatus.COMMITTED, CommitStatus.REPLAYED, CommitStatus.RECONCILED


def opening(url: str, timeout_s: float = 15.0) -> Opening:
    return Opening(address(url), "minutebook", timeout_s)


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[Journal]:
    async with PostgresStore(url, **options).open() as journal:
        yield journal


@contextlib.contextmanager
def uncommitted(url: str, batch: Batch) -> Iterator[Connection]:
    """A commit whose statement was carried out and whose transaction has not ended."""
    with connect(opening(url)) as connection:
        connection.execute("BEGIN")
        postgres_changes.commit(connection, batch, opening(url), None)
        yield connection


async def until(cluster: Cluster, statement: str, *parameters: object) -> None:
    """Wait until a statement gives a row."""
    await anyio.to_thread.run_sync(
        lambda: wait_until(lambda: bool(cluster.execute(statement, parameters)), statement)
    )


WAITING = (
    "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'minutebook' "
    "AND datname = %s"
)


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


class Traced(Connection):
    """A connection that writes down every message of the protocol, in a file of its own."""

    directory: ClassVar[Path]

    @classmethod
    def connect(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().connect(*args, **kwargs)
        made.pgconn.trace(os.open(cls.directory / str(id(made)), os.O_CREAT | os.O_WRONLY))
        return made

    @classmethod
    def writer_s(cls) -> list[list[str]]:
        """The messages sent on the connection that commits: one list for each trip to the server."""
        traces = [path.read_text().splitlines() for path in cls.directory.iterdir()]
        (trace,) = [lines for lines in traces if any("WITH moved AS" in line for line in lines)]
        trips: list[list[str]] = [[]]
        for _, side, _, kind, *_ in (line.split("\t") for line in trace if line.count("\t") >= 3):
            if side == "F":
                trips[-1].append(kind)
                trips += [[]] if kind == "Sync" else []
        return trips[:-1]


async def test_a_commit_is_one_trip_to_the_server(postgres_url: str, tmp_path: Path) -> None:
    """Counted in the protocol: what the client sends ends with one Sync for each trip."""
    Traced.directory = tmp_path
    batches = [FIRST, SECOND, THIRD, dummy_batch(end_of(THIRD), "c4", blobs=[b"blob"])]
    while len(batches) < 12:
        extras: dict[str, Any] = {"blobs": [b"%d" % len(batches)]} if len(batches) % 2 else {}
        batches.append(dummy_batch(end_of(batches[-1]), f"c{len(batches) + 1}", [b"{}"] * 3, **extras))
    async with opened(postgres_url, connection_class=Traced, connections=1) as journal:
        for batch in batches[:4]:  # after which every statement is prepared
            await journal.commit(batch)
        before = len(Traced.writer_s())
        for batch in batches[4:]:
            await journal.commit(batch)
        trips = Traced.writer_s()[before:]
    assert trips == [["Bind", "Describe", "Execute", "Sync"]] * 8


async def test_so_is_a_renewal(postgres_url: str, tmp_path: Path) -> None:
    Traced.directory = tmp_path
    async with opened(postgres_url, connection_class=Traced, connections=1) as journal:
        await journal.commit(FIRST)
        lease = await journal.leases.acquire("session-1", Holder("ours", "lease-1"), 30_000)
        fence = Fence("ours", "lease-1", lease.token)
        await journal.leases.renew("session-1", fence, 30_000)
        before = len(Traced.writer_s())
        await journal.leases.renew("session-1", fence, 40_000)
        trips = Traced.writer_s()[before:]
    assert trips == [["Bind", "Describe", "Execute", "Sync"]]


async def test_a_refused_commit_is_two_trips_and_says_why(postgres_url: str) -> None:
    async with opened(postgres_url) as journal:
        await journal.commit(FIRST)
        assert (await journal.commit(FIRST)).status is REPLAYED
        with pytest.raises(HeadConflict):
            await journal.commit(dummy_batch(START, "c9"))


async def test_a_commit_that_comes_late_writes_nothing_once_it_is_settled(postgres_url: str) -> None:
    """Its statement is still in a socket somewhere while everybody goes on."""
    async with opened(postgres_url) as journal:
        await journal.commit(FIRST)
        assert await journal.settle(SECOND) is None
        assert not stray(postgres_url, SECOND, None)
        assert await journal.command("session-1", "c2") is None
        assert (await journal.session("session-1")).sequence == 2  # type: ignore[union-attr]  # it is there
        assert (await journal.commit(SECOND)).status is COMMITTED
        assert not stray(postgres_url, SECOND, None)
        assert (await journal.commit(THIRD)).status is COMMITTED


async def test_neither_does_a_second_attempt_that_comes_late(postgres_url: str) -> None:
    """It takes the place of the void command it saw, and no later one."""
    async with opened(postgres_url) as journal:
        await journal.commit(FIRST)
        assert await journal.settle(SECOND) is None
        assert await journal.settle(SECOND) is None
        assert not stray(postgres_url, SECOND, 1)
        assert stray(postgres_url, SECOND, 2)
        assert await journal.settle(SECOND) == replace(await journal.commit(SECOND), status=RECONCILED)


async def test_a_void_command_for_a_session_that_never_began(postgres_url: str) -> None:
    async with opened(postgres_url) as journal:
        assert await journal.settle(FIRST) is None
        assert not stray(postgres_url, FIRST, None)
        assert await journal.session("session-1") is None
        assert await journal.sessions() == []
        assert (await journal.commit(FIRST)).status is COMMITTED


def stray(url: str, batch: Batch, voided: int | None) -> bool:
    """A commit's one statement, sent again by nobody who could do more: whether it wrote."""
    connection = connect(opening(url))
    wanted = postgres_changes._parameters(batch, None)
    try:
        return postgres_changes._moved(connection, batch, opening(url), wanted, voided)
    finally:
        connection.close()


@pytest.mark.parametrize("ends", ["commit", "rollback"])
async def test_settling_waits_for_a_commit_that_is_under_way(postgres_url: str, ends: str) -> None:
    async with opened(postgres_url) as journal:
        await journal.commit(FIRST)
        with uncommitted(postgres_url, SECOND) as connection:
            assert await journal.command("session-1", "c2") is None  # a look would be wrong
            with pytest.raises(OutcomeUnknown):
                postgres_changes.settle(opening(postgres_url, 0.2), SECOND, ())
            getattr(connection, ends)()
        receipt = await journal.settle(SECOND)
        assert receipt == (Receipt(RECONCILED, 3, 3, SECOND.events[-1].head) if ends == "commit" else None)
        assert (await journal.commit(SECOND)).status is (REPLAYED if ends == "commit" else COMMITTED)


async def test_settling_ends_the_server_process_that_was_asked(postgres_url: str) -> None:
    """It may hang for as long as it likes, with every lock it has."""
    async with opened(postgres_url) as journal:
        await journal.commit(FIRST)
        with uncommitted(postgres_url, SECOND) as connection:
            row = connection.execute(
                "SELECT backend_start AS started FROM pg_stat_activity WHERE pid = pg_backend_pid()"
            ).fetchone()
            assert row is not None
            started = row["started"]
            pid = connection.info.backend_pid
            somebody_else = Backend(pid, started + timedelta(seconds=1))
            with pytest.raises(OutcomeUnknown):
                postgres_changes.settle(opening(postgres_url, 0.2), SECOND, (somebody_else,))
            asked = Backend(pid, started)
            assert postgres_changes.settle(opening(postgres_url), SECOND, (asked,)) is None
            connection.close()
        assert (await journal.commit(SECOND)).status is COMMITTED


async def test_a_commit_overtaken_by_a_settlement_is_undone_as_a_whole(
    postgres_url: str, postgres_cluster: Cluster
) -> None:
    """The session's row is moved, the command's place is taken: nothing may stay of it."""
    async with opened(postgres_url) as journal:
        await journal.commit(FIRST)
        assert await journal.settle(SECOND) is None
        with psycopg.connect(postgres_url) as other:
            other.execute("SELECT 1 FROM minutebook.minutebook_sessions FOR UPDATE")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(journal.commit, SECOND)  # has seen the void command, waits for the row
                await until(postgres_cluster, WAITING, name_of(postgres_url))
                other.execute("UPDATE minutebook.minutebook_commands SET voided = 7 WHERE command_id = 'c2'")
                other.commit()
        assert await journal.settle(SECOND) == Receipt(RECONCILED, 3, 3, SECOND.events[-1].head)
        assert len(await journal.read("session-1")) == 3


async def test_an_unknown_outcome_fences_the_session_until_it_is_settled(postgres_url: str) -> None:
    failing = ["after_commit"]

    def probe(point: str) -> None:
        if point in failing:
            raise RuntimeError(point)

    async with opened(postgres_url, probe=probe) as journal:
        with pytest.raises(OutcomeUnknown):
            await journal.commit(FIRST)
        failing[:] = ["before_commit"]
        with pytest.raises(OutcomeUnknown):
            await journal.commit(SECOND)
        assert await journal.settle(FIRST) == Receipt(RECONCILED, 1, 2, FIRST.events[-1].head)
        with pytest.raises(StoreWriteFailed):
            await journal.commit(SECOND)
        failing.clear()
        assert (await journal.commit(SECOND)).status is COMMITTED


async def test_a_connection_that_was_killed_between_two_commits_is_not_noticed(
    postgres_url: str, postgres_cluster: Cluster
) -> None:
    async with opened(postgres_url, connections=1) as journal:
        for batch in (FIRST, SECOND, THIRD):
            assert (await journal.commit(batch)).status is COMMITTED
            assert await journal.read("session-1")
            await anyio.to_thread.run_sync(end_connections, postgres_cluster, name_of(postgres_url))
        assert len(await journal.read("session-1")) == 4


async def test_a_server_that_was_restarted_between_two_commits_is_not_noticed(
    own_url: str, own_cluster: Cluster
) -> None:
    async with opened(own_url, connections=1) as journal:
        await journal.commit(FIRST)
        lease = await journal.leases.acquire("session-2", Holder("ours", "lease-1"), 30_000)
        for batch, mode in ((SECOND, "fast"), (THIRD, "immediate")):
            own_cluster.restart(mode)  # type: ignore[arg-type]  # both are modes
            assert (await journal.commit(batch)).status is COMMITTED
            await journal.leases.renew("session-2", Fence("ours", "lease-1", lease.token), 30_000)


async def test_a_server_that_is_away_is_waited_for_in_time(own_url: str, own_cluster: Cluster) -> None:
    async with opened(own_url) as patient, opened(own_url, store_timeout_s=0.4) as journal:
        await patient.commit(FIRST)
        own_cluster.stop()
        with pytest.raises(StoreTimeout, match="nothing was written"):
            await journal.commit(SECOND)
        own_cluster.start()
        await committed(journal, SECOND)


async def test_a_backend_that_is_ended_in_a_commit_leaves_it_unknown(
    postgres_url: str, postgres_cluster: Cluster
) -> None:
    async with opened(postgres_url) as journal:
        await journal.commit(FIRST)
        async with held_row(postgres_url), anyio.create_task_group() as tasks:
            tasks.start_soon(expect, OutcomeUnknown, journal, SECOND)
            await until(postgres_cluster, WAITING, name_of(postgres_url))
            postgres_cluster.execute(KILL, (name_of(postgres_url),))
        assert await journal.settle(SECOND) is None
        assert (await journal.commit(SECOND)).status is COMMITTED


async def test_a_statement_that_is_cancelled_wrote_nothing(
    postgres_url: str, postgres_cluster: Cluster
) -> None:
    async with opened(postgres_url) as journal:
        await journal.commit(FIRST)
        async with held_row(postgres_url), anyio.create_task_group() as tasks:
            tasks.start_soon(expect, StoreTimeout, journal, SECOND)
            await until(postgres_cluster, WAITING, name_of(postgres_url))
            postgres_cluster.execute(KILL.replace("terminate", "cancel"), (name_of(postgres_url),))
        assert (await journal.commit(SECOND)).status is COMMITTED


async def test_a_server_process_that_hangs_leaves_it_unknown_and_settling_ends_it(postgres_url: str) -> None:
    async with (
        opened(postgres_url) as patient,
        opened(postgres_url, store_timeout_s=0.5, connections=1) as journal,
    ):
        await patient.commit(FIRST)
        pid = journal.database._first.backend.process_id  # type: ignore[attr-defined]  # a PostgresJournal
        os.kill(pid, signal.SIGSTOP)
        try:
            for _ in range(2):  # then it is fenced
                await expect(OutcomeUnknown, journal, SECOND)
            other = dummy_batch(Cursor.start("session-2"), "c1")  # by the one thread that waited for it
            await committed(journal, other)
        finally:
            os.kill(pid, signal.SIGCONT)
        settled = await settled_for_sure(journal, SECOND)
        assert (await patient.commit(SECOND)).status is (REPLAYED if settled else COMMITTED)
        assert len(await patient.read("session-1")) == 3


async def test_sixty_four_sessions_at_once(postgres_url: str) -> None:
    statuses: list[CommitStatus] = []

    async def one(journal: Journal, number: int) -> None:
        place = Cursor.start(f"session-{number}")
        for command in range(4):
            batch = dummy_batch(place, f"c{command}", blobs=[b"shared", b"%d" % number])
            statuses.append((await journal.commit(batch)).status)
            place = end_of(batch)

    async with opened(postgres_url) as journal:
        async with anyio.create_task_group() as tasks:
            for number in range(64):
                tasks.start_soon(one, journal, number)
        assert statuses == [COMMITTED] * 256
        assert {row.sequence for row in await journal.sessions()} == {4}
        assert len(await journal.sessions()) == 64


@asynccontextmanager
async def held_row(url: str) -> AsyncIterator[None]:
    """While this is entered, somebody else holds the session's row."""
    with psycopg.connect(url) as connection:
        connection.execute("SELECT 1 FROM minutebook.minutebook_sessions FOR UPDATE")
        yield


async def expect(error: type[Exception], journal: Journal, batch: Batch) -> None:
    with anyio.fail_after(PATIENCE_S), pytest.raises(error):
        await journal.commit(batch)

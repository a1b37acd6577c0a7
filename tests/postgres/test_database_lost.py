"""The database is gone in the middle of anything: a typed error in time, and all is well once it is back."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import anyio
import pytest

import minutebook as mb
from adapters.postgres_reader import open_reader
from adapters.postgres_store import PostgresStore
from domain.cursor import Cursor
from domain.envelope import Fence
from domain.errors import Fenced, MinutebookError, StoreFailure
from domain.next_steps import Action
from domain.ports import Holder, Journal, Listing
from minutebook.testing.batches import dummy_batch, end_of
from minutebook.testing.postgres_cluster import Cluster
from tests.postgres.cutting import settled_for_sure
from tests.postgres.proxy import Proxy
from tests.store.waiting import PATIENCE_S, until

pytestmark = pytest.mark.anyio

#: Of the store; enough for what works, also on a busy machine.
TIMEOUT_S = 1.0
#: How long after that a call may end: a second (measured on two cores under a load of twelve: 0.75 s at
#: most), and half of one for a test that is itself kept waiting.
GRACE_S = 1.0 + 0.5
#: libpq takes no shorter time limit for connecting.
CONNECT_S = 2.0
FIRST = dummy_batch(Cursor.start("session-1"), "c1")
SECOND = dummy_batch(end_of(FIRST), "c2")
HOLDER = Holder("w1", "l-1")
LEASED = "session-2"


@dataclass(slots=True)
class Worker:
    """Somebody who has the journal open: a session of events, and another one that it has leased."""

    proxy: Proxy
    store: PostgresStore
    journal: Journal
    fence: Fence


async def _open(worker: Worker) -> None:
    async with PostgresStore(worker.proxy.url, store_timeout_s=TIMEOUT_S, connections=3).open():
        pass


async def _look(worker: Worker) -> None:
    async with open_reader(worker.proxy.url, timeout_s=TIMEOUT_S) as reader:
        await reader.sessions()


async def _scan(worker: Worker) -> None:
    await mb.due_sessions(worker.store)


async def _subscribe(worker: Worker) -> None:
    async for _ in worker.journal.subscribe("session-1"):
        return


CALLS: dict[str, Callable[[Worker], Awaitable[object]]] = {
    "open": _open,
    "look": _look,
    "scan": _scan,
    "subscribe": _subscribe,
    "read": lambda worker: worker.journal.read("session-1"),
    "list": lambda worker: worker.journal.sessions(),
    "commit": lambda worker: worker.journal.commit(SECOND),
    "acquire": lambda worker: worker.journal.leases.acquire("session-3", HOLDER, 30_000),
    "renew": lambda worker: worker.journal.leases.renew(LEASED, worker.fence, 30_000),
    "validate": lambda worker: worker.journal.leases.validate(LEASED, worker.fence),
    "release": lambda worker: worker.journal.leases.release(LEASED, worker.fence),
    "settle": lambda worker: worker.journal.settle(SECOND),
}


@pytest.fixture
def lost(proxy: Proxy) -> Iterator[Proxy]:
    """The line; whatever a test does to it, it is whole before the store is closed."""
    yield proxy
    proxy.accept()
    proxy.thaw()


async def in_time(call: Awaitable[object], limit_s: float) -> None:
    """A typed error, and not much later than the store's timeout."""
    began = time.monotonic()
    with anyio.fail_after(PATIENCE_S), pytest.raises(MinutebookError) as told:
        await call
    assert isinstance(told.value, StoreFailure | Fenced), repr(told.value)
    assert time.monotonic() - began < limit_s


@pytest.mark.parametrize("way", ["refused", "silent"])
async def test_whatever_is_asked_ends_in_a_typed_error_and_works_again(lost: Proxy, way: str) -> None:
    store = PostgresStore(lost.url, store_timeout_s=TIMEOUT_S, connections=2)
    async with store.open() as journal:
        await journal.commit(FIRST)
        row = await journal.leases.acquire(LEASED, HOLDER, 30_000)
        worker = Worker(lost, store, journal, Fence("w1", "l-1", row.token))
        if way == "refused":
            lost.refuse()
        else:
            lost.freeze()
        async with anyio.create_task_group() as tasks:
            for name, call in CALLS.items():
                connects = CONNECT_S if name in ("open", "look") else 0
                tasks.start_soon(in_time, call(worker), TIMEOUT_S + GRACE_S + connects)
        lost.accept()
        lost.thaw()
        there = await settled_for_sure(journal, SECOND) is not None
        rows = await journal.read("session-1")
        assert rows == [*FIRST.events, *(SECOND.events if there else ())]
        await journal.leases.acquire(LEASED, HOLDER, 30_000)
        for name, call in CALLS.items():
            with anyio.fail_after(PATIENCE_S):
                await call(worker)
            assert name
        assert await journal.read("session-1") == [*FIRST.events, *SECOND.events]


async def test_a_subscriber_hears_what_was_committed_while_it_was_cut_off(lost: Proxy, own_url: str) -> None:
    heard: list[int] = []
    async with (
        PostgresStore(lost.url).open() as journal,
        PostgresStore(own_url).open() as another,
    ):
        await journal.commit(FIRST)

        async def listen() -> None:
            async for row in journal.subscribe("session-1"):
                heard.append(row.sequence)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await until(lambda: heard == [1])
            lost.lose()
            await another.commit(SECOND)
            await until(lambda: heard == [1, 2])
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("way", ["refused", "silent"])
async def test_closing_does_not_wait_for_a_database_that_is_gone(lost: Proxy, way: str) -> None:
    async with PostgresStore(lost.url, store_timeout_s=TIMEOUT_S, connections=2).open() as journal:
        await journal.commit(FIRST)
        if way == "refused":
            lost.refuse()
        else:
            lost.freeze()
        began = time.monotonic()
    assert time.monotonic() - began < TIMEOUT_S + GRACE_S


async def test_a_scan_while_the_database_is_down_fails_and_the_next_one_finds_everything(
    own_cluster: Cluster, own_url: str
) -> None:
    store = PostgresStore(own_url, store_timeout_s=TIMEOUT_S)
    going_on = Listing("open", Action.FINALIZE_REQUEST)
    async with store.open() as journal:
        await journal.commit(dummy_batch(Cursor.start("session-1"), "c1", listing=going_on))
        await anyio.to_thread.run_sync(own_cluster.stop, "immediate")
        for _ in range(3):
            await in_time(mb.due_sessions(store), TIMEOUT_S + GRACE_S)
        await in_time(journal.sessions(), TIMEOUT_S + GRACE_S)
        await anyio.to_thread.run_sync(own_cluster.start)
        assert await mb.due_sessions(store) == ["session-1"]
        assert [row.session_id for row in await journal.sessions()] == ["session-1"]

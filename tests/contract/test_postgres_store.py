"""The PostgreSQL store keeps the store contract, on both event loops."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from datetime import datetime

import psycopg
import pytest

from adapters.postgres_database import OPEN_DATABASES
from adapters.postgres_store import PostgresStore, checked_settings
from domain.ports import Clock, StoreDescription
from minutebook.testing.clock import ManualClock
from minutebook.testing.durable_contract import DurableContract
from minutebook.testing.postgres_cluster import Cluster
from minutebook.testing.store_contract import StoreContract

_TABLES = ("events", "sessions", "commands", "snapshots", "blobs")


class ClockOfTheTest:
    """The clock of whichever test runs, for a store that stays open over many."""

    def __init__(self) -> None:
        self.test_s = ManualClock()

    @property
    def boot_id(self) -> str | None:
        return self.test_s.boot_id

    def now(self) -> datetime:
        return self.test_s.now()

    def monotonic(self) -> float:
        return self.test_s.monotonic()


@pytest.fixture(scope="module")
def database_url(postgres_cluster: Cluster) -> str:
    """One database for the module."""
    return postgres_cluster.new_database()


@pytest.fixture(scope="module")
def sweeper(database_url: str) -> Iterator[Callable[[PostgresStore], None]]:
    """What empties a journal. Tables made for each test would cost more than all the tests do."""
    with psycopg.connect(database_url, autocommit=True) as connection:

        def sweep(store: PostgresStore) -> None:
            deletions = [f"DELETE FROM {store.schema}.minutebook_{name}" for name in _TABLES]
            connection.execute("; ".join(deletions).encode())

        yield sweep


@pytest.fixture(scope="module")
def opened_anew(database_url: str) -> PostgresStore:
    """A journal that is there, and that nobody has open."""
    store = PostgresStore(database_url, schema="opened_anew")
    OPEN_DATABASES.leave(OPEN_DATABASES.enter(checked_settings(store)))
    return store


@pytest.fixture(scope="module")
def kept_open(database_url: str) -> Iterator[PostgresStore]:
    """A journal that somebody in this process has open all the time."""
    store = PostgresStore(database_url, schema="kept_open", clock=ClockOfTheTest())
    database = OPEN_DATABASES.enter(checked_settings(store))
    yield store
    OPEN_DATABASES.leave(database)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
class TestPostgresStore(DurableContract, StoreContract):
    """Under asyncio each test opens the journal, with connections of its own; under trio all share
    one that is open already, as sessions in one process do. Either is emptied before each test."""

    store_description: PostgresStore

    @pytest.fixture
    def store_place(
        self,
        opened_anew: PostgresStore,
        kept_open: PostgresStore,
        sweeper: Callable[[PostgresStore], None],
        anyio_backend: str,
    ) -> None:
        self.store_description = opened_anew if anyio_backend == "asyncio" else kept_open
        sweeper(self.store_description)

    def make_store(self, clock: Clock) -> StoreDescription:
        if isinstance(self.store_description.clock, ClockOfTheTest):
            assert isinstance(clock, ManualClock)
            self.store_description.clock.test_s = clock
        else:
            self.store_description = replace(self.store_description, clock=clock)
        return self.store_description

    def same_store(self, timeout_s: float) -> StoreDescription:
        return replace(self.store_description, store_timeout_s=timeout_s)

    @asynccontextmanager
    async def held_up(self) -> AsyncIterator[None]:
        store = self.store_description
        with closing(psycopg.connect(store.url)) as connection:
            connection.execute(f"LOCK TABLE {store.schema}.minutebook_sessions".encode())
            yield

"""The SQLite store keeps the store contract: on both event loops, and without a WAL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from adapters.sqlite_driver import sqlite
from adapters.sqlite_store import SqliteStore
from domain.ports import Clock, StoreDescription
from minutebook.testing.clock_contract import HostClockContract
from minutebook.testing.durable_contract import DurableContract
from minutebook.testing.store_contract import StoreContract


class SqliteContract(DurableContract, HostClockContract, StoreContract):
    journal_mode = "auto"
    path: Path

    @pytest.fixture
    def store_place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "journal.db"

    def make_store(self, clock: Clock) -> StoreDescription:
        return SqliteStore(self.path, clock=clock, journal_mode=self.journal_mode)

    def same_store(self, timeout_s: float) -> StoreDescription:
        return SqliteStore(
            self.path, clock=self.clock, journal_mode=self.journal_mode, store_timeout_s=timeout_s
        )

    @asynccontextmanager
    async def held_up(self) -> AsyncIterator[None]:
        with closing(sqlite.connect(self.path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("ROLLBACK")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
class TestSqliteStore(SqliteContract):
    pass


@pytest.mark.anyio
class TestSqliteStoreWithoutWal(SqliteContract):
    journal_mode = "truncate"

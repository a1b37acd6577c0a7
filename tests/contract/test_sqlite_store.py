"""The SQLite store keeps the store contract: on both event loops, and without a WAL."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.sqlite_store import SqliteStore
from domain.ports import Clock, StoreDescription
from minutebook.testing.store_contract import StoreContract


class SqliteContract(StoreContract):
    journal_mode = "auto"
    path: Path

    @pytest.fixture
    def store_place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "journal.db"

    def make_store(self, clock: Clock) -> StoreDescription:
        return SqliteStore(self.path, clock=clock, journal_mode=self.journal_mode)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
class TestSqliteStore(SqliteContract):
    pass


@pytest.mark.anyio
class TestSqliteStoreWithoutWal(SqliteContract):
    journal_mode = "truncate"

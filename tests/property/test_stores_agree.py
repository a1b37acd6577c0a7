"""The stores and the model answer the same commands with the same bytes, receipts and refusals."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, settings

from adapters.memory_journal import MemoryStore
from adapters.postgres_store import PostgresStore
from adapters.sqlite_store import SqliteStore
from minutebook.testing.clock import ManualClock
from tests.property.agreement import COMES_TO, agree
from tests.property.opinions import Voice

#: The same examples every time: that each outcome occurs is part of what is tested.
FIXED = settings(
    max_examples=200,
    stateful_step_count=30,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def test_memory_sqlite_postgresql_and_the_model_agree(tmp_path: Path, postgres_url: str) -> None:
    clock = ManualClock()
    clock.boot_id = None  # a database has no boot: all of them go by the wall clock
    voices = [
        Voice("memory", MemoryStore(clock=clock)),
        Voice("SQLite", SqliteStore(tmp_path / "journal.db", clock=clock)),
        Voice("PostgreSQL", PostgresStore(postgres_url, clock=clock)),
    ]
    seen = agree(voices, clock, FIXED)
    assert [each for each in COMES_TO if not seen[each]] == []


def test_memory_and_sqlite_agree_by_the_clock_of_their_host(tmp_path: Path) -> None:
    clock = ManualClock()
    voices = [
        Voice("memory", MemoryStore(clock=clock)),
        Voice("SQLite", SqliteStore(tmp_path / "journal.db", clock=clock)),
    ]
    agree(voices, clock, settings(FIXED, max_examples=40))

"""The stores asked the same things, again and again.

Not part of the suite, because of its name; run it by naming it, or with all the long runs:

    make test ARGS=tests/property/every_agreement.py
    make chaos

The same seed gives the same run.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from adapters.memory_journal import MemoryStore
from adapters.postgres_store import PostgresStore
from adapters.sqlite_store import SqliteStore
from minutebook.testing.clock import ManualClock
from tests.long_runs import Numbers
from tests.property.agreement import COMES_TO, agree
from tests.property.opinions import Voice
from tests.property.test_stores_agree import FIXED

SEEDS = range(1, 9)
LONG = settings(FIXED, max_examples=250, stateful_step_count=60, derandomize=False)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_stores_agree_for_long(tmp_path: Path, postgres_url: str, seed: int, numbers: Numbers) -> None:
    clock = ManualClock()
    clock.boot_id = None
    voices = [
        Voice("memory", MemoryStore(clock=clock)),
        Voice("SQLite", SqliteStore(tmp_path / "journal.db", clock=clock)),
        Voice("PostgreSQL", PostgresStore(postgres_url, clock=clock)),
    ]
    seen = agree(voices, clock, LONG, seed)  # a difference ends it
    rarest = min(seen, key=lambda outcome: seen[outcome])
    note = f"{len(seen)} outcomes, the rarest {seen[rarest]} times: {rarest}"
    numbers.add("stores asked the same things", {"cases": seen.total(), "wrong": 0}, seed=seed, note=note)
    assert [each for each in COMES_TO if not seen[each]] == []

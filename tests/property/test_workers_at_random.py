"""Workers that crash, stand still, lose their lease, hand over and take over, in any order, over every store.

Nothing is lost and nothing is done twice. A cut through it; for long: `every_pair_of_workers.py`.
"""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, settings

from adapters.memory_journal import MemoryStore
from adapters.postgres_store import PostgresStore
from adapters.sqlite_store import SqliteStore
from minutebook.testing.clock import ManualClock
from tests.property.shared import ServersClock
from tests.property.workers_machine import run
from tests.property.workers_scene import Counts

FIXED = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

SEED = 3

#: What a run has to come to at least once.
COMES_TO = [
    "abort: done",
    "answer: done",
    "close: done",
    "crashes: gone",
    "decide: a model's outcome",
    "decide: a tool's outcome",
    "decide: abandoned",
    "decide: an unsettled effect",
    "hand over: done",
    "heartbeat: done",
    "leaves: gone",
    "open: DURABLE_EXECUTION_LEASE_CONFLICT",
    "open: created",
    "open: resumed",
    "open: somebody has to decide",
    "send: DURABLE_EXECUTION_LEASE_LOST",
    "send: done",
    "tool: raises",
    "tool: returns",
    "wake: in time",
    "wake: lost",
]


def test_two_workers_over_a_store_in_memory() -> None:
    clock, counts = ManualClock(), Counts()
    run(MemoryStore(clock=clock), clock, FIXED, counts, SEED)
    assert [each for each in COMES_TO if not counts.seen[each]] == [], counts.seen


def test_two_workers_over_a_file(tmp_path: Path) -> None:
    clock = ManualClock()
    run(
        SqliteStore(tmp_path / "journal.db", clock=clock),
        clock,
        settings(FIXED, max_examples=10),
        Counts(),
        SEED,
    )


def test_two_workers_over_a_server(postgres_url: str) -> None:
    """The server has a clock of its own, which is not set when the workers' is."""
    clock = ManualClock()
    store = PostgresStore(postgres_url, clock=ServersClock(clock))
    run(store, clock, settings(FIXED, max_examples=10), Counts(), SEED)

"""Workers that crash, stand still, lose their lease, hand over and take over, in any order, over every store.

Nothing is lost and nothing is done twice. A cut through it; for long: `every_pair_of_workers.py`.
"""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, settings

from adapters.memory_journal import MemoryStore
from adapters.postgres_store import PostgresStore
from adapters.sqlite_store import SqliteStore
from domain.ports import StoreDescription
from minutebook.testing.clock import ManualClock
from tests.property.shared import Counts, ServersClock
from tests.property.workers_machine import place_for, play, run

MOVES_EACH = 20
#: The same examples every time: that each outcome occurs is part of what is tested.
FIXED = settings(
    max_examples=20,
    stateful_step_count=MOVES_EACH,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
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
    "hand over: SESSION_HANDOFF_ACTIVE_WORK",
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


def played(store: StoreDescription, clock: ManualClock, sessions: int) -> Counts:
    """Play some sessions by lot, and a few as Hypothesis likes, which makes a failure small."""
    counts = Counts()
    with place_for(store, clock, counts) as place:
        for number in range(sessions):
            play(place, MOVES_EACH, f"{number}")
        run(place, settings(FIXED, max_examples=max(1, sessions // 5)))
    return counts


def test_two_workers_over_a_store_in_memory() -> None:
    clock = ManualClock()
    seen = played(MemoryStore(clock=clock), clock, 62).seen
    assert [each for each in COMES_TO if not seen[each]] == [], seen


def test_two_workers_over_a_file(tmp_path: Path) -> None:
    clock = ManualClock()
    played(SqliteStore(tmp_path / "journal.db", clock=clock), clock, 12)


def test_two_workers_over_a_server(postgres_url: str) -> None:
    """The server has a clock of its own, which is not set when the workers' is."""
    clock = ManualClock()
    played(PostgresStore(postgres_url, clock=ServersClock(clock)), clock, 10)

"""Two workers of a session, and everything that may happen to them, over every store, for minutes.

Not part of the suite, because of its name; run it by naming it, or with all the long runs:

    make test ARGS=tests/property/every_pair_of_workers.py
    make chaos

Of the moves that are possible, one is preferred that was tried least where the session stands, so
that every move is tried everywhere. The same seed gives the same run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

from adapters.memory_journal import MemoryStore
from adapters.postgres_store import PostgresStore
from adapters.sqlite_store import SqliteStore
from domain.ports import StoreDescription
from minutebook.testing.clock import ManualClock
from tests.long_runs import Numbers
from tests.property.shared import Counts, ServersClock
from tests.property.workers_machine import place_for, play

SEED: Final = 1
#: Sessions in each store.
SESSIONS: Final = {"memory": 1_200, "SQLite": 500, "PostgreSQL": 300}
MOVES_EACH: Final = 25
#: So often at least every move has to be tried wherever it is possible.
ENOUGH: Final = 20

#: What comes next where a session can rest while a worker has it: for a person, the world, or the clock.
AT_REST: Final = (
    "none",
    "next_attempt",
    "reconcile_model_outcome",
    "reconcile_tool_outcomes",
    "resolve_permissions",
    "start_tool",
)
#: And where it is only left by a worker that crashed or stands still.
LEFT: Final = ("resume_request", "start_next_request", "complete_turn")
#: What needs no worker that is awake, and what does.
ALWAYS: Final = ("open", "decide", "time_passes", "the_wall_clock_is_set")
AWAKE: Final = (
    *("leave", "crash", "stand_still", "heart_beats", "the_next_commit_fails"),
    *("send", "abort", "hand_over", "close"),
)
#: A worker that was overtaken, or that somebody decides beside, makes other pairs possible; they are rare.
POSSIBLE: Final = [
    *product((*AT_REST, *LEFT), ALWAYS),
    *product(AT_REST, AWAKE),
    ("resolve_permissions", "answer"),
    ("reconcile_model_outcome", "the_model_answers"),
    ("start_tool", "a_tool_ends"),
    ("reconcile_tool_outcomes", "a_tool_ends"),
]


def stores(place: Path, url: str) -> Iterator[tuple[str, StoreDescription, ManualClock]]:
    """Every store, and the clock of those who use it."""
    clock = ManualClock()
    yield "memory", MemoryStore(clock=clock), clock
    clock = ManualClock()
    yield "SQLite", SqliteStore(place / "journal.db", clock=clock), clock
    clock = ManualClock()
    yield "PostgreSQL", PostgresStore(url, clock=ServersClock(clock)), clock


def test_two_workers_for_long(tmp_path: Path, postgres_url: str, numbers: Numbers) -> None:
    cells: Counter[tuple[str, str]] = Counter()
    for name, store, clock in stores(tmp_path, postgres_url):
        counts = Counts(cells=cells)
        before = cells.total()
        with place_for(store, clock, counts) as place:
            for number in range(SESSIONS[name]):
                play(place, MOVES_EACH, f"{SEED} {name} {number}")  # what does not hold ends it
        note = f"moves in {SESSIONS[name]} sessions"
        told = {"cases": cells.total() - before, "wrong": 0}
        numbers.add(f"two workers at random, {name}", told, seed=SEED, note=note)
    rare = {cell: cells[cell] for cell in POSSIBLE if cells[cell] < ENOUGH}
    least = min(cells[cell] for cell in POSSIBLE)
    numbers.add("pairs of what comes next and a move", {"cases": len(POSSIBLE)}, note=f"each {least} times")
    assert rare == {}

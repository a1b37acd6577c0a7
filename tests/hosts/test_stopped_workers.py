"""A worker that stands still, anywhere, for any time: what it does when it wakes harms nobody.

A cut through the schedules; all of them are in `every_schedule.py` (`make chaos`).
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from minutebook.testing.postgres_cluster import Cluster
from tests.hosts.schedules import Outcome, Pair, Schedule, matrix, play_all
from tests.hosts.stopping import MOMENTS

ON_A_FILE = [
    *(Schedule("sqlite", moment, "after takeover") for moment in MOMENTS),
    Schedule("sqlite", "transaction", "never"),
    Schedule("sqlite", "model", "in time", "set back"),
    Schedule("sqlite", "committed", "too late", "set back"),
    Schedule("sqlite", "before effect", "after the end", "first behind"),
    Schedule("sqlite", "heartbeat", "after the end", "first ahead"),
]
ON_A_SERVER = [
    Schedule("postgres", "transaction", "after takeover"),
    Schedule("postgres", "committed", "after the end", "first ahead"),
    Schedule("postgres", "heartbeat", "too late", "set back"),
    Schedule("postgres", "before effect", "never", "second ahead"),
    Schedule("postgres", "handoff", "after takeover", "second behind"),
]

Outcomes = Mapping[Schedule, Outcome]


@pytest.fixture(scope="module")
def on_a_file(pairs: list[Pair]) -> Outcomes:
    """What came of the schedules on SQLite, several played at a time."""
    return dict(zip(ON_A_FILE, play_all(ON_A_FILE, pairs, None), strict=True))


@pytest.fixture(scope="module")
def on_a_server(pairs: list[Pair], postgres_cluster: Cluster) -> Outcomes:
    """The same on PostgreSQL."""
    return dict(zip(ON_A_SERVER, play_all(ON_A_SERVER, pairs, postgres_cluster), strict=True))


@pytest.mark.parametrize("schedule", ON_A_FILE, ids=str)
def test_a_worker_that_stood_still_on_one_file(schedule: Schedule, on_a_file: Outcomes) -> None:
    assert on_a_file[schedule].wrong == []


@pytest.mark.parametrize("schedule", ON_A_SERVER, ids=str)
def test_a_worker_that_stood_still_on_one_server(schedule: Schedule, on_a_server: Outcomes) -> None:
    assert on_a_server[schedule].wrong == []


def test_the_long_run_plays_what_was_promised() -> None:
    assert len(set(matrix("sqlite"))) == len(set(matrix("postgres"))) == 270

"""A worker that stands still, anywhere, for any time: what it does when it wakes harms nobody.

A cut through the schedules; all of them are in `every_schedule.py` (`make chaos`).
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from minutebook.testing.postgres_cluster import Cluster
from tests.hosts.outcomes import TAKEN_S, Outcome, Schedule, matrix, wrong_takeover
from tests.hosts.schedules import Pair, play, play_all, stage
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


def test_a_schedule_that_does_not_end_is_ended_and_says_what_was_told(pairs: list[Pair]) -> None:
    schedule = Schedule("sqlite", "model", "after takeover")
    with stage(pairs[0], "sqlite", None) as on:
        stuck = play(schedule, on, limit_s=0.2)
    assert "it did not end within 0.2 s" in stuck.wrong
    assert stuck.wrong[-1].startswith("what was told: [[")
    with stage(pairs[0], "sqlite", None) as on:
        assert play(schedule, on).wrong == []


def test_a_takeover_that_is_too_late_is_wrong_whatever_the_load_is() -> None:
    schedule = Schedule("sqlite", "model", "never")
    late, in_time = Outcome(schedule, TAKEN_S + 0.6, 0.5), Outcome(schedule, TAKEN_S + 0.4, 0.5)
    assert [len([*wrong_takeover(o)]) for o in (late, in_time, Outcome(schedule))] == [1, 0, 1]


def test_the_long_run_plays_what_was_promised() -> None:
    assert len(set(matrix("sqlite"))) == len(set(matrix("postgres"))) == 270

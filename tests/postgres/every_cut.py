"""Every place at which a connection can break, at every commit of a session. Takes some minutes.

Not part of the suite, because of its name; run it by naming it, or with `make chaos`.
Nothing in it is drawn by lot: each run breaks at the same places.
"""

from __future__ import annotations

import pytest

from minutebook.testing.postgres_cluster import Cluster
from tests.postgres.cutting import LEAVES, Tally, bench
from tests.postgres.held import session_that_ended_with_a_held_commit, session_with_a_held_commit
from tests.postgres.proxy import Place
from tests.postgres.test_cut_sessions import Sessions, cut_session
from tests.session.test_store_faults import COMMITS

pytestmark = pytest.mark.anyio

BOUNDARIES = 60


@pytest.mark.parametrize("place", LEAVES)
async def test_every_commit_of_a_long_session(
    own_cluster: Cluster, own_url: str, place: Place, numbers: list[str]
) -> None:
    tally = Tally()
    try:
        async with bench(own_cluster, own_url) as running:
            running.tally = tally
            await running.run_through(place, BOUNDARIES)
    finally:
        numbers.append(f"{place}: {tally}")
    assert (tally.runs, tally.lost, tally.doubled) == (BOUNDARIES, 0, 0)


@pytest.mark.parametrize("place", LEAVES)
async def test_every_commit_of_a_real_session(own_cluster: Cluster, place: Place, numbers: list[str]) -> None:
    sessions = Sessions()
    try:
        for boundary in range(1, COMMITS + 1):
            url = own_cluster.new_database()
            await cut_session(own_cluster, url, place, boundary, sessions)
            own_cluster.drop_database(url)
    finally:
        numbers.append(f"{place}: {sessions}")
    assert (sessions.played, sessions.lost, sessions.doubled) == (COMMITS, 0, 0)


@pytest.mark.parametrize("late", ["at once", "at the end"])
async def test_every_commit_of_a_real_session_held_up(
    own_cluster: Cluster, late: str, numbers: list[str]
) -> None:
    sessions, settled = Sessions(), 0
    try:
        for boundary in range(1, COMMITS + 1):
            url = own_cluster.new_database()
            settled += await session_with_a_held_commit(
                own_cluster, url, boundary, sessions, at_once=late == "at once"
            )
            own_cluster.drop_database(url)
    finally:
        numbers.append(f"held up, delivered {late}: {sessions}; {settled} commits settled and made again")
    assert (sessions, settled) == (Sessions(COMMITS), COMMITS)


async def test_every_commit_that_an_ended_session_left(own_cluster: Cluster, numbers: list[str]) -> None:
    sessions = Sessions()
    try:
        for boundary in range(1, COMMITS + 1):
            url = own_cluster.new_database()
            await session_that_ended_with_a_held_commit(own_cluster, url, boundary, sessions)
            own_cluster.drop_database(url)
    finally:
        numbers.append(f"held up, delivered after another worker went on: {sessions}")
    assert sessions == Sessions(COMMITS, resumed=COMMITS)

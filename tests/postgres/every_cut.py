"""Every place at which a connection can break, at every commit of a session. Takes some minutes.

Not part of the suite, because of its name; run it by naming it, or with `make chaos`.
Nothing in it is drawn by lot: each run breaks at the same places.
"""

from __future__ import annotations

import pytest

from minutebook.testing.postgres_cluster import Cluster
from tests.long_runs import Numbers
from tests.postgres.cutting import LEAVES, Tally, bench
from tests.postgres.held import session_that_ended_with_a_held_commit, session_with_a_held_commit
from tests.postgres.proxy import Place
from tests.postgres.test_cut_sessions import Sessions, cut_session
from tests.session.test_store_faults import COMMITS

pytestmark = pytest.mark.anyio

BOUNDARIES = 60


def tell(numbers: Numbers, what: str, sessions: Sessions, how: str) -> None:
    """Say what became of many sessions."""
    counts = {"cases": sessions.played, "lost": sessions.lost, "doubled": sessions.doubled}
    numbers.add(what, counts, note=f"{how}; {sessions.resumed} resumed")


@pytest.mark.parametrize("place", LEAVES)
async def test_every_commit_of_a_long_session(
    own_cluster: Cluster, own_url: str, place: Place, numbers: Numbers
) -> None:
    tally = Tally()
    try:
        async with bench(own_cluster, own_url) as running:
            running.tally = tally
            await running.run_through(place, BOUNDARIES)
    finally:
        counts = {"cases": tally.runs, "lost": tally.lost, "doubled": tally.doubled}
        numbers.add("connection cuts", counts, note=f"{place}: {tally}")
    assert (tally.runs, tally.lost, tally.doubled) == (BOUNDARIES, 0, 0)


@pytest.mark.parametrize("place", LEAVES)
async def test_every_commit_of_a_real_session(own_cluster: Cluster, place: Place, numbers: Numbers) -> None:
    sessions = Sessions()
    try:
        for boundary in range(1, COMMITS + 1):
            url = own_cluster.new_database()
            await cut_session(own_cluster, url, place, boundary, sessions)
            own_cluster.drop_database(url)
    finally:
        tell(numbers, "sessions with a cut", sessions, str(place))
    assert (sessions.played, sessions.lost, sessions.doubled) == (COMMITS, 0, 0)


@pytest.mark.parametrize("late", ["at once", "at the end"])
async def test_every_commit_of_a_real_session_held_up(
    own_cluster: Cluster, late: str, numbers: Numbers
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
        tell(numbers, "held commits", sessions, f"delivered {late}; {settled} settled and made again")
    assert (sessions, settled) == (Sessions(COMMITS), COMMITS)


async def test_every_commit_that_an_ended_session_left(own_cluster: Cluster, numbers: Numbers) -> None:
    sessions = Sessions()
    try:
        for boundary in range(1, COMMITS + 1):
            url = own_cluster.new_database()
            await session_that_ended_with_a_held_commit(own_cluster, url, boundary, sessions)
            own_cluster.drop_database(url)
    finally:
        tell(numbers, "held commits", sessions, "delivered after another worker went on")
    assert sessions == Sessions(COMMITS, resumed=COMMITS)

"""Every place at which a connection can break, at every commit of a session. Takes some minutes.

Not part of the suite, because of its name; run it by naming it, or with `make chaos`.
Nothing in it is drawn by lot: each run breaks at the same places.
"""

from __future__ import annotations

import pytest

from minutebook.testing.postgres_cluster import Cluster
from tests.postgres.cutting import LEAVES, Tally, bench
from tests.postgres.proxy import Place
from tests.postgres.test_cut_sessions import cut_session
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
    resumed = 0
    for boundary in range(1, COMMITS + 1):
        url = own_cluster.new_database()
        resumed += await cut_session(own_cluster, url, place, boundary)
        own_cluster.drop_database(url)
    numbers.append(f"{place}: {COMMITS} sessions, {resumed} ended in an error and were resumed, 0 lost")

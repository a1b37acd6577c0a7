"""The connection breaks in the middle of a commit, at every place: the outcome is decided, and is true.

A sample; `make chaos` breaks it at every boundary of a longer session (`every_cut.py`).
"""

from __future__ import annotations

import pytest

from minutebook.testing.postgres_cluster import Cluster
from tests.postgres.cutting import LEAVES, bench
from tests.postgres.proxy import Place

pytestmark = pytest.mark.anyio

COMMITS = 6
#: A late answer takes the store's whole timeout, so not at every boundary.
BOUNDARIES = dict.fromkeys(LEAVES, (1, 2, 3, 4, 5, 6)) | {Place.LATE: (1, 5)}


@pytest.mark.parametrize("place", LEAVES)
async def test_a_cut_commit_is_there_once_or_not_at_all(
    own_cluster: Cluster, own_url: str, place: Place
) -> None:
    async with bench(own_cluster, own_url) as running:
        for boundary in BOUNDARIES[place]:
            await running.run(place, boundary, COMMITS)
        assert (running.tally.lost, running.tally.doubled) == (0, 0)
        assert running.tally.runs == len(BOUNDARIES[place])


def test_the_sample_is_big_enough() -> None:
    assert sum(map(len, BOUNDARIES.values())) >= 40

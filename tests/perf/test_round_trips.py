"""G-D4, counted on the wire: a commit to PostgreSQL is one round trip, whatever is in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

import minutebook as mb
from bench.ours.commit import batches, fence_of
from bench.ours.postgres import NOTIFICATION
from bench.turns import Turns

pytestmark = pytest.mark.anyio

#: The connection prepares its statements in the first ones.
FIRST, COUNTED = 12, 10


@pytest.mark.parametrize("events", [1, 3, 20])
async def test_a_fenced_commit_is_one_round_trip(postgres_url: str, events: int) -> None:
    with Turns(postgres_url, NOTIFICATION) as turns:
        async with replace(mb.postgres(turns.url), connections=1).open() as journal:
            made = batches("s", events, FIRST + COUNTED, await fence_of(journal, "s"))
            for batch in made[:FIRST]:
                await journal.commit(batch)
            before = turns.so_far()
            for batch in made[FIRST:]:
                await journal.commit(batch)
            after = turns.so_far()
        assert turns.between(before, after)[0] == COUNTED

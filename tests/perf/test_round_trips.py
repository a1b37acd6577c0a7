"""What a commit to PostgreSQL costs, counted: round trips (G-D4), bytes of the log, calls in the client."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing
from itertools import pairwise
from types import FrameType

import pytest

import minutebook as mb
from adapters import postgres_changes
from adapters.postgres_address import address
from adapters.postgres_connections import Opening, connect
from bench.limits.postgres import RawCommits
from bench.ours.commit import batches, bodies, fence_of
from bench.ours.postgres import round_trips
from domain.ports import Batch
from minutebook.testing.postgres_cluster import Cluster

pytestmark = pytest.mark.anyio

COUNTED = 10
EVENTS = 3


@pytest.mark.parametrize("events", [1, 3, 20])
async def test_a_fenced_commit_is_one_round_trip(postgres_url: str, events: int) -> None:
    waited_for, _ = await round_trips(postgres_url, events, COUNTED)
    assert waited_for == 1


async def test_a_commit_logs_little_more_than_its_bare_rows(
    postgres_url: str, postgres_cluster: Cluster
) -> None:
    """The write-ahead log is what a commit waits for: one more index or one more column shows here."""

    async def logged(commit: Callable[[Batch], Awaitable[object]], made: Iterable[Batch]) -> float:
        marks = [position(postgres_cluster)]
        for batch in made:
            await commit(batch)
            marks.append(position(postgres_cluster))
        return statistics.median(after - before for before, after in pairwise(marks))

    async def bare(batch: Batch) -> None:
        raw.commit(batch.session_id, batch.expected_sequence, bodies(batch))

    async with mb.postgres(postgres_url).open() as journal:
        fence = await fence_of(journal, "s")
        ours = await logged(journal.commit, batches("s", EVENTS, COUNTED, fence))
    with closing(RawCommits(postgres_url)) as raw:
        plain = await logged(bare, batches("raw", EVENTS, COUNTED))
    assert ours <= 1.3 * plain


def position(cluster: Cluster) -> int:
    """How far the server's log goes, in bytes."""
    return int(cluster.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")[0][0])


async def test_a_commit_takes_few_calls_in_the_client(postgres_url: str) -> None:
    """All of Python's in the thread that works, the driver's too: it has a dearer way to send values."""
    opening = Opening(address(postgres_url), "minutebook", 15.0)
    async with mb.postgres(postgres_url).open() as journal:
        made = batches("s", EVENTS, 3, await fence_of(journal, "s"))
    with closing(connect(opening)) as connection:
        postgres_changes.commit(connection, made[0], opening, None)
        calls = calls_of(lambda: postgres_changes.commit(connection, made[1], opening, None))
        postgres_changes.commit(connection, made[2], opening, None)
    assert calls <= 75


def calls_of(work: Callable[[], object]) -> int:
    """How many functions written in Python this calls."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls

"""A whole session over connections that break: it goes on, or ends in a typed error and is resumed.

Whatever happens, both requests end well, nobody pays twice, and the journal is whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from adapters.postgres_store import PostgresStore
from domain.envelope import Recorded
from domain.errors import Fenced, MinutebookError, StoreFailure
from minutebook import stream_events as se
from minutebook.testing.faulty_store import FaultyStore
from minutebook.testing.postgres_cluster import Cluster
from minutebook.testing.scripted import Gate
from tests.postgres.cutting import COMMIT, LEAVES, TIMEOUT_S
from tests.postgres.proxy import Place as Cutting
from tests.postgres.proxy import Proxy
from tests.session.harness import Hands, Place
from tests.session.test_store_faults import COMMITS, check_ended, finish, play

pytestmark = pytest.mark.anyio

#: Where a connection may break in the sample, and in which commit of the session.
SAMPLE = [
    (place, 1 + (3 * number + 1) % COMMITS)
    for number, place in enumerate(LEAVES)
    if place is not Cutting.LATE
]


def place_of(url: str, timeout_s: float = TIMEOUT_S) -> Place:
    """A place whose store is that database."""
    return Place(FaultyStore(PostgresStore(url, store_timeout_s=timeout_s, connections=2)))


@asynccontextmanager
async def open_all_the_time(place: Place) -> AsyncIterator[None]:
    """Another session's handle, as a worker has it: what the store knows does not end with a session."""
    async with place.store.inner.open() as journal:
        yield
        await journal.session("s1")


async def let_leases_run_out(cluster: Cluster, url: str) -> None:
    """What a worker could not give back because the server was away."""
    statement = "UPDATE minutebook.minutebook_sessions SET expires_at = clock_timestamp()"
    await anyio.to_thread.run_sync(lambda: cluster.execute(statement, url=url))


async def error_of(played: Awaitable[None]) -> MinutebookError | None:
    """The error that a session ends in; None: it came to its end."""
    try:
        await played
    except MinutebookError as error:
        return error
    return None


@dataclass(slots=True)
class Sessions:
    """What became of many sessions.

    Args:
        resumed: those that ended in an error and were resumed.
        lost: inputs that were accepted and whose request has not ended well.
        doubled: payments beyond the first one.
    """

    played: int = 0
    resumed: int = 0
    lost: int = 0
    doubled: int = 0

    def add(self, events: Sequence[Recorded], hands: Hands, *, resumed: bool) -> None:
        """Count one that has come to its end."""
        accepted = {e.data.input_id for e in events if e.type == "input_accepted"}
        completed = sum(e.type == "request_completed" for e in events)
        self.played += 1
        self.resumed += resumed
        self.lost += len({"i1", "i2"} | accepted) - completed
        self.doubled += max(0, hands.done.count("rent") - 1)

    def __str__(self) -> str:
        return f"{self.played} sessions, {self.resumed} resumed; {self.lost} lost, {self.doubled} doubled"


async def cut_session(
    cluster: Cluster, url: str, cutting: Cutting, boundary: int, sessions: Sessions | None = None
) -> None:
    """A session whose connection breaks in its n-th commit."""
    with Proxy(cluster, url) as proxy:
        place, hands, told = place_of(proxy.url), Hands(), list[Any]()
        async with open_all_the_time(place):
            cut = proxy.arm(cutting, COMMIT, skip=boundary - 1)
            error = await error_of(play(place, hands, told))
            assert cut.reached.is_set(), f"the session has no {boundary} commits"
            await anyio.to_thread.run_sync(cut.wait)
            if error is not None:
                assert error.code != MinutebookError.code
                await let_leases_run_out(cluster, url)
                await finish(place, hands)
            else:
                assert [type(event) for event in told].count(se.Result) == 2
            events = await place.events()
            if sessions is not None:
                sessions.add(events, hands, resumed=error is not None)
            check_ended(events, hands)
            await place.check()


@pytest.mark.parametrize(("cutting", "boundary"), SAMPLE)
async def test_a_session_survives_a_cut(
    own_cluster: Cluster, own_url: str, cutting: Cutting, boundary: int
) -> None:
    await cut_session(own_cluster, own_url, cutting, boundary)


async def test_a_server_that_is_back_soon_is_not_noticed(own_cluster: Cluster, own_url: str) -> None:
    place, hands, gate = place_of(own_url, timeout_s=15), Hands(), Gate()
    hands.gates["rent"], told = gate, list[Any]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(play, place, hands, told)
        await gate.reached()
        await anyio.to_thread.run_sync(own_cluster.restart, "immediate")
        gate.open()
    assert [type(event) for event in told].count(se.Result) == 2
    check_ended(await place.events(), hands)
    await place.check()


async def test_a_server_that_is_down_stops_a_request_and_resuming_goes_on(
    own_cluster: Cluster, own_url: str
) -> None:
    place, hands, gate = place_of(own_url, timeout_s=1.0), Hands(), Gate()
    hands.gates["rent"] = gate
    errors: list[MinutebookError | None] = []

    async def fails() -> None:
        errors.append(await error_of(play(place, hands, [])))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fails)
        await gate.reached()
        await anyio.to_thread.run_sync(own_cluster.stop, "immediate")
        gate.open()
    (error,) = errors
    assert isinstance(error, Fenced | StoreFailure), repr(error)
    assert hands.done == ["x", "rent"]
    await anyio.to_thread.run_sync(own_cluster.start)
    del hands.gates["rent"]
    await let_leases_run_out(own_cluster, own_url)
    await finish(place, hands)
    check_ended(await place.events(), hands)
    assert hands.done.count("rent") == 1
    await place.check()

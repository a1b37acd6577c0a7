"""A commit that is held up on its way, and delivered after it was settled: it does not come back.

Its sender has gone, its connection is open, a server process waits to carry it out. Everything
here is done twice: by somebody who may end that process, and by somebody who may not. `make chaos`
does it at every commit of a session (`every_cut.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace

import pytest

from adapters.postgres_store import PostgresStore
from domain.cursor import Cursor
from domain.envelope import Fence
from domain.errors import OutcomeUnknown
from domain.ports import Batch, CommitStatus, Holder, Journal
from minutebook.testing.batches import dummy_batch, end_of
from minutebook.testing.postgres_cluster import Cluster
from tests.postgres.cutting import COMMIT, committed, settled_for_sure
from tests.postgres.held import (
    SETTLE,
    cannot_end_backends,
    deliver,
    session_that_ended_with_a_held_commit,
    session_with_a_held_commit,
)
from tests.postgres.proxy import Cut, Place, Proxy
from tests.postgres.test_cut_sessions import Sessions

pytestmark = pytest.mark.anyio

#: Never reached: what breaks here breaks at once.
TIMEOUT_S = 10.0
#: Reached by a commit whose answer does not come.
GIVEN_UP_S = 0.5
HOLDER = Holder("w1", "l-1")
FENCE = Fence("w1", "l-1", 1)
#: A session's first commit or its second, under a lease or without.
KINDS = {"new": (1, False), "next": (2, False), "new, leased": (1, True), "leased": (2, True)}
#: Where a statement that settles can be cut, and nobody knows whether it has.
CUTS = (Place.BEFORE, Place.CARRIED_OUT, Place.COMMITTED, Place.LEFT_BEHIND)


def batches_of(fenced: bool) -> list[Batch]:
    """A session's commits, under a lease or without."""
    at, batches = Cursor.start("session-1"), list[Batch]()
    for number in range(1, 4):
        batch = dummy_batch(
            at, f"c{number}", [b'{"n":%d}' % n for n in range(number)], blobs=[b"%d" % number]
        )
        batches.append(replace(batch, fence=FENCE if fenced else None))
        at = end_of(batch)
    return batches


@dataclass(slots=True)
class Held:
    """A commit that is held up and of which nobody knows; what is before it is in the journal.

    Args:
        through: a journal behind the proxy. around: one that is not.
        alone: whether nobody may end the server process that waits for it.
    """

    proxy: Proxy
    through: Journal
    around: Journal
    cut: Cut
    batch: Batch
    before: list[Batch]
    alone: bool

    async def check(self, *batches: Batch) -> None:
        """The journal is these batches, each once."""
        rows = await self.around.read("session-1")
        assert rows == [event for batch in batches for event in batch.events]
        for batch in batches:
            assert await self.around.command("session-1", batch.command_id) is not None

    async def deliver(self) -> None:
        """The server gets it, if there is still a process to get it."""
        await deliver(self.cut)
        assert self.cut.answered is self.alone

    async def commit_again(self) -> None:
        """As a session does: the same batch, once more."""
        assert (await self.through.commit(self.batch)).status is CommitStatus.COMMITTED
        await self.check(*self.before, self.batch)


@pytest.fixture(params=["ended", "left alone"])
def writer(request: pytest.FixtureRequest, own_cluster: Cluster, own_url: str) -> Iterator[tuple[str, bool]]:
    """Whose the journal is, and whether the server process that was asked is left alone."""
    if request.param == "ended":
        yield own_url, False
        return
    with cannot_end_backends(own_cluster, own_url) as url:
        yield url, True


@pytest.fixture(params=KINDS)
async def held(
    request: pytest.FixtureRequest, own_cluster: Cluster, writer: tuple[str, bool]
) -> AsyncIterator[Held]:
    """A commit of one of these kinds; its connection breaks."""
    (number, fenced), (url, alone) = KINDS[request.param], writer
    async with holding(own_cluster, url, number, fenced, alone, Place.LEFT_BEHIND, TIMEOUT_S) as found:
        yield found


@contextlib.asynccontextmanager
async def holding(
    cluster: Cluster, url: str, number: int, fenced: bool, alone: bool, place: Place, timeout_s: float
) -> AsyncIterator[Held]:
    """Hold up the n-th commit of a session."""
    *before, batch = batches_of(fenced)[:number]
    async with contextlib.AsyncExitStack() as stack:
        proxy = stack.enter_context(Proxy(cluster, url))
        store = PostgresStore(proxy.url, store_timeout_s=timeout_s, connections=2)
        around = await stack.enter_async_context(PostgresStore(url).open())
        through = await stack.enter_async_context(store.open())
        if fenced:
            await around.leases.acquire("session-1", HOLDER, 60_000)
        for each in before:
            await around.commit(each)
        cut = proxy.arm(place, COMMIT)
        with pytest.raises(OutcomeUnknown):
            await through.commit(batch)
        assert cut.reached.is_set()
        try:
            yield Held(proxy, through, around, cut, batch, before, alone)
        finally:
            cut.go_on.set()


@pytest.mark.parametrize("number", [1, 2])
async def test_its_sender_gives_up_waiting(
    own_cluster: Cluster, writer: tuple[str, bool], number: int
) -> None:
    url, alone = writer
    async with holding(own_cluster, url, number, True, alone, Place.HELD, GIVEN_UP_S) as held:
        assert await settled_for_sure(held.through, held.batch) is None
        await committed(held.through, held.batch)
        await held.deliver()
        await held.check(*held.before, held.batch)


async def test_it_comes_before_the_commit_is_made_again(held: Held) -> None:
    assert await held.through.settle(held.batch) is None
    await held.deliver()
    await held.check(*held.before)
    assert await held.through.settle(held.batch) is None
    await held.commit_again()


async def test_it_comes_after_the_commit_was_made_again(held: Held) -> None:
    assert await held.through.settle(held.batch) is None
    await held.commit_again()
    await held.deliver()
    await held.check(*held.before, held.batch)
    assert (await held.through.commit(held.batch)).status is CommitStatus.REPLAYED


async def test_it_comes_after_another_commit_took_its_place(held: Held) -> None:
    assert await held.through.settle(held.batch) is None
    instead = replace(dummy_batch(Cursor.start("session-1"), "other"), fence=held.batch.fence)
    if held.before:
        instead = replace(dummy_batch(end_of(held.before[-1]), "other"), fence=held.batch.fence)
    await held.around.commit(instead)
    await held.deliver()
    await held.check(*held.before, instead)
    assert await held.through.settle(held.batch) is None


async def test_it_comes_before_anybody_has_settled(held: Held) -> None:
    """Then it is there, and settling says so."""
    await deliver(held.cut)
    assert held.cut.answered, "nobody has ended it yet"
    with pytest.raises(OutcomeUnknown):
        await held.through.commit(held.batch)
    settled = await held.through.settle(held.batch)
    assert settled is not None
    assert settled.status is CommitStatus.RECONCILED
    await held.check(*held.before, held.batch)
    assert (await held.through.commit(held.batch)).status is CommitStatus.REPLAYED


@pytest.mark.parametrize("held", ["new", "leased"], indirect=True)
@pytest.mark.parametrize("place", CUTS)
async def test_settling_is_cut_too(held: Held, place: Place) -> None:
    """It stays unknown and fenced; whatever of the two comes late changes nothing any more."""
    cut = held.proxy.arm(place, SETTLE)
    with pytest.raises(OutcomeUnknown):
        await held.through.settle(held.batch)
    with pytest.raises(OutcomeUnknown):
        await held.through.commit(held.batch)
    assert await held.through.settle(held.batch) is None
    await held.deliver()
    await held.check(*held.before)
    await held.commit_again()
    await deliver(cut)
    await held.check(*held.before, held.batch)
    assert (await held.through.commit(held.batch)).status is CommitStatus.REPLAYED


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "at the end"])
@pytest.mark.parametrize("boundary", [1, 5])
async def test_a_session_commits_again_and_has_it_once(
    own_cluster: Cluster, own_url: str, boundary: int, at_once: bool
) -> None:
    sessions = Sessions()
    settled = await session_with_a_held_commit(own_cluster, own_url, boundary, sessions, at_once=at_once)
    assert (settled, sessions) == (1, Sessions(1))


@pytest.mark.parametrize("boundary", [3])
async def test_what_an_ended_session_left_on_its_way_is_refused(
    own_cluster: Cluster, own_url: str, boundary: int
) -> None:
    sessions = Sessions()
    await session_that_ended_with_a_held_commit(own_cluster, own_url, boundary, sessions)
    assert sessions == Sessions(1, resumed=1)

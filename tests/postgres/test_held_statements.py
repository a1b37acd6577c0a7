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
from domain.envelope import Fence
from domain.errors import OutcomeUnknown
from domain.ports import Batch, CommitStatus, Holder, Journal
from minutebook.testing.batches import Place as Standing
from minutebook.testing.batches import dummy_batch, end_of
from minutebook.testing.postgres_cluster import Cluster
from tests.postgres.cutting import COMMIT, TIMEOUT_S
from tests.postgres.held import (
    SETTLE,
    cannot_end_backends,
    deliver,
    session_that_ended_with_a_held_commit,
    session_with_a_held_commit,
)
from tests.postgres.proxy import Cut, Place, Proxy

pytestmark = pytest.mark.anyio

HOLDER = Holder("w1", "l-1")
FENCE = Fence("w1", "l-1", 1)
#: Where a statement that settles can be cut, and nobody knows whether it has.
CUTS = (Place.BEFORE, Place.CARRIED_OUT, Place.COMMITTED, Place.HELD)


def batches_of(fenced: bool) -> list[Batch]:
    """A session's commits, under a lease or without."""
    at, batches = Standing.start("session-1"), list[Batch]()
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


@pytest.fixture(
    params=[(1, False), (2, False), (1, True), (2, True)], ids=["new", "next", "new, leased", "leased"]
)
async def held(
    request: pytest.FixtureRequest, own_cluster: Cluster, writer: tuple[str, bool]
) -> AsyncIterator[Held]:
    """Of a session's first commit or its second, under a lease or without."""
    (number, fenced), (url, alone) = request.param, writer
    *before, batch = batches_of(fenced)[:number]
    async with contextlib.AsyncExitStack() as stack:
        proxy = stack.enter_context(Proxy(own_cluster, url))
        store = PostgresStore(proxy.url, store_timeout_s=TIMEOUT_S, connections=2)
        through = await stack.enter_async_context(store.open())
        around = await stack.enter_async_context(PostgresStore(url).open())
        if fenced:
            await through.leases.acquire("session-1", HOLDER, 60_000)
        for each in before:
            await through.commit(each)
        cut = proxy.arm(Place.HELD, COMMIT)
        with pytest.raises(OutcomeUnknown):
            await through.commit(batch)
        assert cut.reached.is_set()
        try:
            yield Held(proxy, through, around, cut, batch, before, alone)
        finally:
            cut.go_on.set()


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
    instead = replace(dummy_batch(Standing.start("session-1"), "other"), fence=held.batch.fence)
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
    assert await session_with_a_held_commit(own_cluster, own_url, boundary, at_once=at_once) == 1


@pytest.mark.parametrize("boundary", [3])
async def test_what_an_ended_session_left_on_its_way_is_refused(
    own_cluster: Cluster, own_url: str, boundary: int
) -> None:
    await session_that_ended_with_a_held_commit(own_cluster, own_url, boundary)

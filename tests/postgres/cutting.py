"""A scripted session of commits, and what becomes of one of them when its connection breaks.

Used by the sample in `make test` and by all of it in `make chaos`. Nothing of the answer is
believed: what is in the journal is read on a connection that does not go through the proxy.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from adapters.postgres_store import PostgresStore
from domain.cursor import Cursor
from domain.envelope import Stored, check_link, genesis
from domain.errors import MinutebookError, OutcomeUnknown, StoreTimeout, StoreWriteFailed
from domain.ports import Batch, Journal, Receipt
from minutebook.testing.batches import dummy_batch, end_of
from minutebook.testing.postgres_cluster import Cluster
from tests.postgres.proxy import Place, Proxy
from tests.store.waiting import PATIENCE_S

#: What the statement of a commit contains, and no other.
COMMIT = "WITH moved AS"
#: Where a connection breaks in the middle of a commit, and whether the commit is then there; None: either.
LEAVES = {
    Place.BEFORE: False,
    Place.MIDDLE: False,
    Place.CARRIED_OUT: False,
    Place.SENT: None,
    Place.COMMITTED: True,
    Place.LATE: True,
    Place.TERMINATED: False,
    Place.RESTARTED: None,
}
#: Short, because a commit whose answer is late takes all of it and up to two seconds more.
TIMEOUT_S = 0.25


@dataclass(slots=True)
class Tally:
    """What many runs came to."""

    runs: int = 0
    committed: int = 0
    unknown: int = 0
    not_written: int = 0
    there: int = 0
    lost: int = 0
    doubled: int = 0

    def __str__(self) -> str:
        outcomes = f"{self.committed} told committed, {self.unknown} unknown, {self.not_written} not written"
        return (
            f"{self.runs} cuts: {outcomes}; {self.there} were there; {self.lost} lost, {self.doubled} doubled"
        )


def session_of(session_id: str, commits: int) -> list[Batch]:
    """A session of commits in all their shapes: one event or several, blobs, snapshots."""
    batches: list[Batch] = []
    at = Cursor.start(session_id)
    for number in range(1, commits + 1):
        payloads = [b'{"commit":%d,"event":%d}' % (number, n) for n in range(1 + number % 4)]
        blobs = [hashlib.sha256(f"{session_id}/{number}".encode()).digest()] if number % 3 == 0 else []
        state = b"state %d" % number if number % 5 == 0 else None
        batches.append(dummy_batch(at, f"c{number}", payloads, blobs=blobs, snapshot_state=state))
        at = end_of(batches[-1])
    return batches


@dataclass(slots=True)
class Bench:
    """A database, the way into it through the proxy, and the way around it."""

    cluster: Cluster
    proxy: Proxy
    through: Journal
    around: Journal
    tally: Tally = field(default_factory=Tally)

    async def run(self, place: Place, boundary: int, commits: int) -> None:
        """One session: the connection breaks in its n-th commit, everything else goes well.

        Args:
            boundary: in which commit, counted from 1.
            commits: how many there are.
        """
        batches = session_of(f"{place.name.lower()}-{boundary}", commits)
        for batch in batches[: boundary - 1]:
            await self.around.commit(batch)
        await self._cut(place, batches[boundary - 1])
        for batch in batches[boundary:]:
            await committed(self.through, batch)
        await self._check(batches)

    async def run_through(self, place: Place, commits: int) -> None:
        """One session whose connection breaks in every one of its commits."""
        batches = session_of(f"{place.name.lower()}-every", commits)
        for batch in batches:
            await self._cut(place, batch)
        await self._check(batches)

    async def _cut(self, place: Place, batch: Batch) -> None:
        cut = self.proxy.arm(place, COMMIT)
        answer = await outcome(self.through, batch)
        await anyio.to_thread.run_sync(cut.wait)
        await self._decide(batch, answer, LEAVES[place])
        await committed(self.through, batch)
        self.tally.runs += 1

    async def _decide(self, batch: Batch, answer: Receipt | MinutebookError, expected: bool | None) -> None:
        """The answer is true, or unknown and fenced until settled; and settled once, it stays."""
        if isinstance(answer, OutcomeUnknown):
            self.tally.unknown += 1
            fenced = await outcome(self.through, batch)
            assert isinstance(fenced, OutcomeUnknown), f"not fenced: {fenced}"
            settled = await settled_for_sure(self.through, batch)
            assert await settled_for_sure(self.through, batch) == settled
            there = settled is not None
        elif isinstance(answer, Receipt):
            self.tally.committed += 1
            there = True
        else:
            assert isinstance(answer, StoreWriteFailed | StoreTimeout), repr(answer)
            self.tally.not_written += 1
            there = False
        assert expected in (None, there)
        found = await committed_for_sure(self.around, batch)
        assert found is there, f"told {answer!r}, in the journal: {found}"
        self.tally.there += there

    async def _check(self, batches: list[Batch]) -> None:
        """Every event is there, once, and the chain holds."""
        session_id = batches[0].session_id
        rows: list[Stored] = []
        while page := await self.around.read(session_id, after=len(rows)):
            rows += page
        expected = [event for batch in batches for event in batch.events]
        heads = [row.head for row in rows]
        self.tally.lost += sum(event.head not in heads for event in expected)
        self.tally.doubled += len(heads) - len(set(heads)) + sum(row not in expected for row in rows)
        assert rows == expected
        sequence, head = 0, genesis(session_id)
        for row in rows:
            check_link(row, sequence, head)
            sequence, head = row.sequence, row.head


async def outcome(journal: Journal, batch: Batch) -> Receipt | MinutebookError:
    """What a commit comes to. It never takes longer than the store's timeout and a little more."""
    try:
        with anyio.fail_after(PATIENCE_S):
            return await journal.commit(batch)
    except MinutebookError as e:
        return e


async def settled_for_sure(journal: Journal, batch: Batch) -> Receipt | None:
    """Settle, again while the database cannot be asked."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                return await journal.settle(batch)
            except OutcomeUnknown:
                await anyio.lowlevel.checkpoint()


async def committed(journal: Journal, batch: Batch) -> None:
    """Commit a batch, again while the database is away; it is there once."""
    with anyio.fail_after(PATIENCE_S):
        while not isinstance(answer := await outcome(journal, batch), Receipt):
            assert isinstance(answer, StoreWriteFailed | StoreTimeout | OutcomeUnknown), repr(answer)
            if isinstance(answer, OutcomeUnknown):
                await settled_for_sure(journal, batch)
    assert answer.head == batch.events[-1].head


async def committed_for_sure(journal: Journal, batch: Batch) -> bool:
    """Whether a batch's command is in the journal, asked until the database answers."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                found = await journal.command(batch.session_id, batch.command_id)
            except MinutebookError:
                await anyio.lowlevel.checkpoint()
            else:
                return found is not None


@asynccontextmanager
async def bench(cluster: Cluster, url: str) -> AsyncIterator[Bench]:
    """Both ways into one database."""
    with Proxy(cluster, url) as proxy:
        async with (
            PostgresStore(proxy.url, store_timeout_s=TIMEOUT_S, connections=2).open() as through,
            PostgresStore(url).open() as around,
        ):
            yield Bench(cluster, proxy, through, around)

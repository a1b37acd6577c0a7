"""Stores that break one rule each: memory stores with one thing done wrong.

Every one is a mistake that a real store could make. `test_the_kit.py` says which test of the
contract has to notice it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import anyio
import anyio.lowlevel

from adapters.memory_journal import MemoryStore
from domain.cursor import Cursor
from domain.envelope import Fence, Stored
from domain.errors import CommandConflict, HeadConflict, LeaseLost, LeaseRequired, StoreFailure
from domain.ports import (
    Batch,
    Clock,
    CommitStatus,
    Holder,
    Journal,
    LeaseRow,
    LeaseStore,
    Receipt,
    SessionRow,
    Snapshot,
    StoreDescription,
)


class RightJournal:
    """Hands everything on. The wrong ones do one thing otherwise."""

    def __init__(self, inner: Journal, store: WrongStore) -> None:
        self.inner = inner
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def commit(self, batch: Batch) -> Receipt:
        return await self.inner.commit(batch)

    @property
    def leases(self) -> LeaseStore:
        return self.inner.leases


class TearsBatches(RightJournal):
    """Writes a commit's events one by one: a crash or a cancellation leaves a part."""

    async def commit(self, batch: Batch) -> Receipt:
        first, rest = batch.events[:1], batch.events[1:]
        if not rest or await self.inner.command(batch.session_id, batch.command_id):
            return await self.inner.commit(batch)
        torn = replace(batch, events=first, snapshot=None, command_id=f"{batch.command_id}-begun")
        await self.inner.commit(torn)
        await anyio.lowlevel.checkpoint()
        place = {"expected_sequence": first[0].sequence, "expected_head": first[0].head}
        receipt = await self.inner.commit(replace(batch, events=rest, **place))  # type: ignore[arg-type]
        return replace(receipt, first_sequence=first[0].sequence)


class CommitsLate(RightJournal):
    """Leaves a cancelled commit to somebody who carries it out later, settled or not."""

    async def commit(self, batch: Batch) -> Receipt:
        try:
            await anyio.lowlevel.checkpoint()
        except anyio.get_cancelled_exc_class():
            self.store.late.append(batch)
            raise
        return await self.inner.commit(batch)

    async def settle(self, batch: Batch) -> Receipt | None:
        settled = await self.inner.settle(batch)
        for late in self.store.late:
            await self.inner.commit(late)
        self.store.late.clear()
        return settled


class ComparesTheHeadFirst(RightJournal):
    """Looks at the head before it looks for the command."""

    async def commit(self, batch: Batch) -> Receipt:
        row = await self.inner.session(batch.session_id)
        if row is not None and row.sequence != batch.expected_sequence:
            raise HeadConflict(batch.session_id, batch.expected_sequence, row.sequence)
        return await self.inner.commit(batch)


class ForgetsTheFingerprint(RightJournal):
    """Takes a command id for the command."""

    async def commit(self, batch: Batch) -> Receipt:
        try:
            return await self.inner.commit(batch)
        except CommandConflict:
            found = await self.inner.command(batch.session_id, batch.command_id)
            assert found is not None
            return replace(found[1], status=CommitStatus.REPLAYED)


class SaysCommittedTwice(RightJournal):
    """Does not tell a replay from a commit."""

    async def commit(self, batch: Batch) -> Receipt:
        return replace(await self.inner.commit(batch), status=CommitStatus.COMMITTED)


class KeepsBlobsOfRefusedCommits(RightJournal):
    """Writes blobs before it knows whether the commit is allowed."""

    async def commit(self, batch: Batch) -> Receipt:
        self.store.blobs.update({blob.digest: blob.data for blob in batch.blobs})
        return await self.inner.commit(batch)

    async def blob(self, digest: str) -> bytes | None:
        return self.store.blobs.get(digest) or await self.inner.blob(digest)


class WritesWithoutFence(RightJournal):
    """Lets a writer without a lease write to a session that has one."""

    async def commit(self, batch: Batch) -> Receipt:
        try:
            return await self.inner.commit(batch)
        except LeaseRequired:
            row = await self.inner.session(batch.session_id)
            lease = row.lease if row else None
            held = lease or await self.inner.leases.acquire(batch.session_id, Holder("ours", "lease-1"), 1000)
            return await self.inner.commit(
                replace(batch, fence=Fence(held.holder_id, held.lease_id or "", held.token))
            )


class ChecksTheFenceOutside(RightJournal):
    """Compares tokens only: whose lease it is, and whether it ran out, is left to the client."""

    async def commit(self, batch: Batch) -> Receipt:
        try:
            return await self.inner.commit(batch)
        except LeaseLost:
            holder = Holder("ours", "lease-1")
            held = await self.inner.leases.acquire(batch.session_id, holder, 1000)
            if batch.fence is None or batch.fence.token < held.token:
                raise
            fence = Fence(held.holder_id, held.lease_id or "", held.token)
            return await self.inner.commit(replace(batch, fence=fence))


class ReusesTokens(RightJournal):
    """Forgets the token with the lease."""

    @property
    def leases(self) -> LeaseStore:
        return OneToken(self.inner.leases)


class OneToken:
    def __init__(self, inner: LeaseStore) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def acquire(self, session_id: str, holder: Holder, ttl_ms: int) -> LeaseRow:
        return replace(await self.inner.acquire(session_id, holder, ttl_ms), token=1)


class SettlesByLooking(RightJournal):
    """Says what a read shows, without a word on how the outcome was found."""

    async def settle(self, batch: Batch) -> Receipt | None:
        found = await self.inner.command(batch.session_id, batch.command_id)
        return found[1] if found else None


class ReadsOneMore(RightJournal):
    """Takes `after` for the first row to give."""

    async def read(
        self, session_id: str, *, after: int = 0, upto: int | None = None, limit: int = 256
    ) -> Sequence[Stored]:
        return await self.inner.read(session_id, after=max(after - 1, 0), upto=upto, limit=limit)


class ListsWithoutOrder(RightJournal):
    """Lists the latest first."""

    async def sessions(self, *, after: str = "", limit: int = 100) -> Sequence[SessionRow]:
        rows = await self.inner.sessions(after=after, limit=10_000)
        return rows[::-1][:limit]


class ListsByACollation(RightJournal):
    """Sorts as people do: capital letters beside small ones."""

    async def sessions(self, *, after: str = "", limit: int = 100) -> Sequence[SessionRow]:
        rows = sorted(await self.inner.sessions(limit=10_000), key=lambda row: row.session_id.lower())
        return [row for row in rows if row.session_id.lower() > after.lower()][:limit]


class GivesTheLatestSnapshot(RightJournal):
    """Leaves `upto` out."""

    async def snapshot(self, session_id: str, *, upto: int | None = None) -> Snapshot | None:
        return await self.inner.snapshot(session_id)


class FindsTheFirstCommandOnly(RightJournal):
    """Asks for a page of commands and looks at one."""

    async def commands(
        self, session_id: str, command_ids: Sequence[str]
    ) -> Mapping[str, tuple[bytes, Receipt]]:
        return await self.inner.commands(session_id, command_ids[:1])


class EndsSubscriptions(RightJournal):
    """Gives what is there and ends; what comes later is not heard."""

    def subscribe(self, session_id: str, *, after: Cursor | None = None) -> AsyncIterator[Stored]:
        return self._there(session_id, after or Cursor.start(session_id))

    async def _there(self, session_id: str, after: Cursor) -> AsyncIterator[Stored]:
        for row in after.following(session_id, await self.inner.read(session_id, after=after.read_after)):
            yield row


class SkipsWhatComesMeanwhile(RightJournal):
    """Begins to listen where the journal ends by then, not where it was asked to."""

    def subscribe(self, session_id: str, *, after: Cursor | None = None) -> AsyncIterator[Stored]:
        return self._from_the_end(session_id, after or Cursor.start(session_id))

    async def _from_the_end(self, session_id: str, after: Cursor) -> AsyncIterator[Stored]:
        rows = await self.inner.read(session_id, after=after.read_after)
        for row in after.following(session_id, rows):
            yield row
        end = await self.inner.session(session_id)
        there = Cursor(session_id, end.sequence, end.head) if end else None
        async for row in self.inner.subscribe(session_id, after=there):
            yield row


class GoesBySequence(RightJournal):
    """Begins after a sequence, whatever is there."""

    def subscribe(self, session_id: str, *, after: Cursor | None = None) -> AsyncIterator[Stored]:
        return self._by_sequence(session_id, after.sequence if after else 0)

    async def _by_sequence(self, session_id: str, sequence: int) -> AsyncIterator[Stored]:
        async for row in self.inner.subscribe(session_id):
            if row.sequence > sequence:
                yield row


class CutsText(RightJournal):
    """Keeps payloads as text that ends at the first NUL."""

    async def read(
        self, session_id: str, *, after: int = 0, upto: int | None = None, limit: int = 256
    ) -> Sequence[Stored]:
        rows = await self.inner.read(session_id, after=after, upto=upto, limit=limit)
        return [replace(row, payload=row.payload and row.payload.split(b"\0")[0]) for row in rows]


class StaysOpen(RightJournal):
    """Answers after it was closed."""

    async def read(
        self, session_id: str, *, after: int = 0, upto: int | None = None, limit: int = 256
    ) -> Sequence[Stored]:
        try:
            return await self.inner.read(session_id, after=after, upto=upto, limit=limit)
        except StoreFailure:
            return ()


class FoldsIds(RightJournal):
    """Finds ids as a database does that does not mind capitals."""

    async def commands(
        self, session_id: str, command_ids: Sequence[str]
    ) -> Mapping[str, tuple[bytes, Receipt]]:
        found = await self.inner.commands(session_id, command_ids)
        return {each.lower(): value for each, value in found.items()}


class TrimsIds(RightJournal):
    """Cleans ids up instead of refusing them."""

    async def commit(self, batch: Batch) -> Receipt:
        return await self.inner.commit(replace(batch, command_id=batch.command_id.strip() or "c1"))


class SaysEveryLeaseHolds(RightJournal):
    """Looks whether somebody has the lease, and not until when."""

    async def lease_lives(self, lease: LeaseRow) -> bool:
        return lease.lease_id is not None


class StoppedClock:
    """A worker's own idea of the time, which is not the store's."""

    boot_id: str | None = None

    def __init__(self, clock: Clock) -> None:
        self._now, self._seconds = clock.now(), clock.monotonic()

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._seconds


@dataclass(eq=False)
class WrongStore:
    """A memory store whose journals are of one of the classes above."""

    inner: StoreDescription
    journal: type[RightJournal]
    durable: bool = False

    def __post_init__(self) -> None:
        self.late: list[Batch] = []
        self.blobs: dict[str, bytes] = {}

    @asynccontextmanager
    async def open(self, *, owner_id: str = "local") -> AsyncIterator[Journal]:
        async with self.inner.open(owner_id=owner_id) as journal:
            yield self.journal(journal, self)


@dataclass(eq=False)
class Ownerless(WrongStore):
    """Takes everybody for one owner."""

    @asynccontextmanager
    async def open(self, *, owner_id: str = "local") -> AsyncIterator[Journal]:
        async with self.inner.open() as journal:
            yield journal


@dataclass(eq=False)
class Separate(WrongStore):
    """Gives each handle contents of its own."""

    @asynccontextmanager
    async def open(self, *, owner_id: str = "local") -> AsyncIterator[Journal]:
        async with MemoryStore().open(owner_id=owner_id) as journal:
            yield journal


def wrong(journal: type[RightJournal], clock: Clock) -> StoreDescription:
    """A store whose journals do one thing wrong."""
    return WrongStore(MemoryStore(clock=clock), journal)

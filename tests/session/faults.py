"""A store that counts its commits, waits in them, and fails as told.

It wraps another store, so what is in the journal is decided by that one alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum

import anyio

from domain.envelope import Stored
from domain.errors import HeadConflict, LeaseLost, OutcomeUnknown, StoreTimeout, StoreWriteFailed
from domain.ports import Batch, Journal, LeaseStore, Receipt, SessionRow, Snapshot, StoreDescription
from minutebook.testing.scripted import Gate

#: Never reached in a test that passes.
GATE_S = 10.0


class Fault(StrEnum):
    """How a commit goes wrong."""

    WRITE_FAILED = "write failed"  # nothing is written
    TIMEOUT = "timeout"  # nothing is written
    FOUND = "found"  # written; the outcome is unknown, settling finds it
    ABSENT = "absent"  # not written; the outcome is unknown, settling says so
    LOST_FOUND = "lost, found"  # written; the outcome stays unknown
    LOST_ABSENT = "lost, absent"  # not written; the outcome stays unknown
    LEASE_LOST = "lease lost"
    HEAD_CONFLICT = "head conflict"
    DEFECT = "defect"  # the store raises what it never should; nothing is written


#: The session goes on as if nothing had been.
PASSING = (Fault.FOUND, Fault.ABSENT)
#: The session takes no more events; nothing of the commit is in the journal.
FATAL_ABSENT = (
    Fault.WRITE_FAILED,
    Fault.TIMEOUT,
    Fault.LOST_ABSENT,
    Fault.LEASE_LOST,
    Fault.HEAD_CONFLICT,
    Fault.DEFECT,
)


@dataclass(slots=True)
class WatchedStore:
    """A `StoreDescription`. Commits are counted from 1, over all openings.

    Args:
        faults: by number of the commit.
        before, after: gates at which a commit waits before, or after, it is written.
    """

    inner: StoreDescription
    faults: dict[int, Fault] = field(default_factory=dict)
    before: dict[int, Gate] = field(default_factory=dict)
    after: dict[int, Gate] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list, repr=False)
    rows_read: int = 0
    snapshots_read: int = 0
    blobs_read: list[str] = field(default_factory=list)

    @property
    def durable(self) -> bool:
        return self.inner.durable

    @asynccontextmanager
    async def open(self, *, owner_id: str = "local") -> AsyncIterator[Journal]:
        async with self.inner.open(owner_id=owner_id) as journal:
            yield WatchedJournal(self, journal)


async def _stand_at(gate: Gate) -> None:
    """Wait, but not for ever: a test that failed does not open its gates any more."""
    with anyio.fail_after(GATE_S):
        await gate.pass_through()


class WatchedJournal:
    """A `Journal`."""

    def __init__(self, store: WatchedStore, inner: Journal) -> None:
        self._store, self._inner = store, inner
        self._stuck = False

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def leases(self) -> LeaseStore:
        return self._inner.leases

    async def commit(self, batch: Batch) -> Receipt:
        self._store.batches.append(batch)
        number = len(self._store.batches)
        if number in self._store.before:
            await _stand_at(self._store.before[number])
        fault = self._store.faults.get(number)
        if fault in (Fault.FOUND, Fault.LOST_FOUND, None):
            receipt = await self._inner.commit(batch)
        if number in self._store.after:
            await _stand_at(self._store.after[number])
        if fault is None:
            return receipt
        self._stuck = fault in (Fault.LOST_FOUND, Fault.LOST_ABSENT)
        raise self._error(fault, batch)

    def _error(self, fault: Fault, batch: Batch) -> Exception:
        match fault:
            case Fault.WRITE_FAILED:
                return StoreWriteFailed(self.name, "the disk is full")
            case Fault.TIMEOUT:
                return StoreTimeout(self.name, "no answer in time")
            case Fault.LEASE_LOST:
                return LeaseLost(batch.session_id, "another worker has it")
            case Fault.HEAD_CONFLICT:
                return HeadConflict(batch.session_id, batch.expected_sequence, batch.expected_sequence + 1)
            case Fault.DEFECT:
                return KeyError("a defect")
        return OutcomeUnknown(batch.session_id, "the connection was lost in the commit")

    async def settle(self, batch: Batch) -> Receipt | None:
        if self._stuck:
            raise OutcomeUnknown(batch.session_id, "still no connection")
        return await self._inner.settle(batch)

    async def session(self, session_id: str) -> SessionRow | None:
        return await self._inner.session(session_id)

    async def sessions(self, *, after: str = "", limit: int = 100) -> Sequence[SessionRow]:
        return await self._inner.sessions(after=after, limit=limit)

    async def read(
        self, session_id: str, *, after: int = 0, upto: int | None = None, limit: int = 256
    ) -> Sequence[Stored]:
        rows = await self._inner.read(session_id, after=after, upto=upto, limit=limit)
        self._store.rows_read += len(rows)
        return rows

    async def snapshot(self, session_id: str, *, upto: int | None = None) -> Snapshot | None:
        self._store.snapshots_read += 1
        return await self._inner.snapshot(session_id, upto=upto)

    async def blob(self, digest: str) -> bytes | None:
        self._store.blobs_read.append(digest)
        return await self._inner.blob(digest)

    async def command(self, session_id: str, command_id: str) -> tuple[bytes, Receipt] | None:
        return await self._inner.command(session_id, command_id)

    async def commands(
        self, session_id: str, command_ids: Sequence[str]
    ) -> Mapping[str, tuple[bytes, Receipt]]:
        return await self._inner.commands(session_id, command_ids)

    def subscribe(self, session_id: str, *, after: int = 0) -> AsyncIterator[Stored]:
        return self._inner.subscribe(session_id, after=after)

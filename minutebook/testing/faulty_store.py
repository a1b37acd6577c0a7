"""A store that fails, lies low or hangs at the commit that a test names.

It wraps another store, so what is in the journal is decided by that one alone:

    store = FaultyStore(mb.memory(), faults={3: Fault.RAISES})
    async with mb.create_session(config, store=store) as session:
        ...                     # the third commit is written, and its caller is told nonsense

For tests of applications, and of what a session makes of a store that does not keep to the
port. Nothing here knows what an event means.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import anyio

from domain.cursor import Cursor
from domain.envelope import Stored
from domain.errors import HeadConflict, LeaseLost, OutcomeUnknown, StoreTimeout, StoreWriteFailed
from domain.ports import Batch, Journal, LeaseRow, LeaseStore, Receipt, SessionRow, Snapshot, StoreDescription
from minutebook.testing.scripted import Gate

#: Never reached in a test that passes: one that failed does not open its gates any more.
GATE_S: Final = 10.0


class Fault(StrEnum):
    """How a commit goes wrong."""

    WRITE_FAILED = "write failed"  # nothing is written
    TIMEOUT = "timeout"  # nothing is written
    FOUND = "found"  # written; the outcome is unknown, settling finds it
    ABSENT = "absent"  # not written; the outcome is unknown, settling says so
    FOUND_LATE = "found late"  # written only while it is being settled; settling finds it
    LOST_FOUND = "lost, found"  # written; the outcome stays unknown
    LOST_ABSENT = "lost, absent"  # not written; the outcome stays unknown
    LEASE_LOST = "lease lost"
    HEAD_CONFLICT = "head conflict"
    DEFECT = "defect"  # the store raises what it never should; nothing is written
    RAISES = "raises"  # written; then the store raises what it never should
    HANGS = "hangs"  # written; then the call does not return until its gate opens, cancelled or not
    HANGS_FIRST = "hangs first"  # the same, and it is written only then, if it still may be


#: The session goes on as if nothing had been.
PASSING: Final = (Fault.FOUND, Fault.ABSENT)
#: The session takes no more events; nothing of the commit is in the journal.
FATAL_ABSENT: Final = (
    Fault.WRITE_FAILED,
    Fault.TIMEOUT,
    Fault.LOST_ABSENT,
    Fault.LEASE_LOST,
    Fault.HEAD_CONFLICT,
    Fault.DEFECT,
)
_WRITTEN: Final = (None, Fault.FOUND, Fault.LOST_FOUND, Fault.RAISES, Fault.HANGS, Fault.HANGS_FIRST)
_RETURNS: Final = (None, Fault.HANGS, Fault.HANGS_FIRST)


@dataclass(slots=True)
class FaultyStore:
    """A `StoreDescription` over another one. Commits are counted from 1, over all openings.

    Args:
        faults: by number of the commit.
        before, after: gates at which a commit waits before, or after, it is written; a cancelled
            caller leaves them.
        hanging: the gates of `HANGS` and `HANGS_FIRST`, by number; nobody leaves them.

    `batches` has every batch that a commit was asked for, in order.
    """

    inner: StoreDescription
    faults: dict[int, Fault] = field(default_factory=dict)
    before: dict[int, Gate] = field(default_factory=dict)
    after: dict[int, Gate] = field(default_factory=dict)
    hanging: defaultdict[int, Gate] = field(default_factory=lambda: defaultdict(Gate), repr=False)
    batches: list[Batch] = field(default_factory=list, repr=False)
    rows_read: int = 0
    snapshots_read: int = 0
    blobs_read: list[str] = field(default_factory=list)

    @property
    def durable(self) -> bool:
        """As the store within."""
        return self.inner.durable

    @asynccontextmanager
    async def open(self, *, owner_id: str = "local") -> AsyncIterator[Journal]:
        """Open the store within, its commits watched."""
        async with self.inner.open(owner_id=owner_id) as journal:
            yield FaultyJournal(self, journal)


async def _stand_at(gate: Gate) -> None:
    with anyio.fail_after(GATE_S):
        await gate.pass_through()


async def _hang_at(gate: Gate) -> None:
    """Wait, whoever cancels."""
    with anyio.move_on_after(GATE_S, shield=True):
        await gate.pass_through()


class FaultyJournal:
    """A `Journal`; made by `FaultyStore.open`."""

    def __init__(self, store: FaultyStore, inner: Journal) -> None:
        self._store, self._inner = store, inner
        self._stuck, self._late = False, False

    @property
    def name(self) -> str:
        """As the store within."""
        return self._inner.name

    @property
    def leases(self) -> LeaseStore:
        """Those of the store within."""
        return self._inner.leases

    async def commit(self, batch: Batch) -> Receipt:
        """Append a batch, or do what the plan says for this number."""
        store = self._store
        store.batches.append(batch)
        number = len(store.batches)
        fault = store.faults.get(number)
        if number in store.before:
            await _stand_at(store.before[number])
        if fault is Fault.HANGS_FIRST:
            await _hang_at(store.hanging[number])
        receipt: Receipt | None = None
        if fault in _WRITTEN:
            with anyio.CancelScope(shield=fault is not None):  # what happened has to be what the plan says
                receipt = await self._inner.commit(batch)
        if number in store.after:
            await _stand_at(store.after[number])
        if fault is Fault.HANGS:
            await _hang_at(store.hanging[number])
        if receipt is not None and fault in _RETURNS:
            return receipt
        assert fault is not None
        self._stuck = fault in (Fault.LOST_FOUND, Fault.LOST_ABSENT)
        self._late = fault is Fault.FOUND_LATE
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
            case Fault.DEFECT | Fault.RAISES:
                return KeyError("a defect")
            case _:
                return OutcomeUnknown(batch.session_id, "the connection was lost in the commit")

    async def settle(self, batch: Batch) -> Receipt | None:
        """Decide an unknown outcome, unless the plan says that nobody can."""
        if self._stuck:
            raise OutcomeUnknown(batch.session_id, "still no connection")
        if self._late:
            self._late = False
            await self._inner.commit(batch)
        return await self._inner.settle(batch)

    async def session(self, session_id: str) -> SessionRow | None:
        """As the store within."""
        return await self._inner.session(session_id)

    async def sessions(self, *, after: str = "", limit: int = 100) -> Sequence[SessionRow]:
        """As the store within."""
        return await self._inner.sessions(after=after, limit=limit)

    async def read(
        self, session_id: str, *, after: int = 0, upto: int | None = None, limit: int = 256
    ) -> Sequence[Stored]:
        """As the store within; the rows are counted."""
        rows = await self._inner.read(session_id, after=after, upto=upto, limit=limit)
        self._store.rows_read += len(rows)
        return rows

    async def snapshot(self, session_id: str, *, upto: int | None = None) -> Snapshot | None:
        """As the store within; the calls are counted."""
        self._store.snapshots_read += 1
        return await self._inner.snapshot(session_id, upto=upto)

    async def blob(self, digest: str) -> bytes | None:
        """As the store within; the digests are remembered."""
        self._store.blobs_read.append(digest)
        return await self._inner.blob(digest)

    async def command(self, session_id: str, command_id: str) -> tuple[bytes, Receipt] | None:
        """As the store within."""
        return await self._inner.command(session_id, command_id)

    async def commands(
        self, session_id: str, command_ids: Sequence[str]
    ) -> Mapping[str, tuple[bytes, Receipt]]:
        """As the store within."""
        return await self._inner.commands(session_id, command_ids)

    async def lease_lives(self, lease: LeaseRow) -> bool:
        """As the store within."""
        return await self._inner.lease_lives(lease)

    def subscribe(self, session_id: str, *, after: Cursor | None = None) -> AsyncIterator[Stored]:
        """As the store within."""
        return self._inner.subscribe(session_id, after=after)

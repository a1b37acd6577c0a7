"""What a store has to answer, worked out once more with a dictionary and nothing of ours.

The model knows rules, not bytes: it says which row, which status, which refusal. It is asked
beside the stores, so that all of them being wrong in the same way is noticed too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from domain.envelope import Fence, Stored
from domain.ports import Batch, Holder, Snapshot

#: ("receipt", status, first, last, head), ("lease", token, lease id, worker), ("error", code), ("value", ...)
Answer = tuple[Any, ...]


class Refused(Exception):
    """What the stores have to say with an error of this code."""


@dataclass
class Lease:
    token: int
    lease_id: str | None
    worker: str
    until: float


@dataclass
class Kept:
    """One session."""

    owner: str
    rows: list[Stored] = field(default_factory=list)
    commands: dict[str, tuple[bytes, int, int, bytes]] = field(default_factory=dict)
    snapshots: list[Snapshot] = field(default_factory=list)
    listing: tuple[str, str] = ("none", "none")
    lease: Lease | None = None


class StoreModel:
    """Sessions of several owners, their leases, and a clock."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.sessions: dict[str, Kept] = {}
        self.blobs: dict[str, bytes] = {}

    def asked(self, call: Callable[[], Answer]) -> Answer:
        """An answer, or the refusal as one."""
        try:
            return call()
        except Refused as refusal:
            return ("error", *refusal.args)

    def seen(self, session_id: str, owner: str) -> Kept | None:
        """A session, for its owner, once it has an event."""
        kept = self.sessions.get(session_id)
        return kept if kept is not None and kept.owner == owner and kept.rows else None

    def reached(self, session_id: str) -> int:
        """The last sequence."""
        return len(self.sessions[session_id].rows) if session_id in self.sessions else 0

    def commit(self, batch: Batch, genesis: bytes, malformed: str | None) -> Answer:
        if malformed is not None:
            raise Refused(malformed)
        kept = self.sessions.get(batch.session_id)
        if kept is not None and kept.owner != batch.owner_id:
            raise Refused("SESSION_NOT_FOUND")
        if kept is not None and batch.command_id in kept.commands:
            return self._again(kept, batch, "replayed")
        self._check_fence(kept.lease if kept else None, batch.fence)
        rows = kept.rows if kept else []
        place = (len(rows), rows[-1].head if rows else genesis)
        if place != (batch.expected_sequence, batch.expected_head):
            raise Refused("DURABLE_EVENT_SEQUENCE_CONFLICT")
        kept = self.sessions.setdefault(batch.session_id, Kept(batch.owner_id))
        kept.rows += batch.events
        first, last = place[0] + 1, len(kept.rows)
        kept.commands[batch.command_id] = (batch.fingerprint, first, last, kept.rows[-1].head)
        kept.listing = (batch.listing.status, batch.listing.next_action)
        kept.snapshots += [batch.snapshot] if batch.snapshot else []
        self.blobs.update({blob.digest: blob.data for blob in batch.blobs})
        return ("receipt", "committed", first, last, kept.rows[-1].head)

    def settle(self, batch: Batch) -> Answer:
        kept = self.sessions.get(batch.session_id)
        if kept is None or batch.command_id not in kept.commands:
            return ("value", None)
        return self._again(kept, batch, "reconciled")

    def acquire(self, session_id: str, owner: str, holder: Holder, ttl_ms: int) -> Answer:
        kept = self.sessions.get(session_id)
        if kept is not None and kept.owner != owner:
            raise Refused("SESSION_NOT_FOUND")
        held = kept.lease if kept else None
        ours = held is not None and (held.lease_id, held.worker) == (holder.lease_id, holder.worker_id)
        if held is not None and not ours and held.lease_id is not None and self.seconds < held.until:
            raise Refused("DURABLE_EXECUTION_LEASE_CONFLICT")
        token = (held.token if held else 0) + (0 if ours else 1)
        kept = self.sessions.setdefault(session_id, Kept(owner))
        kept.lease = Lease(token, holder.lease_id, holder.worker_id, self.seconds + ttl_ms / 1000)
        return self._lease(kept.lease)

    def renew(self, session_id: str, owner: str, fence: Fence, ttl_ms: int) -> Answer:
        lease = self._live(self._held(session_id, owner), fence)
        lease.until = self.seconds + ttl_ms / 1000
        return self._lease(lease)

    def validate(self, session_id: str, owner: str, fence: Fence) -> Answer:
        return self._lease(self._live(self._held(session_id, owner), fence))

    def release(self, session_id: str, fence: Fence) -> Answer:
        kept = self.sessions.get(session_id)
        lease = kept.lease if kept else None
        if lease is not None and _of(lease) == (fence.lease_id, fence.token, fence.worker_id):
            lease.lease_id, lease.until = None, min(lease.until, self.seconds)
        return ("value", None)

    def _again(self, kept: Kept, batch: Batch, status: str) -> Answer:
        fingerprint, first, last, head = kept.commands[batch.command_id]
        if fingerprint != batch.fingerprint:
            raise Refused("DURABLE_COMMAND_CONFLICT")
        return ("receipt", status, first, last, head)

    def _check_fence(self, lease: Lease | None, fence: Fence | None) -> None:
        if fence is not None:
            self._live(lease, fence)
        elif lease is not None:
            raise Refused("DURABLE_EXECUTION_LEASE_REQUIRED")

    def _held(self, session_id: str, owner: str) -> Lease | None:
        kept = self.sessions.get(session_id)
        return kept.lease if kept is not None and kept.owner == owner else None

    def _live(self, lease: Lease | None, fence: Fence) -> Lease:
        same = lease is not None and _of(lease) == (fence.lease_id, fence.token, fence.worker_id)
        if lease is None or not same or self.seconds >= lease.until:
            raise Refused("DURABLE_EXECUTION_LEASE_LOST")
        return lease

    def _lease(self, lease: Lease) -> Answer:
        return ("lease", lease.token, lease.lease_id, lease.worker)


def _of(lease: Lease) -> tuple[str | None, int, str]:
    return (lease.lease_id, lease.token, lease.worker)

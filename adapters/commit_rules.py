"""What a store checks before it writes a batch; the same for every engine.

Imported by the stores. Pure: it decides from what it is given, and reads and
writes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from adapters import lease_rules
from adapters.lease_rules import Instant
from domain import ids
from domain.envelope import Stored, genesis, link
from domain.errors import CommandConflict, HeadConflict, SessionNotFound, ValueRefused
from domain.limits import MAX_BLOB_BYTES, MAX_EVENTS_PER_COMMIT, MAX_PAYLOAD_BYTES
from domain.ports import Batch, Blob, CommitStatus, LeaseRow, Receipt, Snapshot

FINGERPRINT_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a session stands in the store at the moment of a commit."""

    owner_id: str
    sequence: int
    head: bytes
    lease: LeaseRow | None


def receipt(batch: Batch, status: CommitStatus = CommitStatus.COMMITTED) -> Receipt:
    """The receipt of a batch that is in the journal."""
    last = batch.events[-1]
    return Receipt(status, batch.events[0].sequence, last.sequence, last.head)


def found_again(batch: Batch, fingerprint: bytes, found: Receipt, status: CommitStatus) -> Receipt:
    """The receipt for a command that is in the journal already.

    Raises:
        CommandConflict: it is there with other content.
    """
    if fingerprint != batch.fingerprint:
        raise CommandConflict(batch.session_id, batch.command_id)
    return replace(found, status=status)


def check_owner(batch: Batch, standing: Standing | None, store: str) -> None:
    """Refuse to touch another owner's session, as if it were not there."""
    if standing is not None and standing.owner_id != batch.owner_id:
        raise SessionNotFound(batch.session_id, store)


def check_standing(batch: Batch, standing: Standing | None, at: Instant) -> None:
    """Check the fence, then the head.

    Args:
        standing: the session's row, None if the store has none.
        at: the store's clock.

    Raises:
        LeaseLost, LeaseRequired: see `lease_rules.check_fence`.
        HeadConflict: the session stands elsewhere.
    """
    lease_rules.check_fence(batch.session_id, standing.lease if standing else None, batch.fence, at)
    sequence = standing.sequence if standing else 0
    head = standing.head if standing else genesis(batch.session_id)
    if (sequence, head) != (batch.expected_sequence, batch.expected_head):
        raise HeadConflict(batch.session_id, batch.expected_sequence, sequence)


def check_shape(batch: Batch, owner_id: str, store: str) -> None:
    """Refuse a batch that could not be read back.

    Raises:
        InvalidId, ValueRefused, SessionNotFound: the batch was put together wrongly.
    """
    ids.session_id(batch.session_id)
    ids.command_id(batch.command_id)
    if batch.owner_id != owner_id:
        raise SessionNotFound(batch.session_id, store)
    if len(batch.fingerprint) != FINGERPRINT_BYTES:
        raise ValueRefused("$.fingerprint", f"{FINGERPRINT_BYTES} bytes", batch.fingerprint)
    if not 1 <= len(batch.events) <= MAX_EVENTS_PER_COMMIT:
        raise ValueRefused("$.events", f"1 to {MAX_EVENTS_PER_COMMIT} events", len(batch.events))
    sequence, head = batch.expected_sequence, batch.expected_head
    for event in batch.events:
        sequence, head = sequence + 1, link(head, event.envelope)
        if (event.session_id, event.sequence, event.head) != (batch.session_id, sequence, head):
            raise _broken_chain(batch, event, sequence)
        _check_content(event)
    if batch.snapshot is not None:
        _check_snapshot(batch, batch.snapshot)


def check_blobs(blobs: Sequence[Blob]) -> None:
    """Refuse blobs that are too big, or whose digest is not theirs. Takes time: not on an event loop."""
    for blob in blobs:
        if len(blob.data) > MAX_BLOB_BYTES:
            raise ValueRefused("$.blobs", f"at most {MAX_BLOB_BYTES} bytes each", len(blob.data))
        digest = hashlib.sha256(blob.data).hexdigest()
        if blob.digest != digest:
            raise ValueRefused("$.blobs", f"the digest {digest}", blob.digest)


def _broken_chain(batch: Batch, event: Stored, sequence: int) -> ValueRefused:
    return ValueRefused(
        f"$.events[{sequence - batch.expected_sequence - 1}]",
        f"event {sequence} of session {batch.session_id!r}, with the head that follows from those before",
        (event.session_id, event.sequence, event.head.hex()),
    )


def _check_content(event: Stored) -> None:
    if event.payload is None or event.salt is None:
        if event.payload is not event.salt:
            raise ValueRefused(f"$.events[{event.sequence}]", "payload and salt, or neither", "one of them")
    elif len(event.payload) > MAX_PAYLOAD_BYTES:
        expected = f"a payload of at most {MAX_PAYLOAD_BYTES} bytes; put more into a blob"
        raise ValueRefused(f"$.events[{event.sequence}]", expected, len(event.payload))


def _check_snapshot(batch: Batch, snapshot: Snapshot) -> None:
    place = (snapshot.session_id, snapshot.sequence, snapshot.head)
    if place not in {(event.session_id, event.sequence, event.head) for event in batch.events}:
        raise ValueRefused("$.snapshot", "the place of one of the batch's events", place)

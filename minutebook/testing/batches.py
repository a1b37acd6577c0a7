"""Valid batches of dummy events, made by hand.

For tests of stores: the events have a true envelope, salt and chain, and no
meaning. What a session does with its events is not known here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from domain.cursor import Cursor
from domain.envelope import SALT_BYTES, Actor, Fence, Recorded, Stored, seal
from domain.ports import Batch, Blob, Listing, Snapshot
from domain.values import ActorKind, AggregateKind

OWNER: Final = "local"
START: Final = datetime(2024, 1, 1, tzinfo=UTC)


def dummy_event(place: Cursor, command_id: str, payload: bytes, fence: Fence | None = None) -> Stored:
    """One sealed event that follows `place`; equal arguments give equal bytes.

    Args:
        payload: JSON, as an event's content would be encoded.
        fence: recorded in the envelope.
    """
    sequence = place.sequence + 1
    moment = START + timedelta(seconds=sequence)
    event = Recorded(
        session_id=place.session_id,
        sequence=sequence,
        type="notice_recorded",
        version=1,
        aggregate_kind=AggregateKind.SESSION,
        aggregate_id=place.session_id,
        request_id=None,
        turn_id=None,
        model_attempt_id=None,
        tool_id=None,
        occurred_at=moment,
        recorded_at=moment,
        command_id=command_id,
        causation=None,
        recorded_by=fence,
        actor=Actor(ActorKind.HOST),
        data=None,
    )
    salt = hashlib.sha256(f"{place.session_id}/{sequence}".encode()).digest()[:SALT_BYTES]
    return seal(event, payload, salt, place.head)


def dummy_batch(
    place: Cursor,
    command_id: str,
    payloads: Sequence[bytes] = (b'{"text":"hello"}',),
    *,
    fingerprint: bytes | None = None,
    owner_id: str = OWNER,
    listing: Listing | None = None,
    fence: Fence | None = None,
    snapshot_state: bytes | None = None,
    blobs: Sequence[bytes] = (),
) -> Batch:
    """A batch of one event per payload that follows `place`.

    Args:
        fingerprint: 32 bytes; None: derived from the command id and the payloads.
        snapshot_state: the state of a snapshot at the batch's last event; None: no snapshot.
        blobs: contents to be kept by their digest.
    """
    events: list[Stored] = []
    at = place
    for payload in payloads:
        event = dummy_event(at, command_id, payload, fence)
        events.append(event)
        at = Cursor.after(event)
    return Batch(
        session_id=place.session_id,
        command_id=command_id,
        fingerprint=fingerprint or hashlib.sha256(b"\0".join((command_id.encode(), *payloads))).digest(),
        events=tuple(events),
        expected_sequence=place.sequence,
        expected_head=place.head,
        owner_id=owner_id,
        listing=listing or Listing("open", "none"),
        fence=fence,
        snapshot=_snapshot(at, snapshot_state),
        blobs=tuple(Blob(hashlib.sha256(data).hexdigest(), data) for data in blobs),
    )


def end_of(batch: Batch) -> Cursor:
    """Where the session stands once a batch is in the journal."""
    return Cursor.after(batch.events[-1])


def _snapshot(at: Cursor, state: bytes | None) -> Snapshot | None:
    return None if state is None else Snapshot(at.session_id, at.sequence, 1, at.head, state)

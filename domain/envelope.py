"""The stored form of an event, and the chain over it.

    payload commitment  pc   = SHA-256("minutebook/payload/1" 00 salt payload)
    leaf                l_n  = SHA-256(00 envelope)
    head                h_n  = SHA-256(01 h_{n-1} l_n)
                        h_0  = SHA-256("minutebook/journal/1" 00 session_id)

The envelope is everything about an event but its content; it holds `pc`, so
the content can be removed later without breaking the chain. Bytes are hashed
as stored and are never encoded again to verify.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson

from domain import canonical
from domain.errors import Corrupt
from domain.values import ActorKind, AggregateKind

PAYLOAD_DOMAIN: Final = b"minutebook/payload/1\x00"
JOURNAL_DOMAIN: Final = b"minutebook/journal/1\x00"
SALT_BYTES: Final = 32

_UTC_OFFSET: Final = timedelta(0)
_FIELDS: Final = frozenset(
    "session_id sequence type version aggregate request_id turn_id model_attempt_id tool_id occurred_at "
    "recorded_at command causation recorded_by actor payload".split()
)


@dataclass(frozen=True, slots=True)
class Actor:
    """Who caused an event; `id` where it is known."""

    kind: ActorKind
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to write to a leased session: which lease, and its token (from 1)."""

    worker_id: str
    lease_id: str
    token: int


@dataclass(frozen=True, slots=True)
class Draft:
    """The writer's part of an event; the journal's part is added when stamping.

    `data` is a payload of `domain.events`; the ids are those its type requires.
    `causation` is the sequence of the event that caused this one.
    """

    data: Any
    aggregate_id: str
    request_id: str | None = None
    turn_id: str | None = None
    model_attempt_id: str | None = None
    tool_id: str | None = None
    causation: int | None = None
    actor: Actor = Actor(ActorKind.HOST)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One event of a session's journal, decoded.

    `data` is the typed payload where the reader asked for it (a pydantic model
    from `domain.catalogue`), otherwise None. `command_index` of `command_size` is
    the event's place in its command, so that a journal cut inside one can be told
    from a whole one. `head` is the journal's head after it, empty until it is sealed; it follows
    from the rest, so it makes no event another one. Satisfies the attribute protocol
    of the eventsourcing library (`originator_id`, `originator_version`).
    """

    session_id: str
    sequence: int
    type: str
    version: int
    aggregate_kind: AggregateKind
    aggregate_id: str
    request_id: str | None
    turn_id: str | None
    model_attempt_id: str | None
    tool_id: str | None
    occurred_at: datetime
    recorded_at: datetime
    command_id: str
    causation: int | None
    recorded_by: Fence | None
    actor: Actor
    data: Any
    command_index: int = 0
    command_size: int = 1
    head: bytes = field(default=b"", compare=False)

    @property
    def originator_id(self) -> str:
        return self.session_id

    @property
    def originator_version(self) -> int:
        return self.sequence

    @property
    def topic(self) -> str:
        return f"{self.type}@{self.version}"

    @property
    def event_id(self) -> str:
        """Derived, never stored: `session/sequence`."""
        return f"{self.session_id}/{self.sequence}"


@dataclass(frozen=True, slots=True)
class Stored:
    """One row of the journal: the bytes that are hashed, and the head after it.

    `payload` and `salt` are None after a redaction.
    """

    session_id: str
    sequence: int
    topic: str
    envelope: bytes
    payload: bytes | None
    salt: bytes | None
    head: bytes


def genesis(session_id: str) -> bytes:
    """The head of a session that has no event yet."""
    return hashlib.sha256(JOURNAL_DOMAIN + session_id.encode()).digest()


def commitment(salt: bytes, payload: bytes) -> bytes:
    """The salted commitment to a payload."""
    return hashlib.sha256(PAYLOAD_DOMAIN + salt + payload).digest()


def link(head: bytes, envelope: bytes) -> bytes:
    """The head after one more envelope."""
    leaf = hashlib.sha256(b"\x00" + envelope).digest()
    return hashlib.sha256(b"\x01" + head + leaf).digest()


def seal(event: Recorded, payload: bytes, salt: bytes, head: bytes) -> Stored:
    """Turn a stamped event and its encoded payload into the row to be stored.

    Args:
        event: everything but the content; `data` is not looked at.
        payload: the encoded content.
        salt: `SALT_BYTES` random bytes, used for nothing else.
        head: the head before this event.
    """
    envelope = canonical.encode_envelope(
        {
            "session_id": event.session_id,
            "sequence": event.sequence,
            "type": event.type,
            "version": event.version,
            "aggregate": {"kind": event.aggregate_kind, "id": event.aggregate_id},
            "request_id": event.request_id,
            "turn_id": event.turn_id,
            "model_attempt_id": event.model_attempt_id,
            "tool_id": event.tool_id,
            "occurred_at": _stamp(event.occurred_at),
            "recorded_at": _stamp(event.recorded_at),
            "command": {
                "id": event.command_id,
                "index": event.command_index,
                "size": event.command_size,
            },
            "causation": event.causation,
            "recorded_by": _fence_to_plain(event.recorded_by),
            "actor": {"kind": event.actor.kind, "id": event.actor.id},
            "payload": {
                "commitment": commitment(salt, payload).hex(),
                "size_bytes": len(payload),
                "media_type": "application/json",
            },
        }
    )
    return Stored(
        event.session_id, event.sequence, event.topic, envelope, payload, salt, link(head, envelope)
    )


def open_envelope(stored: Stored, data: Any = None) -> Recorded:
    """Decode a row's envelope; `data` becomes the event's content.

    Raises:
        Corrupt: the envelope does not parse, or contradicts the row's own columns.
    """
    try:
        event = _event(canonical.decode(stored.envelope), data, stored.head)
    except (Corrupt, ValueError, KeyError, TypeError) as e:
        raise Corrupt("envelope", "an envelope of this format", stored.envelope[:80], stored.sequence) from e
    row = (stored.session_id, stored.sequence, stored.topic)
    if (event.session_id, event.sequence, event.topic) != row:
        raise Corrupt("envelope", f"the row's own {row}", (event.event_id, event.topic), stored.sequence)
    return event


def _event(plain: Any, data: Any, head: bytes) -> Recorded:
    """The event of an envelope. Whoever wrote it: every field is of its kind and there is no other."""
    if type(plain) is not dict or plain.keys() != _FIELDS:
        raise ValueError("other fields than an envelope has")
    aggregate, command, actor = plain["aggregate"], plain["command"], plain["actor"]
    return Recorded(
        session_id=_text(plain["session_id"]),
        sequence=_count(plain["sequence"]),
        type=_text(plain["type"]),
        version=_count(plain["version"]),
        aggregate_kind=AggregateKind(aggregate["kind"]),
        aggregate_id=_text(aggregate["id"]),
        request_id=_text_or_none(plain["request_id"]),
        turn_id=_text_or_none(plain["turn_id"]),
        model_attempt_id=_text_or_none(plain["model_attempt_id"]),
        tool_id=_text_or_none(plain["tool_id"]),
        occurred_at=_moment(plain["occurred_at"]),
        recorded_at=_moment(plain["recorded_at"]),
        command_id=_text(command["id"]),
        command_index=_count(command["index"]),
        command_size=_count(command["size"]),
        causation=None if plain["causation"] is None else _count(plain["causation"]),
        recorded_by=None if plain["recorded_by"] is None else _fence(**plain["recorded_by"]),
        actor=Actor(ActorKind(actor["kind"]), _text_or_none(actor["id"])),
        data=data,
        head=head,
    )


def _fence(worker_id: Any, lease_id: Any, token: Any) -> Fence:
    return Fence(_text(worker_id), _text(lease_id), _count(token))


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError("text is expected")
    return value


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError("a count is expected")
    return value


def _moment(value: Any) -> datetime:
    moment = datetime.fromisoformat(value)
    if moment.utcoffset() != _UTC_OFFSET:
        raise ValueError("a moment in UTC is expected")
    return moment


def claimed_commitment(stored: Stored) -> bytes:
    """The payload commitment that a row's envelope states."""
    try:
        return bytes.fromhex(orjson.loads(stored.envelope)["payload"]["commitment"])
    except (ValueError, KeyError, TypeError) as e:
        raise Corrupt("envelope", "a payload commitment", stored.envelope[:80], stored.sequence) from e


def check_link(stored: Stored, sequence: int, head: bytes) -> None:
    """Prove that a row follows (`sequence`, `head`) and that its content is what was committed to.

    Raises:
        Corrupt: naming the row's sequence, the check that failed, expected and actual.
    """
    if stored.sequence != sequence + 1:
        raise Corrupt("sequence", str(sequence + 1), stored.sequence, sequence + 1)
    if link(head, stored.envelope) != stored.head:
        raise Corrupt(
            "chain", "the head that follows from the rows before", stored.head.hex(), stored.sequence
        )
    if stored.payload is None or stored.salt is None:
        if stored.payload is not None or stored.salt is not None:
            raise Corrupt("payload", "payload and salt removed together", "one of them", stored.sequence)
        return
    if commitment(stored.salt, stored.payload) != claimed_commitment(stored):
        raise Corrupt("payload", "the content the envelope commits to", stored.payload[:80], stored.sequence)


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _fence_to_plain(fence: Fence | None) -> dict[str, Any] | None:
    if fence is None:
        return None
    return {"worker_id": fence.worker_id, "lease_id": fence.lease_id, "token": fence.token}

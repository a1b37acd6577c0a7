"""Inputs: the session's queue.

    (sent) --accepted--> pending --applied--> in its request
                         pending --cancelled--> gone, on record

accepted = applied + cancelled + pending, always. Nothing but these two events
takes an input off the queue. `now` and `next` hold only while the request they
aim at is active and not aborted; otherwise the same input reads as `later`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from domain import canonical
from domain import events as ev
from domain.envelope import Recorded
from domain.errors import RuleViolated
from domain.events import Payload
from domain.rules import need
from domain.values import Priority

# --- commands -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AcceptInput:
    """Put an input into the queue."""

    input_id: str
    content: str | list[dict[str, Any]]
    priority: Priority
    ordinal: int
    target_request_id: str | None = None
    downgraded_from: Priority | None = None
    max_turns: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ApplyInput:
    """Take an input into the active request."""

    input_id: str
    priority: Priority
    turn: int


@dataclass(frozen=True, slots=True)
class CancelInput:
    """Take an input off the queue unapplied."""

    input_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class BeginPreparation:
    """Hooks or attachments of the applied inputs are about to run."""

    input_ids: tuple[str, ...]
    hooks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FinishPreparation:
    """The applied inputs are ready for the model."""

    input_ids: tuple[str, ...]
    contents: dict[str, Any] = field(default_factory=dict)
    evidence: str | None = None


Command = AcceptInput | ApplyInput | CancelInput | BeginPreparation | FinishPreparation

# --- state --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PendingInput:
    """A reference to a queued input; the content stays in its event."""

    input_id: str
    priority: Priority
    ordinal: int
    size_bytes: int
    sequence: int
    target_request_id: str | None = None
    max_turns: int | None = None


@dataclass(frozen=True, slots=True)
class Queue:
    """The pending inputs in order of acceptance, and counts of all there ever were."""

    pending: tuple[PendingInput, ...] = ()
    accepted: int = 0
    applied: int = 0
    cancelled: int = 0

    def find(self, input_id: str) -> PendingInput | None:
        """The pending input of that id."""
        return next((i for i in self.pending if i.input_id == input_id), None)

    @property
    def size_bytes(self) -> int:
        """Bytes of pending content."""
        return sum(i.size_bytes for i in self.pending)


# --- decide ---------------------------------------------------------------------------


def decide(command: Command) -> Payload:
    """The event that carries out `command`."""
    match command:
        case AcceptInput():
            return ev.InputAccepted(
                input_id=command.input_id,
                content=command.content,
                priority=command.priority,
                ordinal=command.ordinal,
                size_bytes=len(canonical.encode(command.content)),
                target_request_id=command.target_request_id,
                downgraded_from=command.downgraded_from,
                max_turns=command.max_turns,
                metadata=command.metadata,
            )
        case ApplyInput():
            return ev.InputApplied(input_id=command.input_id, priority=command.priority, turn=command.turn)
        case CancelInput():
            return ev.InputCancelled(input_id=command.input_id, reason=command.reason)
        case BeginPreparation():
            return ev.InputPreparationStarted(input_ids=list(command.input_ids), hooks=list(command.hooks))
        case FinishPreparation():
            return ev.InputPrepared(
                input_ids=list(command.input_ids),
                contents=command.contents,
                evidence=command.evidence,
            )


# --- evolve ------------------------------------------------------------------------------


def evolve(queue: Queue, event: Recorded) -> Queue:
    """Fold one event of the queue. Raises RuleViolated."""
    data = event.data
    match data:
        case ev.InputAccepted():
            need(data.ordinal == queue.accepted + 1, "inputs are numbered", event)
            need(queue.find(data.input_id) is None, "an input is accepted once", event)
            added = PendingInput(
                data.input_id,
                data.priority,
                data.ordinal,
                data.size_bytes,
                event.sequence,
                data.target_request_id,
                data.max_turns,
            )
            return replace(queue, pending=(*queue.pending, added), accepted=queue.accepted + 1)
        case ev.InputApplied():
            return replace(_without(queue, event, data.input_id), applied=queue.applied + 1)
        case ev.InputCancelled():
            return replace(_without(queue, event, data.input_id), cancelled=queue.cancelled + 1)
    raise RuleViolated("an event of the queue", event.type, event.sequence)


def _without(queue: Queue, event: Recorded, input_id: str) -> Queue:
    need(queue.find(input_id) is not None, "the input is pending", event)
    return replace(queue, pending=tuple(i for i in queue.pending if i.input_id != input_id))

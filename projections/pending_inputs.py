"""The queue as a person sees it: inputs that were accepted and not yet applied or cancelled.

Pure. The rules about the queue are in `domain.inputs`; this keeps what people
want to read about it, the content above all.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from domain import events as ev
from domain.envelope import Recorded
from domain.values import Priority

#: The event types that the projector folds.
TYPES: Final = frozenset(cls.type for cls in (ev.InputAccepted, ev.InputApplied, ev.InputCancelled))


@dataclass(frozen=True, slots=True)
class QueuedInput:
    """One pending input.

    Args:
        ordinal: its number among all accepted inputs, from 1.
        priority: as it was accepted; see `domain.state.State.effective_priority`.
        size_bytes: of the stored content.
    """

    input_id: str
    sequence: int
    ordinal: int
    priority: Priority
    content: str | list[dict[str, Any]]
    size_bytes: int
    accepted_at: datetime
    target_request_id: str | None = None
    downgraded_from: Priority | None = None


class PendingInputs:
    """Folds a session's events into the queue, in order of acceptance."""

    def __init__(self) -> None:
        self._pending: dict[str, QueuedInput] = {}
        self.accepted = 0
        self.applied = 0
        self.cancelled = 0

    @property
    def items(self) -> tuple[QueuedInput, ...]:
        """What is pending."""
        return tuple(self._pending.values())

    def apply(self, event: Recorded) -> None:
        """Fold one event; those of other types are passed over."""
        match event.data:
            case ev.InputAccepted() as data:
                self.accepted += 1
                self._pending[data.input_id] = _queued(event, data)
            case ev.InputApplied(input_id=input_id):
                self.applied += 1
                self._pending.pop(input_id, None)
            case ev.InputCancelled(input_id=input_id):
                self.cancelled += 1
                self._pending.pop(input_id, None)


def _queued(event: Recorded, data: ev.InputAccepted) -> QueuedInput:
    return QueuedInput(
        data.input_id,
        event.sequence,
        data.ordinal,
        data.priority,
        data.content,
        data.size_bytes,
        event.recorded_at,
        data.target_request_id,
        data.downgraded_from,
    )

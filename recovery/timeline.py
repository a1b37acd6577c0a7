"""The minutes, event by event: when, what, by whom, because of what, how long it took.

Pure: rows of a journal in, rows of a table out. What cannot be decoded is shown by
its envelope. Keeps nothing but when open things began.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from domain import catalogue
from domain import events as ev
from domain.envelope import Recorded, Stored, open_envelope
from domain.errors import MinutebookError
from domain.events import Payload
from domain.values import ActorKind
from projections.wire_parts import readable

_ENDS: Final = frozenset(
    {
        "request_completed",
        "request_failed",
        "request_interrupted",
        "request_superseded",
        "turn_completed",
        "turn_aborted",
        "model_request_completed",
        "model_request_failed",
        "model_request_aborted",
        "model_outcome_reconciled",
        "tool_completed",
        "tool_failed",
        "tool_cancelled",
        "tool_outcome_unknown",
        "tool_outcome_reconciled",
        "tool_suspended",
        "permission_resolved",
        "permission_cancelled",
        "input_applied",
        "input_cancelled",
        "input_prepared",
        "compaction_completed",
        "compaction_failed",
        "session_closed",
    }
)
_BEGINS: Final = frozenset(
    {
        "session_created",
        "request_accepted",
        "turn_started",
        "model_request_started",
        "tool_started",
        "permission_requested",
        "input_accepted",
        "input_preparation_started",
        "compaction_started",
    }
)


@dataclass(frozen=True, slots=True)
class Moment:
    """One event as a line.

    Args:
        subject: the id it is about.
        what: the type, and the few words that tell this one from others.
        who: actor, and the worker that recorded it.
        cause: the sequence of the event that caused it, if one did.
        took: since what it ends began.
    """

    sequence: int
    at: datetime
    type: str
    subject: str
    what: str
    who: str
    cause: int | None
    took: timedelta | None


class Timeline:
    """Turns rows into moments; feed it a session's rows in order."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, str], datetime] = {}

    def moment(self, row: Stored) -> Moment:
        """One row as a line.

        Raises:
            Corrupt: its envelope cannot be read.
        """
        try:
            event = catalogue.open_stored(row)
            what = _words(event.data)
        except MinutebookError as e:
            event = open_envelope(row)
            what = f"(cannot be decoded: {e})"
        subject = _subject(event)
        took = self._took(event, subject)
        if event.actor.kind is ActorKind.OPERATOR:  # what a decision is known again by
            what = f"{what}; command {event.command_id}" if what else f"command {event.command_id}"
        return Moment(
            event.sequence, event.recorded_at, event.type, subject, what, _who(event), event.causation, took
        )

    def _took(self, event: Recorded, subject: str) -> timedelta | None:
        key = (_family(event.type), subject)
        if event.type in _BEGINS:
            self._begun[key] = event.recorded_at
        if event.type not in _ENDS:
            return None
        begun = self._begun.pop(key, None)
        return event.recorded_at - begun if begun is not None else None


def _family(type_: str) -> str:
    if type_.startswith("input_prepar"):
        return "preparation"
    if type_ == "model_outcome_reconciled":
        return "model"
    return type_.partition("_")[0]


def _subject(event: Recorded) -> str:
    named = getattr(event.data, "input_id", None) if event.type.startswith("input_") else None
    return str(named) if named else event.aggregate_id


def _who(event: Recorded) -> str:
    actor = event.actor.kind.value + (f" {event.actor.id}" if event.actor.id else "")
    return actor if event.recorded_by is None else f"{actor} / {event.recorded_by.worker_id}"


def _words(data: Payload) -> str:
    """What tells this event from others of its type, in a few words."""
    match data:
        case ev.SessionCreated():
            return f"model {data.settings.get('model', '?')}"
        case ev.InputAccepted():
            return f"{data.priority.value}: {_text(readable(data.content))}"
        case ev.ModelRequestStarted():
            return f"{data.provider} {data.model}, {data.request_bytes} bytes"
        case ev.ModelRequestCompleted():
            return _response(data.response)
        case ev.ModelOutcomeReconciled():
            return f"{data.outcome}; {data.evidence}"
        case ev.ToolScheduled():
            return f"{data.name} ({data.side_effect.value})"
        case ev.ToolStarted():
            return f"run {data.run}" + (f", segment {data.segment}" if data.segment else "")
        case ev.ToolCompleted():
            return _text(data.output)
        case ev.ToolOutcomeReconciled():
            return f"{data.outcome}; {data.evidence}"
        case ev.PermissionEvaluated():
            return f"{data.verdict.value} by {data.source}"
        case ev.PermissionRequested():
            return data.summary
        case ev.PermissionResolved():
            return f"{data.verdict} {data.message}".rstrip()
        case ev.RequestCompleted():
            return _text(data.output)
        case ev.RequestSuperseded(by_request_id=str(successor)):
            return f"by {successor}: {_reason(data)}"
        case ev.ToolResumed():
            return f"answered {_text(data.answer)}"
        case ev.LeaseAcquired(former_worker_id=str(former)):
            return f"after {former} ({data.former_end})"
    return _reason(data)


def _reason(data: Payload) -> str:
    named = ("error_code", "error_type", "reason", "message", "evidence")
    found = (str(getattr(data, name, None) or "") for name in named)
    return "; ".join(text for text in found if text)


def _response(response: ev.ResponseKept) -> str:
    calls = ", ".join(call.name for call in response.calls)
    text = "".join(block.text for block in response.blocks if block.kind == "text")
    return f"{response.stop.value}: {'calls ' + calls if calls else _text(text)}"


def _text(content: Any) -> str:
    text = content if isinstance(content, str) else repr(content)
    return text if len(text) <= 300 else text[:297] + "..."

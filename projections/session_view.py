"""One session at a glance: the facts that a listing shows.

Pure. It counts and names; what comes next is the plan's business
(`domain.next_steps`), what was said is the transcript's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from domain import events as ev
from domain.envelope import Recorded
from domain.events import Payload

_REQUEST_ENDS: Final[dict[type[Payload], str]] = {
    ev.RequestCompleted: "completed",
    ev.RequestFailed: "failed",
    ev.RequestInterrupted: "interrupted",
    ev.RequestSuperseded: "superseded",
}

_FOLDED: Final[tuple[type[Payload], ...]] = (
    ev.SessionCreated,
    ev.SessionResumed,
    ev.SessionClosed,
    ev.ModelChanged,
    ev.PermissionModeChanged,
    ev.InputAccepted,
    ev.RequestAccepted,
    ev.TurnStarted,
    ev.ToolStarted,
    *_REQUEST_ENDS,
)

#: The event types that the projector folds.
TYPES: Final = frozenset(cls.type for cls in _FOLDED)


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What a listing says about a session.

    Args:
        status: none, open or closed.
        request_id: the request in progress, if there is one.
        ended: how many requests ended, by how they ended.
        resumed: how often another worker opened it.
        tool_runs: how often any tool's code was started.
        updated_at: when the last of these facts changed.
    """

    owner_id: str = ""
    model: str = ""
    permission_mode: str = ""
    status: str = "none"
    request_id: str | None = None
    inputs: int = 0
    requests: int = 0
    turns: int = 0
    tool_runs: int = 0
    resumed: int = 0
    ended: tuple[tuple[str, int], ...] = ()
    created_at: datetime | None = None
    updated_at: datetime | None = None


class SessionView:
    """Folds a session's events into its facts."""

    def __init__(self) -> None:
        self.facts = SessionFacts()

    def apply(self, event: Recorded) -> None:
        """Fold one event; those of other types are passed over."""
        if event.type in TYPES:
            self.facts = replace(_after(self.facts, event), updated_at=event.recorded_at)


def _after(facts: SessionFacts, event: Recorded) -> SessionFacts:
    match event.data:
        case ev.SessionCreated() as data:
            return _created(facts, data.owner_id, data.settings, event.recorded_at)
        case ev.SessionResumed():
            return replace(facts, resumed=facts.resumed + 1)
        case ev.SessionClosed():
            return replace(facts, status="closed")
        case ev.ModelChanged(model=model):
            return replace(facts, model=model)
        case ev.PermissionModeChanged(mode=mode):
            return replace(facts, permission_mode=mode.value)
        case ev.InputAccepted():
            return replace(facts, inputs=facts.inputs + 1)
        case ev.RequestAccepted():
            return replace(facts, requests=facts.requests + 1, request_id=event.request_id)
        case ev.TurnStarted():
            return replace(facts, turns=facts.turns + 1)
        case ev.ToolStarted():
            return replace(facts, tool_runs=facts.tool_runs + 1)
    return replace(facts, request_id=None, ended=_counted(facts.ended, _REQUEST_ENDS[type(event.data)]))


def _created(facts: SessionFacts, owner_id: str, settings: dict[str, Any], at: datetime) -> SessionFacts:
    return replace(
        facts,
        owner_id=owner_id,
        model=str(settings.get("model", "")),
        permission_mode=str(settings.get("permission_mode", "")),
        status="open",
        created_at=at,
    )


def _counted(ended: tuple[tuple[str, int], ...], how: str) -> tuple[tuple[str, int], ...]:
    counts = dict(ended)
    counts[how] = counts.get(how, 0) + 1
    return tuple(sorted(counts.items()))

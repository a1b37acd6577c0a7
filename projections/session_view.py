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
    ev.ThinkingChanged,
    ev.BudgetSet,
    ev.BudgetExceeded,
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
        provider: where the model is, by its name in the configuration; empty: the default one.
        context_window: how many tokens the model takes in, if that is known.
        thinking: empty where none is asked for, otherwise what was said about it.
        budget: empty where there is none, "set", or the level of it that was reached.
        status: none, open or closed.
        request_id: the request in progress, if there is one.
        ended: how many requests ended, by how they ended.
        resumed: how often another worker opened it.
        tool_runs: how often any tool's code was started.
        updated_at: when the last of these facts changed.
    """

    owner_id: str = ""
    model: str = ""
    provider: str = ""
    context_window: int | None = None
    thinking: str = ""
    budget: str = ""
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
        case ev.ModelChanged(model=model, provider=provider, context_window=window):
            return replace(facts, model=model, provider=provider or "", context_window=window)
        case ev.ThinkingChanged(thinking=thinking):
            return replace(facts, thinking=_thinking(None if thinking is None else thinking.model_dump()))
        case ev.BudgetSet(max_tokens=tokens, max_cost=cost):
            return replace(facts, budget="" if tokens is None and cost is None else "set")
        case ev.BudgetExceeded(level=level):
            return replace(facts, budget=level.value)
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
        provider=str(settings.get("provider_name") or ""),
        context_window=settings.get("context_window"),
        thinking=_thinking(settings.get("thinking")),
        permission_mode=str(settings.get("permission_mode", "")),
        status="open",
        created_at=at,
    )


def _thinking(settings: dict[str, Any] | None) -> str:
    if settings is None:
        return ""
    tokens, effort = settings.get("budget_tokens"), settings.get("effort")
    said = [f"{tokens} tokens"] if tokens is not None else []
    return ", ".join([*said, str(effort)] if effort is not None else said) or "on"


def _counted(ended: tuple[tuple[str, int], ...], how: str) -> tuple[tuple[str, int], ...]:
    counts = dict(ended)
    counts[how] = counts.get(how, 0) + 1
    return tuple(sorted(counts.items()))

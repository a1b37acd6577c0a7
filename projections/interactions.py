"""What a session waits for from outside: open permission questions and suspended calls.

Pure. A session may have several at once; answers come in any order, so each is
found by its own id or by its call's. Deciding about them does not belong here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from domain import events as ev
from domain.envelope import Recorded
from domain.values import SideEffect

#: The event types that the projector folds.
TYPES: Final = frozenset(
    cls.type
    for cls in (
        ev.ToolScheduled,
        ev.PermissionRequested,
        ev.PermissionResolved,
        ev.PermissionCancelled,
        ev.ToolSuspended,
        ev.ToolResumed,
        ev.ToolCompleted,
        ev.ToolFailed,
        ev.ToolCancelled,
        ev.ToolOutcomeReconciled,
    )
)
_ENDS: Final = (ev.ToolCompleted, ev.ToolFailed, ev.ToolCancelled)


@dataclass(frozen=True, slots=True)
class OpenPermission:
    """A question that a person has to answer.

    Args:
        input: exactly what the call would run with; `input_digest` is its SHA-256 (hex).
        evidence: sequences of the call's schedule and of the question.
    """

    permission_id: str
    tool_id: str
    name: str
    side_effect: SideEffect
    summary: str
    input: dict[str, Any]
    input_digest: str
    evidence: tuple[int, ...]
    expires_at: str | None = None


@dataclass(frozen=True, slots=True)
class OpenSuspension:
    """A call that waits for an answer.

    Args:
        payload: what the tool says it waits for.
        resume_schema: JSON Schema of the answer; empty where any will do.
        evidence: sequences of the call's schedule and of the suspension.
    """

    tool_id: str
    name: str
    payload: Any
    resume_schema: dict[str, Any]
    evidence: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Scheduled:
    name: str
    side_effect: SideEffect
    input: dict[str, Any]
    sequence: int


class Interactions:
    """Folds a session's events into what is open now, in the order it was opened."""

    def __init__(self) -> None:
        self._calls: dict[str, _Scheduled] = {}
        self._permissions: dict[str, OpenPermission] = {}
        self._suspensions: dict[str, OpenSuspension] = {}

    @property
    def permissions(self) -> tuple[OpenPermission, ...]:
        """Open questions."""
        return tuple(self._permissions.values())

    @property
    def suspensions(self) -> tuple[OpenSuspension, ...]:
        """Suspended calls."""
        return tuple(self._suspensions.values())

    def find(self, permission_or_tool_id: str) -> OpenPermission | OpenSuspension | None:
        """The open interaction of that id, or of the call of that id."""
        for question in self._permissions.values():
            if permission_or_tool_id in (question.permission_id, question.tool_id):
                return question
        return self._suspensions.get(permission_or_tool_id)

    def apply(self, event: Recorded) -> None:
        """Fold one event; those of other types are passed over."""
        tool_id = event.tool_id
        if tool_id is None:
            return
        match event.data:
            case ev.ToolScheduled() as data:
                self._calls[tool_id] = _Scheduled(data.name, data.side_effect, data.input, event.sequence)
            case ev.PermissionRequested() as data if tool_id in self._calls:
                self._permissions[tool_id] = _asked(tool_id, self._calls[tool_id], event, data)
            case ev.PermissionResolved() | ev.PermissionCancelled() as data:
                self._permissions.pop(tool_id, None)
                self._update(tool_id, getattr(data, "updated_input", None))
            case ev.ToolSuspended() as data if tool_id in self._calls:
                call = self._calls[tool_id]
                evidence = (call.sequence, event.sequence)
                self._suspensions[tool_id] = OpenSuspension(
                    tool_id, call.name, data.payload, data.resume_schema, evidence
                )
            case ev.ToolResumed():
                self._suspensions.pop(tool_id, None)
            case ev.ToolOutcomeReconciled(outcome="suspended") if tool_id in self._calls:
                call = self._calls[tool_id]
                evidence = (call.sequence, event.sequence)
                self._suspensions[tool_id] = OpenSuspension(tool_id, call.name, None, {}, evidence)
            case ev.ToolOutcomeReconciled():
                self._forget(tool_id)
            case data if isinstance(data, _ENDS):
                self._forget(tool_id)

    def _update(self, tool_id: str, replacement: dict[str, Any] | None) -> None:
        if replacement is not None and tool_id in self._calls:
            call = self._calls[tool_id]
            self._calls[tool_id] = _Scheduled(call.name, call.side_effect, replacement, call.sequence)

    def _forget(self, tool_id: str) -> None:
        self._calls.pop(tool_id, None)
        self._permissions.pop(tool_id, None)
        self._suspensions.pop(tool_id, None)


def _asked(tool_id: str, call: _Scheduled, event: Recorded, data: ev.PermissionRequested) -> OpenPermission:
    return OpenPermission(
        data.permission_id,
        tool_id,
        call.name,
        call.side_effect,
        data.summary,
        call.input,
        data.input_digest,
        (call.sequence, event.sequence),
        data.expires_at,
    )

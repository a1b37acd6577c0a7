"""The conversation: user inputs and complete exchanges, call and result in pairs.

An `Exchange` is one model response together with the outcome of every call it
declared. It is the unit in which history is rendered, so a call without its
result cannot reach a provider: there is no way to write one down.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from domain import events as ev
from domain.envelope import Recorded
from domain.model_ports import Block

#: The event types that the projector folds.
TYPES: Final = frozenset(
    cls.type
    for cls in (
        ev.InputAccepted,
        ev.InputPrepared,
        ev.InputApplied,
        ev.InputCancelled,
        ev.RequestSuperseded,
        ev.ModelRequestStarted,
        ev.ModelRequestCompleted,
        ev.ModelOutcomeReconciled,
        ev.PermissionEvaluated,
        ev.PermissionResolved,
        ev.ToolRejected,
        ev.ToolCompleted,
        ev.ToolFailed,
        ev.ToolCancelled,
        ev.ToolOutcomeUnknown,
        ev.ToolOutcomeReconciled,
    )
)

UNKNOWN_OUTPUT: Final = (
    "Outcome unknown: this call was started and its end was not recorded. "
    "It may or may not have taken effect. Do not assume either; do not repeat it without asking."
)

_WIRE_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}", re.ASCII)


@dataclass(frozen=True, slots=True)
class UserItem:
    """An input that was applied. `content` is text, or a list of parts (plain dicts).

    `media`: bytes by digest, put there by a session for its provider; otherwise empty.
    """

    sequence: int
    input_id: str
    content: str | list[dict[str, Any]]
    media: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CallItem:
    """One call and what became of it.

    Args:
        wire_id: the id both sides of the pair carry on the wire; unique in the session.
        arguments: the raw argument text as received (it may not parse).
        outcome: completed, failed, cancelled, rejected, unknown, or open while it runs.
        output: what the model is told, as text.
    """

    tool_id: str
    wire_id: str
    provider_call_id: str
    name: str
    arguments: str
    outcome: str
    output: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """One model response with the outcome of each of its calls."""

    sequence: int
    turn_id: str
    attempt_id: str
    provider: str
    api: str
    model: str
    blocks: tuple[Block, ...]
    calls: tuple[CallItem, ...]
    stop: str

    @property
    def text(self) -> str:
        """The visible text of the response."""
        return "".join(block.text for block in self.blocks if block.kind == "text")


Item = UserItem | Exchange


class Transcript:
    """Folds a session's events into `items`, in order of the conversation.

    Only calls whose outcome may still change are kept by id; an old exchange is
    replaced when one of its calls is reconciled later.
    """

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._changed: set[int] = set()
        self._accepted: dict[str, str | list[dict[str, Any]]] = {}
        self._applied: dict[str, int] = {}
        self._speaker = ("", "", "")
        self._open: dict[str, tuple[int, int]] = {}
        self._reasons: dict[str, str] = {}
        self._wire_ids: set[str] = set()

    def apply(self, event: Recorded) -> None:
        """Fold one event; those of other types are passed over."""
        data = event.data
        match data:
            case ev.InputAccepted():
                self._accepted[data.input_id] = data.content
            case ev.InputCancelled():
                self._accepted.pop(data.input_id, None)
            case ev.InputApplied():
                content = self._accepted.pop(data.input_id, "")
                self._applied[data.input_id] = self._append(UserItem(event.sequence, data.input_id, content))
            case ev.InputPrepared():
                self._prepared(data)
            case ev.RequestSuperseded():
                self._replaced(data.replaced_input_ids)
            case ev.ModelRequestStarted():
                self._speaker = (data.provider, data.api, data.model)
            case ev.ModelRequestCompleted():
                self._responded(event, data.response)
            case ev.ModelOutcomeReconciled() if data.response is not None:
                self._responded(event, data.response)
            case _ if event.tool_id is not None:
                self._about_call(event.tool_id, data)

    def call(self, tool_id: str) -> CallItem:
        """A call whose outcome is open or unknown. Raises KeyError for others."""
        position, index = self._open[tool_id]
        exchange = self.items[position]
        assert isinstance(exchange, Exchange)
        return exchange.calls[index]

    def take_changed(self) -> list[int]:
        """Positions of items that are new or different since the last call, ascending."""
        changed, self._changed = sorted(self._changed), set()
        return changed

    def latest_outcome(self, tool_id: str) -> tuple[str, str]:
        """(outcome, what the model is told) of a call of the latest response."""
        exchange = self.items[-1]
        assert isinstance(exchange, Exchange)
        call = next(c for c in exchange.calls if c.tool_id == tool_id)
        return call.outcome, call.output

    def latest(self) -> Exchange | None:
        """The latest response with its calls."""
        return next((item for item in reversed(self.items) if isinstance(item, Exchange)), None)

    def _append(self, item: Item) -> int:
        self.items.append(item)
        position = len(self.items) - 1
        self._changed.add(position)
        return position

    def _prepared(self, data: ev.InputPrepared) -> None:
        for input_id in data.input_ids:
            position = self._applied.pop(input_id, None)
            if position is not None and input_id in data.contents:
                item = self.items[position]
                assert isinstance(item, UserItem)
                self._put(position, replace(item, content=data.contents[input_id]))

    def _replaced(self, input_ids: list[str]) -> None:
        """Take out inputs that a successor's input stands for. No turn saw them, so they are the last."""
        while self.items and isinstance(item := self.items[-1], UserItem) and item.input_id in input_ids:
            self.items.pop()
            self._changed.discard(len(self.items))
            self._applied.pop(item.input_id, None)

    def _put(self, position: int, item: Item) -> None:
        self.items[position] = item
        self._changed.add(position)

    def _responded(self, event: Recorded, response: ev.ResponseKept) -> None:
        if event.turn_id is None:
            return  # of a compaction
        assert event.model_attempt_id is not None
        provider, api, model = self._speaker
        calls = tuple(
            self._declared(f"{event.model_attempt_id}.c{i}", c) for i, c in enumerate(response.calls)
        )
        blocks = tuple(Block(b.kind, b.text, b.format) for b in response.blocks)
        exchange = Exchange(
            event.sequence,
            event.turn_id,
            event.model_attempt_id,
            provider,
            api,
            model,
            blocks,
            calls,
            response.stop,
        )
        position = self._append(exchange)
        self._open.update({call.tool_id: (position, i) for i, call in enumerate(calls)})

    def _declared(self, tool_id: str, call: ev.CallDeclared) -> CallItem:
        wire_id = call.provider_call_id
        if not _WIRE_ID.fullmatch(wire_id) or wire_id in self._wire_ids:
            wire_id = "call_" + hashlib.sha256(tool_id.encode()).hexdigest()[:32]
        self._wire_ids.add(wire_id)
        return CallItem(tool_id, wire_id, call.provider_call_id, call.name, call.arguments, "open", "")

    def _about_call(self, tool_id: str, data: ev.Payload) -> None:
        match data:
            case ev.PermissionEvaluated() if data.verdict == "deny":
                self._reasons[tool_id] = "; ".join(data.explanation)
            case ev.PermissionResolved() if data.verdict == "deny":
                self._reasons[tool_id] = data.message
        told = _told(data, self._reasons.get(tool_id, ""))
        if told is None or tool_id not in self._open:
            return
        outcome, output = told
        position, index = self._open[tool_id]
        exchange = self.items[position]
        assert isinstance(exchange, Exchange)
        call = replace(exchange.calls[index], outcome=outcome, output=output)
        calls = (*exchange.calls[:index], call, *exchange.calls[index + 1 :])
        self._put(position, replace(exchange, calls=calls))
        if outcome != "unknown":
            del self._open[tool_id]
            self._reasons.pop(tool_id, None)


def _told(data: ev.Payload, reason: str) -> tuple[str, str] | None:
    """(outcome, what the model is told) of an event about a call, if it ends or loses it."""
    match data:
        case ev.ToolCompleted():
            return "completed", data.output
        case ev.ToolFailed():
            return "failed", f"The tool failed. {data.error_type}: {data.message}"
        case ev.ToolRejected():
            return "rejected", f"The call was not carried out ({data.reason}): {data.message}"
        case ev.ToolCancelled():
            because = f": {reason}" if reason else ""
            return "cancelled", f"The call was not carried out or was stopped ({data.reason}{because})."
        case ev.ToolOutcomeUnknown():
            return "unknown", UNKNOWN_OUTPUT
        case ev.ToolOutcomeReconciled() if data.outcome != "suspended":
            return (
                data.outcome,
                data.output or f"The call ended as {data.outcome}; it was settled afterwards.",
            )
    return None

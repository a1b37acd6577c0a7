"""Nothing is told before it is durable: each thing told is looked up in the journal at once.

The reader is opened apart from the session, as another process would.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable
from typing import Any

from domain import catalogue
from domain.envelope import Recorded
from domain.ports import JournalReader
from minutebook import stream_events as se

Fact = Callable[[Recorded, Any], bool]

_TOOL_ENDS = {
    "tool_completed",
    "tool_failed",
    "tool_cancelled",
    "tool_rejected",
    "tool_outcome_unknown",
    "tool_outcome_reconciled",
}
_ATTEMPT_ENDS = {"model_request_failed", "model_request_aborted", "model_outcome_reconciled"}
_ANSWERS = {"model_request_completed", "model_outcome_reconciled"}
_ENDS = {"request_failed", "request_interrupted", "request_superseded"}

#: What has to be in the journal before a stream may say something.
FACTS: dict[type[se.StreamEvent], Fact] = {
    se.InputApplied: lambda e, t: e.type == "input_applied" and e.data.input_id == t.input_id,
    se.TurnStart: lambda e, t: e.type == "turn_started" and e.data.number == t.turn,
    se.TurnEnd: lambda e, _: e.type == "turn_completed",
    se.TurnInterrupted: lambda e, _: e.type == "turn_aborted",
    se.ContentDelta: lambda e, _: e.type == "model_request_started",
    se.ThinkingDelta: lambda e, _: e.type == "model_request_started",
    se.Usage: lambda e, t: e.type in _ANSWERS and e.model_attempt_id == t.attempt_id,
    se.AttemptDiscarded: lambda e, t: e.type in _ATTEMPT_ENDS and e.model_attempt_id == t.attempt_id,
    se.ToolUse: lambda e, t: e.type == "tool_scheduled" and e.tool_id == t.id,
    se.ToolProgress: lambda e, t: e.type == "tool_started" and e.tool_id == t.id,
    se.ToolMessage: lambda e, t: e.type == "tool_started" and e.tool_id == t.id,
    se.ToolResult: lambda e, t: e.type in _TOOL_ENDS and e.tool_id == t.id,
    se.InteractionOpened: lambda e, t: (
        e.type == "permission_requested" and e.data.permission_id == t.interaction_id
    ),
    se.Result: lambda e, t: e.type == "request_completed" and e.request_id == t.request_id,
    se.Error: lambda e, t: e.type in _ENDS and e.request_id == t.request_id,
}


class Watch:
    """One independent reader of a session's journal."""

    def __init__(self, reader: JournalReader, session_id: str) -> None:
        self._reader, self._session_id = reader, session_id
        self.events: list[Recorded] = []

    async def look(self) -> None:
        """Read what is new."""
        while True:
            rows = await self._reader.read(self._session_id, after=len(self.events))
            if not rows:
                return
            self.events += [catalogue.open_stored(row) for row in rows]

    async def check(self, told: se.StreamEvent | Recorded) -> None:
        """Fail unless what was told is in the journal now."""
        await self.look()
        if isinstance(told, Recorded):
            assert self.events[told.sequence - 1] == told, f"{told.event_id} was told before it was durable"
            return
        fact = FACTS.get(type(told))
        if fact is not None:
            assert any(fact(event, told) for event in self.events), f"told too early: {told}"

    async def all(self, stream: AsyncIterable[Any]) -> list[Any]:
        """Everything that is told, in order; each checked at the moment it is told."""
        found: list[Any] = []
        async for told in stream:
            await self.check(told)
            found.append(told)
        return found

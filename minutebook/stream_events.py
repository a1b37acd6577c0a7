"""What `Session.stream()` and `Session.events()` yield while a session runs.

Everything but the deltas, progress and notices is told only after its event is
durable. `type` is a stable word.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """Something to show. `session_id` is the session's."""

    type: ClassVar[str]
    session_id: str


@dataclass(frozen=True, slots=True)
class TurnStart(StreamEvent):
    """A turn began."""

    type: ClassVar[str] = "turn_start"
    turn: int


@dataclass(frozen=True, slots=True)
class TurnEnd(StreamEvent):
    """A turn ended."""

    type: ClassVar[str] = "turn_end"
    turn: int


@dataclass(frozen=True, slots=True)
class TurnInterrupted(StreamEvent):
    """A turn ended early; `input_id` is the input that caused it, if one did."""

    type: ClassVar[str] = "turn_interrupted"
    request_id: str
    turn: int
    reason: str
    input_id: str | None = None


@dataclass(frozen=True, slots=True)
class InputApplied(StreamEvent):
    """An input is in the conversation; `turn` will see it."""

    type: ClassVar[str] = "input_applied"
    request_id: str
    input_id: str
    priority: str
    turn: int


@dataclass(frozen=True, slots=True)
class ContentDelta(StreamEvent):
    """A piece of visible text (live), or all of it (where the live pieces are gone)."""

    type: ClassVar[str] = "content"
    delta: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta(StreamEvent):
    """A piece of visible reasoning. Live only."""

    type: ClassVar[str] = "thinking"
    delta: str


@dataclass(frozen=True, slots=True)
class EventsDropped(StreamEvent):
    """The reader was too slow for the live pieces. Nothing durable is ever dropped."""

    type: ClassVar[str] = "events_dropped"
    count: int


@dataclass(frozen=True, slots=True)
class AttemptDiscarded(StreamEvent):
    """A model attempt ended without a response; pieces of it shown so far do not count."""

    type: ClassVar[str] = "attempt_discarded"
    attempt_id: str
    reason: str
    retrying: bool


@dataclass(frozen=True, slots=True)
class ToolUse(StreamEvent):
    """A call will be carried out. `provider_call_id` is the provider's name for it."""

    type: ClassVar[str] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]
    provider_call_id: str = ""


@dataclass(frozen=True, slots=True)
class ToolProgress(StreamEvent):
    """A running tool says how far it is. Live only."""

    type: ClassVar[str] = "tool_progress"
    id: str
    name: str
    progress: Any


@dataclass(frozen=True, slots=True)
class ToolMessage(StreamEvent):
    """A running tool shows something to people. Live only."""

    type: ClassVar[str] = "tool_message"
    id: str
    name: str
    content: Any


@dataclass(frozen=True, slots=True)
class ToolResult(StreamEvent):
    """A call ended, or its outcome is unknown. `output` is what the model is told."""

    type: ClassVar[str] = "tool_result"
    id: str
    name: str
    output: str
    outcome: str
    is_error: bool
    display: Any = None


@dataclass(frozen=True, slots=True)
class InteractionOpened(StreamEvent):
    """Somebody has to answer: see `Session.interactions` and `Session.respond`."""

    type: ClassVar[str] = "interaction_opened"
    interaction_id: str
    tool_id: str
    summary: str
    digest: str


@dataclass(frozen=True, slots=True)
class Usage(StreamEvent):
    """Token counts of one model attempt, by name."""

    type: ClassVar[str] = "usage"
    attempt_id: str
    usage: dict[str, int]


@dataclass(frozen=True, slots=True)
class Result(StreamEvent):
    """The request completed. The last event of its stream."""

    type: ClassVar[str] = "result"
    request_id: str
    content: str
    usage: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Error(StreamEvent):
    """The request ended without a final response. The last event of its stream."""

    type: ClassVar[str] = "error"
    request_id: str
    code: str
    message: str

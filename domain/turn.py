"""Turn: one model call with its tools.

active --completed--> completed   (had calls: another turn; continues: another turn; else final)
active --aborted----> aborted     (steering: another turn; anything else: the request ends with it)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from domain import events as ev
from domain import ids
from domain.envelope import Recorded
from domain.errors import RuleViolated
from domain.events import Payload
from domain.rules import need
from domain.values import Stop

# --- commands -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartTurn:
    """Begin the next turn of the running request."""

    number: int
    settings_digest: str


@dataclass(frozen=True, slots=True)
class CompleteTurn:
    """Every call has ended."""

    calls: int
    stop: str


@dataclass(frozen=True, slots=True)
class AbortTurn:
    """End the turn early; `reason` as in `TurnAborted`."""

    reason: str
    by_input_id: str | None = None


Command = StartTurn | CompleteTurn | AbortTurn

# --- state --------------------------------------------------------------------------


class Status(StrEnum):
    """Where a turn stands."""

    ACTIVE = "active"
    COMPLETED = "completed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class TurnState:
    """The request's latest turn."""

    turn_id: str
    number: int
    status: Status
    sequence: int
    has_tool_calls: bool = False
    continues: bool = False
    reason: str = ""

    @property
    def wants_another(self) -> bool:
        """Whether a further turn follows from this one alone."""
        if self.status is Status.COMPLETED:
            return self.has_tool_calls or self.continues
        return self.status is Status.ABORTED and self.reason == "steering"

    @property
    def is_final(self) -> bool:
        """Whether its response ends the request."""
        return self.status is Status.COMPLETED and not self.has_tool_calls and not self.continues


def outcome(calls: int, stop: str) -> tuple[bool, bool]:
    """(has_tool_calls, continues) of a response: the one place where it is decided."""
    return calls > 0, stop == Stop.PAUSE


# --- decide ---------------------------------------------------------------------------


def decide(command: Command) -> Payload:
    """The event that carries out `command`."""
    match command:
        case StartTurn():
            return ev.TurnStarted(number=command.number, settings_digest=command.settings_digest)
        case CompleteTurn():
            has_calls, continues = outcome(command.calls, command.stop)
            return ev.TurnCompleted(has_tool_calls=has_calls, continues=continues)
        case AbortTurn():
            return ev.TurnAborted(
                reason=command.reason,  # type: ignore[arg-type]  # checked by the payload
                by_input_id=command.by_input_id,
            )


# --- evolve ------------------------------------------------------------------------------


def evolve(state: TurnState | None, event: Recorded) -> TurnState:
    """Fold one event of a turn. Raises RuleViolated."""
    data = event.data
    assert event.turn_id is not None and event.request_id is not None
    if isinstance(data, ev.TurnStarted):
        need(state is None or state.status is not Status.ACTIVE, "one active turn", event)
        number = (state.number if state else 0) + 1
        need(data.number == number, "turns are numbered", event)
        need(event.turn_id == ids.turn(event.request_id, number), "turn ids are derived", event)
        return TurnState(event.turn_id, number, Status.ACTIVE, event.sequence)
    if state is None or state.status is not Status.ACTIVE or event.turn_id != state.turn_id:
        raise RuleViolated("the turn is active", event.type, event.sequence)
    ended = replace(state, sequence=event.sequence)
    if isinstance(data, ev.TurnCompleted):
        return replace(
            ended,
            status=Status.COMPLETED,
            has_tool_calls=data.has_tool_calls,
            continues=data.continues,
        )
    need(isinstance(data, ev.TurnAborted), "an event of a turn", event)
    return replace(ended, status=Status.ABORTED, reason=data.reason)

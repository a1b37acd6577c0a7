"""Request: one user-visible unit of work.

    accepted --started--> running --completed--> (completed)
    accepted, running --failed | interrupted | superseded--> (ended)

Preparation of applied inputs:  none -> due (applied) -> begun (hooks run) -> done -> none (a turn saw them)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from domain import events as ev
from domain import ids
from domain.envelope import Recorded
from domain.errors import RuleViolated
from domain.events import Payload
from domain.rules import need
from domain.settings import Settings

# --- commands -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AcceptRequest:
    """Make a pending input a unit of work."""

    input_id: str
    settings: Settings
    context: dict[str, Any]
    max_turns: int
    supersedes: str | None = None


@dataclass(frozen=True, slots=True)
class StartRequest:
    """Its own input was applied."""


@dataclass(frozen=True, slots=True)
class RequestAbort:
    """Seal the request."""

    reason: str


@dataclass(frozen=True, slots=True)
class Complete:
    """The last turn is final."""

    output: str
    usage: dict[str, int]
    evidence: str | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """End without a final response."""

    error_code: str
    message: str
    evidence: str | None = None


@dataclass(frozen=True, slots=True)
class Interrupt:
    """End because it was stopped."""

    reason: str
    by_input_id: str | None = None
    evidence: str | None = None


@dataclass(frozen=True, slots=True)
class Supersede:
    """End because a new request takes over; the fields are those of `RequestSuperseded`."""

    reason: str
    evidence: str | None = None
    by_request_id: str | None = None
    replaced_input_ids: tuple[str, ...] = ()


Command = AcceptRequest | StartRequest | RequestAbort | Complete | Fail | Interrupt | Supersede

# --- state --------------------------------------------------------------------------


class Status(StrEnum):
    """Where the active request stands."""

    ACCEPTED = "accepted"
    RUNNING = "running"


class Preparation(StrEnum):
    """Where inputs stand that were applied and that no turn has seen."""

    NONE = "none"
    DUE = "due"
    BEGUN = "begun"
    DONE = "done"


#: The types that end a request.
ENDS = frozenset({"request_completed", "request_failed", "request_interrupted", "request_superseded"})


@dataclass(frozen=True, slots=True)
class RequestState:
    """The active request. `last_sequence` is the last event that carries its id.

    `settings` is None where a foreign journal accepted it without a full snapshot;
    `turn_settings` are those that its latest turn began under.
    """

    request_id: str
    input_id: str
    status: Status
    accepted_sequence: int
    last_sequence: int
    max_turns: int
    settings_digest: str
    settings: Settings | None
    context: dict[str, Any]
    aborting: bool = False
    abort_reason: str = ""
    preparation: Preparation = Preparation.NONE
    unprepared: tuple[str, ...] = ()
    usage: tuple[tuple[str, int], ...] = ()
    turn_settings: Settings | None = None


# --- decide ---------------------------------------------------------------------------


def decide(command: Command) -> Payload:
    """The event that carries out `command`."""
    match command:
        case AcceptRequest():
            return ev.RequestAccepted(
                input_id=command.input_id,
                max_turns=command.max_turns,
                model=command.settings.model,
                settings_digest=command.settings.digest(),
                context=command.context,
                supersedes=command.supersedes,
            )
        case StartRequest():
            return ev.RequestStarted()
        case RequestAbort():
            return ev.AbortRequested(reason=command.reason)
        case Complete():
            return ev.RequestCompleted(output=command.output, usage=command.usage, evidence=command.evidence)
        case Fail():
            return ev.RequestFailed(
                error_code=command.error_code, message=command.message, evidence=command.evidence
            )
        case Interrupt():
            return ev.RequestInterrupted(
                reason=command.reason, by_input_id=command.by_input_id, evidence=command.evidence
            )
        case Supersede():
            return ev.RequestSuperseded(
                reason=command.reason,
                evidence=command.evidence,
                by_request_id=command.by_request_id,
                replaced_input_ids=list(command.replaced_input_ids),
            )


# --- evolve ------------------------------------------------------------------------------


def accept(event: Recorded, ordinal: int, settings: Settings, settings_digest: str) -> RequestState:
    """A request's first event."""
    data = event.data
    assert isinstance(data, ev.RequestAccepted) and event.request_id is not None
    need(event.request_id == ids.request(ordinal), "request ids are derived and never used twice", event)
    known = data.settings_digest == settings_digest
    return RequestState(
        event.request_id,
        data.input_id,
        Status.ACCEPTED,
        event.sequence,
        event.sequence,
        data.max_turns,
        data.settings_digest,
        settings if known else None,
        data.context,
    )


def evolve(state: RequestState, event: Recorded) -> RequestState:
    """Fold one event of the active request that does not end it. Raises RuleViolated."""
    data = event.data
    match data:
        case ev.RequestStarted():
            need(state.status is Status.ACCEPTED, "started only from accepted", event)
            return replace(state, status=Status.RUNNING)
        case ev.AbortRequested():
            need(not state.aborting, "an abort is requested once", event)
            return replace(state, aborting=True, abort_reason=data.reason)
        case ev.InputApplied():
            need(state.preparation is not Preparation.BEGUN, "not while a preparation is under way", event)
            return replace(
                state,
                preparation=Preparation.DUE,
                unprepared=(*state.unprepared, data.input_id),
            )
        case ev.InputPreparationStarted():
            need(state.preparation is Preparation.DUE, "something applied is to be prepared", event)
            need(tuple(data.input_ids) == state.unprepared, "it names the applied inputs", event)
            return replace(state, preparation=Preparation.BEGUN)
        case ev.InputPrepared():
            open_ = state.preparation in (Preparation.DUE, Preparation.BEGUN)
            need(open_, "something applied is to be prepared", event)
            need(tuple(data.input_ids) == state.unprepared, "it names the applied inputs", event)
            return replace(state, preparation=Preparation.DONE, unprepared=())
        case ev.TurnStarted():
            return replace(state, preparation=Preparation.NONE, turn_settings=state.settings)
    raise RuleViolated("an event of the active request", event.type, event.sequence)


def with_usage(state: RequestState, usage: dict[str, int]) -> RequestState:
    """Add one attempt's token counts to the request's."""
    total = dict(state.usage)
    for name, count in usage.items():
        total[name] = total.get(name, 0) + count
    return replace(state, usage=tuple(sorted(total.items())))

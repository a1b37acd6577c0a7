"""Tool: one call of a response, from its declaration to one terminal event.

    declared --rejected-->                                        (rejected)
    declared --scheduled--> scheduled --started--> started --> completed | failed | cancelled
                                                   started --> unknown   --> reconciled
                                                   started --> suspended --resumed--> resumed --started--> ...

Started again from started or unknown only when running twice is harmless (pure,
idempotent), with the same input and the same idempotency key. Its permission
lives in `domain.permission`; rules about both are in `domain.lifecycle`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from domain import events as ev
from domain.envelope import Recorded
from domain.errors import RuleViolated
from domain.events import Payload
from domain.limits import MAX_RUNS_PER_CALL
from domain.rules import need
from domain.values import RERUNNABLE, Interrupt, SideEffect, ToolKind

# --- commands -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Run the tool's code; a class narrower than scheduled needs a reason."""

    input_digest: str
    idempotency_key: str
    input: dict[str, Any] | None = None
    side_effect: SideEffect | None = None
    narrowed_because: str | None = None


@dataclass(frozen=True, slots=True)
class Complete:
    """The tool succeeded; the fields are those of `ToolCompleted`."""

    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fail:
    """The tool failed, for certain."""

    error_type: str
    message: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """The call ends without a result."""

    reason: str


@dataclass(frozen=True, slots=True)
class LoseSight:
    """Nobody knows what the started tool did."""

    reason: str


@dataclass(frozen=True, slots=True)
class Suspend:
    """The tool waits for an answer from outside."""

    payload: Any
    resume_schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer a suspended call waited for."""

    answer: Any


@dataclass(frozen=True, slots=True)
class Reconcile:
    """Somebody says what became of it: completed, failed, cancelled or suspended."""

    outcome: str
    evidence: str
    output: str = ""
    value: Any = None


Command = Start | Complete | Fail | Cancel | LoseSight | Suspend | Answer | Reconcile

# --- state --------------------------------------------------------------------------


class Status(StrEnum):
    """Where a call stands."""

    SCHEDULED = "scheduled"
    STARTED = "started"
    UNKNOWN = "unknown"
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"


TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.REJECTED})
#: Neither ended nor of unknown outcome: a turn cannot end over one of these.
OPEN = frozenset({Status.SCHEDULED, Status.STARTED, Status.SUSPENDED, Status.RESUMED})
_STRENGTH = {SideEffect.PURE: 0, SideEffect.IDEMPOTENT: 1, SideEffect.NON_IDEMPOTENT: 2}


@dataclass(frozen=True, slots=True)
class ToolState:
    """One call. `sequence` is its latest event, `started_sequence` its latest start."""

    tool_id: str
    status: Status
    sequence: int
    side_effect: SideEffect = SideEffect.NON_IDEMPOTENT
    kind: ToolKind = ToolKind.EXECUTE
    interrupt: Interrupt = Interrupt.BLOCK
    category: str | None = None
    destructive: bool = False
    tool_digest: str = ""
    scheduled_sequence: int = 0
    started_sequence: int = 0
    run: int = 0
    segment: int = 0
    input_digest: str = ""
    idempotency_key: str = ""

    @property
    def may_run_again(self) -> bool:
        """Whether a started or unknown call may simply be started again."""
        return self.side_effect in RERUNNABLE and self.run < MAX_RUNS_PER_CALL


# --- decide ---------------------------------------------------------------------------


def decide(state: ToolState, command: Command) -> Payload:
    """The event that carries out `command`."""
    match command:
        case Start():
            return ev.ToolStarted(
                run=state.run + 1,
                segment=state.segment,
                input=command.input,
                input_digest=command.input_digest,
                side_effect=command.side_effect or state.side_effect,
                narrowed_because=command.narrowed_because,
                idempotency_key=command.idempotency_key,
            )
        case Complete():
            return ev.ToolCompleted(**command.fields)
        case Fail():
            return ev.ToolFailed(error_type=command.error_type, message=command.message)
        case Cancel():
            return ev.ToolCancelled(reason=command.reason)
        case LoseSight():
            return ev.ToolOutcomeUnknown(reason=command.reason)
        case Suspend():
            return ev.ToolSuspended(payload=command.payload, resume_schema=command.resume_schema)
        case Answer():
            return ev.ToolResumed(answer=command.answer)
        case Reconcile():
            return ev.ToolOutcomeReconciled(
                outcome=command.outcome,  # type: ignore[arg-type]  # checked by the payload
                evidence=command.evidence,
                output=command.output,
                value=command.value,
            )


# --- evolve ------------------------------------------------------------------------------


def first(event: Recorded) -> ToolState:
    """The call's first event: scheduled or rejected."""
    data = event.data
    assert event.tool_id is not None
    match data:
        case ev.ToolRejected():
            return ToolState(event.tool_id, Status.REJECTED, event.sequence)
        case ev.ToolScheduled():
            return ToolState(
                event.tool_id,
                Status.SCHEDULED,
                event.sequence,
                side_effect=data.side_effect,
                kind=data.kind,
                interrupt=data.interrupt,
                category=data.category,
                destructive=data.destructive,
                tool_digest=data.tool_digest,
                scheduled_sequence=event.sequence,
                input_digest=data.input_digest,
            )
    raise RuleViolated("a call's first event is tool_scheduled or tool_rejected", event.type, event.sequence)


def evolve(state: ToolState, event: Recorded) -> ToolState:
    """Fold a later event of the call. Raises RuleViolated."""
    data, status = event.data, state.status
    need(status not in TERMINAL, "a call ends once", event)
    match data:
        case ev.ToolStarted():
            return _started(state, event, data)
        case ev.ToolCompleted():
            ok = status in (Status.STARTED, Status.UNKNOWN, Status.RESUMED)
            need(ok, "completed only from started, unknown or resumed", event)
            return _now(state, event, Status.COMPLETED)
        case ev.ToolFailed():
            return _now(state, event, Status.FAILED)
        case ev.ToolCancelled():
            return _now(state, event, Status.CANCELLED)
        case ev.ToolOutcomeUnknown():
            need(status is Status.STARTED, "unknown only from started", event)
            return _now(state, event, Status.UNKNOWN)
        case ev.ToolSuspended():
            need(status is Status.STARTED, "suspended only from started", event)
            return _now(state, event, Status.SUSPENDED)
        case ev.ToolResumed():
            need(status is Status.SUSPENDED, "resumed only from suspended (the first answer wins)", event)
            return replace(
                state, status=Status.RESUMED, sequence=event.sequence, run=0, segment=state.segment + 1
            )
        case ev.ToolOutcomeReconciled():
            known = status not in (Status.STARTED, Status.UNKNOWN)
            need(not known, "reconciled only from started or unknown", event)
            return _now(state, event, Status(data.outcome))
    raise RuleViolated("a call is scheduled once", event.type, event.sequence)


def _now(state: ToolState, event: Recorded, status: Status) -> ToolState:
    return replace(state, status=status, sequence=event.sequence)


def _started(state: ToolState, event: Recorded, data: ev.ToolStarted) -> ToolState:
    if state.status in (Status.STARTED, Status.UNKNOWN):
        need(state.side_effect in RERUNNABLE, "only pure and idempotent calls are started again", event)
        need(state.run < MAX_RUNS_PER_CALL, f"at most {MAX_RUNS_PER_CALL} runs", event)
        same = (data.input_digest, data.idempotency_key) == (state.input_digest, state.idempotency_key)
        need(same, "started again with the same input and key", event)
        need(data.side_effect is state.side_effect, "started again in the same class", event)
    else:
        ready = state.status in (Status.SCHEDULED, Status.RESUMED)
        need(ready, "started from scheduled, resumed, started or unknown", event)
    if state.idempotency_key:
        need(data.idempotency_key == state.idempotency_key, "one key for all runs of a call", event)
    narrower = _STRENGTH[data.side_effect] < _STRENGTH[state.side_effect]
    need(not narrower or bool(data.narrowed_because), "a narrower class has a reason", event)
    need(data.run == state.run + 1, "runs are numbered", event)
    need(data.segment == state.segment, "segments are numbered", event)
    return replace(
        state,
        status=Status.STARTED,
        sequence=event.sequence,
        started_sequence=event.sequence,
        run=data.run,
        side_effect=data.side_effect,
        input_digest=data.input_digest,
        idempotency_key=data.idempotency_key,
    )

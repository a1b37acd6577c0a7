"""`handle(state, command)`: a command becomes event drafts, with ids and causes.

Each aggregate decides what its command states; this module knows where in the
session that belongs. It refuses nothing: `domain.lifecycle` does, for the
preview before a commit and on replay alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from domain import (
    budget,
    compaction,
    ids,
    inputs,
    lease,
    model_attempt,
    permission,
    request,
    session,
    tool,
    turn,
)
from domain import closing as closing_commit
from domain import events as ev
from domain.arguments import parse_arguments
from domain.canonical import digest
from domain.envelope import Actor, Draft
from domain.errors import RuleViolated
from domain.events import Payload
from domain.state import CallState, State
from domain.values import ActorKind, AggregateKind, Interrupt, SideEffect, ToolKind

HOST = Actor(ActorKind.HOST)

# --- commands that are about more than one aggregate ------------------------------------


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """Send the turn's next request; fields as in `ModelRequestStarted`."""

    provider: str
    api: str
    model: str
    request_digest: str
    request_bytes: int
    tools_digest: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    provider_run_tools: bool = False
    attempt_key: str | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """Carry out the declared call at `index`; `arguments` is its raw text."""

    index: int
    arguments: str
    tool_digest: str
    side_effect: SideEffect
    kind: ToolKind
    interrupt: Interrupt
    category: str | None = None
    destructive: bool = False


@dataclass(frozen=True, slots=True)
class Reject:
    """Do not carry out the declared call at `index`; `reason` as in `ToolRejected`."""

    index: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class OnCall:
    """A tool or permission command about the call at `index` of the active turn."""

    index: int
    command: tool.Command | permission.Command


@dataclass(frozen=True, slots=True)
class SettleEffect:
    """Say what became of an unsettled effect, after its request ended."""

    tool_id: str
    command: tool.Reconcile


@dataclass(frozen=True, slots=True)
class EndRequest:
    """The closing commit: everything under the active request, then its end."""

    reason: str
    end: request.Command


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Cancel what is pending, give the lease back and close for good."""

    reason: str


Command = (
    session.Command
    | lease.Command
    | inputs.Command
    | request.Command
    | turn.Command
    | model_attempt.Command
    | compaction.FailCompaction
    | budget.SetBudget
    | StartAttempt
    | Schedule
    | Reject
    | OnCall
    | SettleEffect
    | EndRequest
    | CloseSession
)

_QUEUE = (inputs.AcceptInput, inputs.CancelInput)
_INPUTS = (inputs.ApplyInput, inputs.BeginPreparation, inputs.FinishPreparation)


def handle(state: State, command: Command, actor: Actor = HOST) -> tuple[Draft, ...]:
    """The drafts that carry out `command` on `state`. Refuses nothing but a missing target."""
    return tuple(_drafts(state, command, actor))


def _drafts(state: State, command: Command, actor: Actor) -> Iterator[Draft]:
    if isinstance(command, session.Command):
        about = _of_which_request(state, command)
        yield from (draft(state, payload, actor, request_id=about) for payload in session.decide(command))
    elif isinstance(command, lease.Command):
        yield from (draft(state, payload, actor) for payload in lease.decide(command))
    elif isinstance(command, _QUEUE):
        yield draft(state, inputs.decide(command), actor)
    elif isinstance(command, _INPUTS):
        yield _of_request(state, inputs.decide(command), actor)
    elif isinstance(command, request.AcceptRequest):
        request_id = ids.request(state.requests + 1)
        yield draft(state, request.decide(command), actor, request_id=request_id)
    elif isinstance(command, request.Command):
        yield _of_request(state, request.decide(command), actor)
    elif isinstance(command, turn.Command):
        yield _of_turn(state, command, actor)
    elif isinstance(command, StartAttempt):
        yield _start_attempt(state, command, actor)
    elif isinstance(command, model_attempt.Command):
        yield from _and_what_it_spent(state, _end_attempt(state, command, actor))
    elif isinstance(command, budget.SetBudget):
        yield from _and_what_it_spent(state, draft(state, budget.decide(command), actor))
    elif isinstance(command, compaction.FailCompaction):
        yield draft(state, compaction.decide(command), actor, aggregate_id=command.compaction_id)
    elif isinstance(command, Schedule | Reject | OnCall):
        yield _of_call(state, command, actor)
    elif isinstance(command, SettleEffect):
        yield _settle(state, command, actor)
    elif isinstance(command, EndRequest):
        yield from _end_request(state, command, actor)
    else:
        yield from _close_session(state, command, actor)


def _and_what_it_spent(state: State, first: Draft) -> Iterator[Draft]:
    """A draft, and what there is to say about the budget after it."""
    yield first
    payload = budget.notice(budget.after(state.spending, first.data))
    if payload is not None:
        yield draft(state, payload, HOST, causation=state.sequence + 1)


# --- drafts: ids and causes -------------------------------------------------------------


def draft(
    state: State,
    payload: Payload,
    actor: Actor,
    *,
    aggregate_id: str | None = None,
    causation: int | None = None,
    request_id: str | None = None,
    turn_id: str | None = None,
    model_attempt_id: str | None = None,
    tool_id: str | None = None,
) -> Draft:
    """A draft of `payload`; its aggregate's id is the id of that kind unless given."""
    by_kind = {
        AggregateKind.SESSION: state.session_id,
        AggregateKind.THREAD: state.session_id,
        AggregateKind.REQUEST: request_id,
        AggregateKind.TURN: turn_id,
        AggregateKind.MODEL_ATTEMPT: model_attempt_id,
        AggregateKind.TOOL: tool_id,
        AggregateKind.PERMISSION: tool_id,
    }
    own = aggregate_id or by_kind[payload.aggregate] or ""
    return Draft(payload, own, request_id, turn_id, model_attempt_id, tool_id, causation, actor)


def _of_which_request(state: State, command: session.Command) -> str | None:
    told = isinstance(command, session.Note) and command.in_request
    return state.request.request_id if told and state.request is not None else None


def _target(found: Any, what: str, payload_type: str) -> Any:
    if found is None:
        raise RuleViolated(f"there is {what}", payload_type)
    return found


def _of_request(state: State, payload: Payload, actor: Actor) -> Draft:
    active = _target(state.request, "an active request", payload.type)
    cause = active.last_sequence
    if isinstance(payload, ev.InputApplied):
        item = state.queue.find(payload.input_id)
        cause = item.sequence if item else cause
    return draft(state, payload, actor, request_id=active.request_id, causation=cause)


def _of_turn(state: State, command: turn.Command, actor: Actor) -> Draft:
    payload = turn.decide(command)
    active = _target(state.request, "an active request", payload.type)
    number = command.number if isinstance(command, turn.StartTurn) else None
    if number is None:
        number = _target(state.turn, "a turn", payload.type).number
    turn_id = ids.turn(active.request_id, number)
    return draft(
        state, payload, actor, request_id=active.request_id, turn_id=turn_id, causation=active.last_sequence
    )


def _start_attempt(state: State, command: StartAttempt, actor: Actor) -> Draft:
    active = _target(state.request, "an active request", "model_request_started")
    current = _target(state.turn, "a turn", "model_request_started")
    number = (state.attempt.number if state.attempt else 0) + 1
    payload = ev.ModelRequestStarted(
        number=number,
        provider=command.provider,
        api=command.api,
        model=command.model,
        request_digest=command.request_digest,
        request_bytes=command.request_bytes,
        tools_digest=command.tools_digest,
        parameters=command.parameters,
        provider_run_tools=command.provider_run_tools,
        attempt_key=command.attempt_key,
    )
    return draft(
        state,
        payload,
        actor,
        request_id=active.request_id,
        turn_id=current.turn_id,
        model_attempt_id=ids.attempt(current.turn_id, number),
        causation=state.attempt.sequence if state.attempt else current.sequence,
    )


def _end_attempt(state: State, command: model_attempt.Command, actor: Actor) -> Draft:
    in_compaction = state.compaction_attempt is not None
    running = state.compaction_attempt if in_compaction else state.attempt
    attempt = _target(running, "a model attempt", "an attempt's end")
    return _attempt_draft(state, model_attempt.decide(attempt, command), actor)


def _attempt_draft(state: State, payload: Payload, actor: Actor) -> Draft:
    if state.compaction_attempt is not None:
        attempt = state.compaction_attempt
        request_id = turn_id = None
    else:
        assert state.attempt is not None and state.request is not None and state.turn is not None
        attempt, request_id, turn_id = state.attempt, state.request.request_id, state.turn.turn_id
    return draft(
        state,
        payload,
        actor,
        request_id=request_id,
        turn_id=turn_id,
        model_attempt_id=attempt.attempt_id,
        causation=attempt.started_sequence,
    )


# --- calls ------------------------------------------------------------------------------


def _of_call(state: State, command: Schedule | Reject | OnCall, actor: Actor) -> Draft:
    found = state.calls[command.index] if 0 <= command.index < len(state.calls) else None
    call: CallState = _target(found, f"a declared call {command.index}", "a call's event")
    match command:
        case Schedule():
            return _call_draft(state, call, _scheduled(call, command), actor)
        case Reject():
            rejected = ev.ToolRejected(
                index=call.index,
                provider_call_id=call.provider_call_id,
                name=call.name,
                reason=command.reason,  # type: ignore[arg-type]  # checked by the payload
                message=command.message,
            )
            return _call_draft(state, call, rejected, actor)
    running = _target(call.tool, "a scheduled call", "a call's event")
    if isinstance(command.command, permission.Command):
        state_of = _target(call.permission, "a scheduled call", "a call's event")
        return _call_draft(state, call, permission.decide(state_of, running.tool_id, command.command), actor)
    return _call_draft(state, call, tool.decide(running, command.command), actor)


def _scheduled(call: CallState, command: Schedule) -> ev.ToolScheduled:
    parsed = parse_arguments(command.arguments)
    return ev.ToolScheduled(
        index=call.index,
        provider_call_id=call.provider_call_id,
        name=call.name,
        arguments_digest=call.arguments_digest,
        input=parsed,
        input_digest=digest(parsed),
        side_effect=command.side_effect,
        kind=command.kind,
        interrupt=command.interrupt,
        category=command.category,
        destructive=command.destructive,
        tool_digest=command.tool_digest,
    )


def _call_draft(state: State, call: CallState, payload: Payload, actor: Actor) -> Draft:
    assert state.request is not None and state.turn is not None and state.attempt is not None
    cause = state.attempt.sequence
    if call.tool is not None:
        cause = max(call.tool.sequence, call.permission.sequence if call.permission else 0)
    return draft(
        state,
        payload,
        actor,
        request_id=state.request.request_id,
        turn_id=state.turn.turn_id,
        model_attempt_id=state.attempt.attempt_id,
        tool_id=call.call_id,
        causation=cause,
    )


def _settle(state: State, command: SettleEffect, actor: Actor) -> Draft:
    found = next((e for e in state.unsettled if e.tool_id == command.tool_id), None)
    effect = _target(found, f"an unsettled effect {command.tool_id}", "tool_outcome_reconciled")
    attempt_id, _, _ = effect.tool_id.rpartition(".")
    turn_id, _, _ = attempt_id.rpartition(".")
    payload = ev.ToolOutcomeReconciled(
        outcome=command.command.outcome,  # type: ignore[arg-type]  # checked by the payload
        evidence=command.command.evidence,
        output=command.command.output,
        value=command.command.value,
    )
    return draft(
        state,
        payload,
        actor,
        request_id=effect.request_id,
        turn_id=turn_id,
        model_attempt_id=attempt_id,
        tool_id=effect.tool_id,
        causation=effect.sequence,
    )


# --- ends -------------------------------------------------------------------------------


def _end_request(state: State, command: EndRequest, actor: Actor) -> Iterator[Draft]:
    _target(state.request, "an active request", "a request's end")
    for payload, call in closing_commit.closing(state, command.reason):
        if call is not None:
            yield _call_draft(state, call, payload, actor)
        elif payload.aggregate is AggregateKind.MODEL_ATTEMPT:
            yield _attempt_draft(state, payload, actor)
        elif payload.aggregate is AggregateKind.TURN:
            yield _of_turn(state, turn.AbortTurn(command.reason), actor)
        else:
            yield draft(state, payload, actor)
    yield _of_request(state, request.decide(command.end), actor)


def _close_session(state: State, command: CloseSession, actor: Actor) -> Iterator[Draft]:
    for item in state.queue.pending:
        cancelled = ev.InputCancelled(input_id=item.input_id, reason=command.reason)
        yield draft(state, cancelled, actor, causation=item.sequence)
    if state.lease is not None and state.lease.held:
        yield draft(state, ev.LeaseReleased(reason="closed"), actor)
    yield draft(state, ev.SessionClosed(reason=command.reason), actor)

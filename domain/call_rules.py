"""The rules about one call: its declaration, its permission, its run, its unsettled effect.

Part of the fold in `domain.lifecycle`, which is the only caller.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from domain import events as ev
from domain import ids, permission, tool
from domain.arguments import parse_arguments
from domain.canonical import digest
from domain.envelope import Recorded
from domain.errors import ArgumentsRefused, RuleViolated, ValueRefused
from domain.model_attempt import AttemptState
from domain.permission import Decision, PermissionState
from domain.request import RequestState
from domain.rules import need
from domain.state import CallState, State, UnsettledEffect
from domain.targets import running_request
from domain.tool import ToolState


def declare(attempt: AttemptState, index: int, call: ev.CallDeclared) -> CallState:
    """A call as its response declares it; whether its arguments parse is decided here."""
    try:
        input_digest = digest(parse_arguments(call.arguments))
    except (ArgumentsRefused, ValueRefused):
        input_digest = None
    return CallState(
        index,
        ids.call(attempt.attempt_id, index),
        call.provider_call_id,
        call.name,
        text_digest(call.arguments),
        input_digest,
    )


def text_digest(text: str) -> str:
    """SHA-256 (hex) of a text as it was received."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def status(call: CallState) -> tool.Status | None:
    """Where a call stands; None while it is only declared."""
    return call.tool.status if call.tool else None


def _call(state: State, event: Recorded) -> CallState:
    running_request(state, event)
    in_turn, attempt = state.active_turn, state.attempt
    here = in_turn is not None and in_turn.turn_id == event.turn_id
    need(here and state.has_response, "the call's turn is active and has its response", event)
    assert attempt is not None
    need(event.model_attempt_id == attempt.attempt_id, "the call is of the turn's response", event)
    found = next((c for c in state.calls if c.call_id == event.tool_id), None)
    if found is None:
        raise RuleViolated("the response declared the call", event.type, event.sequence)
    return found


def _with_call(state: State, call: CallState) -> State:
    calls = (*state.calls[: call.index], call, *state.calls[call.index + 1 :])
    return replace(state, calls=calls)


def fold_tool(state: State, event: Recorded) -> State:
    """Fold a tool event of the active turn."""
    call = _call(state, event)
    if call.tool is None:
        return _with_call(state, _declared(state, call, event))
    _permitted(state, call, call.tool, event)
    return _with_call(state, replace(call, tool=tool.evolve(call.tool, event)))


def _declared(state: State, call: CallState, event: Recorded) -> CallState:
    data = event.data
    first = tool.first(event)
    stated = (data.index, data.provider_call_id, data.name)
    need(stated == (call.index, call.provider_call_id, call.name), "it is the call as declared", event)
    if isinstance(data, ev.ToolRejected):
        return replace(call, tool=first)
    need(not state.cut_response, "a cut response runs none of its calls", event)
    need(data.arguments_digest == call.arguments_digest, "the arguments are those declared", event)
    agrees = data.input_digest == call.input_digest == digest(data.input)
    need(agrees, "the input is what the arguments say", event)
    return replace(call, tool=first, permission=PermissionState(input_digest=data.input_digest))


def _permitted(state: State, call: CallState, running: ToolState, event: Recorded) -> None:
    if call.permission is None:
        return  # it was rejected; folding the event refuses it
    assert state.session is not None
    decision = call.permission.decision
    match event.data:
        case ev.ToolStarted():
            own = event.data.input is None or digest(event.data.input) == event.data.input_digest
            need(own, "the digest is that of the input", event)
            if running.status in (tool.Status.STARTED, tool.Status.UNKNOWN):
                return
            need(decision is Decision.ALLOW, "started only when the latest decision is allow", event)
            exact = event.data.input_digest == call.permission.input_digest
            need(exact, "started with exactly the input that was allowed", event)
            current = call.permission.current(state.session.policy_digest)
            need(current, "the decision is for this input and the present policy", event)
            as_asked = event.data.side_effect is running.side_effect or call.permission.questions == 0
            need(as_asked, "the class is not narrowed after a permission", event)
        case ev.ToolCompleted():
            answered = running.status is tool.Status.RESUMED
            need(
                not answered or decision is Decision.ALLOW,
                "an answer is the result only while allowed",
                event,
            )
        case ev.ToolFailed():
            need(decision is not Decision.PENDING, "the question is closed first", event)
            need(decision is not Decision.DENY, "a denied call ends as cancelled", event)
        case ev.ToolCancelled():
            need(decision is not Decision.PENDING, "the question is closed first", event)


def fold_permission(state: State, event: Recorded) -> State:
    """Fold a permission event of the active turn."""
    assert state.session is not None
    call = _call(state, event)
    if call.tool is None or call.permission is None:
        raise RuleViolated("the call is scheduled", event.type, event.sequence)
    before_start = call.tool.status in (tool.Status.SCHEDULED, tool.Status.RESUMED)
    need(before_start, "decided before a start", event)
    decided = permission.evolve(call.permission, event, state.session.policy_digest)
    return _with_call(state, replace(call, permission=decided))


# --- unsettled effects ------------------------------------------------------------------


def unsettle(call: CallState, active: RequestState) -> UnsettledEffect:
    """What stays of an unknown call when its request ends."""
    assert call.tool is not None
    return UnsettledEffect(
        call.tool.tool_id,
        call.name,
        call.tool.side_effect,
        call.tool.idempotency_key,
        active.request_id,
        call.tool.started_sequence,
        call.tool.sequence,
    )


def is_unsettled(state: State, tool_id: str | None) -> bool:
    """Whether the call is an unsettled effect of an ended request."""
    return any(effect.tool_id == tool_id for effect in state.unsettled)


def settle(state: State, event: Recorded) -> State:
    """Somebody said what an unsettled effect did."""
    need(event.data.outcome != "suspended", "an ended request's call does not wait", event)
    left = tuple(effect for effect in state.unsettled if effect.tool_id != event.tool_id)
    return replace(state, unsettled=left)

"""What comes next: one pure function for the running loop and for recovery.

`next_steps(state, in_flight)` returns at least one step. The loop passes what it
is executing; the recovery plan is the call with nothing in flight. The rows are
those of the plan's table in `docs/recovery.md`; the first that fits counts, and
within a turn that has its response the first that fits each call.

In flight are ids of attempts, calls and compactions, and of what this process
does around them: `stop(id)` it was told to stop, `evaluating(id)` its permission
is being evaluated, `preparing(id)` the request's inputs are being prepared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from domain import model_attempt, request, session, tool
from domain.limits import MAX_UNSETTLED_EFFECTS
from domain.permission import Decision, PermissionState
from domain.request import Preparation, RequestState
from domain.state import CallState, State
from domain.tool import Status, ToolState
from domain.turn import TurnState
from domain.values import Interrupt, OnLostAttempt, Priority, SideEffect


class Action(StrEnum):
    """Everything that can come next."""

    NONE = "none"
    FINISH_ABORT = "finish_abort"
    FAIL_COMPACTION = "fail_compaction"
    START_NEXT_REQUEST = "start_next_request"
    RESUME_REQUEST = "resume_request"
    RECONCILE_MODEL_OUTCOME = "reconcile_model_outcome"
    ABORT_TURN = "abort_turn"
    NEXT_ATTEMPT = "next_attempt"
    FAIL_REQUEST = "fail_request"
    REJECT_CALL = "reject_call"
    SCHEDULE_CALL = "schedule_call"
    CANCEL_TOOL = "cancel_tool"
    EVALUATE = "evaluate"
    ASK = "ask"
    START_TOOL = "start_tool"
    RESOLVE_PERMISSIONS = "resolve_permissions"
    ANSWER_SUSPENSIONS = "answer_suspensions"
    RECONCILE_TOOL_OUTCOMES = "reconcile_tool_outcomes"
    COMPLETE_TURN = "complete_turn"
    RECONCILE_REQUEST_INPUTS = "reconcile_request_inputs"
    APPLY_INPUT = "apply_input"
    PREPARE_INPUT = "prepare_input"
    CONTINUE_REQUEST = "continue_request"
    FINALIZE_REQUEST = "finalize_request"
    RECONCILE_REQUEST_OUTCOME = "reconcile_request_outcome"
    # only while something is in flight
    INTERRUPT = "interrupt"
    AWAIT = "await"


#: Actions that may need nobody, so that a session with one of them is worth a worker's look.
#: A lost model attempt is among them: the policy of its request says whether anybody is asked.
MAY_GO_ON: Final = frozenset(Action) - {
    Action.NONE,
    Action.RESOLVE_PERMISSIONS,
    Action.ANSWER_SUSPENSIONS,
    Action.RECONCILE_TOOL_OUTCOMES,
    Action.RECONCILE_REQUEST_INPUTS,
    Action.RECONCILE_REQUEST_OUTCOME,
    Action.INTERRUPT,
    Action.AWAIT,
}


class Who(StrEnum):
    """Who carries a step out."""

    NOBODY = "nobody"
    AUTOMATIC = "automatic"
    HOST = "host"
    PERSON = "person"
    OPERATOR = "operator"
    FLIGHT = "flight"  # it is being carried out


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that comes next.

    Args:
        subject: the id it is about (request, turn, attempt, call, input, compaction).
        evidence: sequences of the events that call for it.
        reason: a word for actions that need one (steering, malformed, max_turns, ...).
        index: the call's index, for steps about a call.
    """

    action: Action
    who: Who
    subject: str = ""
    evidence: tuple[int, ...] = ()
    reason: str = ""
    index: int | None = None


NOTHING: frozenset[str] = frozenset()


def stop(subject: str) -> str:
    """In flight: `subject` was told to stop."""
    return f"stop:{subject}"


def evaluating(tool_id: str) -> str:
    """In flight: the call's permission is being evaluated."""
    return f"evaluate:{tool_id}"


def preparing(request_id: str) -> str:
    """In flight: the request's applied inputs are being prepared."""
    return f"prepare:{request_id}"


def next_steps(state: State, in_flight: frozenset[str] = NOTHING) -> tuple[Step, ...]:
    """What comes next, in the table's order. Never empty."""
    if state.session is None or state.session.status is session.Status.CLOSED:
        return (_nothing(state),)
    active = state.request
    if active is not None and active.aborting:
        return (_auto(Action.FINISH_ABORT, active.request_id, active.last_sequence),)
    if state.compaction is not None:
        return (_compaction(state, in_flight),)
    if active is None:
        return (_idle(state),)
    if active.status is request.Status.ACCEPTED:
        return (_accepted(state, active),)
    if state.active_turn is None:
        return (_between_turns(state, active, in_flight),)
    if not state.has_response:
        return (_without_response(state, state.active_turn, in_flight),)
    return _calls(state, state.active_turn, in_flight)


def _auto(action: Action, subject: str, *evidence: int, reason: str = "", index: int | None = None) -> Step:
    return Step(action, Who.AUTOMATIC, subject, evidence, reason, index)


def _await(subject: str, *evidence: int, index: int | None = None) -> Step:
    return Step(Action.AWAIT, Who.FLIGHT, subject, evidence, index=index)


def _nothing(state: State) -> Step:
    return Step(Action.NONE, Who.NOBODY, state.session_id, tuple(e.sequence for e in state.unsettled))


def _steers_now(state: State) -> bool:
    return any(i.priority is Priority.NOW for i in state.steering_inputs())


# --- rows 3 to 5: around requests -------------------------------------------------------


def _compaction(state: State, in_flight: frozenset[str]) -> Step:
    assert state.compaction is not None
    open_ = state.compaction
    if open_.compaction_id in in_flight:
        return _await(open_.compaction_id, open_.sequence)
    return _auto(Action.FAIL_COMPACTION, open_.compaction_id, open_.sequence, reason="process_restart")


def _idle(state: State) -> Step:
    waiting = state.waiting_inputs()
    may_start = len(state.unsettled) < MAX_UNSETTLED_EFFECTS and not state.spending.is_spent
    if waiting and may_start:
        return _auto(Action.START_NEXT_REQUEST, waiting[0].input_id, waiting[0].sequence)
    return _nothing(state)


def _accepted(state: State, active: RequestState) -> Step:
    if active.settings is None:
        return Step(
            Action.RECONCILE_REQUEST_OUTCOME,
            Who.OPERATOR,
            active.request_id,
            (active.accepted_sequence,),
            "no_snapshot",
        )
    own = state.queue.find(active.input_id)
    evidence = (active.accepted_sequence,) if own is None else (own.sequence, active.accepted_sequence)
    return _auto(Action.RESUME_REQUEST, active.request_id, *evidence)


# --- rows 6 and 7: a turn without its response ------------------------------------------


def _without_response(state: State, turn: TurnState, in_flight: frozenset[str]) -> Step:
    attempt = state.attempt
    now = _steers_now(state)
    if attempt is not None and attempt.status is model_attempt.Status.STARTED:
        if attempt.attempt_id not in in_flight:
            return _lost_attempt(state, attempt)
        told = stop(attempt.attempt_id) in in_flight
        action, who = (Action.INTERRUPT, Who.AUTOMATIC) if now and not told else (Action.AWAIT, Who.FLIGHT)
        return Step(action, who, attempt.attempt_id, (attempt.started_sequence,))
    evidence = (turn.sequence,) if attempt is None else (turn.sequence, attempt.sequence)
    if now:
        return _auto(Action.ABORT_TURN, turn.turn_id, *evidence, reason="steering")
    if state.attempts_left and not state.spending.is_spent:
        return _auto(Action.NEXT_ATTEMPT, turn.turn_id, *evidence)
    assert state.request is not None
    reason = "budget" if state.attempts_left else "model"
    return _auto(Action.FAIL_REQUEST, state.request.request_id, *evidence, reason=reason)


def _lost_attempt(state: State, attempt: model_attempt.AttemptState) -> Step:
    assert state.request is not None
    settings = state.request.settings  # None in a journal from elsewhere: then somebody is asked
    policy = settings.on_lost_attempt if settings is not None else OnLostAttempt.ASK
    retry = policy is OnLostAttempt.RETRY and not attempt.provider_run_tools
    who = Who.AUTOMATIC if retry else Who.HOST
    known = () if attempt.response_id is None else (attempt.sequence,)
    evidence = (attempt.started_sequence, *known)
    reason = "lost" if retry else "findable" if attempt.findable else "outcome_unknown"
    return Step(Action.RECONCILE_MODEL_OUTCOME, who, attempt.attempt_id, evidence, reason)


# --- row 8: a turn with its response, per call ------------------------------------------


def _calls(state: State, turn: TurnState, in_flight: frozenset[str]) -> tuple[Step, ...]:
    now = _steers_now(state)
    steps = tuple(_each_call(state, in_flight, now))
    if steps:
        return steps
    assert state.attempt is not None
    return (_auto(Action.COMPLETE_TURN, turn.turn_id, turn.sequence, state.attempt.sequence),)


def _each_call(state: State, in_flight: frozenset[str], now: bool) -> Iterator[Step]:
    for call in state.calls:
        step = _call(state, call, in_flight, now)
        if step is not None:
            yield step


def _call(state: State, call: CallState, in_flight: frozenset[str], now: bool) -> Step | None:
    if call.tool is None:
        return _undecided(state, call, now)
    if call.tool.status in tool.TERMINAL:
        return None
    assert call.permission is not None
    if call.tool.status in (Status.SCHEDULED, Status.RESUMED):
        return _unstarted(state, call, call.tool, call.permission, in_flight, now)
    if call.tool.status is Status.SUSPENDED:
        if now:
            return _of(Action.CANCEL_TOOL, call, call.tool.sequence, reason="steering")
        return Step(
            Action.ANSWER_SUSPENSIONS, Who.PERSON, call.call_id, (call.tool.sequence,), index=call.index
        )
    return _started(call, call.tool, in_flight, now)


def _of(action: Action, call: CallState, *evidence: int, reason: str = "") -> Step:
    return _auto(action, call.call_id, *evidence, reason=reason, index=call.index)


def _undecided(state: State, call: CallState, now: bool) -> Step:
    assert state.attempt is not None
    evidence = state.attempt.sequence
    if call.input_digest is None or state.cut_response:
        reason = "truncated" if state.cut_response else "malformed"
        return _of(Action.REJECT_CALL, call, evidence, reason=reason)
    if now:
        return _of(Action.REJECT_CALL, call, evidence, reason="interrupted")
    return _of(Action.SCHEDULE_CALL, call, evidence)


def _unstarted(
    state: State,
    call: CallState,
    scheduled: ToolState,
    permission: PermissionState,
    in_flight: frozenset[str],
    now: bool,
) -> Step:
    assert state.session is not None
    evidence = (scheduled.sequence, permission.sequence) if permission.sequence else (scheduled.sequence,)
    if now:
        return _of(Action.CANCEL_TOOL, call, *evidence, reason="steering")
    match permission.decision:
        case Decision.PENDING:
            return Step(Action.RESOLVE_PERMISSIONS, Who.PERSON, call.call_id, evidence, index=call.index)
        case Decision.DENY:
            return _of(Action.CANCEL_TOOL, call, *evidence, reason="permission_denied")
        case Decision.ASK:
            return _of(Action.ASK, call, *evidence)
        case Decision.ALLOW if permission.current(state.session.policy_digest):
            return _of(Action.START_TOOL, call, *evidence)
    if evaluating(call.call_id) in in_flight:
        return _await(call.call_id, *evidence, index=call.index)
    return _of(Action.EVALUATE, call, *evidence)


def _started(call: CallState, running: ToolState, in_flight: frozenset[str], now: bool) -> Step:
    unknown = running.status is Status.UNKNOWN
    evidence = (running.started_sequence, running.sequence)[: 2 if unknown else 1]
    stoppable = now and running.interrupt is Interrupt.CANCEL
    if running.status is Status.STARTED and call.call_id in in_flight:
        if stoppable and stop(call.call_id) not in in_flight:
            return _of(Action.INTERRUPT, call, *evidence, reason="steering")
        return _await(call.call_id, *evidence, index=call.index)
    if not running.may_run_again:
        return Step(Action.RECONCILE_TOOL_OUTCOMES, Who.HOST, call.call_id, evidence, index=call.index)
    if stoppable and running.side_effect is SideEffect.PURE:
        return _of(Action.CANCEL_TOOL, call, *evidence, reason="steering")
    return _of(Action.START_TOOL, call, *evidence, reason="again")


# --- rows 9 to 13: between turns --------------------------------------------------------


def _between_turns(state: State, active: RequestState, in_flight: frozenset[str]) -> Step:
    last = active.last_sequence
    if preparing(active.request_id) in in_flight:
        return _await(active.request_id, last)
    if active.preparation is Preparation.BEGUN:
        return Step(Action.RECONCILE_REQUEST_INPUTS, Who.HOST, active.request_id, (last,))
    steering = state.steering_inputs()
    if steering:
        return _auto(Action.APPLY_INPUT, steering[0].input_id, steering[0].sequence)
    wants_turn = active.preparation is not Preparation.NONE or state.turn_due
    if wants_turn and state.spending.is_spent:
        return _auto(Action.FAIL_REQUEST, active.request_id, last, reason="budget")
    if active.preparation is Preparation.DUE:
        return _auto(Action.PREPARE_INPUT, active.request_id, last)
    if wants_turn:
        number = state.turn.number if state.turn else 0
        if number >= active.max_turns:
            return _auto(Action.FAIL_REQUEST, active.request_id, last, reason="max_turns")
        return _auto(Action.CONTINUE_REQUEST, active.request_id, last)
    if state.turn is not None and state.turn.is_final:
        return _auto(Action.FINALIZE_REQUEST, active.request_id, state.turn.sequence)
    return Step(Action.RECONCILE_REQUEST_OUTCOME, Who.OPERATOR, active.request_id, (last,))

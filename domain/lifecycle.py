"""The one fold: `advance(state, event)`, with every rule that spans aggregates.

It is the preview before a commit, the live state after it, and replay. A rule
that is not reached from here does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from domain import (
    budget,
    call_rules,
    catalogue,
    compaction,
    envelope_rules,
    inputs,
    lease,
    model_attempt,
    request,
    rollover,
    session,
    tool,
    turn,
)
from domain import events as ev
from domain.budget import Spending
from domain.envelope import Recorded
from domain.errors import RuleViolated
from domain.limits import MAX_ATTEMPTS_PER_TURN, MAX_CALLS_PER_RESPONSE, MAX_UNSETTLED_EFFECTS
from domain.model_attempt import AttemptState
from domain.permission import Decision
from domain.request import ENDS, Preparation, RequestState
from domain.rules import need
from domain.state import CommandPlace, State
from domain.targets import active_request, running_request
from domain.turn import TurnState
from domain.values import Priority

#: In `State.owed`: any of the types that end a request.
REQUEST_END = "the request's end"

#: Nothing of these may follow `abort_requested`.
_SEALED = frozenset(
    {
        "input_applied",
        "request_started",
        "input_preparation_started",
        "turn_started",
        "model_request_started",
        "tool_scheduled",
        "tool_started",
        "request_completed",
    }
)


def fold(state: State, events: Iterable[Recorded]) -> State:
    """`advance` over several events."""
    for event in events:
        state = advance(state, event)
    return state


def advance(state: State, event: Recorded) -> State:
    """The state after one more event.

    Raises:
        RuleViolated: the event may not follow; names the rule and the sequence.
    """
    envelope_rules.check(state, event)
    after = _apply(_without_owed(state, event), event)
    active = after.request
    if active is not None and event.request_id == active.request_id:
        active = replace(active, last_sequence=event.sequence)
    place = CommandPlace(event.command_id, event.command_index, event.command_size)
    if after.owed and place.is_whole:
        raise RuleViolated(f"the same commit goes on with {after.owed[0]}", event.type, event.sequence)
    token = event.recorded_by.token if event.recorded_by else state.token
    return replace(after, sequence=event.sequence, request=active, command=place, token=token)


# --- envelope ---------------------------------------------------------------------------


def _without_owed(state: State, event: Recorded) -> State:
    """The state in which the event is no longer owed. Refuses another than the one that is."""
    rollover.check_successor(state, event)
    if not state.owed:
        return state
    wanted, *rest = state.owed
    fits = event.type in ENDS if wanted == REQUEST_END else event.type == wanted
    need(fits and event.command_index > 0, f"the same commit goes on with {wanted}", event)
    return replace(state, owed=tuple(rest))


# --- dispatch ---------------------------------------------------------------------------


def _apply(state: State, event: Recorded) -> State:
    data = event.data
    if state.session is None:
        return replace(state, session=session.create(event))
    if isinstance(data, ev.ToolOutcomeReconciled) and call_rules.is_unsettled(state, event.tool_id):
        return call_rules.settle(state, event)
    if isinstance(data, ev.LeaseAcquired | ev.LeaseReleased):
        return _lease(state, event)
    need(state.session.status is session.Status.OPEN, "the session is open", event)
    if state.request is not None and state.request.aborting:
        need(event.type not in _SEALED, "nothing of an aborted request goes on", event)
    match data:
        case ev.InputAccepted() | ev.InputCancelled() | ev.InputApplied():
            return _queue(state, event)
        case ev.InputPreparationStarted() | ev.InputPrepared():
            return _between_turns(state, event)
        case ev.CompactionStarted() | ev.CompactionCompleted() | ev.CompactionFailed():
            return _compaction(state, event)
        case ev.BudgetSet() | ev.BudgetExceeded():
            return _spent(state, budget.evolve(state.spending, event), event)
        case ev.HandoffCompleted():
            return _lease(state, event)
        case ev.NoticeRecorded():
            return state
        case _:
            return _BY_KIND[data.aggregate](state, event)


def _session(state: State, event: Recorded) -> State:
    assert state.session is not None
    if isinstance(event.data, ev.SessionClosed):
        need(state.request is None, "closed only with no active request", event)
        need(not state.queue.pending, "every pending input is cancelled before closing", event)
        need(state.compaction is None, "closed only with no open compaction", event)
    state = replace(state, session=session.evolve(state.session, event))
    applies_now = getattr(event.data, "effective", None) == "next_turn"
    if state.request is None or state.request.settings is None or not applies_now:
        return state
    settings = state.request.settings.changed(session.changed_values(event.data))
    changed = replace(state.request, settings=settings, settings_digest=settings.digest())
    return replace(state, request=changed)


# --- lease ------------------------------------------------------------------------------


def _lease(state: State, event: Recorded) -> State:
    owed = state.owed
    if isinstance(event.data, ev.HandoffCompleted):
        owed = ("lease_released",)
    elif isinstance(event.data, ev.LeaseReleased) and event.data.reason == "closed":
        owed = ("session_closed",)
    return replace(state, lease=lease.evolve(state.lease, event), owed=owed)


# --- budget -----------------------------------------------------------------------------


def _spent(state: State, spending: Spending, event: Recorded) -> State:
    """Another spending; what it makes worth saying is said in the same commit."""
    lowered = isinstance(event.data, ev.BudgetSet) and spending.is_spent
    need(not lowered, "a budget is more than what is spent already", event)
    owed = state.owed if spending.due is None else ("budget_exceeded",)
    return replace(state, spending=spending, owed=owed)


def _may_spend(state: State, event: Recorded) -> None:
    need(not state.spending.is_spent, "the budget is not spent", event)


# --- inputs -----------------------------------------------------------------------------


def _queue(state: State, event: Recorded) -> State:
    data = event.data
    if isinstance(data, ev.InputApplied):
        return _applied(state, event, data)
    accepted = state.request
    own = accepted is not None and accepted.input_id == getattr(data, "input_id", None)
    state = replace(state, queue=inputs.evolve(state.queue, event))
    if isinstance(data, ev.InputCancelled) and own:
        return replace(state, owed=(REQUEST_END,))
    return state


def _applied(state: State, event: Recorded, data: ev.InputApplied) -> State:
    active = active_request(state, event)
    need(state.active_turn is None, "an input is applied between turns", event)
    queue = inputs.evolve(state.queue, event)
    item = state.queue.find(data.input_id)
    assert item is not None
    if active.status is request.Status.ACCEPTED:
        need(data.input_id == active.input_id, "a request starts with its own input", event)
        state = replace(state, owed=("request_started",))
    else:
        aimed = state.effective_priority(item) is not Priority.LATER
        need(aimed, "the input is aimed at this request", event)
    number = (state.turn.number if state.turn else 0) + 1
    need(data.turn == number, "it names the turn that will see it", event)
    return replace(state, queue=queue, request=request.evolve(active, event))


def _between_turns(state: State, event: Recorded) -> State:
    active = running_request(state, event)
    need(state.active_turn is None, "inputs are prepared between turns", event)
    return replace(state, request=request.evolve(active, event))


# --- request ----------------------------------------------------------------------------


def _request(state: State, event: Recorded) -> State:
    if isinstance(event.data, ev.RequestAccepted):
        return _accepted(state, event, event.data)
    active = active_request(state, event)
    if event.type in ENDS:
        return _ended(state, active, event)
    if isinstance(event.data, ev.RequestStarted):
        own = active.preparation is Preparation.DUE and event.command_index > 0
        need(own, "started directly after its own input was applied", event)
    return replace(state, request=request.evolve(active, event))


def _accepted(state: State, event: Recorded, data: ev.RequestAccepted) -> State:
    assert state.session is not None
    need(state.request is None, "one active request", event)
    need(state.queue.find(data.input_id) is not None, "a request is about a pending input", event)
    room = len(state.unsettled) < MAX_UNSETTLED_EFFECTS
    need(room, f"at most {MAX_UNSETTLED_EFFECTS} unsettled effects", event)
    _may_spend(state, event)
    ordinal = state.requests + 1
    accepted = request.accept(event, ordinal, state.session.settings, state.session.settings_digest)
    return replace(state, requests=ordinal, request=accepted, turn=None, attempt=None, calls=())


def _ended(state: State, active: RequestState, event: Recorded) -> State:
    data = event.data
    need(state.active_turn is None, "a request does not end inside a turn", event)
    rollover.check_end(state, active, event)
    if active.status is request.Status.ACCEPTED:
        completed = isinstance(data, ev.RequestCompleted)
        need(not completed, "completed only from running", event)
        own_left = state.queue.find(active.input_id) is None
        need(own_left, "its own input is cancelled with it, in the same commit", event)
    if isinstance(data, ev.RequestCompleted):
        _may_complete(state, active, event)
    owed = ("input_accepted", "request_accepted") if isinstance(data, ev.RequestSuperseded) else ()
    return replace(state, request=None, turn=None, attempt=None, calls=(), owed=owed)


def _may_complete(state: State, active: RequestState, event: Recorded) -> None:
    if event.data.evidence is not None:
        return  # an operator says so, of a request that cannot be told otherwise
    final = state.turn is not None and state.turn.is_final
    need(final, "completed only after a final turn", event)
    need(active.preparation is Preparation.NONE, "no input was applied since the last turn", event)
    need(not state.steering_inputs(), "no input aimed at it is pending", event)


# --- turn -------------------------------------------------------------------------------


def _turn(state: State, event: Recorded) -> State:
    active = running_request(state, event)
    if isinstance(event.data, ev.TurnStarted):
        return _turn_started(state, active, event, event.data)
    _may_end_turn(state, event)
    rollover.check_turn(state, event)
    ended = turn.evolve(state.turn, event)
    if isinstance(event.data, ev.TurnCompleted):
        need(state.has_response, "a turn completes only with a response", event)
        assert state.attempt is not None
        expected = turn.outcome(len(state.calls), state.attempt.stop)
        stated = (event.data.has_tool_calls, event.data.continues)
        need(stated == expected, "its flags follow from the response", event)
        return replace(state, turn=ended, calls=())
    unknown = tuple(
        call_rules.unsettle(c, active) for c in state.calls if call_rules.status(c) is tool.Status.UNKNOWN
    )
    owed = () if ended.reason == "steering" else (REQUEST_END,)
    return replace(state, turn=ended, calls=(), owed=owed, unsettled=state.unsettled + unknown)


def _turn_started(state: State, active: RequestState, event: Recorded, data: ev.TurnStarted) -> State:
    need(state.compaction is None, "no turn while a compaction is open", event)
    need(data.number <= active.max_turns, f"at most {active.max_turns} turns", event)
    _may_spend(state, event)
    need(data.settings_digest == active.settings_digest, "it states the settings it runs under", event)
    prepared = active.preparation is Preparation.DONE
    due = active.preparation is Preparation.NONE and state.turn_due
    need(prepared or due, "a turn has something to tell the model", event)
    begun = turn.evolve(state.turn, event)
    return replace(state, request=request.evolve(active, event), turn=begun, attempt=None, calls=())


def _may_end_turn(state: State, event: Recorded) -> None:
    running = state.attempt is not None and state.attempt.status is model_attempt.Status.STARTED
    need(not running, "a turn does not end over a running attempt", event)
    for call in state.calls:
        need(call.tool is not None, f"call {call.index} has an end", event)
        asked = call.permission is not None and call.permission.decision is Decision.PENDING
        need(not asked, f"the question about call {call.index} is closed", event)
        need(call_rules.status(call) not in tool.OPEN, f"call {call.index} has ended", event)
        unknown = call_rules.status(call) is tool.Status.UNKNOWN and isinstance(event.data, ev.TurnCompleted)
        need(not unknown, f"the outcome of call {call.index} is known", event)


# --- model attempt ----------------------------------------------------------------------


def _attempt(state: State, event: Recorded) -> State:
    if event.turn_id is None:
        return _compaction_attempt(state, event)
    active = running_request(state, event)
    in_turn = state.active_turn
    if in_turn is None or in_turn.turn_id != event.turn_id:
        raise RuleViolated("the turn is active", event.type, event.sequence)
    if isinstance(event.data, ev.ModelRequestStarted):
        return replace(state, attempt=_next_attempt(state, event, event.data, in_turn))
    if state.attempt is None:
        raise RuleViolated("an attempt is active", event.type, event.sequence)
    ended = model_attempt.evolve(state.attempt, event)
    state = _spent(state, budget.after(state.spending, event.data), event)
    response = model_attempt.response_of(event)
    if response is None:
        return replace(state, attempt=ended)
    few = len(response.calls) <= MAX_CALLS_PER_RESPONSE
    need(few, f"at most {MAX_CALLS_PER_RESPONSE} calls in a response", event)
    calls = tuple(call_rules.declare(ended, i, c) for i, c in enumerate(response.calls))
    counted = request.with_usage(active, response.usage)
    return replace(state, attempt=ended, calls=calls, request=counted)


def _next_attempt(
    state: State, event: Recorded, data: ev.ModelRequestStarted, in_turn: TurnState
) -> AttemptState:
    last = state.attempt
    need(data.purpose == "turn", "an attempt within a turn is for the turn", event)
    _may_spend(state, event)
    over = last is None or last.status not in (model_attempt.Status.STARTED, model_attempt.Status.COMPLETED)
    need(over, "a further attempt only after one that failed, was aborted or lost", event)
    need(last is None or last.retryable, "the last attempt's failure may be retried", event)
    number = (last.number if last else 0) + 1
    need(number <= MAX_ATTEMPTS_PER_TURN, f"at most {MAX_ATTEMPTS_PER_TURN} attempts in a turn", event)
    return model_attempt.first(event, in_turn.turn_id, number)


# --- compaction -------------------------------------------------------------------------


def _compaction(state: State, event: Recorded) -> State:
    need(state.active_turn is None, "no compaction inside a turn", event)
    attempt = state.compaction_attempt
    running = attempt is not None and attempt.status is model_attempt.Status.STARTED
    need(not running, "a compaction ends after its attempt", event)
    return replace(state, compaction=compaction.evolve(state.compaction, event), compaction_attempt=None)


def _compaction_attempt(state: State, event: Recorded) -> State:
    if state.compaction is None:
        raise RuleViolated("an attempt is within a turn or a compaction", event.type, event.sequence)
    last = state.compaction_attempt
    if not isinstance(event.data, ev.ModelRequestStarted):
        if last is None:
            raise RuleViolated("an attempt is active", event.type, event.sequence)
        ended = replace(state, compaction_attempt=model_attempt.evolve(last, event))
        return _spent(ended, budget.after(state.spending, event.data), event)
    _may_spend(state, event)
    need(event.data.purpose == "compaction", "an attempt within a compaction is for it", event)
    over = last is None or last.status is not model_attempt.Status.STARTED
    need(over, "one attempt at a time", event)
    number = (last.number if last else 0) + 1
    begun = model_attempt.first(event, state.compaction.compaction_id, number)
    return replace(state, compaction_attempt=begun)


_BY_KIND = {
    ev.K.SESSION: _session,
    ev.K.REQUEST: _request,
    ev.K.TURN: _turn,
    ev.K.MODEL_ATTEMPT: _attempt,
    ev.K.TOOL: call_rules.fold_tool,
    ev.K.PERMISSION: call_rules.fold_permission,
}
assert {cls.aggregate for cls in catalogue.CATALOGUE.values()} == {*_BY_KIND, ev.K.THREAD}

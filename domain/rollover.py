"""Rollover: a request ends as superseded and its successor is accepted, in one commit.

The rules about it, imported by the fold, and the one list of calls that stand in
its way, also for those who ask before they decide (see `recovery.rollover`).
"""

from __future__ import annotations

from domain import events as ev
from domain import ids
from domain.envelope import Recorded
from domain.request import RequestState
from domain.rules import need
from domain.state import CallState, State
from domain.values import SideEffect


def crossed(state: State) -> tuple[CallState, ...]:
    """The calls of the active turn that were started and must not run twice, however they ended.

    A new request that asks for the same thing again would repeat what they did.
    """
    return tuple(call for call in state.calls if _is_crossed(call))


def _is_crossed(call: CallState) -> bool:
    running = call.tool
    return (
        running is not None
        and running.started_sequence > 0
        and running.side_effect is SideEffect.NON_IDEMPOTENT
    )


def turns_left(state: State) -> int:
    """How many turns a successor may take; the turn that is given up counts as not taken."""
    if state.request is None:
        return 0
    taken = state.turn.number if state.turn is not None else 0
    return state.request.max_turns - taken + (state.active_turn is not None)


def check_turn(state: State, event: Recorded) -> None:
    """Check the end of a turn that is given up for a successor."""
    if isinstance(event.data, ev.TurnAborted) and event.data.reason == "superseded":
        need(not crossed(state), "no rollover over a started call that must not run twice", event)


def check_end(state: State, active: RequestState, event: Recorded) -> None:
    """Check what the superseded request says of its successor."""
    data = event.data
    if not isinstance(data, ev.RequestSuperseded):
        return
    named = data.by_request_id in (None, ids.request(state.requests + 1))
    need(named, "the successor is the next request", event)
    replaced = tuple(data.replaced_input_ids)
    need(replaced in ((), active.unprepared), "it replaces what no turn has seen", event)


def check_successor(state: State, event: Recorded) -> None:
    """Check what a successor says of the request before it; `state` is the one before the event."""
    data = event.data
    if not isinstance(data, ev.RequestAccepted):
        return
    succeeds = state.owed == ("request_accepted",)
    superseded = ids.request(state.requests) if succeeds else None
    need(data.supersedes in (None, superseded), "it supersedes the request that just ended", event)
    if succeeds:
        own = state.queue.pending[-1].input_id
        need(data.input_id == own, "a successor is about the input accepted with it", event)

"""The rules about an event's envelope: where it stands, under which lease, for whom.

Imported by the fold alone. What an event states is the aggregates' business.
"""

from __future__ import annotations

from domain import lease
from domain.envelope import Recorded
from domain.request import ENDS
from domain.rules import need
from domain.state import State


def check(state: State, event: Recorded) -> None:
    """Check order, causes, fence, command and ids. Raises RuleViolated."""
    _check_order(state, event)
    _check_command(state, event)
    _check_scope(state, event)


def _check_order(state: State, event: Recorded) -> None:
    need(event.session_id == state.session_id, "every event is of this session", event)
    need(event.sequence == state.sequence + 1, "sequences are contiguous from 1", event)
    need(event.causation is None or 0 < event.causation < event.sequence, "causes come before", event)
    token = event.recorded_by.token if event.recorded_by else 0
    need(token >= state.token, "the fencing token never falls", event)
    lease.check_writer(state.lease, event)


def _check_command(state: State, event: Recorded) -> None:
    last = state.command
    if event.command_index == 0:
        need(last.is_whole, "a command's events are contiguous", event)
        need(event.command_id != last.command_id, "a command is recorded once", event)
    else:
        goes_on = (event.command_id, event.command_index) == (last.command_id, last.index + 1)
        need(goes_on, "a command's events are contiguous", event)
        need(event.command_size == last.size, "a command's events agree on its size", event)
    need(event.command_index < event.command_size, "an event is within its command", event)
    if event.type in ENDS and state.request is not None and event.request_id == state.request.request_id:
        cause = state.request.last_sequence
        alone = cause < event.sequence - event.command_index  # nothing else of it in this command
        caused = not alone or event.causation == cause
        need(caused, "an end on its own is caused by the request's last event", event)


def _check_scope(state: State, event: Recorded) -> None:
    scope = type(event.data).scope
    given = (event.request_id, event.turn_id, event.model_attempt_id, event.tool_id)
    for letter, name, value in zip("RTAC", ("request", "turn", "attempt", "call"), given, strict=True):
        if letter in scope:
            need(value is not None, f"{event.type} names its {name}", event)
        elif letter.lower() not in scope:
            need(value is None, f"{event.type} names no {name}", event)

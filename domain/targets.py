"""The open request that an event is about."""

from __future__ import annotations

from domain.envelope import Recorded
from domain.errors import RuleViolated
from domain.request import RequestState, Status
from domain.rules import need
from domain.state import State


def active_request(state: State, event: Recorded) -> RequestState:
    """The active request, which the event has to name."""
    active = state.request
    if active is None or active.request_id != event.request_id:
        raise RuleViolated("the request is active", event.type, event.sequence)
    return active


def running_request(state: State, event: Recorded) -> RequestState:
    """The running request, which the event has to name."""
    active = active_request(state, event)
    need(active.status is Status.RUNNING, "the request is running", event)
    return active

"""The closing commit: everything under the active request ends, at once.

Used by abort, abandon, failure and rollover alike.
"""

from __future__ import annotations

from collections.abc import Iterator

from domain import events as ev
from domain import model_attempt, tool
from domain.events import Payload
from domain.permission import Decision
from domain.state import CallState, State
from domain.tool import Status
from domain.values import SideEffect


def closing(state: State, reason: str) -> Iterator[tuple[Payload, CallState | None]]:
    """The events that end the active request's turn, calls and own input, in order.

    The request's own end is the caller's. Each comes with the call it is about,
    if any. `reason` as in `TurnAborted` (error, abort, abandoned, superseded).
    """
    active = state.request
    assert active is not None
    if state.active_turn is not None:
        attempt = state.attempt
        if attempt is not None and attempt.status is model_attempt.Status.STARTED:
            yield ev.ModelRequestAborted(reason=reason), None  # type: ignore[arg-type]  # same words
        for call in state.calls:
            for payload in _end_call(call, reason):
                yield payload, call
        yield ev.TurnAborted(reason=reason), None  # type: ignore[arg-type]  # checked by the payload
    if state.queue.find(active.input_id) is not None:
        yield ev.InputCancelled(input_id=active.input_id, reason=reason), None


def _end_call(call: CallState, reason: str) -> Iterator[Payload]:
    running = call.tool
    if running is None:
        yield ev.ToolRejected(
            index=call.index,
            provider_call_id=call.provider_call_id,
            name=call.name,
            reason="interrupted",
            message=f"The request ended ({reason}) before this call was scheduled.",
        )
        return
    if running.status in tool.TERMINAL or running.status is Status.UNKNOWN:
        return
    if running.status is Status.STARTED and running.side_effect is not SideEffect.PURE:
        yield ev.ToolOutcomeUnknown(reason=reason)
        return
    if call.permission is not None and call.permission.decision is Decision.PENDING:
        question = call.permission.question_id(running.tool_id)
        yield ev.PermissionCancelled(permission_id=question, reason=reason)
    yield ev.ToolCancelled(reason=reason)

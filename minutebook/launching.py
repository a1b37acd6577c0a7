"""Beginning what an entry says is beginning, once it is durable.

Imported by `minutebook.loop`. Whether something begins is decided there; what it does
while it runs, and how it ends, is in `minutebook.flights`.
"""

from __future__ import annotations

from functools import partial

from domain.envelope import Fence
from domain.state import State
from minutebook.carrying import AskHandler, AskPerson, Carrier, Launch, RunTool, SendRequest
from minutebook.config import PermissionCall, SessionConfig
from minutebook.feed import Feed
from minutebook.flights import Flights
from minutebook.lost import LookUp
from minutebook.stream_events import ToolMessage, ToolProgress
from minutebook.tool_context import ToolContext


class Launcher:
    """Turns launches into flights, with everything that the running code is given."""

    def __init__(
        self, flights: Flights, feed: Feed, carrier: Carrier, config: SessionConfig, fence: Fence | None
    ) -> None:
        self._flights, self._feed, self._carrier = flights, feed, carrier
        self._config, self._fence = config, fence

    def launch(self, state: State, launch: Launch, why_not: str, since: float) -> None:
        """Begin a launch.

        Args:
            state: after the entry that says so.
            why_not: why it shall not begin after all; empty if it may. What is on record as
                started then ends without having begun.
            since: when the store was given what says that it begins.
        """
        match launch:
            case SendRequest() | RunTool() if why_not:
                self._flights.never_began(launch, why_not)
            case _ if why_not:
                return
            case SendRequest():
                self._flights.send(launch, state.session_id, since)
            case LookUp():
                assert state.attempt is not None
                self._flights.look_up(launch, state.attempt, since)
            case RunTool():
                self._flights.run(launch, self._context(state, launch), since)
            case AskHandler():
                call, handler = self._permission_call(state, launch), self._config.permission_handler
                assert handler is not None
                self._flights.ask_handler(launch, lambda: handler(call), since)
            case AskPerson():
                assert self._config.confirmation_handler is not None
                self._flights.confirm(launch, self._config.confirmation_handler, since)

    def _context(self, state: State, launch: RunTool) -> ToolContext:
        assert state.request is not None and state.turn is not None
        context = state.request.context
        feed, session_id, tool_id, name = self._feed, state.session_id, launch.tool_id, launch.definition.name

        async def progress(value: object) -> None:
            feed.delta(ToolProgress(session_id, tool_id, name, value))

        async def message(content: object) -> None:
            feed.delta(ToolMessage(session_id, tool_id, name, content))

        return ToolContext(
            session_id=session_id,
            request_id=state.request.request_id,
            turn_id=state.turn.turn_id,
            tool_id=tool_id,
            idempotency_key=launch.idempotency_key,
            run=launch.run,
            fence=self._fence,
            environment=context.get("environment", {}),
            metadata=context.get("metadata", {}),
            on_progress=progress,
            on_message=message,
            on_start=partial(self._flights.processes.start, tool_id),
        )

    def _permission_call(self, state: State, launch: AskHandler) -> PermissionCall:
        assert state.request is not None
        call = state.calls[launch.index]
        assert call.tool is not None and call.permission is not None
        return PermissionCall(
            state.session_id,
            state.request.request_id,
            call.call_id,
            call.name,
            self._carrier.input_of(call),
            call.permission.input_digest,
            call.tool.kind,
            call.tool.category,
            call.tool.destructive,
        )

"""Views of a running session: one request's stream, and the whole feed.

Both splice durable events (from the journal, however old) with live deltas, in
one order: a delta comes after the durable event it follows and before the next.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from domain import events as ev
from domain.envelope import Recorded
from domain.errors import StreamError
from domain.request import ENDS
from minutebook import stream_events as se
from minutebook.feed import Feed
from projections.transcript import Transcript

SessionEvent = Recorded | se.StreamEvent


async def session_feed(feed: Feed, after: int) -> AsyncIterator[SessionEvent]:
    """Durable events after a sequence and live deltas, until the session is left.

    Raises:
        MinutebookError: what stopped the session, once everything before it was told.
    """
    sequence, position = after, feed.first_delta_from(after)
    while True:
        progressed = False
        for event in await feed.durable(sequence):
            while (found := feed.next_delta(position))[2] is not None and found[3] < event.sequence:
                position = found[0] + 1
                assert found[2] is not None
                yield found[2]
            sequence, progressed = event.sequence, True
            yield event
        while (found := feed.next_delta(position))[2] is not None and found[3] <= sequence:
            position, progressed = found[0] + 1, True
            if found[1]:
                yield se.EventsDropped(found[2].session_id, found[1])
            yield found[2]
        if progressed:
            continue
        if feed.closed:
            return
        if feed.stopped is not None:
            raise feed.stopped.with_traceback(None)
        await feed.wait()


async def request_stream(
    feed: Feed, request_id: str, accepted_sequence: int, include_thinking: bool
) -> AsyncIterator[se.StreamEvent]:
    """One request from its beginning to its end (`Result` or `Error`).

    Raises:
        StreamError: the session was left (reason DETACHED) before the request ended.
        MinutebookError: what stopped the session (RecoveryRequired, Fenced, ...).
    """
    teller = _Teller(request_id)
    async for event in session_feed(feed, accepted_sequence - 1):
        if isinstance(event, se.StreamEvent):
            if isinstance(event, se.ThinkingDelta) and not include_thinking:
                continue
            teller.saw_delta(event)
            yield event
            continue
        for told in teller.tell(event):
            yield told
        if event.request_id == request_id and event.type in ENDS:
            return
    raise StreamError("DETACHED", f"the session was left before {request_id} ended; resume it to go on")


class _Teller:
    """Durable events of one request in the words of the stream."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._transcript = Transcript()
        self._turn = 0
        self._names: dict[str, str] = {}
        self._live_text = False

    def saw_delta(self, event: se.StreamEvent) -> None:
        self._live_text = self._live_text or isinstance(event, se.ContentDelta)

    def tell(self, event: Recorded) -> Iterator[se.StreamEvent]:
        self._transcript.apply(event)
        if event.request_id != self._request_id:
            return
        yield from self._of_turn(event)
        yield from self._of_call(event)

    def _of_turn(self, event: Recorded) -> Iterator[se.StreamEvent]:
        data, session, request = event.data, event.session_id, self._request_id
        match data:
            case ev.InputApplied():
                yield se.InputApplied(session, request, data.input_id, data.priority, data.turn)
            case ev.TurnStarted():
                self._turn = data.number
                yield se.TurnStart(session, data.number)
            case ev.ModelRequestStarted():
                self._live_text = False
            case ev.ModelRequestCompleted() | ev.ModelOutcomeReconciled():
                yield from self._response(event, data.response)
            case ev.ModelRequestFailed():
                attempt = event.model_attempt_id or ""
                yield se.AttemptDiscarded(session, attempt, data.error_code, data.retryable)
            case ev.ModelRequestAborted():
                yield se.AttemptDiscarded(session, event.model_attempt_id or "", data.reason, False)
            case ev.TurnCompleted():
                yield se.TurnEnd(session, self._turn)
            case ev.TurnAborted():
                yield se.TurnInterrupted(session, request, self._turn, data.reason, data.by_input_id)
            case ev.RequestCompleted():
                yield se.Result(session, request, data.output, data.usage)
            case ev.RequestFailed():
                yield se.Error(session, request, data.error_code, data.message)
            case ev.RequestInterrupted():
                yield se.Error(session, request, "REQUEST_INTERRUPTED", data.reason)
            case ev.RequestSuperseded():
                yield se.Error(session, request, "REQUEST_SUPERSEDED", data.reason)

    def _response(self, event: Recorded, response: ev.ResponseKept | None) -> Iterator[se.StreamEvent]:
        attempt = event.model_attempt_id or ""
        if response is None:
            yield se.AttemptDiscarded(event.session_id, attempt, event.data.outcome, True)
            return
        text = "".join(block.text for block in response.blocks if block.kind == "text")
        if text and not self._live_text:
            yield se.ContentDelta(event.session_id, text)
        if response.usage:
            yield se.Usage(event.session_id, attempt, response.usage)

    def _of_call(self, event: Recorded) -> Iterator[se.StreamEvent]:
        data, session, tool_id = event.data, event.session_id, event.tool_id
        if tool_id is None:
            return
        match data:
            case ev.ToolScheduled():
                self._names[tool_id] = data.name
                yield se.ToolUse(session, tool_id, data.name, data.input, data.provider_call_id)
            case ev.ToolRejected():
                self._names[tool_id] = data.name
                yield self._result(session, tool_id, None)
            case ev.PermissionRequested():
                yield se.InteractionOpened(
                    session, data.permission_id, tool_id, data.summary, data.input_digest
                )
            case ev.ToolCompleted():
                yield self._result(session, tool_id, data.display)
            case ev.ToolFailed() | ev.ToolCancelled() | ev.ToolOutcomeUnknown() | ev.ToolOutcomeReconciled():
                yield self._result(session, tool_id, None)

    def _result(self, session: str, tool_id: str, display: object) -> se.ToolResult:
        outcome, output = self._transcript.latest_outcome(tool_id)
        name = self._names.get(tool_id, "")
        return se.ToolResult(session, tool_id, name, output, outcome, outcome != "completed", display)

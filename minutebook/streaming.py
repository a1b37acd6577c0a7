"""Views of a running session: one request's stream, and the whole feed.

Both splice durable events (from the journal, however old) with live deltas, in
one order: a delta comes after the durable event it follows and before the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from domain import events as ev
from domain.cursor import Cursor
from domain.envelope import Recorded
from domain.errors import StreamError
from domain.limits import MAX_ATTEMPTS_PER_TURN
from domain.request import ENDS
from minutebook import stream_events as se
from minutebook.feed import Feed
from projections.transcript import Transcript

SessionEvent = Recorded | se.StreamEvent


class SessionFeed:
    """Durable events after a sequence and live deltas, until the session is left.

    Not a generator, so that one left unfinished needs no clean-up by the event loop.

    Args:
        seen: where a reader from outside says that it is; proven before anything is given out.
    """

    def __init__(self, feed: Feed, after: int, seen: Cursor | None = None) -> None:
        self._feed, self._sequence, self._seen = feed, after, seen
        self._position = feed.first_delta_from(after)
        self._ready: deque[SessionEvent] = deque()

    def __aiter__(self) -> SessionFeed:
        return self

    async def __anext__(self) -> SessionEvent:
        """The next one, as soon as it is there.

        Raises:
            CursorMismatch: the journal does not have the place that was seen.
            MinutebookError: what stopped the session, once everything before it was told.
        """
        if self._seen is not None:
            await self._feed.check(self._seen)
            self._seen = None
        while not self._ready:
            await self._fill()
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Nothing is held: leaving it unfinished is as good."""

    async def _fill(self) -> None:
        for event in await self._feed.durable(self._sequence):
            self._take_deltas(event.sequence - 1)
            self._sequence = event.sequence
            self._ready.append(event)
        self._take_deltas(self._sequence)
        if self._ready:
            return
        if self._feed.closed:
            raise StopAsyncIteration
        if self._feed.stopped is not None:
            raise self._feed.stopped.with_traceback(None)
        await self._feed.wait()

    def _take_deltas(self, upto: int) -> None:
        """Those that follow an event up to `upto`."""
        number, found = self._feed.deltas(self._position, upto)
        if not found:
            return
        if missed := number - self._position:
            self._ready.append(se.EventsDropped(found[0].session_id, missed))
        self._ready.extend(found)
        self._position = number + len(found)


class RequestStream:
    """One request from its beginning to its end (`Result` or `Error`)."""

    def __init__(self, feed: Feed, request_id: str, accepted_sequence: int, include_thinking: bool) -> None:
        self._events = SessionFeed(feed, accepted_sequence - 1)
        self._request_id, self._include_thinking = request_id, include_thinking
        self._teller = _Teller(request_id)
        self._ready: deque[se.StreamEvent] = deque()
        self._ended = False

    def __aiter__(self) -> RequestStream:
        return self

    async def __anext__(self) -> se.StreamEvent:
        """The next one, as soon as it is there.

        Raises:
            StreamError: the session was left (reason DETACHED) before the request ended.
            MinutebookError: what stopped the session (RecoveryRequired, Fenced, ...).
        """
        while not self._ready:
            if self._ended:
                raise StopAsyncIteration
            await self._take()
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Stop looking. The request goes on."""
        self._ended = True

    async def _take(self) -> None:
        try:
            event = await anext(self._events)
        except StopAsyncIteration:
            self._ended = True
            told = f"the session was left before {self._request_id} ended; resume it to go on"
            raise StreamError("DETACHED", told) from None
        if isinstance(event, Recorded):
            self._ready.extend(self._teller.tell(event))
            self._ended = event.request_id == self._request_id and event.type in ENDS
        elif self._include_thinking or not isinstance(event, se.ThinkingDelta):
            self._teller.saw_delta(event)
            self._ready.append(event)


class _Teller:
    """Durable events of one request in the words of the stream."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._transcript = Transcript()
        self._turn = self._attempt = 0
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
                self._live_text, self._attempt = False, data.number
            case ev.ModelRequestCompleted() | ev.ModelOutcomeReconciled():
                yield from self._response(event, data.response)
            case ev.ModelRequestFailed():
                attempt = event.model_attempt_id or ""
                retrying = data.retryable and self._attempt < MAX_ATTEMPTS_PER_TURN
                yield se.AttemptDiscarded(session, attempt, data.error_code, retrying)
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
                by = f" by {data.by_request_id}" if data.by_request_id else ""
                yield se.Error(session, request, "REQUEST_SUPERSEDED", f"{data.reason}{by}")

    def _response(self, event: Recorded, response: ev.ResponseKept | None) -> Iterator[se.StreamEvent]:
        attempt = event.model_attempt_id or ""
        if response is None:
            outcome = event.data.outcome
            yield se.AttemptDiscarded(event.session_id, attempt, outcome, outcome == "lost")
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

"""One HTTP exchange with a model provider: the request out, its answer in, once.

The same for every dialect: what differs (how an SDK posts, which errors it raises,
what the bytes mean) is given. No retry, no redirect. Must never hold an exception
of an SDK: it hangs on to the request, and with it to the credential.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import httpx2

from adapters.answer_stream import AnswerStream
from adapters.credentials import hide_in_logs
from adapters.http_failures import TRANSPORT_ERRORS, from_transport
from adapters.model_failures import failed, from_status, told
from domain import masking
from domain.errors import ModelFailed
from domain.masking import Watched
from domain.model_ports import Identified, Signal
from domain.ports import Probe

#: How long to wait, after the terminal marker, for the end that lets the connection be used again.
_DRAIN_S: Final = 0.05
#: How long closing a connection may take before it is given up.
_CLOSE_S: Final = 1.0

#: Sends the encoded body and returns the answer once its head is there, unread.
Post = Callable[[bytes], Awaitable[httpx2.Response]]


def no_probe(point: str) -> None:
    """The probe of production: nothing happens at any point."""


@dataclass(frozen=True, slots=True, repr=False)
class Exchange:
    """How the exchanges of one provider are carried out.

    Args:
        status_error: what the SDK raises for an HTTP answer that is not a success; it
            has `status_code`, `response` and `body`.
        sdk_error: what everything the SDK raises is derived from.
        secrets: masked in messages and in the SDK's log records, where they are long enough.
        request_timeout_s: limit until the answer begins, and for one that is not streamed.
        stream_idle_timeout_s: limit for the next piece of a streamed answer.
        request_id_header: where the server says its id of the request.
        probe: called at `before_send` and, for every piece that arrives, `mid_stream`.
    """

    status_error: type[Exception]
    sdk_error: type[Exception]
    secrets: Sequence[str] = field(default=())
    request_timeout_s: float = 600.0
    stream_idle_timeout_s: float = 300.0
    request_id_header: str = "x-request-id"
    probe: Probe = no_probe
    _watched: tuple[Watched, ...] = field(init=False)
    _masked: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        watched = hide_in_logs(self.secrets)
        masked = masking.longest_first({form for each in watched for form in each.forms})
        object.__setattr__(self, "_watched", watched)  # frozen: only while it is being made
        object.__setattr__(self, "_masked", masked)

    async def run(self, post: Post, body: bytes, answer: AnswerStream) -> AsyncIterator[Signal]:
        """Send one request and yield what comes back, the `Response` last.

        Close the iterator (`contextlib.aclosing`) where it is left early: that closes
        the connection, and the server stops.

        Raises:
            ModelFailed: the attempt ended without a usable response. `kind` is one of
                `adapters.model_failures.KINDS`; `retryable` is False once a piece was
                yielded; `bytes_sent` is False only where no connection was made.
        """
        self.probe("before_send")
        deadline = anyio.current_time() + self.request_timeout_s
        opened = await self._open(post, body)
        visible, pieces = False, opened.aiter_bytes()
        try:
            while not answer.finished:
                for signal in await self._read(pieces, answer, deadline):
                    visible = visible or not isinstance(signal, Identified)
                    yield signal
                if answer.failure is not None:
                    raise self._told(answer.failure, answer, opened, visible)
            await _drain(pieces)
        finally:
            await _close(opened, pieces)
        yield self._response(answer, opened, visible)

    async def _open(self, post: Post, body: bytes) -> httpx2.Response:
        """Send the request; return the answer once its head is there.

        The failure is raised outside of the handlers, so that it does not hold what they caught.
        """
        failure: ModelFailed | None = None
        response: httpx2.Response | None = None
        with anyio.move_on_after(self.request_timeout_s):
            try:
                response = await post(body)
            except self.status_error as e:
                failure = self._from_status(e)
            except (self.sdk_error, *TRANSPORT_ERRORS) as e:
                failure = from_transport(e, answering=False)
        if response is not None:
            return response
        if failure is None:
            message = f"expected an answer within {self.request_timeout_s:g} s, got none"
            failure = failed("request_timeout", message)
        failure = told(failure, self._masked)
        raise failure

    def _from_status(self, error: Any) -> ModelFailed:
        response: httpx2.Response = error.response
        failure = from_status(error.status_code, response.headers, error.body, time.time())
        failure.received_digest = hashlib.sha256(response.content).hexdigest()
        failure.message += self._said_by(response)
        return failure

    async def _read(
        self, pieces: AsyncIterator[bytes], answer: AnswerStream, deadline: float
    ) -> Sequence[Signal]:
        """Wait for the next bytes and take them. A failure is left in `answer`."""
        limit_s = self.stream_idle_timeout_s
        if answer.document:
            limit_s = min(limit_s, deadline - anyio.current_time())
        data: bytes | None = None
        with anyio.move_on_after(limit_s) as waiting:
            try:
                data = await anext(pieces)
            except StopAsyncIteration:
                return answer.end()
            except TRANSPORT_ERRORS as e:
                answer.failure = from_transport(e, answering=True)
        if waiting.cancelled_caught:
            kind = "request_timeout" if answer.document else "stream_idle_timeout"
            answer.failure = failed(kind, "expected the rest of the answer in time, got nothing more")
        if data is None:
            return ()
        self.probe("mid_stream")
        return answer.feed(data)

    def _response(self, answer: AnswerStream, opened: httpx2.Response, visible: bool) -> Signal:
        failure: ModelFailed
        try:
            return answer.response(self._request_id(opened))
        except ModelFailed as e:
            failure = self._told(e, answer, opened, visible)
        raise failure

    def _told(
        self, failure: ModelFailed, answer: AnswerStream, opened: httpx2.Response, visible: bool
    ) -> ModelFailed:
        """The failure with what only the attempt knows, and without secrets."""
        failure.message += self._said_by(opened)
        return told(failure, self._masked, visible=visible, digest=answer.digest())

    def _request_id(self, response: httpx2.Response) -> str | None:
        """The server's id of the request, unless it is something that we sent."""
        found = response.headers.get(self.request_id_header)
        return masking.masked(found, self._masked) if found else None

    def _said_by(self, response: httpx2.Response) -> str:
        """That id in words: its support asks for it."""
        request_id = self._request_id(response)
        return f" (request id {request_id[:100]})" if request_id else ""


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    """Read up to the end of the message, if it comes at once, so that the connection is kept."""
    with anyio.move_on_after(_DRAIN_S), suppress(*TRANSPORT_ERRORS):
        async for _ in pieces:
            pass


async def _close(response: httpx2.Response, pieces: AsyncIterator[bytes]) -> None:
    """Close the connection, then run the generators over it to their end.

    They are nested, and closing the outermost leaves the inner ones to the garbage
    collector, which trio reports as a fault. Over a closed connection they end at once.
    """
    with anyio.move_on_after(_CLOSE_S, shield=True), suppress(*TRANSPORT_ERRORS):
        await response.aclose()
        async for _ in pieces:
            pass

"""`OpenAIChatProvider`: chat completions at OpenAI and at servers that speak like it.

The real SDK sends the request (its authentication, its error mapping); the body is
bytes that were encoded once, the answer is raw bytes read by our own reader. One
HTTP send per attempt. Only `minutebook.compose`, through `adapters.providers`,
imports this.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Final

import anyio
import httpx2
import openai

from adapters.http_failures import TRANSPORT_ERRORS, from_transport
from adapters.openai_chat_client import TIMEOUT, explicit_http_client, openai_client, without_userinfo
from adapters.openai_chat_errors import failed, from_status, told
from adapters.openai_chat_stream import ChatAnswer
from domain.errors import ModelFailed
from domain.ports import Parameters, Probe, Signal, ToolSpec
from projections.openai_chat_wire import API, encode_item, request_body
from projections.transcript import Item

#: OpenAI's own models refuse `max_tokens`; most other servers know nothing else.
_MAX_TOKENS_FIELD: Final = {"openai": "max_completion_tokens"}

#: How long to wait, after the terminal marker, for the end that lets the connection be used again.
_DRAIN_S: Final = 0.05
#: How long closing a connection may take before it is given up.
_CLOSE_S: Final = 1.0
#: Shorter secrets are not masked in messages: they would be found in ordinary words.
_SHORTEST_MASKED: Final = 6


def no_probe(point: str) -> None:
    """The probe of production: nothing happens at any point."""


class OpenAIChatProvider:
    """A model behind the chat-completions dialect.

    Args:
        provider: recorded with every attempt, e.g. "openai" or "openai-compatible".
        base_url: what the path `/chat/completions` is added to; a user name and password in it are dropped.
        api_key: the credential; "" sends none.
        headers: pairs, sent with every request.
        request_timeout_ms: limit until the answer begins, and for one that is not streamed.
        stream_idle_timeout_ms: limit for the next piece of a streamed answer.
        http_client: used instead of our own, and not closed by us.
        probe: called at `before_send` and, for every piece that arrives, `mid_stream`.

    Guarantees: nothing is taken from the environment; no retry, no redirect; the
    credential is in no error, repr or log record of ours.
    """

    api = API

    def __init__(
        self,
        *,
        provider: str,
        base_url: str,
        api_key: str,
        headers: Sequence[tuple[str, str]] = (),
        organization: str | None = None,
        project_id: str | None = None,
        request_timeout_ms: int = 600_000,
        stream_idle_timeout_ms: int = 300_000,
        http_client: httpx2.AsyncClient | None = None,
        probe: Probe = no_probe,
    ) -> None:
        self.provider = provider
        self._base_url = without_userinfo(base_url)
        http = http_client or explicit_http_client()
        self._own_http = None if http_client else http
        self._client = openai_client(
            http,
            base_url=base_url,
            api_key=api_key,
            headers=headers,
            organization=organization,
            project_id=project_id,
        )
        self._secrets = [s for s in (api_key, *(v for _, v in headers)) if len(s) >= _SHORTEST_MASKED]
        self._without_key = not api_key and not any(name.lower() == "authorization" for name, _ in headers)
        self._request_timeout_s = request_timeout_ms / 1000
        self._stream_idle_timeout_s = stream_idle_timeout_ms / 1000
        self._probe = probe

    def __repr__(self) -> str:
        return (
            f"OpenAIChatProvider(provider={self.provider!r}, base_url={self._base_url.partition('?')[0]!r})"
        )

    def encode(self, item: Item) -> bytes:
        """One transcript item in this dialect (see `projections.openai_chat_wire`)."""
        return encode_item(item, self.provider)

    def body(self, items: Sequence[bytes], tools: Sequence[ToolSpec], parameters: Parameters) -> bytes:
        """A request body from items already encoded."""
        field = _MAX_TOKENS_FIELD.get(self.provider, "max_tokens")
        return request_body(items, tools, parameters, max_tokens_field=field)

    async def send(self, body: bytes, *, attempt_id: str) -> AsyncIterator[Signal]:
        """Send one request and yield what comes back, the `Response` last.

        Close the iterator (`contextlib.aclosing`) where it is left early: that closes
        the connection, and the server stops.

        Raises:
            ModelFailed: the attempt ended without a usable response. `kind` is one of
                `adapters.openai_chat_errors.KINDS`; `retryable` is False once a piece
                was yielded; `bytes_sent` is False only where no connection was made.
        """
        self._probe("before_send")
        deadline = anyio.current_time() + self._request_timeout_s
        opened = await self._open(body, attempt_id)
        answer, visible, pieces = ChatAnswer(), False, opened.aiter_bytes()
        try:
            while not answer.finished:
                for signal in await self._read(pieces, answer, deadline):
                    visible = True
                    yield signal
                if answer.failure is not None:
                    raise self._told(answer.failure, answer, opened, visible)
            await _drain(pieces)
        finally:
            await _close(opened, pieces)
        yield self._response(answer, opened, visible)

    async def aclose(self) -> None:
        """Release connections, unless they belong to the caller's client."""
        if self._own_http is not None:
            await self._own_http.aclose()

    async def _open(self, body: bytes, attempt_id: str) -> httpx2.Response:
        """Send the request; return the answer once its head is there.

        The failure is raised outside of the handlers: an exception of the SDK hangs on
        to the request, and with it to the credential.
        """
        failure: ModelFailed | None = None
        response: httpx2.Response | None = None
        with anyio.move_on_after(self._request_timeout_s):
            try:
                response = await self._post(body, attempt_id)
            except openai.APIStatusError as e:
                failure = from_status(e.status_code, e.response.headers, e.body, time.time())
                failure.received_digest = hashlib.sha256(e.response.content).hexdigest()
                failure.message += _said_by(e.response)
            except (openai.OpenAIError, *TRANSPORT_ERRORS) as e:
                failure = from_transport(e, answering=False)
        if response is not None:
            return response
        if failure is None:
            message = f"expected an answer within {self._request_timeout_s:g} s, got none"
            failure = failed("request_timeout", message)
        failure = told(failure, self._secrets)
        raise failure

    async def _post(self, body: bytes, attempt_id: str) -> httpx2.Response:
        # Compressed, an event stream waits in buffers, and a small answer can unfold into a huge one.
        headers: dict[str, Any] = {"X-Client-Request-Id": attempt_id, "Accept-Encoding": "identity"}
        if self._without_key:
            headers["Authorization"] = openai.Omit()
        response: object = await self._client.post(
            "/chat/completions",
            cast_to=httpx2.Response,
            content=body,
            options={"headers": headers, "timeout": TIMEOUT, "follow_redirects": False},
            stream=True,
            stream_cls=openai.AsyncStream[Any],
        )
        # Asked to cast to the raw response, the SDK hands it over unread; its types do not say so.
        assert isinstance(response, httpx2.Response)
        return response

    async def _read(
        self, pieces: AsyncIterator[bytes], answer: ChatAnswer, deadline: float
    ) -> Sequence[Signal]:
        """Wait for the next bytes and take them. A failure is left in `answer`."""
        limit_s = self._stream_idle_timeout_s
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
        self._probe("mid_stream")
        return answer.feed(data)

    def _response(self, answer: ChatAnswer, opened: httpx2.Response, visible: bool) -> Signal:
        failure: ModelFailed
        try:
            return answer.response(opened.headers.get("x-request-id"))
        except ModelFailed as e:
            failure = self._told(e, answer, opened, visible)
        raise failure

    def _told(
        self, failure: ModelFailed, answer: ChatAnswer, opened: httpx2.Response, visible: bool
    ) -> ModelFailed:
        """The failure with what only the attempt knows, and without secrets."""
        failure.message += _said_by(opened)
        return told(failure, self._secrets, visible=visible, digest=answer.digest())


def _said_by(response: httpx2.Response) -> str:
    """The server's id of the request, which its support asks for."""
    request_id = response.headers.get("x-request-id")
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

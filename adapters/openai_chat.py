"""`OpenAIChatProvider`: chat completions at OpenAI and at servers that speak like it.

The real SDK sends the request (its authentication, its error mapping); the body is
bytes that were encoded once, the answer is raw bytes read by our own reader. One
HTTP send per attempt. Only `minutebook.compose`, through `adapters.providers`,
imports this.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2
import openai

from adapters.answer_stream import AnswerStream
from adapters.credentials import secrets_in
from adapters.exchange import Exchange, no_probe
from adapters.http_client import explicit_http_client, without_userinfo
from adapters.openai_chat_accumulator import ChatAccumulator
from adapters.openai_chat_types import chat_type
from adapters.openai_client import openai_client, post
from adapters.openai_lookup import ChatLookup, Shelf
from domain.ports import Capabilities, Found, LostAttempt, Parameters, Probe, Signal, ToolSpec
from projections.openai_chat_wire import API, Server, encode_item, request_body
from projections.transcript import Item


class OpenAIChatProvider:
    """A model behind the chat-completions dialect.

    Args:
        provider: recorded with every attempt, e.g. "openai" or "openai-compatible".
        base_url: what the path `/chat/completions` is added to; a user name and password in it are dropped.
        api_key: the credential; "" sends none.
        headers: pairs, sent with every request.
        server: what is special about it; None: what is known of the type `provider`.
        capabilities: what it has; None: what is known of the type `provider`.
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
        server: Server | None = None,
        capabilities: Capabilities | None = None,
        request_timeout_ms: int = 600_000,
        stream_idle_timeout_ms: int = 300_000,
        http_client: httpx2.AsyncClient | None = None,
        probe: Probe = no_probe,
    ) -> None:
        self.provider = provider
        self.capabilities = capabilities or chat_type(provider).capabilities
        self._server = server or chat_type(provider).server
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
        # Compressed, an event stream waits in buffers, and a small answer can unfold into a huge one.
        self._headers: dict[str, Any] = {"Accept-Encoding": "identity"}
        if not api_key and not any(name.lower() == "authorization" for name, _ in headers):
            self._headers["Authorization"] = openai.Omit()
        self._exchange = Exchange(
            openai.APIStatusError,
            openai.OpenAIError,
            secrets=(api_key, *(value for _, value in headers), *secrets_in(base_url)),
            request_timeout_s=request_timeout_ms / 1000,
            stream_idle_timeout_s=stream_idle_timeout_ms / 1000,
            probe=probe,
        )
        self.sends_attempt_key = self._server.stores
        self._lookup = ChatLookup(Shelf(self._client, self._exchange, self._headers, provider, API))

    def __repr__(self) -> str:
        return (
            f"OpenAIChatProvider(provider={self.provider!r}, base_url={self._base_url.partition('?')[0]!r})"
        )

    def encode(self, item: Item) -> bytes:
        """One transcript item in this dialect (see `projections.openai_chat_wire`)."""
        return encode_item(item, self.provider, self._server)

    def body(self, items: Sequence[bytes], tools: Sequence[ToolSpec], parameters: Parameters) -> bytes:
        """A request body from items already encoded."""
        return request_body(items, tools, parameters, self._server)

    def send(self, body: bytes, *, attempt_id: str) -> AsyncIterator[Signal]:
        """Send one request and yield what comes back (see `Exchange.run`)."""
        headers = self._headers | {"X-Client-Request-Id": attempt_id}
        return self._exchange.run(
            lambda encoded: post(self._client, "/chat/completions", encoded, headers),
            body,
            AnswerStream(ChatAccumulator(self._server.stores)),
        )

    def finds(self, lost: LostAttempt) -> bool:
        """Whether there is anything to ask by (see `adapters.openai_lookup`)."""
        return self._lookup.finds(lost)

    async def look_up(self, lost: LostAttempt) -> Found:
        """Ask what became of an attempt (see `adapters.openai_lookup`)."""
        return await self._lookup.look_up(lost)

    async def aclose(self) -> None:
        """Release connections, unless they belong to the caller's client."""
        if self._own_http is not None:
            await self._own_http.aclose()

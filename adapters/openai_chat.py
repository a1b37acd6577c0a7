"""`OpenAIChatProvider`: chat completions at OpenAI and at servers that speak like it.

The real SDK sends the request (its authentication, its error mapping); the body is
bytes that were encoded once, the answer is raw bytes read by our own reader. One
HTTP send per attempt. Only `minutebook.compose`, through `adapters.providers`,
imports this.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import httpx2
import openai

from adapters.answer_stream import AnswerStream
from adapters.exchange import Exchange, no_probe
from adapters.http_client import explicit_http_client, without_userinfo
from adapters.openai_chat_accumulator import ChatAccumulator
from adapters.openai_client import openai_client, post
from domain.ports import Capabilities, Parameters, Probe, Signal, ToolSpec
from projections.openai_chat_wire import API, encode_item, request_body
from projections.transcript import Item

#: OpenAI's own models refuse `max_tokens`; most other servers know nothing else.
_MAX_TOKENS_FIELD: Final = {"openai": "max_completion_tokens"}


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
    capabilities = Capabilities(structured_output=True, thinking=True, images=True, files=True)

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
        self._without_key = not api_key and not any(name.lower() == "authorization" for name, _ in headers)
        self._exchange = Exchange(
            openai.APIStatusError,
            openai.OpenAIError,
            secrets=(api_key, *(value for _, value in headers)),
            request_timeout_s=request_timeout_ms / 1000,
            stream_idle_timeout_s=stream_idle_timeout_ms / 1000,
            probe=probe,
        )

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

    def send(self, body: bytes, *, attempt_id: str) -> AsyncIterator[Signal]:
        """Send one request and yield what comes back (see `Exchange.run`)."""
        # Compressed, an event stream waits in buffers, and a small answer can unfold into a huge one.
        headers: dict[str, Any] = {"X-Client-Request-Id": attempt_id, "Accept-Encoding": "identity"}
        if self._without_key:
            headers["Authorization"] = openai.Omit()
        return self._exchange.run(
            lambda encoded: post(self._client, "/chat/completions", encoded, headers),
            body,
            AnswerStream(ChatAccumulator()),
        )

    async def aclose(self) -> None:
        """Release connections, unless they belong to the caller's client."""
        if self._own_http is not None:
            await self._own_http.aclose()

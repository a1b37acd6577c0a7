"""`AnthropicProvider`: Anthropic's messages, and servers that speak like it.

The real SDK sends the request (its authentication, its error mapping); the body is
bytes that were encoded once, the answer is raw bytes read by our own reader. One
HTTP send per attempt, always streamed. Only `minutebook.compose`, through
`adapters.providers`, imports this.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import anthropic
import httpx2

from adapters.answer_stream import AnswerStream
from adapters.anthropic_accumulator import MessageAccumulator, read_event
from adapters.anthropic_client import anthropic_client, post
from adapters.credentials import secrets_in
from adapters.exchange import Exchange, no_probe
from adapters.http_client import explicit_http_client, without_userinfo
from domain.ports import Capabilities, Parameters, Probe, Signal, ToolSpec
from projections.anthropic_wire import API, encode_item, request_body
from projections.transcript import Item

CAPABILITIES: Final = Capabilities(structured_output=True, thinking=True, images=True, files=True)


class AnthropicProvider:
    """A model behind the messages dialect.

    Args:
        provider: recorded with every attempt, e.g. "anthropic".
        base_url: what the path `/v1/messages` is added to; a user name and password in it are dropped.
        api_key: the credential; "" sends none.
        headers: pairs, sent with every request (`anthropic-beta`, or a credential of another kind).
        request_timeout_ms: limit until the answer begins, and for one that is not streamed.
        stream_idle_timeout_ms: limit for the next piece of a streamed answer.
        extra: body fields that are added as they are; `tools` and `mcp_servers` are what the
            provider runs itself (`runs_tools`).
        capabilities: what the server has, where it is not Anthropic's own.
        http_client: used instead of our own, and not closed by us.
        probe: called at `before_send` and, for every piece that arrives, `mid_stream`.

    Guarantees: nothing is taken from the environment or from files; no retry, no
    redirect; the credential is in no error, repr or log record of ours.
    """

    api = API

    def __init__(
        self,
        *,
        provider: str,
        base_url: str,
        api_key: str,
        headers: Sequence[tuple[str, str]] = (),
        request_timeout_ms: int = 600_000,
        stream_idle_timeout_ms: int = 300_000,
        extra: Mapping[str, Any] | None = None,
        capabilities: Capabilities | None = None,
        http_client: httpx2.AsyncClient | None = None,
        probe: Probe = no_probe,
    ) -> None:
        self.provider = provider
        self.capabilities = capabilities or CAPABILITIES
        self._extra = dict(extra or {})
        self.runs_tools = bool(self._extra.get("tools") or self._extra.get("mcp_servers"))
        self._base_url = without_userinfo(base_url)
        http = http_client or explicit_http_client()
        self._own_http = None if http_client else http
        self._client = anthropic_client(http, base_url=base_url, api_key=api_key, headers=headers)
        given = {name.lower() for name, _ in headers}
        self._without_key = not api_key and "authorization" not in given
        self._exchange = Exchange(
            anthropic.APIStatusError,
            anthropic.AnthropicError,
            secrets=(api_key, *(value for _, value in headers), *secrets_in(base_url)),
            request_timeout_s=request_timeout_ms / 1000,
            stream_idle_timeout_s=stream_idle_timeout_ms / 1000,
            request_id_header="request-id",
            probe=probe,
        )

    def __repr__(self) -> str:
        return f"AnthropicProvider(provider={self.provider!r}, base_url={self._base_url.partition('?')[0]!r})"

    def encode(self, item: Item) -> bytes:
        """One transcript item in this dialect (see `projections.anthropic_wire`)."""
        return encode_item(item, self.provider)

    def body(self, items: Sequence[bytes], tools: Sequence[ToolSpec], parameters: Parameters) -> bytes:
        """A request body from items already encoded."""
        given = replace(parameters, extra={**self._extra, **parameters.extra})
        return request_body(items, tools, given)

    def send(self, body: bytes, *, attempt_id: str) -> AsyncIterator[Signal]:
        """Send one request and yield what comes back (see `Exchange.run`)."""
        # Compressed, an event stream waits in buffers, and a small answer can unfold into a huge one.
        headers: dict[str, Any] = {"X-Client-Request-Id": attempt_id, "Accept-Encoding": "identity"}
        if self._without_key:
            headers["Authorization"] = anthropic.Omit()
        return self._exchange.run(
            lambda encoded: post(self._client, encoded, headers),
            body,
            AnswerStream(MessageAccumulator(), parse=read_event),
        )

    async def aclose(self) -> None:
        """Release connections, unless they belong to the caller's client."""
        if self._own_http is not None:
            await self._own_http.aclose()

"""`AnthropicProvider`: Anthropic's messages, and servers that speak like it.

The real SDK sends the request (its authentication, its error mapping); the body is
bytes that were encoded once, the answer is raw bytes read by our own reader. One
HTTP send per attempt, always streamed. Only `minutebook.compose`, through
`adapters.providers`, imports this.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Unpack

from adapters.answer_stream import AnswerStream
from adapters.anthropic_accumulator import MessageAccumulator, read_event
from adapters.anthropic_client import anthropic_client, anthropic_connection, post
from adapters.connection import ConnectionOptions
from domain.model_ports import Capabilities, Parameters, Signal, ToolSpec
from projections.anthropic_wire import API, encode_item, request_body
from projections.transcript import Item

CAPABILITIES: Final = Capabilities(structured_output=True, thinking=True, images=True, files=True)


class AnthropicProvider:
    """A model behind the messages dialect.

    Args:
        provider: recorded with every attempt, e.g. "anthropic".
        extra: body fields that are added as they are; `tools` and `mcp_servers` are what the
            provider runs itself (`runs_tools`).
        capabilities: what the server has, where it is not Anthropic's own.
        connection: the path is `/v1/messages`; a header may be `anthropic-beta`, or a
            credential of another kind. See `ConnectionOptions`.

    Guarantees: nothing is taken from the environment or from files; no retry, no
    redirect; the credential is in no error, repr or log record of ours.
    """

    api = API

    def __init__(
        self,
        *,
        provider: str,
        extra: Mapping[str, Any] | None = None,
        capabilities: Capabilities | None = None,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        self.provider = provider
        self.capabilities = capabilities or CAPABILITIES
        self._extra = dict(extra or {})
        self.runs_tools = bool(self._extra.get("tools") or self._extra.get("mcp_servers"))
        self._connection = anthropic_connection(**connection)
        self._client = anthropic_client(self._connection)

    def __repr__(self) -> str:
        return f"AnthropicProvider(provider={self.provider!r}, base_url={self._connection.shown_url!r})"

    def encode(self, item: Item) -> bytes:
        """One transcript item in this dialect (see `projections.anthropic_wire`)."""
        return encode_item(item, self.provider)

    def body(self, items: Sequence[bytes], tools: Sequence[ToolSpec], parameters: Parameters) -> bytes:
        """A request body from items already encoded."""
        given = replace(parameters, extra={**self._extra, **parameters.extra})
        return request_body(items, tools, given)

    def send(self, body: bytes, *, attempt_id: str) -> AsyncIterator[Signal]:
        """Send one request and yield what comes back (see `Exchange.run`)."""
        headers = self._connection.headers_of(attempt_id)
        return self._connection.exchange.run(
            lambda encoded: post(self._client, encoded, headers),
            body,
            AnswerStream(MessageAccumulator(), parse=read_event),
        )

    async def aclose(self) -> None:
        """Release connections, unless they belong to the caller's client."""
        await self._connection.aclose()

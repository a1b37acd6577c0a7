"""`OpenAIChatProvider`: chat completions at OpenAI and at servers that speak like it.

The real SDK sends the request (its authentication, its error mapping); the body is
bytes that were encoded once, the answer is raw bytes read by our own reader. One
HTTP send per attempt. Only `minutebook.compose`, through `adapters.providers`,
imports this.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Unpack

from adapters.answer_stream import AnswerStream
from adapters.connection import ConnectionOptions
from adapters.openai_chat_accumulator import ChatAccumulator
from adapters.openai_chat_types import chat_type
from adapters.openai_client import openai_client, openai_connection, post
from adapters.openai_lookup import ChatLookup, Shelf
from domain.model_ports import Capabilities, Found, LostAttempt, Parameters, Signal, ToolSpec
from projections.openai_chat_body import Server
from projections.openai_chat_wire import API, encode_item, request_body
from projections.transcript import Item


class OpenAIChatProvider:
    """A model behind the chat-completions dialect.

    Args:
        provider: recorded with every attempt, e.g. "openai" or "openai-compatible".
        server: what is special about it; None: what is known of the type `provider`.
        capabilities: what it has; None: what is known of the type `provider`.
        connection: the path is `/chat/completions`; see `ConnectionOptions`.

    Guarantees: nothing is taken from the environment; no retry, no redirect; the
    credential is in no error, repr or log record of ours.
    """

    api = API

    def __init__(
        self,
        *,
        provider: str,
        organization: str | None = None,
        project_id: str | None = None,
        server: Server | None = None,
        capabilities: Capabilities | None = None,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        self.provider = provider
        self.capabilities = capabilities or chat_type(provider).capabilities
        self._server = server or chat_type(provider).server
        self._connection = openai_connection(**connection)
        self._client = openai_client(self._connection, organization=organization, project_id=project_id)
        self.sends_attempt_key = self._server.stores
        self._lookup = ChatLookup(Shelf(self._client, self._connection, provider, API))

    def __repr__(self) -> str:
        return f"OpenAIChatProvider(provider={self.provider!r}, base_url={self._connection.shown_url!r})"

    def encode(self, item: Item) -> bytes:
        """One transcript item in this dialect (see `projections.openai_chat_wire`)."""
        return encode_item(item, self.provider, self._server)

    def body(self, items: Sequence[bytes], tools: Sequence[ToolSpec], parameters: Parameters) -> bytes:
        """A request body from items already encoded."""
        return request_body(items, tools, parameters, self._server)

    def send(self, body: bytes, *, attempt_id: str) -> AsyncIterator[Signal]:
        """Send one request and yield what comes back (see `Exchange.run`)."""
        headers = self._connection.headers_of(attempt_id)
        return self._connection.exchange.run(
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
        await self._connection.aclose()

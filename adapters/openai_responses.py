"""`OpenAIResponsesProvider`: the Responses API at OpenAI and at servers that speak like it.

The real SDK sends the request (its authentication, its error mapping); the body is
bytes that were encoded once, the answer is raw events read by our own reader. One
HTTP send per attempt. Only `minutebook.compose`, through `adapters.providers`,
imports this.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Unpack

from adapters.answer_stream import AnswerStream
from adapters.connection import ConnectionOptions
from adapters.openai_client import openai_client, openai_connection, post
from adapters.openai_lookup import ResponsesLookup, Shelf
from adapters.openai_responses_accumulator import ResponsesAccumulator
from domain.model_ports import Capabilities, Found, LostAttempt, Parameters, Signal, ToolSpec
from projections.openai_responses_wire import API, encode_item, request_body
from projections.transcript import Item

CAPABILITIES: Final = Capabilities(structured_output=True, thinking=True, images=True, files=True)

#: Servers that only speak like OpenAI's are credited with less, as in the chat dialect: one
#: that lacks forced output answers as if it had never been asked. Reasoning is a field of
#: this dialect.
_OF_TYPE: Final[Mapping[str, Capabilities]] = {
    "openai": CAPABILITIES,
    "azure-openai": CAPABILITIES,
    "deepseek": Capabilities(thinking=True),
}


def capabilities_of(kind: str) -> Capabilities:
    """What servers of a provider type have in this dialect, as far as that is known."""
    return _OF_TYPE.get(kind, Capabilities(thinking=True, images=True))


class OpenAIResponsesProvider:
    """A model behind the Responses dialect.

    Args:
        provider: recorded with every attempt, e.g. "openai" or "openai-compatible".
        store: ask the server to keep each response, so that a lost one can be looked up.
        extra: body fields that are added as they are; a None in it takes a field out.
        capabilities: what the server has.
        connection: the path is `/responses`; see `ConnectionOptions`.

    Guarantees: nothing is taken from the environment; no retry, no redirect; the
    credential is in no error, repr or log record of ours. Nothing that is sent
    depends on what the server has stored.
    """

    api = API
    #: A stored response carries the key, for people; there is no listing to find it by.
    sends_attempt_key = False

    def __init__(
        self,
        *,
        provider: str,
        organization: str | None = None,
        project_id: str | None = None,
        store: bool = False,
        extra: Mapping[str, Any] | None = None,
        capabilities: Capabilities = CAPABILITIES,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        self.provider, self.capabilities = provider, capabilities
        self._store, self._extra = store, dict(extra or {})
        self._connection = openai_connection(**connection)
        self._client = openai_client(self._connection, organization=organization, project_id=project_id)
        self._lookup = ResponsesLookup(Shelf(self._client, self._connection, provider, API))

    def __repr__(self) -> str:
        return f"OpenAIResponsesProvider(provider={self.provider!r}, base_url={self._connection.shown_url!r})"

    def encode(self, item: Item) -> bytes:
        """One transcript item in this dialect (see `projections.openai_responses_wire`)."""
        return encode_item(item, self.provider)

    def body(self, items: Sequence[bytes], tools: Sequence[ToolSpec], parameters: Parameters) -> bytes:
        """A request body from items already encoded."""
        extra = {**self._extra, **parameters.extra}
        return request_body(items, tools, replace(parameters, extra=extra), store=self._store)

    def send(self, body: bytes, *, attempt_id: str) -> AsyncIterator[Signal]:
        """Send one request and yield what comes back (see `Exchange.run`).

        `Identified` is among it where the server keeps the response.
        """
        headers = self._connection.headers_of(attempt_id)
        return self._connection.exchange.run(
            lambda encoded: post(self._client, "/responses", encoded, headers),
            body,
            AnswerStream(ResponsesAccumulator(stored=self._store)),
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

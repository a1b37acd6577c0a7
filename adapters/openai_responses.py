"""`OpenAIResponsesProvider`: the Responses API at OpenAI and at servers that speak like it.

The real SDK sends the request (its authentication, its error mapping); the body is
bytes that were encoded once, the answer is raw events read by our own reader. One
HTTP send per attempt. Only `minutebook.compose`, through `adapters.providers`,
imports this.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import httpx2
import openai

from adapters.answer_stream import AnswerStream
from adapters.credentials import secrets_in
from adapters.exchange import Exchange, no_probe
from adapters.http_client import explicit_http_client, without_userinfo
from adapters.openai_client import openai_client, post
from adapters.openai_lookup import ResponsesLookup, Shelf
from adapters.openai_responses_accumulator import ResponsesAccumulator
from domain.ports import Capabilities, Found, LostAttempt, Parameters, Probe, Signal, ToolSpec
from projections.openai_responses_wire import API, encode_item, request_body
from projections.transcript import Item

CAPABILITIES: Final = Capabilities(structured_output=True, thinking=True, images=True, files=True)


class OpenAIResponsesProvider:
    """A model behind the Responses dialect.

    Args:
        provider: recorded with every attempt, e.g. "openai" or "openai-compatible".
        base_url: what the path `/responses` is added to; a user name and password in it are dropped.
        api_key: the credential; "" sends none.
        headers: pairs, sent with every request.
        store: ask the server to keep each response, so that a lost one can be looked up.
        extra: body fields that are added as they are; a None in it takes a field out.
        capabilities: what the server has.
        request_timeout_ms: limit until the answer begins, and for one that is not streamed.
        stream_idle_timeout_ms: limit for the next piece of a streamed answer.
        http_client: used instead of our own, and not closed by us.
        probe: called at `before_send` and, for every piece that arrives, `mid_stream`.

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
        base_url: str,
        api_key: str,
        headers: Sequence[tuple[str, str]] = (),
        organization: str | None = None,
        project_id: str | None = None,
        store: bool = False,
        extra: Mapping[str, Any] | None = None,
        capabilities: Capabilities = CAPABILITIES,
        request_timeout_ms: int = 600_000,
        stream_idle_timeout_ms: int = 300_000,
        http_client: httpx2.AsyncClient | None = None,
        probe: Probe = no_probe,
    ) -> None:
        self.provider, self.capabilities = provider, capabilities
        self._base_url = without_userinfo(base_url)
        self._store, self._extra = store, dict(extra or {})
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
        self._lookup = ResponsesLookup(Shelf(self._client, self._exchange, self._headers, provider, API))

    def __repr__(self) -> str:
        shown = self._base_url.partition("?")[0]
        return f"OpenAIResponsesProvider(provider={self.provider!r}, base_url={shown!r})"

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
        headers = self._headers | {"X-Client-Request-Id": attempt_id}
        return self._exchange.run(
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
        if self._own_http is not None:
            await self._own_http.aclose()

"""The real adapter of the messages dialect in front of a loopback server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson

from adapters.anthropic_messages import AnthropicProvider
from domain.model_ports import Parameters, Response
from minutebook.testing.fake_server import FakeServer, Replies, serve
from minutebook.testing.wire_rules import CHECKS
from projections.transcript import CallItem, Exchange, Item, UserItem

KEY = "sk-ant-test-key"
HELLO = UserItem(1, "i1", "hello")


@asynccontextmanager
async def connected(replies: Replies, **options: Any) -> AsyncIterator[tuple[AnthropicProvider, FakeServer]]:
    """`async with connected(replies, **options) as (provider, server)`."""
    async with serve(replies) as server:
        provider = provider_at(server, **options)
        try:
            yield provider, server
        finally:
            await provider.aclose()


def provider_at(server: FakeServer, **options: Any) -> AnthropicProvider:
    """A further provider: a session closes the one that it was given."""
    given = {"provider": "anthropic", "base_url": server.url, "api_key": KEY}
    return AnthropicProvider(**(given | options))


def exchange_of(response: Response, *outputs: str, **changes: Any) -> Exchange:
    """A response as the transcript keeps it, its calls completed with the given outputs."""
    texts = [*outputs, *["done"] * (len(response.calls) - len(outputs))]
    calls = tuple(
        CallItem(f"t{i}", c.provider_call_id, c.provider_call_id, c.name, c.arguments, "completed", output)
        for i, (c, output) in enumerate(zip(response.calls, texts, strict=True))
    )
    facts = {
        "provider": "anthropic",
        "api": "anthropic-messages",
        "model": "m",
        "stop": response.stop,
    } | changes
    return Exchange(2, "r1.t1", "r1.t1.a1", blocks=response.blocks, calls=calls, **facts)


def request(
    provider: AnthropicProvider, items: Sequence[Item], parameters: Parameters | None = None
) -> dict[str, Any]:
    """The body of a request with these items, accepted by the strict rules."""
    encoded = [provider.encode(item) for item in items]
    body: dict[str, Any] = orjson.loads(provider.body(encoded, [], parameters or Parameters("m")))
    CHECKS["anthropic-messages"](body)
    return body

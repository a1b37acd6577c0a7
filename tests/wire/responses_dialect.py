"""What the tests of the Responses dialect share: its recordings, and what an answer holds."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters.openai_responses import OpenAIResponsesProvider
from domain.model_ports import Identified, Response
from minutebook.testing.attempts import Attempted
from minutebook.testing.fake_server import FakeServer, Replies, serve
from tests.wire.summaries import Summary, summary

Recording = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a recorded answer holds. `blocks`: (format without prefix, or item type; text of a text block)."""

    blocks: tuple[tuple[str, Summary], ...] = ()
    calls: tuple[tuple[str, str, Summary], ...] = ()
    stop: str = "end"
    thinking: Summary = ""
    usage: tuple[int, int, int | None, int | None] = (0, 0, None, None)
    response_id: str = ""
    identified: bool = False


@dataclass(frozen=True)
class Failure:
    """How a recorded answer fails."""

    kind: str
    retryable: bool
    status: int | None


def answer_of(found: Attempted) -> Answer:
    """What an attempt brought."""
    response = found.response
    assert response is not None, found.failure
    counted = ("input_tokens", "output_tokens", "cached_input_tokens", "reasoning_tokens")
    usage = tuple(response.usage.get(name) for name in counted)
    return Answer(
        tuple(_block(response, place) for place in range(len(response.blocks))),
        tuple((c.provider_call_id, c.name, summary(c.arguments)) for c in response.calls),
        response.stop,
        summary(found.thinking),
        usage,  # type: ignore[arg-type]  # four of them
        response.provider_ids.get("response_id", "")[:12],
        any(isinstance(piece, Identified) for piece in found.pieces),
    )


def _block(response: Response, place: int) -> tuple[str, Summary]:
    block = response.blocks[place]
    name = block.format.removeprefix("openai-responses/")
    if block.kind == "text":
        return name, summary(block.text)
    return (name, block.text) if name != "item" else (json.loads(block.text)["type"], "")


def recordings(wire_dir: Path) -> dict[str, Recording]:
    """Every recording of the dialect that is there, known to these tests or not."""
    files = {
        path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(wire_dir.glob("*.json"))
    }
    return {name: found for name, found in files.items() if found.get("api") == "responses"}


@asynccontextmanager
async def connected(
    replies: Replies, **options: Any
) -> AsyncIterator[tuple[OpenAIResponsesProvider, FakeServer]]:
    """The real adapter in front of a loopback server."""
    async with serve(replies) as server:
        given = {"provider": "openai", "base_url": server.url, "api_key": "sk-test-key"}
        provider = OpenAIResponsesProvider(**(given | options))
        try:
            yield provider, server
        finally:
            await provider.aclose()

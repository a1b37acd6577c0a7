"""Recorded answers that end too early: never completed, and no call comes of them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import pytest

from minutebook.testing.attempts import Attempted, attempt
from minutebook.testing.chat_replies import recorded_reply
from minutebook.testing.fake_server import Cut, Faults, Reply

pytestmark = pytest.mark.anyio

#: Small ones that hold a call: cut at every byte.
EVERY_BYTE = ["mistral-chat-stream-incremental-tool", "ollama-chat-stream-tool"]
STREAMS = [
    "azure-chat-stream-content-filter",
    "deepseek-chat-stream-tool",
    "groq-chat-stream-tool-use-failed-step1",
    "groq-chat-stream-tool-use-failed-step2",
    "hf-novita-chat-stream-finish-before-usage",
    "llamacpp-chat-stream",
    "openai-chat-stream-n2-choices",
    "openai-chat-stream-parallel-tools-legacy",
    "openai-chat-stream-parallel-tools-step1",
    "openrouter-chat-stream-error-midway",
    "openrouter-chat-stream-reasoning",
    "snowflake-chat-stream-empty-ids",
    "snowflake-chat-stream-thinking",
    "vllm-chat-stream-tool-think-tags",
    "vllm-chat-stream-usage",
    "xai-chat-stream-tool-whole-no-index",
]
DOCUMENTS = ["deepseek-chat-json-thinking-tools-step2", "gemini-openai-endpoint-tool-empty-id-step1"]
#: What a cut can be taken for: the end of the stream, of a document, or of the connection.
CUT_KINDS = {"stream_cut", "connection_lost"}


def cut_at(whole: Reply, places: Iterable[int], cut: Cut) -> list[Reply]:
    return [
        Reply(whole.body, whole.status, whole.headers, Faults(cut_after=place, cut=cut)) for place in places
    ]


def marker_end(body: bytes) -> int:
    """From where on the body is complete."""
    if body.lstrip().startswith(b"{"):
        return len(body)
    found = body.find(b"[DONE]")
    return found + len(b"[DONE]") if found >= 0 and b'"error":' not in body else len(body) + 1


def check(whole: Reply, reply: Reply, found: Attempted) -> None:
    place = reply.faults.cut_after
    assert place is not None
    if place >= marker_end(whole.body) and reply.faults.cut is Cut.CLEAN:
        assert found.response is not None, place
        return
    if found.response is not None:  # a marker that came through before the connection broke
        assert place >= marker_end(whole.body), place
        return
    assert found.failure is not None
    error_came = b'"error":' in whole.body[:place]
    assert found.failure.kind in CUT_KINDS or error_came, place
    assert found.failure.retryable is (not found.pieces and found.failure.kind in CUT_KINDS), place


async def run(connected: Any, whole: Reply, replies: list[Reply]) -> None:
    async with connected(replies) as (provider, server):
        for reply in replies:
            check(whole, reply, await attempt(provider))
        assert len(server.requests) == len(replies)


@pytest.mark.parametrize("name", EVERY_BYTE)
async def test_p58_cut_cleanly_at_every_byte(
    name: str, recording: Callable[[str], Any], connected: Any
) -> None:
    whole = recorded_reply(recording(name))
    await run(connected, whole, cut_at(whole, range(len(whole.body) + 1), Cut.CLEAN))


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("name", STREAMS + EVERY_BYTE)
async def test_p58_cut_after_every_event(
    name: str, cut: Cut, recording: Callable[[str], Any], connected: Any
) -> None:
    whole = recorded_reply(recording(name))
    ends = [found.end() for found in re.finditer(rb"\n\n", whole.body)]
    thinned = ends if len(ends) <= 30 else [*ends[:: len(ends) // 24], *ends[-5:]]
    await run(connected, whole, cut_at(whole, thinned, cut))


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("name", STREAMS + DOCUMENTS)
async def test_p58_cut_anywhere(name: str, cut: Cut, recording: Callable[[str], Any], connected: Any) -> None:
    whole = recorded_reply(recording(name))
    luck = random.Random(name)
    places = chain((0, 1, len(whole.body) - 1), (luck.randrange(len(whole.body)) for _ in range(12)))
    await run(connected, whole, cut_at(whole, places, cut))


async def test_the_marker_alone_makes_an_answer_complete(
    recording: Callable[[str], Any], connected: Any
) -> None:
    whole = recorded_reply(recording("mistral-chat-stream-incremental-tool"))
    at = marker_end(whole.body)
    async with connected(cut_at(whole, [at - 1, at], Cut.CLEAN)) as (provider, _):
        without, with_marker = await attempt(provider), await attempt(provider)
    assert without.pieces == with_marker.pieces
    assert without.response is None
    assert with_marker.response is not None
    assert len(with_marker.response.calls) == 1

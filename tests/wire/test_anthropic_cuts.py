"""Recorded messages that end too early: never completed, and no call comes of them."""

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
from tests.wire.anthropic_place import connected

pytestmark = pytest.mark.anyio

#: Small ones that hold a call, cut at every byte (or every few).
EVERY_BYTE = {"anthropic-stream-tool-no-args": 5, "anthropic-stream-tool-use": 1}
STREAMS = [
    "anthropic-stream-clear-tool-uses",
    "anthropic-stream-code-execution-server-tool",
    "anthropic-stream-compaction",
    "anthropic-stream-compaction-usage",
    "anthropic-stream-duplicate-message-start",
    "anthropic-stream-max-tokens-partial-json",
    "anthropic-stream-mcp-connector",
    "anthropic-stream-pause-turn",
    "anthropic-stream-redacted-thinking",
    "anthropic-stream-refusal",
    "anthropic-stream-spliced-message-start",
    "anthropic-stream-thinking-signature",
    "anthropic-stream-thinking-tool-chain-step1",
    "anthropic-stream-unknown-block-tool-search",
    "llamacpp-messages-stream",
]
DOCUMENTS = ["anthropic-json-parallel-tools-4-step1", "anthropic-json-redacted-thinking-replayed-step1"]
#: What a cut can be taken for: the end of the stream, of a document, or of the connection.
CUT_KINDS = {"stream_cut", "connection_lost"}
#: A stream whose beginning is broken already.
SPLICED = "anthropic-stream-spliced-message-start"


def cut_at(whole: Reply, places: Iterable[int], cut: Cut) -> list[Reply]:
    return [
        Reply(whole.body, whole.status, whole.headers, Faults(cut_after=place, cut=cut)) for place in places
    ]


def marker_end(body: bytes) -> int:
    """From where on the body is complete: with the marker's last brace, whatever comes behind it."""
    found = re.search(rb'data: \{"type": ?"message_stop"[^\n]*\}', body)
    return found.end() if found else len(body)


def check(name: str, whole: Reply, reply: Reply, found: Attempted) -> None:
    place = reply.faults.cut_after
    assert place is not None
    complete = place >= marker_end(whole.body) and name != SPLICED
    if complete and reply.faults.cut is Cut.CLEAN:
        assert found.response is not None, place
        return
    if found.response is not None:  # a marker that came through before the connection broke
        assert complete, place
        return
    assert found.failure is not None
    kinds = CUT_KINDS | ({"invalid_response"} if name == SPLICED else set())
    assert found.failure.kind in kinds, place
    assert found.failure.retryable is (not found.pieces), place


async def run(name: str, whole: Reply, replies: list[Reply]) -> None:
    async with connected(replies) as (provider, server):
        for reply in replies:
            check(name, whole, reply, await attempt(provider))
        assert len(server.requests) == len(replies)


@pytest.mark.parametrize("name", EVERY_BYTE)
async def test_p58_cut_cleanly_at_every_byte(name: str, recording: Callable[[str], Any]) -> None:
    whole = recorded_reply(recording(name))
    places = range(0, len(whole.body) + 1, EVERY_BYTE[name])
    await run(name, whole, cut_at(whole, places, Cut.CLEAN))


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("name", [*STREAMS, *EVERY_BYTE])
async def test_p58_cut_after_every_event(name: str, cut: Cut, recording: Callable[[str], Any]) -> None:
    whole = recorded_reply(recording(name))
    ends = [found.end() for found in re.finditer(rb"\n\n", whole.body)]
    thinned = ends if len(ends) <= 30 else [*ends[:: len(ends) // 24], *ends[-5:]]
    await run(name, whole, cut_at(whole, thinned, cut))


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("name", STREAMS + DOCUMENTS)
async def test_p58_cut_anywhere(name: str, cut: Cut, recording: Callable[[str], Any]) -> None:
    whole = recorded_reply(recording(name))
    luck = random.Random(name)
    places = chain((0, 1, len(whole.body) - 1), (luck.randrange(len(whole.body)) for _ in range(12)))
    await run(name, whole, cut_at(whole, places, cut))

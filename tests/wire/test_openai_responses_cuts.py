"""Recorded answers that end too early: never completed, and no call comes of them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from adapters.answer_stream import AnswerStream
from adapters.openai_responses_accumulator import ResponsesAccumulator
from domain.model_ports import Identified
from minutebook.testing.attempts import Attempted, attempt
from minutebook.testing.chat_replies import recorded_reply
from minutebook.testing.fake_server import Cut, Faults, Reply
from tests.wire.responses_dialect import connected, recordings

#: Small, and it holds a call: cut at every byte.
EVERY_BYTE = "openai-responses-stream-custom-tool"
#: What a cut can be taken for: the end of the stream, or of the connection.
CUT_KINDS = {"stream_cut", "connection_lost"}
TERMINAL = re.compile(rb'"type": ?"response\.(completed|incomplete|failed|cancelled)".*?(?=\n)')


@pytest.fixture(scope="module")
def streams(wire_dir: Path) -> dict[str, Reply]:
    """Every recorded stream of the dialect."""
    found = recordings(wire_dir)
    return {name: recorded_reply(one) for name, one in found.items() if one["response"].get("sse")}


def cut_at(whole: Reply, places: Iterable[int], cut: Cut) -> list[Reply]:
    return [
        Reply(whole.body, whole.status, whole.headers, Faults(cut_after=place, cut=cut)) for place in places
    ]


def marker_end(body: bytes) -> int:
    """From where on the body is complete: behind the terminal event's data."""
    found = TERMINAL.search(body)
    assert found, "a recording without its terminal event"
    return found.end()


def check(whole: Reply, reply: Reply, found: Attempted) -> None:
    place, end = reply.faults.cut_after, marker_end(whole.body)
    assert place is not None
    failing = b'"error":{' in whole.body[:place].replace(b" ", b"")
    if found.response is not None:
        assert place >= end, place
        return
    assert found.failure is not None
    assert place < end or failing or reply.faults.cut is not Cut.CLEAN, place
    assert found.failure.kind in CUT_KINDS or failing, (place, found.failure)
    shown = any(not isinstance(piece, Identified) for piece in found.pieces)
    if found.failure.kind in CUT_KINDS:
        assert found.failure.retryable is not shown, place


async def run(whole: Reply, replies: list[Reply]) -> None:
    async with connected(replies, store=True) as (provider, server):
        for reply in replies:
            check(whole, reply, await attempt(provider))
        assert len(server.requests) == len(replies)


def test_cut_cleanly_at_every_byte(streams: dict[str, Reply]) -> None:
    """Without a socket: the reader alone, one byte more each time."""
    whole = streams[EVERY_BYTE].body
    for place in range(len(whole) + 1):
        answer = AnswerStream(ResponsesAccumulator(stored=True))
        answer.feed(whole[:place])
        if not answer.finished:
            answer.end()
        assert answer.finished is (place >= marker_end(whole)), place
        assert (answer.failure is None) is answer.finished, place


@pytest.mark.anyio
@pytest.mark.parametrize("cut", Cut)
async def test_cut_after_every_event(cut: Cut, streams: dict[str, Reply]) -> None:
    for whole in streams.values():
        ends = [found.end() for found in re.finditer(rb"\n\n", whole.body)]
        thinned = ends if len(ends) <= 16 else [*ends[:: len(ends) // 11], *ends[-4:]]
        await run(whole, cut_at(whole, thinned, cut))


@pytest.mark.anyio
@pytest.mark.parametrize("cut", Cut)
async def test_cut_anywhere(cut: Cut, streams: dict[str, Reply]) -> None:
    for name, whole in streams.items():
        luck = random.Random(name)
        places = chain((0, 1, len(whole.body) - 1), (luck.randrange(len(whole.body)) for _ in range(12)))
        await run(whole, cut_at(whole, places, cut))


@pytest.mark.anyio
async def test_the_terminal_event_alone_makes_an_answer_complete(streams: dict[str, Reply]) -> None:
    whole = streams["openai-responses-stream-tool-step1"]
    at = marker_end(whole.body)
    async with connected(cut_at(whole, [at - 1, at], Cut.CLEAN)) as (provider, _):
        without, with_marker = await attempt(provider), await attempt(provider)
    assert without.pieces == with_marker.pieces
    assert without.response is None
    assert with_marker.response is not None
    assert len(with_marker.response.calls) == 1


@pytest.mark.anyio
async def test_a_cut_says_which_response_it_was(streams: dict[str, Any]) -> None:
    whole = streams["openai-responses-stream-tool-step1"]
    after_created = whole.body.index(b"\n\n") + 2
    async with connected(cut_at(whole, [after_created], Cut.RESET), store=True) as (provider, _):
        found = await attempt(provider)
    assert found.pieces in (
        (Identified("resp_67e554a155508191900ee113293c4c830794405d35281ae2"),),
        (),  # a reset may overtake what was sent before it
    )
    assert found.failure is not None
    assert found.failure.retryable

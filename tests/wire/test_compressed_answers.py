"""Answers that come compressed although nobody asked for it: taken, refused, never unfolded whole."""

from __future__ import annotations

import gzip
import zlib
from typing import Any, Final

import httpx2
import pytest

from adapters.http_client import CappedTransport
from minutebook.testing.attempts import attempt
from minutebook.testing.chat_replies import chat_reply
from minutebook.testing.fake_server import Faults, Reply

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

TEXT: Final = "a long answer, told in pieces"
BODY: Final = chat_reply(TEXT).body
#: Some 200 KB that unfold into 200 MB.
BOMB: Final = gzip.compress(b"data: " + b"a" * 200_000_000, 1)


def packed(body: bytes, encoding: str, status: int = 200, **faults: Any) -> Reply:
    return Reply(body, status, (("content-encoding", encoding),), Faults(**faults))


@pytest.mark.parametrize("piece_bytes", [None, 7])
@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(BODY)),
        ("GZip", gzip.compress(BODY)),
        ("deflate", zlib.compress(BODY)),
        ("identity", BODY),
    ],
    ids=["gzip", "upper case", "deflate", "identity"],
)
async def test_what_can_be_unpacked_is_taken(
    encoding: str, body: bytes, piece_bytes: int | None, connected: Any
) -> None:
    async with connected([packed(body, encoding, piece_bytes=piece_bytes)]) as (provider, server):
        assert (await attempt(provider)).text == TEXT
    assert server.requests[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(("encoding", "body"), [("gzip", BODY), ("br", BODY), ("gzip, br", BODY)])
async def test_what_cannot_be_unpacked_is_no_answer(encoding: str, body: bytes, connected: Any) -> None:
    async with connected([packed(body, encoding)]) as (provider, _):
        failure = (await attempt(provider)).failure
    assert failure is not None
    assert failure.kind == "invalid_response"


async def test_a_part_of_a_compressed_answer_is_a_cut_one(connected: Any) -> None:
    body = gzip.compress(BODY)
    async with connected([packed(body, "gzip", cut_after=len(body) - 12)]) as (provider, _):
        failure = (await attempt(provider)).failure
    assert failure is not None
    assert failure.kind == "stream_cut"


@pytest.mark.parametrize(("status", "kind"), [(200, "response_too_large"), (500, "connection_lost")])
async def test_an_answer_that_unfolds_into_too_much_fails(status: int, kind: str, connected: Any) -> None:
    async with connected([packed(BOMB, "gzip", status)]) as (provider, _):
        failure = (await attempt(provider)).failure
    assert failure is not None
    assert failure.kind == kind


async def test_a_little_never_unfolds_into_a_lot_at_once() -> None:
    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-encoding": "gzip"}, stream=httpx2.ByteStream(BOMB))

    pieces: list[int] = []

    async def read(response: httpx2.Response) -> None:
        async for piece in response.aiter_raw():
            pieces.append(len(piece))

    transport = CappedTransport(httpx2.MockTransport(answer))
    async with httpx2.AsyncClient(transport=transport) as http, http.stream("GET", "http://server/") as found:
        with pytest.raises(httpx2.ReadError):
            await read(found)
    assert 0 < max(pieces) <= 1024 * 1024

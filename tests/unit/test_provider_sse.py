"""Server-sent events out of bytes: the same ones, wherever the bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sse import EventReader, ServerEvent


def events(*pieces: bytes) -> list[tuple[str, bytes]]:
    reader = EventReader()
    return [(event.name, event.data) for piece in pieces for event in reader.feed(piece)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"data: a\n\ndata: b\n\n", [("message", b"a"), ("message", b"b")]),
        (b"data:a\r\n\r\ndata:  b\r\n\r\n", [("message", b"a"), ("message", b" b")]),
        (b"data: a\r\rdata: b\r\r", [("message", b"a"), ("message", b"b")]),
        (b"event: error\ndata: x\n\ndata: y\n\n", [("error", b"x"), ("message", b"y")]),
        (b": comment\n\n: more\n\ndata: a\n\n", [("message", b"a")]),
        (b"data: a\ndata: b\n\n", [("message", b"a\nb")]),
        (b"data: a\r\ndata: b\r\n\r\n", [("message", b"a\nb")]),
        (b"id: 7\nretry: 9\nother: z\ndata\n\n", [("message", b"")]),
        (b"event: lonely\n\ndata: a\n\n", [("message", b"a")]),
        (b"data: never ended\n", []),
    ],
)
def test_events_of_a_body(body: bytes, expected: list[tuple[str, bytes]]) -> None:
    assert events(body) == expected
    assert events(*(body[i : i + 1] for i in range(len(body)))) == expected


@given(
    st.lists(
        st.sampled_from([b"data: x", b"event: e", b": c", b"", b"\n", b"\r\n", b"\r", b"\n\n", b"\xe2\x82"])
    ),
    st.lists(st.integers(0, 80)),
)
def test_cuts_change_nothing(parts: list[bytes], cuts: list[int]) -> None:
    body = b"".join(parts)
    places = [0, *sorted(cuts), len(body)]
    pieces = [body[a:b] for a, b in pairwise(places)]
    assert events(*pieces) == events(body)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"data: [DONE]", ServerEvent("message", b"[DONE]")),
        (b"data: [DONE]\n", ServerEvent("message", b"[DONE]")),
        (b"data: a\n\n", None),
        (b"", None),
        (b": comment", None),
    ],
)
def test_what_an_end_leaves_behind(body: bytes, expected: ServerEvent | None) -> None:
    reader = EventReader()
    reader.feed(body)
    assert reader.pending() == expected
    assert reader.pending() is None

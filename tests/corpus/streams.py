"""Answers of a provider that went wrong, in no dialect's words: what was sent, and what may come of it.

A dialect plugs in with a function from steps to the bytes of its event stream (see
`dialects.py`). What cannot be said in steps (`Raw`) is bytes of the event stream
itself, which are the same for every dialect. All of it is made up: nothing was recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from domain.limits import MAX_CALLS_PER_RESPONSE
from minutebook.testing.fake_server import NO_FAULTS, Faults
from tests.corpus.texts import TEXTS


@dataclass(frozen=True, slots=True)
class Begin:
    """The answer begins; `id` as the provider calls it."""

    id: str = "resp_1"


@dataclass(frozen=True, slots=True)
class TextPart:
    """A piece of visible text."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call begins."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallPart:
    """A piece of a call's arguments."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts, or whatever is sent in their place; names are `input` and `output`."""

    counts: Any


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why it ended: end, tool_calls, length, refusal, or a word that nobody knows."""

    why: str


@dataclass(frozen=True, slots=True)
class Failure:
    """An error inside the stream, as the dialect words an HTTP status."""

    status: int
    message: str = "too much"


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes of the event stream as they are."""

    data: bytes


@dataclass(frozen=True, slots=True)
class End:
    """The dialect's terminal marker."""


Step = Begin | TextPart | CallStart | CallPart | Usage | Stopped | Failure | Raw | End
#: A dialect: steps to the bytes of the body.
Render = Callable[[Sequence[Step]], bytes]


@dataclass(frozen=True, slots=True)
class HostileStream:
    """One answer and what may come of it.

    Args:
        steps: what is sent; none at all with a `body` of its own.
        runs: how often the call's tool may run: exactly so often, or at most, if `up_to`.
        completed: whether the attempt completes; None leaves it to the dialect.
        text: the visible text of a completed one; None: not looked at.
        kinds: what a failed one is called; empty: not looked at.
        mixed: whether pieces come in another order than the one in which they are kept.
        status, content_type, body, faults: of the HTTP reply.
    """

    steps: Sequence[Step] = ()
    completed: bool | None = False
    runs: int = 0
    up_to: bool = False
    text: str | None = None
    kinds: frozenset[str] = frozenset()
    mixed: bool = False
    status: int = 200
    content_type: str = "text/event-stream"
    body: bytes | None = None
    faults: Faults = field(default=NO_FAULTS)


TOOL: Final = "note"
WHOLE: Final = '{"what":"x"}'
CALL: Final = (CallStart(0, "call_1", TOOL), CallPart(0, WHOLE))
CALLED: Final = (Stopped("tool_calls"), End())
DONE: Final = (Stopped("end"), End())
SAID: Final = (Begin(), TextPart("said"))
CLEAN: Final = "".join(
    t for n, t in TEXTS.items() if "surrogate" not in n and n != "escaped byte of a file name"
)
HTML: Final = b"<!doctype html><html><body><h1>Sign in</h1><script>x()</script></body></html>"


def encoded(event: Any) -> bytes:
    """An event's data. Numbers of any size and halves of characters are written as they are."""
    try:
        return orjson.dumps(event)
    except TypeError:
        return json.dumps(event).encode()


def named_event(event: Any, name: str | None = None) -> bytes:
    """One event under its name, which is its type unless another is given."""
    kind = name or str(event["type"])
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), encoded(event))


def _call(index: int, id_: str, arguments: str = WHOLE, name: str = TOOL) -> tuple[Step, ...]:
    return (CallStart(index, id_, name), CallPart(index, arguments))


def _streams() -> dict[str, HostileStream]:
    return {**_ends(), **_calls(), **_errors(), **_counts(), **_framing()}


def _ends() -> dict[str, HostileStream]:
    return {
        "nothing at all": HostileStream(),
        "only the end": HostileStream((End(),)),
        "only a beginning": HostileStream((Begin(),)),
        "a beginning and an end": HostileStream((Begin(), End()), completed=None),
        "no stop and no end": HostileStream(SAID),
        "a call, no stop and no end": HostileStream((Begin(), *CALL)),
        "a stop without an end": HostileStream((*SAID, Stopped("end")), completed=None),
        "a call and a stop without an end": HostileStream(
            (Begin(), *CALL, Stopped("tool_calls")), completed=None, runs=1, up_to=True
        ),
        "an end without a stop": HostileStream((*SAID, End()), completed=None),
        "two stops": HostileStream((*SAID, Stopped("end"), *DONE), completed=None),
        "two stops that differ": HostileStream((Begin(), *CALL, Stopped("length"), *CALLED), completed=None),
        "a stop before everything": HostileStream(
            (Begin(), Stopped("end"), TextPart("late"), End()), completed=None
        ),
        "a stop that nobody knows": HostileStream((*SAID, Stopped("\x1b[2J"), End()), completed=None),
        "a length stop after a whole call": HostileStream(
            (Begin(), *CALL, Stopped("length"), End()), completed=True
        ),
        "a refusal after a whole call": HostileStream(
            (Begin(), *CALL, Stopped("refusal"), End()), completed=True
        ),
        "a second answer after the end": HostileStream(
            (*SAID, *DONE, Begin("resp_2"), *CALL, *CALLED), completed=True, text="said"
        ),
        "a beginning twice": HostileStream((Begin(), *SAID, *DONE), completed=None),
    }


def _calls() -> dict[str, HostileStream]:
    many = [step for at in range(MAX_CALLS_PER_RESPONSE + 1) for step in _call(at, f"c{at}")]
    deep = "[" * 100_000
    return {
        "arguments before their call": HostileStream(
            (Begin(), CallPart(0, WHOLE), CallStart(0, "call_1", TOOL), *CALLED),
            completed=None,
            runs=1,
            up_to=True,
        ),
        "arguments of no call": HostileStream((Begin(), CallPart(7, WHOLE), *CALLED), completed=None),
        "a negative index": HostileStream(
            (Begin(), *_call(-1, "call_1"), *CALLED), completed=None, runs=1, up_to=True
        ),
        "a huge index": HostileStream(
            (Begin(), *_call(2**62, "call_1"), *CALLED), completed=None, runs=1, up_to=True
        ),
        "indexes with holes": HostileStream(
            (Begin(), *_call(3, "call_1"), *_call(9, "call_2"), *CALLED), completed=None, runs=2, up_to=True
        ),
        "one id for two calls": HostileStream(
            (Begin(), *_call(0, "call_1"), *_call(1, "call_1"), *CALLED), completed=None, runs=2, up_to=True
        ),
        "two calls at one index": HostileStream(
            (Begin(), *_call(0, "call_1"), *_call(0, "call_2"), *CALLED), completed=None, runs=2, up_to=True
        ),
        "calls mixed up": HostileStream(
            (
                Begin(),
                CallStart(0, "a", TOOL),
                CallStart(1, "b", TOOL),
                CallPart(1, WHOLE[:5]),
                CallPart(0, WHOLE[:7]),
                CallPart(1, WHOLE[5:]),
                CallPart(0, WHOLE[7:]),
                *CALLED,
            ),
            completed=None,
            runs=2,
            up_to=True,
        ),
        "a call without an id": HostileStream((Begin(), *_call(0, ""), *CALLED), None, runs=1, up_to=True),
        "a call without a name": HostileStream((Begin(), *_call(0, "c", name=""), *CALLED), completed=None),
        "a hostile name": HostileStream((Begin(), *_call(0, "c", name=CLEAN[:400]), *CALLED), completed=None),
        "a hostile id": HostileStream((Begin(), *_call(0, CLEAN), *CALLED), None, runs=1, up_to=True),
        "cut arguments, then a stop": HostileStream(
            (Begin(), *_call(0, "c", WHOLE[:-4]), *CALLED), completed=None
        ),
        "cut arguments, then an end": HostileStream((Begin(), *_call(0, "c", WHOLE[:-4]), *DONE), None),
        "arguments that are prose": HostileStream((Begin(), *_call(0, "c", "Sure!"), *CALLED), None),
        "arguments that are null": HostileStream((Begin(), *_call(0, "c", "null"), *CALLED), None),
        "arguments twice": HostileStream((Begin(), *_call(0, "c", WHOLE * 2), *CALLED), completed=None),
        "a key twice": HostileStream((Begin(), *_call(0, "c", '{"what":"x","what":"y"}'), *CALLED), None),
        "deep arguments": HostileStream((Begin(), *_call(0, "c", deep), *CALLED), completed=None),
        "a call after the stop": HostileStream(
            (*SAID, Stopped("end"), *CALL, End()), completed=None, runs=1, up_to=True
        ),
        "an end where calls were": HostileStream((Begin(), *CALL, *DONE), completed=None, runs=1, up_to=True),
        "more calls than may be": HostileStream((Begin(), *many, *CALLED)),
    }


def _errors() -> dict[str, HostileStream]:
    return {
        "429 before anything": HostileStream((Failure(429),), kinds=frozenset({"rate_limited"})),
        "429 in the middle": HostileStream((*SAID, Failure(429)), kinds=frozenset({"rate_limited"})),
        "529 in the middle": HostileStream((*SAID, Failure(529)), kinds=frozenset({"overloaded"})),
        "500 in the middle": HostileStream((*SAID, Failure(500, CLEAN)), kinds=frozenset({"server_error"})),
        "an error after a whole call": HostileStream((Begin(), *CALL, Failure(529))),
        "an error after the stop": HostileStream((Begin(), *CALL, Stopped("tool_calls"), Failure(500))),
        "an error, then the rest as if nothing had been": HostileStream(
            (*SAID, Failure(500), *CALL, *CALLED)
        ),
        "200 and HTML": HostileStream(body=HTML, content_type="text/html"),
        "HTML that says it is a stream": HostileStream(body=HTML),
        "200 and an empty object": HostileStream(body=b"{}", content_type="application/json"),
        "200 and a list": HostileStream(body=b"[]", content_type="application/json"),
        "200 and half an object": HostileStream(body=b'{"id":', content_type="application/json"),
        "200 and deep JSON": HostileStream(body=b"[" * 100_000, content_type="application/json"),
        "200 and prose": HostileStream(body=b"hello", content_type="text/plain"),
        "200 without a type": HostileStream(body=b"\x00\xff\xfe", content_type=""),
        "529 and HTML": HostileStream(body=HTML, content_type="text/html", status=529),
        "503 and hostile text": HostileStream(
            body=b'{"error":{"message":"\\u001b[2J\\u202e","type":"\\u0000"}}',
            content_type="application/json",
            status=503,
        ),
        "400 and a list": HostileStream(body=b"[[]]", content_type="application/json", status=400),
    }


def _counts() -> dict[str, HostileStream]:
    counts: dict[str, Any] = {
        "negative": {"input": -5, "output": -(2**40)},
        "huge": {"input": 2**63, "output": 2**64 - 1},
        "far too huge": {"input": 10**300, "output": 10**19},
        "text": {"input": "5", "output": "\x1b[2J"},
        "fractions": {"input": 1.5, "output": -0.0},
        "nothing": None,
        "a list": [1, 2],
        "nested": {"input": {"input": {}}, "output": []},
        "true": {"input": True, "output": False},
    }
    return {
        f"usage: {name}": HostileStream((*SAID, Usage(found), *DONE), completed=None, text="said")
        for name, found in counts.items()
    }


def _framing() -> dict[str, HostileStream]:
    answer = (Begin(), TextPart("aä€\U0001f600"), TextPart(" done"), *DONE)
    text = "aä€\U0001f600 done"
    return {
        "byte by byte": HostileStream(answer, True, text=text, faults=Faults(piece_bytes=1)),
        "in threes": HostileStream(answer, True, text=text, faults=Faults(piece_bytes=3)),
        "comments and pings": HostileStream(
            (Raw(b": ping\n\n:\n\n"), *answer[:2], Raw(b": \xff\xfe\x00\n\n"), *answer[2:]), True, text=text
        ),
        "fields that nobody knows": HostileStream(
            (Raw(b"retry: 1\nid: \x00\nfoo: bar\nnocolon\n\n"), *answer), completed=True, text=text
        ),
        "a byte order mark": HostileStream((Raw(b"\xef\xbb\xbf"), *answer), completed=True, text=text),
        "empty lines": HostileStream((Raw(b"\n\n\r\n\r\n\r\r"), *answer), completed=True, text=text),
        "data that is no JSON": HostileStream((*answer[:2], Raw(b"data: {oops\n\n"), *answer[2:])),
        "data that is a number": HostileStream((*answer[:2], Raw(b"data: 5\n\n"), *answer[2:]), None),
        "data that is null": HostileStream((*answer[:2], Raw(b"data: null\n\n"), *answer[2:]), None),
        "data that is NaN": HostileStream((*answer[:2], Raw(b"data: NaN\n\n"), *answer[2:])),
        "bytes that are no UTF-8": HostileStream(
            (*answer[:2], Raw(b'data: {"x":"\xc0\xaf\xed\xa0\x80"}\n\n'), *answer[2:]), completed=None
        ),
        "NUL bytes": HostileStream((*answer[:2], Raw(b"\0" * 512 + b"\n\n"), *answer[2:]), completed=None),
        "a deep event": HostileStream((*answer[:2], Raw(b"data: " + b'{"a":' * 5000 + b"\n\n"), *answer[2:])),
        "a very deep event": HostileStream(
            (*answer[:2], Raw(b"data: " + b"[" * 200_000 + b"]" * 200_000 + b"\n\n"), *answer[2:]), None
        ),
        "an event of 3 MiB": HostileStream(
            (*answer[:2], Raw(b'data: {"x":"' + b"y" * (3 << 20) + b'"}\n\n'), *answer[2:]), completed=None
        ),
        "a line without an end": HostileStream((*answer[:2], Raw(b"data: " + b"z" * (1 << 20)))),
        "a text of 3 MiB": HostileStream((Begin(), *[TextPart("w" * (64 << 10))] * 48, *DONE)),
        "10,000 empty pieces": HostileStream(
            (Begin(), *[TextPart("")] * 10_000, *answer[1:]), completed=True, text=text
        ),
        "hostile text": HostileStream((Begin(), TextPart(CLEAN), *DONE), completed=True, text=CLEAN),
        "prototype keys": HostileStream(
            (*answer[:2], Raw(b'data: {"__proto__":{"choices":[]},"constructor":1,"lc":2}\n\n'), *answer[2:]),
            completed=None,
        ),
        "a cut inside a character": HostileStream(
            (Begin(), Raw(b'data: {"x":"\xe2\x82'), *DONE), faults=Faults(piece_bytes=7)
        ),
    }


#: Read by what all dialects share.
SHARED: Final = frozenset({*_counts(), *_framing()})
STREAMS: Final = _streams()

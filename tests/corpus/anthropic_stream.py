"""`tests.corpus.streams` in Anthropic's messages dialect, and what only that dialect can get wrong.

Nothing here was recorded. There are no recordings of an error inside a stream nor of the
statuses 401, 413 and 529: those are synthesised from the provider's reference, and say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from minutebook.testing.anthropic_replies import error_event, error_reply
from tests.corpus.streams import (
    DONE,
    SAID,
    TOOL,
    WHOLE,
    Begin,
    CallPart,
    CallStart,
    End,
    Failure,
    HostileStream,
    Raw,
    Step,
    Stopped,
    TextPart,
    Usage,
)
from tests.corpus.streams import named_event as data

_STOPS: Final = {"end": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
_ERRORS: Final = {429: "rate_limit_error", 500: "api_error", 529: "overloaded_error"}


def render(steps: Sequence[Step]) -> bytes:
    """The body of a message stream. Errors in it are synthesised."""
    written = _Written()
    return b"".join(piece for step in steps for piece in written.step(step))


@dataclass(slots=True)
class _Written:
    """What has been written so far: this dialect numbers its blocks, begins and ends each."""

    blocks: int = 0
    texts: int = 0
    text: int | None = None
    open: list[int] = field(default_factory=list)

    def step(self, step: Step) -> Iterator[bytes]:
        match step:
            case Raw():
                yield step.data
            case Begin():
                usage = {"input_tokens": 10, "output_tokens": 1}
                message = {"id": step.id, "type": "message", "role": "assistant", "content": []}
                yield data({"type": "message_start", "message": {**message, "model": "m", "usage": usage}})
            case TextPart():
                yield from self._say(step.text)
            case CallStart():
                yield from self._call(step)
            case CallPart():
                yield _piece(step.index + self.texts, {"type": "input_json_delta", "partial_json": step.text})
            case Usage():
                yield data({"type": "message_delta", "delta": {}, "usage": _counts(step.counts)})
            case Stopped():
                yield from self._close()
                yield data(
                    {"type": "message_delta", "delta": {"stop_reason": _STOPS.get(step.why, step.why)}}
                )
            case Failure():
                yield data(error_event(_ERRORS[step.status], step.message))
            case End():
                yield data({"type": "message_stop"})

    def _say(self, text: str) -> Iterator[bytes]:
        if self.text is None:
            self.text, self.texts = self.blocks, self.texts + 1
            yield self._begin(self.text, {"type": "text", "text": ""})
        yield _piece(self.text, {"type": "text_delta", "text": text})

    def _call(self, step: CallStart) -> Iterator[bytes]:
        if self.text is not None:
            yield from self._close()
        block = {"type": "tool_use", "id": step.id, "name": step.name, "input": {}}
        yield self._begin(step.index + self.texts, block)

    def _begin(self, index: int, block: dict[str, Any]) -> bytes:
        self.blocks += 1
        self.open.append(index)
        return data({"type": "content_block_start", "index": index, "content_block": block})

    def _close(self) -> Iterator[bytes]:
        for index in self.open:
            yield data({"type": "content_block_stop", "index": index})
        self.open, self.text = [], None


def _piece(index: int, delta: dict[str, Any]) -> bytes:
    return data({"type": "content_block_delta", "index": index, "delta": delta})


def _counts(counts: Any) -> Any:
    return {f"{name}_tokens": n for name, n in counts.items()} if isinstance(counts, dict) else counts


# --- only here ------------------------------------------------------------------------------


def _start(block: Any, index: Any = 5) -> Raw:
    return Raw(data({"type": "content_block_start", "index": index, "content_block": block}))


def _delta(delta: Any, index: Any = 0) -> Raw:
    return Raw(data({"type": "content_block_delta", "index": index, "delta": delta}))


def _stop(index: Any = 5) -> Raw:
    return Raw(data({"type": "content_block_stop", "index": index}))


def _odd(*steps: Step, completed: bool | None = None, runs: int = 0) -> HostileStream:
    return HostileStream((*SAID, *steps, *DONE), completed=completed, runs=runs, up_to=True)


def _block(block: Any, *steps: Step) -> HostileStream:
    """A block beside the text, in an answer that stopped for its calls."""
    called = (Stopped("tool_calls"), End())
    return HostileStream((*SAID, _start(block), *steps, _stop(), *called), None, runs=1, up_to=True)


def _tool_use(given: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": "toolu_1", "name": TOOL, "input": given, **more}


def _refused(status: int, kind: str, failed_as: str) -> HostileStream:
    """A synthesised HTTP error: none of these was recorded."""
    body = error_reply(status, kind, "no").body
    return HostileStream(
        body=body, status=status, content_type="application/json", kinds=frozenset({failed_as})
    )


def _nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


_DEEP: Final = _nested(1005)
_THOUGHT: Final = {"type": "thinking", "thinking": "", "signature": ""}

#: Only this dialect can get these wrong.
STREAMS: Final[dict[str, HostileStream]] = {
    "synthesised 401": _refused(401, "authentication_error", "unauthorized"),
    "synthesised 413": _refused(413, "request_too_large", "request_too_large"),
    "synthesised 529": _refused(529, "overloaded_error", "overloaded"),
    "synthesised error event without its type": HostileStream(
        (*SAID, Raw(data({"message": "Overloaded"}, "error")), *DONE)
    ),
    "synthesised error event that is a text": HostileStream(
        (*SAID, Raw(data({"type": "error", "error": "boom"})), *DONE)
    ),
    "synthesised error event in a list": HostileStream(
        (*SAID, Raw(data([error_event("overloaded_error")], "error")), *DONE),
        kinds=frozenset({"overloaded"}),
    ),
    "an event in a list": _odd(
        Raw(data([{"type": "content_block_start", "index": 5, "content_block": _tool_use({})}], "message"))
    ),
    "a piece in a list": _odd(
        Raw(data([{"type": "content_block_delta", "index": 0, "delta": {"x": 5}}], "message"))
    ),
    "a document in a list": HostileStream(
        body=b'[{"type":"message","content":[{"type":"text","text":"said"}],"stop_reason":"end_turn"}]',
        content_type="application/json",
        completed=None,
    ),
    "a byte order mark before an event's data": _odd(
        Raw(b'data: \xef\xbb\xbf{"type":"content_block_start","index":5,"content_block":{"type":"text"}}\n\n')
    ),
    "an event in UTF-16": _odd(
        Raw(
            b"data: "
            + '{"type":"content_block_delta","index":0,"delta":{"x":5}}'.encode("utf-16-le")
            + b"\n\n"
        )
    ),
    "a member's name with half of a character": _odd(
        Raw(b'data: {"type":"content_block_delta","index":0,"delta":{"\xed\xa0\x80":5}}\n\n')
    ),
    "a deep block": _block(
        orjson.Fragment(f'{{"type":"tool_use","id":"c","name":"{TOOL}","input":{_DEEP}}}')
    ),
    "a deep piece": _odd(_delta(orjson.Fragment(f'{{"type":"citations_delta","citation":{_DEEP}}}'))),
    "a number of 5,000 digits": _odd(_delta(orjson.Fragment('{"x":' + "9" * 5000 + "}"))),
    "no message begins": HostileStream((Raw(data({"type": "message_start", "message": None})), *SAID, *DONE)),
    "two messages in one": HostileStream((*SAID, Begin("another"), TextPart("more"), *DONE)),
    "a block of a number": _odd(_start(5), completed=False),
    "a block without a type": _odd(_start({"text": "x"}), completed=False),
    "a block of a hostile type": _odd(_start({"type": "../\x1b[2J\u202e"}), _stop()),
    "a block's index as a text": _odd(_start({"type": "text", "text": ""}, "5"), completed=False),
    "a block's index as true": _odd(_start({"type": "text", "text": ""}, True), completed=False),
    "a block that begins twice": _odd(_start({"type": "text", "text": "x"}, 0), completed=False),
    "a block that never ends": _odd(_start({"type": "text", "text": "late"})),
    "a block that ends twice": _odd(_stop(0), _stop(0), _stop(77)),
    "a piece after the end of its block": _odd(_stop(0), _delta({"type": "text_delta", "text": "x"})),
    "a piece of another kind": _odd(_delta({"type": "input_json_delta", "partial_json": WHOLE})),
    "a piece that nobody knows": _odd(_delta({"type": "smell_delta", "text": 5, "smell": "rose"})),
    "a piece that is a list": _odd(_delta([1]), completed=False),
    "a call whose input came whole": _block(_tool_use({"what": "x"})),
    "a call whose input is a text": _block(_tool_use(WHOLE)),
    "a call whose input is a list": _block(_tool_use([WHOLE])),
    "a call whose input is null": _block(_tool_use(None)),
    "a call that is whole and in pieces": _block(
        _tool_use({"what": "x"}), _delta({"type": "input_json_delta", "partial_json": '{"what":'}, 5)
    ),
    "a call's id and name of other kinds": _block(_tool_use({"what": "x"}, id=7, name=[TOOL])),
    "a call that never ends": HostileStream(
        (
            *SAID,
            _start(_tool_use({"what": "x"})),
            Raw(data({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})),
            End(),
        )
    ),
    "a call in an answer that pauses": HostileStream(
        (*SAID, _start(_tool_use({"what": "x"})), _stop(), Stopped("pause_turn"), End()), completed=True
    ),
    "a provider's tool without its result": _odd(
        _start({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}), _stop()
    ),
    "a provider's result without its tool": _odd(
        _start({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_9", "content": []}), _stop()
    ),
    "a provider's tool as deep as can be read": _block(
        orjson.Fragment(
            '{"type":"server_tool_use","id":"srvtoolu_1","name":"x","input":' + _nested(900) + "}"
        ),
    ),
    "a provider's result twice": _odd(
        _start({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}),
        _stop(),
        *[
            step
            for index in (6, 7)
            for step in (
                _start({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}, index),
                _stop(index),
            )
        ],
    ),
    "thinking without its signature": _odd(
        _start(_THOUGHT), _delta({"type": "thinking_delta", "thinking": "hm"}, 5), _stop()
    ),
    "thinking with a signature of another kind": _odd(
        _start({"type": "thinking", "thinking": "hm", "signature": {"a": 1}}), _stop()
    ),
    "redacted thinking of nothing": _odd(_start({"type": "redacted_thinking", "data": ""}), _stop()),
    "a citation of another kind": _odd(
        _delta({"type": "citations_delta", "citation": "x"}),
        _delta({"type": "citations_delta", "citation": 5}),
    ),
    "half of a character in each piece": _odd(
        _delta(orjson.Fragment('{"type":"text_delta","text":"\\ud83d"}')),
        _delta(orjson.Fragment('{"type":"text_delta","text":"\\ude00"}')),
    ),
    "a lone surrogate in the input": _block(
        _tool_use({}),
        _delta(
            orjson.Fragment('{"type":"input_json_delta","partial_json":"{\\"what\\":\\"\\\\ud800\\"}"}'), 5
        ),
    ),
    "a lone surrogate in a block": _odd(
        _start(orjson.Fragment('{"type":"thinking","thinking":"\\ud800","signature":"s\\ud800"}')), _stop()
    ),
    "a stop reason of another kind": _odd(Raw(data({"type": "message_delta", "delta": {"stop_reason": 5}}))),
    "an ending of a list": _odd(Raw(data({"type": "message_delta", "delta": ["end_turn"]}))),
    "usage of nested passes": _odd(
        Usage({"input": 1}),
        Raw(
            data({"type": "message_delta", "delta": {}, "usage": {"iterations": [{"input_tokens": {}}, {}]}})
        ),
    ),
    "an event that nobody knows": _odd(
        Raw(data({"type": "message_smell", "index": {"lc": 2}})), completed=True
    ),
    "chat's end marker": _odd(Raw(b"data: [DONE]\n\n"), completed=True),
}

"""`tests.corpus.streams` in the chat-completions dialect, and what only that dialect can get wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

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
    encoded,
)

_STOPS: Final = {"end": "stop", "refusal": "content_filter"}


def render(steps: Sequence[Step]) -> bytes:
    """The body of a chat stream."""
    return b"".join(map(_event, steps))


def _event(step: Step) -> bytes:
    match step:
        case Raw():
            return step.data
        case End():
            return b"data: [DONE]\n\n"
        case Failure():
            return data({"error": {"message": step.message, "code": step.status}})
        case Usage():
            return data({"choices": [], "usage": _counts(step.counts)})
        case Begin():
            return _delta({"role": "assistant", "content": ""}, id=step.id)
        case TextPart():
            return _delta({"content": step.text})
        case CallStart():
            head = {"index": step.index, "id": step.id, "type": "function"}
            return _delta({"tool_calls": [{**head, "function": {"name": step.name, "arguments": ""}}]})
        case CallPart():
            return _delta({"tool_calls": [{"index": step.index, "function": {"arguments": step.text}}]})
        case Stopped():
            return _delta({}, finish=_STOPS.get(step.why, step.why))


def _counts(counts: Any) -> Any:
    if not isinstance(counts, dict):
        return counts
    return {{"input": "prompt_tokens", "output": "completion_tokens"}[name]: n for name, n in counts.items()}


def _delta(delta: Any, finish: str | None = None, **more: Any) -> bytes:
    return data({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more})


def data(event: Any) -> bytes:
    """One event."""
    return b"data: %b\n\n" % encoded(event)


def _odd(event: Any, *, completed: bool | None = None, runs: int = 0) -> HostileStream:
    return HostileStream((*SAID, Raw(data(event)), *DONE), completed=completed, runs=runs, up_to=True)


def _entry(entry: Any) -> HostileStream:
    return _odd({"choices": [{"index": 0, "delta": {"tool_calls": entry}}]}, runs=1)


#: Only this dialect can get these wrong: kinds of values where others belong, other ways of old servers.
STREAMS: Final[dict[str, HostileStream]] = {
    "choices that are an object": _odd({"choices": {"0": {}}}),
    "choices of other things": _odd({"choices": [None, 5, "x", [], {"delta": 5}, {"delta": []}]}),
    "a choice without an index": _odd({"choices": [{"delta": {"content": "x"}}]}),
    "a second choice": _odd({"choices": [{"index": 1, "delta": {"content": "x"}, "finish_reason": "stop"}]}),
    "content of parts": _odd(
        {"choices": [{"index": 0, "delta": {"content": [{"type": "text", "text": "x"}]}}]}
    ),
    "content that is an object": _odd({"choices": [{"index": 0, "delta": {"content": {"lc": 2}}}]}),
    "a finish reason of another kind": _odd({"choices": [{"index": 0, "delta": {}, "finish_reason": 5}]}),
    "calls that are an object": _entry({"index": 0}),
    "calls of other things": _entry([None, 5, "x", []]),
    "a call without a function": _entry([{"index": 0, "id": "c"}]),
    "a function of another kind": _entry([{"index": 0, "id": "c", "function": [TOOL]}]),
    "arguments that are an object": _entry(
        [{"index": 0, "id": "c", "function": {"name": TOOL, "arguments": {"what": "x"}}}]
    ),
    "an index of another kind": _entry(
        [{"index": "0", "id": "c", "function": {"name": TOOL, "arguments": WHOLE}}]
    ),
    "a name of another kind": _entry([{"index": 0, "id": 7, "function": {"name": 8, "arguments": WHOLE}}]),
    "the call of old servers": _odd(
        {"choices": [{"index": 0, "delta": {"function_call": {"name": TOOL, "arguments": WHOLE}}}]}, runs=1
    ),
    "ids that are objects": _odd({"id": {"lc": 2}, "model": ["m"], "choices": []}),
    "an error that is a text": HostileStream((*SAID, Raw(data({"error": "boom"})), *DONE)),
    "an error that is false": HostileStream(
        (*SAID, Raw(data({"error": False, "choices": []})), *DONE), completed=None
    ),
    "half of a character in each piece": HostileStream(
        (
            Begin(),
            Raw(b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n'),
            Raw(b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00"}}]}\n\n'),
            *DONE,
        ),
        completed=None,
    ),
    "a lone surrogate in the arguments": _entry(
        [{"index": 0, "id": "c", "function": {"name": TOOL, "arguments": '{"what":"\\ud800"}'}}]
    ),
}

"""`tests.corpus.streams` in the Responses dialect, and what only that dialect can get wrong.

Nothing here was recorded. A stop is no event of its own here: it closes the items,
and the terminal event says the first one that there was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

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

_WHY: Final = {"length": "max_output_tokens", "refusal": "content_filter"}
_CODES: Final = {429: "rate_limit_exceeded", 500: "server_error", 529: "server_is_overloaded"}


def render(steps: Sequence[Step]) -> bytes:
    """The body of a Responses stream."""
    written = _Written()
    return b"".join(piece for step in steps for piece in written.step(step))


@dataclass(slots=True)
class _Written:
    """What has been written so far: this dialect says everything again at the end."""

    id: str = "resp_0"
    stop: str = ""
    usage: Any = None
    items: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    closed: list[dict[str, Any]] = field(default_factory=list)

    def step(self, step: Step) -> Iterator[bytes]:
        match step:
            case Raw():
                yield step.data
            case Begin():
                self.id = step.id
                yield self._response("created", "in_progress")
            case TextPart():
                yield from self._say(step.text)
            case CallStart():
                if self.items and self.items[-1][1]["type"] == "message":
                    yield from self._close()
                named = {"id": f"fc_{len(self.items)}", "call_id": step.id, "name": step.name}
                yield self._begin(
                    self._place(step.index), {"type": "function_call", **named, "arguments": ""}
                )
            case CallPart():
                yield self._argument(step)
            case Usage():
                self.usage = _counts(step.counts)
            case Stopped():
                self.stop = self.stop or step.why
                yield from self._close()
            case Failure():
                yield self._failure(step)
            case End():
                state = "completed" if self.stop in ("", "end", "tool_calls") else "incomplete"
                yield self._response(state, state)

    def _say(self, text: str) -> Iterator[bytes]:
        if not self.items or self.items[-1][1]["type"] != "message":
            part = {"type": "output_text", "text": "", "annotations": []}
            message = {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}
            yield self._begin(len(self.closed) + len(self.items), message)
        index, item = self.items[-1]
        item["content"][0]["text"] += text
        at = {"output_index": index, "item_id": item["id"], "content_index": 0}
        yield data({"type": "response.output_text.delta", **at, "delta": text})

    def _argument(self, step: CallPart) -> bytes:
        index = self._place(step.index)
        item = next(
            (item for at, item in reversed(self.items) if at == index), {"id": "fc_none", "arguments": ""}
        )
        item["arguments"] += step.text
        at = {"output_index": index, "item_id": item["id"]}
        return data({"type": "response.function_call_arguments.delta", **at, "delta": step.text})

    def _place(self, index: int) -> int:
        """Where a call stands among all items: behind the message, if there was one."""
        return index + (1 if self.closed and self.closed[0]["type"] == "message" else 0)

    def _begin(self, index: int, item: dict[str, Any]) -> bytes:
        empty: dict[str, Any] = {"content": []} if "content" in item else {}
        begun = {**item, **empty, "status": "in_progress"}
        self.items.append((index, item))
        return data({"type": "response.output_item.added", "output_index": index, "item": begun})

    def _close(self) -> Iterator[bytes]:
        for index, item in self.items:
            done = {**item, "status": "completed"}
            self.closed.append(done)
            yield data({"type": "response.output_item.done", "output_index": index, "item": done})
        self.items = []

    def _response(self, event: str, state: str) -> bytes:
        why = {"reason": _WHY.get(self.stop, self.stop)} if state == "incomplete" else None
        about = {"id": self.id, "object": "response", "status": state, "model": "m", "error": None}
        more = {"incomplete_details": why, "output": self.closed, "usage": self.usage}
        return data({"type": f"response.{event}", "response": {**about, **more}})

    def _failure(self, step: Failure) -> bytes:
        """A limit is told in an event of its own, what broke as the end of the response."""
        error = {"code": _CODES[step.status], "message": step.message}
        if step.status == 429:
            return data({"type": "error", **error})
        failed = {"id": self.id, "status": "failed", "error": error, "output": []}
        return data({"type": "response.failed", "response": failed})


def _counts(counts: Any) -> Any:
    return {f"{name}_tokens": n for name, n in counts.items()} if isinstance(counts, dict) else counts


# --- only here ------------------------------------------------------------------------------


def _event(name: str, **fields: Any) -> Raw:
    return Raw(data({"type": f"response.{name}", **fields}))


def _added(item: Any, index: Any = 5) -> Raw:
    return _event("output_item.added", output_index=index, item=item)


def _done(item: Any, index: Any = 5) -> Raw:
    return _event("output_item.done", output_index=index, item=item)


def _ended(status: str = "completed", **fields: Any) -> Raw:
    return _event(status, response={"id": "resp_1", "status": status, **fields})


def _odd(*steps: Step, completed: bool | None = None, runs: int = 0) -> HostileStream:
    return HostileStream((*SAID, *steps, *DONE), completed=completed, runs=runs, up_to=True)


def _call(arguments: Any = WHOLE, **more: Any) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": "fc_9",
        "call_id": "call_1",
        "name": TOOL,
        "arguments": arguments,
    } | more


def _message(*content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "message", "id": "msg_9", "role": "assistant", "content": list(content)} | more


def _listed(*output: Any) -> HostileStream:
    """An answer whose items only its end lists."""
    return HostileStream((Begin(), _ended(output=list(output))), None, runs=1, up_to=True)


_HALVES: Final = [
    _event("output_text.delta", output_index=0, content_index=0, delta=orjson.Fragment(f'"\\ud{half}"'))
    for half in ("83d", "e00")
]

#: Only this dialect can get these wrong.
STREAMS: Final[dict[str, HostileStream]] = {
    "failed without an error": HostileStream((*SAID, _ended("failed", error=None))),
    "failed with an error that is a text": HostileStream((*SAID, _ended("failed", error="boom"))),
    "failed with an error of a list": HostileStream((*SAID, _ended("failed", error=[{"code": 5}]))),
    "failed for want of money": HostileStream(
        (Begin(), _ended("failed", error={"code": "insufficient_quota", "message": "pay"})),
        kinds=frozenset({"quota_exceeded"}),
    ),
    "failed because the server had too much to do": HostileStream(
        (Begin(), Failure(529)), kinds=frozenset({"overloaded"})
    ),
    "cancelled at the server": HostileStream((*SAID, _ended("cancelled"))),
    "completed, with an error": _odd(_ended(error={"code": "server_error"}, output=[_call()]), runs=1),
    "completed without a response": _odd(_event("completed")),
    "completed with a response of a list": _odd(_event("completed", response=[1])),
    "completed, and its status says otherwise": HostileStream(
        (*SAID, _event("completed", response={"id": "r", "status": "in_progress", "output": [_call()]})),
        None,
        runs=1,
        up_to=True,
    ),
    "incomplete without a reason": HostileStream(
        (*SAID, _done(_call()), _ended("incomplete", incomplete_details=None)), completed=True
    ),
    "incomplete for a reason of another kind": HostileStream(
        (*SAID, _done(_call()), _ended("incomplete", incomplete_details={"reason": ["x"]})), completed=True
    ),
    "incomplete with a reason that nobody knows": HostileStream(
        (*SAID, _done(_call()), _ended("incomplete", incomplete_details={"reason": "\x1b[2J"})),
        completed=True,
    ),
    "an item of a number": _odd(_added(5), _done("x", 6), _done(None, 7)),
    "an item without a type": _odd(_added({"id": "x"}), _done({"id": "x"})),
    "an item of a hostile type": _odd(
        _added({"type": "../\x1b[2J\u202e"}), _done({"type": "../\x1b[2J\u202e"})
    ),
    "an item whose type is a list": _odd(_added({"type": ["message"]}), _done({"type": ["message"]})),
    "an item that changes its type": _odd(_added(_message()), _done(_call()), runs=1),
    "an item that ends twice": _odd(_done(_call()), _done(_call('{"what":"y"}')), runs=1),
    "an item under no index": _odd(_done(_call(), None), runs=1),
    "an item under an index of another kind": _odd(_added(_call(""), "5"), _done(_call(), {"a": 1}), runs=1),
    "an item whose id is an object": _odd(_done(_call(id={"lc": 2}), None), runs=1),
    "only a list of items": _listed(_call()),
    "a list of other things": _listed(None, 5, "x", [], {}),
    "output that is an object": HostileStream((*SAID, _ended(output={"0": _call()})), completed=None),
    "a list that says other arguments": HostileStream(
        (
            Begin(),
            _added(_call(""), 0),
            _event("function_call_arguments.delta", output_index=0, delta='{"what":'),
            _ended(output=[_call()]),
        ),
        None,
        runs=1,
        up_to=True,
    ),
    "pieces that are not what the end says": HostileStream(
        (*SAID, _event("output_text.done", output_index=0, content_index=0, text="other"), *DONE),
        completed=True,
        text="said",
    ),
    "a call that never ends": HostileStream(
        (
            Begin(),
            _added(_call(""), 0),
            _event("function_call_arguments.delta", output_index=0, delta=WHOLE),
            _ended(output=[]),
        )
    ),
    "arguments that are an object": _odd(_done(_call({"what": "x"})), runs=1),
    "arguments that are a list": _odd(_done(_call([WHOLE])), runs=1),
    "arguments that are missing": _odd(_done(_call(None)), runs=1),
    "arguments with numbers of no JSON": _odd(
        Raw(
            b'data: {"type":"response.output_item.done","output_index":5,"item":{"type":"function_call",'
            b'"call_id":"c","name":"note","arguments":{"what":NaN}}}\n\n'
        ),
        runs=1,  # NaN is taken for null; a tool that takes null would run
    ),
    "an item with numbers of no JSON": _odd(
        Raw(
            b'data: {"type":"response.output_item.done","output_index":5,'
            b'"item":{"type":"reasoning","summary":[],"x":[NaN,Infinity,1e400]}}\n\n'
        )
    ),
    "a name and an id of other kinds": _odd(_done(_call(call_id=7, name=[TOOL]))),
    "a call of free-form input": _odd(
        _done({"type": "custom_tool_call", "call_id": "c", "name": TOOL, "input": WHOLE})
    ),
    "free-form input that is an object": _odd(
        _done({"type": "custom_tool_call", "call_id": "c", "name": TOOL, "input": {"a": 1}})
    ),
    "pieces of an item that never began": _odd(
        _event("output_text.delta", output_index=8, content_index=0, delta="late"),
        _event("reasoning_summary_text.delta", output_index=9, summary_index=0, delta="hm"),
    ),
    "pieces of other kinds": _odd(
        _event("output_text.delta", output_index=0, delta=5),
        _event("output_text.done", output_index=0, text=[]),
        _event("function_call_arguments.delta", output_index=0, delta={}),
        _event("function_call_arguments.done", output_index=0, arguments=5),
    ),
    "arguments of a message": _odd(
        _event("function_call_arguments.done", output_index=0, arguments=WHOLE), completed=True
    ),
    "parts at hostile places": replace(
        _odd(
            _event("output_text.delta", output_index=0, content_index=-1, delta="a"),
            _event("output_text.delta", output_index=0, content_index=2**60, delta="b"),
            _event("output_text.delta", output_index=0, content_index="0", delta="c"),
        ),
        mixed=True,
    ),
    "parts of other kinds": _odd(
        _done(_message(None, 5, [], {"type": 5}, {"type": "output_text", "text": 5}))
    ),
    "a phase of another kind": _odd(_done(_message({"type": "output_text", "text": "x"}, phase=["final"]))),
    "a phase that nobody knows": _odd(_done(_message({"type": "output_text", "text": "x"}, phase="\x1b[2J"))),
    "a refusal beside the text": _odd(_done(_message({"type": "refusal", "refusal": "no"}))),
    "reasoning without what it led to": HostileStream(
        (
            Begin(),
            _done({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "gA=="}, 0),
            _ended(),
        ),
        completed=None,
    ),
    "reasoning of other kinds": _odd(
        _done({"type": "reasoning", "id": 5, "summary": {"a": 1}, "encrypted_content": [1], "content": 7}),
        _done(_call(), 6),
        runs=1,
    ),
    "reasoning with a summary of numbers": _odd(
        _done({"type": "reasoning", "summary": [1, None], "encrypted_content": "gA=="}),
        _done(_call(), 6),
        runs=1,
    ),
    "what the provider ran, without anything": _odd(
        _done({"type": "web_search_call"}), _done({"type": "mcp_call"}, 6)
    ),
    "an approval that nobody can give": _odd(
        _done({"type": "mcp_approval_request", "id": "a", "arguments": "{}"})
    ),
    "half of a character in each piece": _odd(*_HALVES),
    "a lone surrogate in the arguments": _odd(
        _done(
            orjson.Fragment(
                b'{"type":"function_call","call_id":"c","name":"note","arguments":"{\\"what\\":\\"\\\\ud800\\"}"}'
            )
        ),
        runs=1,
    ),
    "a lone surrogate in an item": _odd(
        _done(orjson.Fragment(b'{"type":"reasoning","summary":[],"encrypted_content":"\\ud800","\\udc00":1}'))
    ),
    "a deep item": _odd(
        _done(
            orjson.Fragment(
                b'{"type":"reasoning","summary":' + b"[" * 1000 + b"]" * 1000 + b',"encrypted_content":"x"}'
            )
        )
    ),
    "an event that nobody knows": _odd(_event("smell.delta", delta={"lc": 2}), completed=True),
    "a name that is no text": _odd(Raw(data({"type": ["response.completed"]}, "response.completed"))),
    "an error that is false": _odd(
        Raw(data({"type": "response.in_progress", "error": False})), completed=True
    ),
    "chat's end marker": _odd(Raw(b"data: [DONE]\n\n"), completed=True),
}

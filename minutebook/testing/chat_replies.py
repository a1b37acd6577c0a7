"""Replies of a chat-completions server, for `fake_server`: from recordings, or made up.

Pure: plain values in, bytes out. Must never open anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from domain.model_ports import DeclaredCall
from minutebook.testing.fake_server import NO_FAULTS, Faults, Reply

DONE: Final = b"data: [DONE]\n\n"
EVENT_STREAM: Final = (("content-type", "text/event-stream"),)
JSON: Final = (("content-type", "application/json"),)


def recorded_reply(recording: Mapping[str, Any], faults: Faults = NO_FAULTS) -> Reply:
    """The response of a recorded exchange.

    Args:
        recording: as parsed from its file; `response` has `status`, `headers` and either
            `sse` (text) or `body` (plain values).
    """
    response = recording["response"]
    sse = response.get("sse")
    body = sse.encode() if sse is not None else orjson.dumps(response["body"])
    headers = tuple((name, value) for name, value in response["headers"].items())
    return Reply(body, response["status"], headers, faults)


def error_reply(
    status: int, error: Any, headers: Iterable[tuple[str, str]] = (), faults: Faults = NO_FAULTS
) -> Reply:
    """An HTTP error whose body is `{"error": error}`."""
    return Reply(orjson.dumps({"error": error}), status, (*JSON, *headers), faults)


def stream_reply(chunks: Iterable[Any], *, done: bool = True, faults: Faults = NO_FAULTS) -> Reply:
    """A stream of the given chunks (plain values), with or without its end marker."""
    body = b"".join(b"data: %b\n\n" % orjson.dumps(chunk) for chunk in chunks)
    return Reply(body + (DONE if done else b""), 200, EVENT_STREAM, faults)


def delta_chunk(finish: str | None = None, index: int | None = 0, **delta: Any) -> dict[str, Any]:
    """A chunk of one choice, with only what a reader looks at."""
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def chat_reply(
    text: str = "",
    calls: Sequence[DeclaredCall] = (),
    *,
    finish: str | None = None,
    model: str = "fake-model",
    pieces: int = 4,
    faults: Faults = NO_FAULTS,
) -> Reply:
    """A stream that answers with `text`, then asks for `calls`.

    Args:
        finish: the finish reason; None takes what fits.
        pieces: into how many chunks the text is cut.
    """
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in cut(text, pieces)]
    for index, call in enumerate(calls):
        head = {"name": call.name, "arguments": ""}
        deltas.append({"tool_calls": [{"index": index, "id": call.provider_call_id, "function": head}]})
        rest = [{"index": index, "function": {"arguments": part}} for part in cut(call.arguments, 2)]
        deltas += [{"tool_calls": [entry]} for entry in rest]
    last = finish or ("tool_calls" if calls else "stop")
    chunks = [_chunk(model, [{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    chunks.append(_chunk(model, [{"index": 0, "delta": {}, "finish_reason": last}]))
    usage = {"prompt_tokens": 10, "completion_tokens": len(deltas), "total_tokens": 10 + len(deltas)}
    chunks.append({**_chunk(model, []), "usage": usage})
    return stream_reply(chunks, faults=faults)


def _chunk(model: str, choices: list[Any]) -> dict[str, Any]:
    return {"id": "chatcmpl-fake", "object": "chat.completion.chunk", "model": model, "choices": choices}


def cut(text: str, pieces: int) -> list[str]:
    size = max(1, -(-len(text) // max(1, pieces)))
    return [text[i : i + size] for i in range(0, len(text), size)]

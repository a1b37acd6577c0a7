"""Replies of a server that speaks Anthropic's messages dialect, for `fake_server`.

Pure: plain values in, bytes out. `message_reply` is a whole stream as Anthropic sends
it, made from the blocks of a message; `events_reply` takes any events. Must never
open anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import orjson

from domain.model_ports import DeclaredCall
from minutebook.testing.chat_replies import EVENT_STREAM, JSON, cut
from minutebook.testing.fake_server import NO_FAULTS, Faults, Reply

MESSAGE_ID: Final = "msg_fake"

#: The member of a block that comes in pieces: the type of a piece, and its member.
_IN_PIECES: Final = {
    "text": ("text", "text_delta", "text"),
    "thinking": ("thinking", "thinking_delta", "thinking"),
}
_PING: Final = {"type": "ping"}


def events_reply(events: Iterable[dict[str, Any]], faults: Faults = NO_FAULTS) -> Reply:
    """A stream of the given events; each is named by its `type`."""
    body = b"".join(b"event: %b\ndata: %b\n\n" % (e["type"].encode(), orjson.dumps(e)) for e in events)
    return Reply(body, 200, EVENT_STREAM, faults)


def error_reply(
    status: int,
    kind: str,
    message: str = "",
    headers: Iterable[tuple[str, str]] = (),
    faults: Faults = NO_FAULTS,
) -> Reply:
    """An HTTP error as Anthropic sends it, e.g. 529 and "overloaded_error"."""
    body = {"type": "error", "error": {"type": kind, "message": message}}
    return Reply(orjson.dumps(body), status, (*JSON, *headers), faults)


def error_event(kind: str, message: str = "") -> dict[str, Any]:
    """The event that ends a stream which began well."""
    return {"type": "error", "error": {"type": kind, "message": message}}


def document_reply(blocks: Sequence[dict[str, Any]], *, stop: str = "end_turn") -> Reply:
    """The whole message as one JSON document, as servers send it that do not stream."""
    message = _message() | {"content": list(blocks), "stop_reason": stop}
    return Reply(orjson.dumps(message), 200, JSON)


def message_reply(
    text: str = "",
    calls: Sequence[DeclaredCall] = (),
    *,
    thinking: str = "",
    blocks: Sequence[dict[str, Any]] | None = None,
    stop: str | None = None,
    model: str = "fake-model",
    pieces: int = 4,
    faults: Faults = NO_FAULTS,
) -> Reply:
    """A stream that thinks (signed), answers with `text`, then asks for `calls`.

    Args:
        blocks: the blocks themselves, in place of the first three; a `tool_use` has its input.
        stop: the stop reason; None takes what fits.
        pieces: into how many pieces text, thinking and input are cut.
    """
    made = made_blocks(text, calls, thinking=thinking) if blocks is None else blocks
    return events_reply(message_events(made, stop=stop, model=model, pieces=pieces), faults)


def made_blocks(
    text: str = "", calls: Sequence[DeclaredCall] = (), *, thinking: str = ""
) -> list[dict[str, Any]]:
    """Signed thinking, text and calls, as blocks of a message. A call's input is its raw text."""
    made: list[dict[str, Any]] = []
    if thinking:
        made.append({"type": "thinking", "thinking": thinking, "signature": "c2lnbmVk"})
    if text:
        made.append({"type": "text", "text": text})
    return made + [
        {"type": "tool_use", "id": call.provider_call_id, "name": call.name, "input": call.arguments}
        for call in calls
    ]


def message_events(
    blocks: Sequence[dict[str, Any]], *, stop: str | None = None, model: str = "fake-model", pieces: int = 4
) -> list[dict[str, Any]]:
    """The events of a message with these blocks."""
    called = any(block["type"] == "tool_use" for block in blocks)
    ending = {"stop_reason": stop or ("tool_use" if called else "end_turn"), "stop_sequence": None}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": _message(model)}, _PING]
    for index, block in enumerate(blocks):
        events += block_events(block, index, pieces)
    events.append({"type": "message_delta", "delta": ending, "usage": {"output_tokens": 5}})
    return [*events, {"type": "message_stop"}]


def block_events(block: dict[str, Any], index: int = 0, pieces: int = 4) -> Iterator[dict[str, Any]]:
    """The events of one block: its beginning, its pieces, its end."""
    first, deltas = _taken_apart(block, pieces)
    yield {"type": "content_block_start", "index": index, "content_block": first}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _taken_apart(block: dict[str, Any], pieces: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    kind = block["type"]
    if kind in _IN_PIECES:
        member, delta, name = _IN_PIECES[kind]
        deltas = [{"type": delta, name: piece} for piece in cut(block[member], pieces)]
        first = block | {member: ""}
        if kind == "thinking" and block.get("signature"):
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            first |= {"signature": ""}
        return first, deltas
    if "input" not in block:
        return block, []
    given = block["input"]
    text = given if isinstance(given, str) else orjson.dumps(given).decode()
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *cut(text, pieces))]
    return block | {"input": {}}, deltas


def _message(model: str = "fake-model") -> dict[str, Any]:
    return {
        "id": MESSAGE_ID,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    }

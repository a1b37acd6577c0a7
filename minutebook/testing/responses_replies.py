"""Replies of a server that speaks the Responses dialect, for `fake_server`.

Pure: plain values in, bytes out. `response_reply` is a whole stream as OpenAI sends
it; `events_reply` takes any events. Must never open anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from domain.model_ports import DeclaredCall
from minutebook.testing.chat_replies import EVENT_STREAM, JSON, cut
from minutebook.testing.fake_server import NO_FAULTS, Faults, Reply

RESPONSE_ID: Final = "resp_fake"


def events_reply(events: Iterable[dict[str, Any]], faults: Faults = NO_FAULTS) -> Reply:
    """A stream of the given events; each is named by its `type`."""
    body = b"".join(b"event: %b\ndata: %b\n\n" % (e["type"].encode(), orjson.dumps(e)) for e in events)
    return Reply(body, 200, EVENT_STREAM, faults)


def document_reply(document: dict[str, Any], status: int = 200, faults: Faults = NO_FAULTS) -> Reply:
    """A JSON document, e.g. a stored response as `retrieve` gives it."""
    return Reply(orjson.dumps(document), status, JSON, faults)


def response_reply(
    text: str = "",
    calls: Sequence[DeclaredCall] = (),
    *,
    reasoning: str = "",
    response_id: str = RESPONSE_ID,
    model: str = "fake-model",
    store: bool = False,
    status: str = "completed",
    pieces: int = 4,
    faults: Faults = NO_FAULTS,
) -> Reply:
    """A stream that thinks (with encrypted content), answers with `text`, then asks for `calls`.

    Args:
        store: what the server says about keeping the response.
        status: how it ends: completed, or incomplete (the output limit was reached).
        pieces: into how many pieces the text is cut.
    """
    output = output_items(text, calls, reasoning=reasoning)
    events = response_events(
        output, response_id=response_id, model=model, store=store, status=status, pieces=pieces
    )
    return events_reply(events, faults)


def response_document(
    output: Sequence[dict[str, Any]],
    *,
    response_id: str = RESPONSE_ID,
    model: str = "fake-model",
    store: bool = False,
    background: bool = False,
    status: str = "completed",
) -> dict[str, Any]:
    """A response object."""
    reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
    usage = {"input_tokens": 10, "output_tokens": len(output), "total_tokens": 10 + len(output)}
    return {
        "id": response_id,
        "object": "response",
        "status": status,
        "model": model,
        "store": store,
        "background": background,
        "error": None,
        "incomplete_details": reason,
        "output": list(output) if status in ("completed", "incomplete") else [],
        "usage": usage if status in ("completed", "incomplete") else None,
    }


def output_items(
    text: str = "", calls: Sequence[DeclaredCall] = (), *, reasoning: str = ""
) -> list[dict[str, Any]]:
    """The output items of a response."""
    items: list[dict[str, Any]] = []
    if reasoning:
        summary = [{"type": "summary_text", "text": reasoning}]
        items.append(
            {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "gAAAAfake=="}
        )
    if text:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        items.append({"type": "message", "id": "msg_1", "role": "assistant", "content": content})
    for index, call in enumerate(calls):
        named = {"id": f"fc_{index}", "call_id": call.provider_call_id, "name": call.name}
        items.append({"type": "function_call", **named, "arguments": call.arguments})
    return [{**item, "status": "completed"} for item in items]


def response_events(
    output: Sequence[dict[str, Any]],
    *,
    response_id: str = RESPONSE_ID,
    model: str = "fake-model",
    store: bool = False,
    background: bool = False,
    status: str = "completed",
    pieces: int = 4,
) -> list[dict[str, Any]]:
    """The events of a whole response, numbered from 0."""

    def about(state: str) -> dict[str, Any]:
        return response_document(
            output, response_id=response_id, model=model, store=store, background=background, status=state
        )

    events: list[dict[str, Any]] = [{"type": "response.created", "response": about("in_progress")}]
    for index, item in enumerate(output):
        events += _item_events(index, item, pieces)
    events.append({"type": f"response.{status}", "response": about(status)})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _item_events(index: int, item: dict[str, Any], pieces: int) -> list[dict[str, Any]]:
    begun = {**item, "status": "in_progress"}
    for field, empty in (("content", []), ("summary", []), ("arguments", "")):
        if field in item:
            begun[field] = empty
    about = {"output_index": index, "item_id": item["id"]}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": index, "item": begun}
    ]
    for name, text, extra in _texts(item):
        deltas = [{"type": f"{name}.delta", **about, **extra, "delta": part} for part in cut(text, pieces)]
        events += deltas
    return [*events, {"type": "response.output_item.done", "output_index": index, "item": item}]


def _texts(item: dict[str, Any]) -> list[tuple[str, str, dict[str, int]]]:
    match item["type"]:
        case "message":
            parts = enumerate(item["content"])
            return [("response.output_text", part["text"], {"content_index": i}) for i, part in parts]
        case "reasoning":
            name = "response.reasoning_summary_text"
            return [(name, part["text"], {"summary_index": i}) for i, part in enumerate(item["summary"])]
        case "function_call":
            return [("response.function_call_arguments", item["arguments"], {})]
    return []

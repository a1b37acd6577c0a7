"""The transcript as the OpenAI chat-completions dialect writes it.

Pure, and the only encoder of this dialect: the adapter that talks to servers and
the offline providers of `minutebook.testing` share it, so it lives below both.
No SDK, no I/O, no state. The fields beside the messages are in `openai_chat_body`.

Each item is encoded once, alone, as message objects joined by commas; a body is
those bytes spliced into one object. A long session therefore costs a request the
copying of its bytes and no more.

What servers refuse is never written: an assistant message without text and
without calls, a tool result without text, arguments that are not a JSON object,
call ids or names outside the common alphabet, lone surrogates, reasoning that
another provider or another family of models signed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from domain.model_ports import Block, Parameters, ToolSpec
from projections.openai_chat_body import PLAIN, Server, fields
from projections.request_fields import filled
from projections.transcript import CallItem, Exchange, Item, UserItem
from projections.wire_calls import EMPTY_INPUT, wire_arguments, wire_call_id, wire_name, wire_output
from projections.wire_families import encoded, for_model
from projections.wire_parts import Part, parts
from projections.wire_text import read_json, wire_json

API: Final = "openai-chat"

#: Prefix of the `format` of this dialect's opaque blocks: `openai-chat/<field>`.
FORMAT_PREFIX: Final = f"{API}/"

#: Fields some servers want back while calls are being answered (DeepSeek's thinking,
#: signed reasoning behind a proxy, Gemini's thought signatures). `reasoning` is not
#: among them: no server needs it, and some refuse it.
ECHOED_TEXT: Final = frozenset({"reasoning_content"})
ECHOED_JSON: Final = frozenset({"reasoning_details", "extra_content"})

#: `format` of provider material that belongs to one call: `openai-chat/tool_calls/<index>/extra_content`.
_CALL_FIELD: Final = re.compile(r"tool_calls/(\d+)/extra_content")

#: Files that this dialect takes as files; text of any kind goes out as text.
_AS_FILE: Final = frozenset({"application/pdf"})


def encode_item(item: Item, provider: str, server: Server = PLAIN) -> bytes:
    """One transcript item as message objects joined by commas, possibly none.

    Args:
        item: an applied input, or a response with the outcome of each of its calls.
        provider: who the bytes are for; opaque blocks of other providers stay out.
        server: what is special about this provider's server.

    Raises:
        ValueRefused: an input holds a value that JSON on the wire cannot carry.
    """
    if isinstance(item, UserItem):
        return wire_json({"role": "user", "content": _content(item)}, "input")
    own = (item.provider, item.api) == (provider, API)
    return encoded(
        item,
        lambda blocks: _joined(_messages(item, blocks if own else (), server)),
        lambda block: own and block.kind != "text",
    )


def request_body(
    items: Sequence[bytes], tools: Sequence[ToolSpec], parameters: Parameters, server: Server = PLAIN
) -> bytes:
    """The whole request body, from items that are encoded already.

    Args:
        items: what `encode_item` returned, in order.
        parameters: `extra` is added as it is; a None in it takes a field out
            (`{"stream_options": None}` for servers that do not know it).
        server: what is special about this provider's server.

    Raises:
        InvalidOptions: `extra` names a field that is not free, or thinking is asked of a
            server that has no field for it. Nothing was sent.
        ValueRefused: `extra` or a schema holds what JSON cannot carry.
    """
    head = wire_json(fields(tools, parameters, server), "parameters")
    messages = for_model(items, parameters.model)
    if system := filled(parameters.system_prompt):
        messages.insert(0, wire_json({"role": "system", "content": system}, "system_prompt"))
    return b"".join((head[:-1], b',"messages":[', b",".join(messages), b"]}"))


# --- inputs -------------------------------------------------------------------------


def _content(item: UserItem) -> str | list[dict[str, Any]]:
    if isinstance(item.content, str):
        return item.content if item.content.strip() else EMPTY_INPUT
    found = [wire for plain in item.content for wire in _parts(plain, item)]
    if any(wire.keys() != {"type", "text"} for wire in found):
        return [wire for wire in found if wire.get("text", "x").strip()]
    text = "\n".join(wire["text"] for wire in found)
    return text if text.strip() else EMPTY_INPUT


def _parts(plain: dict[str, Any], item: UserItem) -> list[dict[str, Any]]:
    # Journals of the first version hold parts in this dialect's own form.
    if plain.get("type") != "text" and "blob" not in plain:
        return [plain]
    return [_part(part) for part in parts(replace(item, content=[plain]))]


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part.kind == "image":
        return {"type": "image_url", "image_url": {"url": part.as_url()}}
    if part.media_type in _AS_FILE:
        name = part.filename or "file"
        return {"type": "file", "file": {"filename": name, "file_data": part.as_url()}}
    named = f"[file {part.filename}]\n" if part.filename else ""
    return {"type": "text", "text": named + part.data.decode("utf-8", "replace")}


# --- exchanges ----------------------------------------------------------------------


def _joined(messages: Sequence[dict[str, Any]]) -> bytes:
    return b",".join(wire_json(message, "exchange") for message in messages)


def _messages(exchange: Exchange, echoed: Sequence[Block], server: Server) -> list[dict[str, Any]]:
    shown = filled(exchange.text)
    if not exchange.calls:
        if shown is None:
            return []
        answer: dict[str, Any] = {"role": "assistant", "content": shown}
        return [answer | _always_echoed(echoed, server)]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": shown,
        "tool_calls": [_call(call) for call in exchange.calls],
    }
    if server.wants_reasoning:
        message["reasoning_content"] = ""
    for block in echoed:
        _echo(block, message)
    return [message, *(_result(call) for call in exchange.calls)]


def _call(call: CallItem) -> dict[str, Any]:
    function = {"name": wire_name(call.name), "arguments": wire_arguments(call.arguments)}
    return {"id": wire_call_id(call.wire_id), "type": "function", "function": function}


def _result(call: CallItem) -> dict[str, Any]:
    content = wire_output(call.output)
    return {"role": "tool", "tool_call_id": wire_call_id(call.wire_id), "content": content}


def _always_echoed(echoed: Sequence[Block], server: Server) -> dict[str, Any]:
    """What goes back with an answer without calls: only where the server has a use for it."""
    if not server.wants_reasoning:
        return {}
    named = {block.format.removeprefix(FORMAT_PREFIX): block.text for block in echoed}
    return {field: text for field, text in named.items() if field in ECHOED_TEXT}


def _echo(block: Block, message: dict[str, Any]) -> None:
    """Put one opaque block back where it came from, if servers want it."""
    if block.kind != "opaque" or not block.format.startswith(FORMAT_PREFIX):
        return
    field = block.format.removeprefix(FORMAT_PREFIX)
    of_call = _CALL_FIELD.fullmatch(field)
    if field in ECHOED_TEXT:
        message[field] = block.text
    elif not (value := read_json(block.text)):
        return
    elif field in ECHOED_JSON:
        message[field] = value
    elif of_call and int(of_call[1]) < len(message["tool_calls"]):
        message["tool_calls"][int(of_call[1])]["extra_content"] = value

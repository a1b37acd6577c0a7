"""The transcript as the OpenAI chat-completions dialect writes it.

Pure, and the only encoder of this dialect: the adapter that talks to servers and
the offline providers of `minutebook.testing` share it, so it lives below both.
No SDK, no I/O, no state.

Each item is encoded once, alone, as message objects joined by commas; a body is
those bytes spliced into one object. A long session therefore costs a request the
copying of its bytes and no more.

What servers refuse is never written: an assistant message without text and
without calls, a tool result without text, arguments that are not a JSON object,
call ids or names outside the common alphabet, lone surrogates.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Sequence
from typing import Any, Final

import orjson

from domain.errors import InvalidOptions
from domain.ports import Block, Parameters, ToolSpec
from projections.transcript import CallItem, Exchange, Item, UserItem
from projections.wire_text import scrub, wire_json

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

EMPTY_OUTPUT: Final = "(no output)"
EMPTY_INPUT: Final = "(empty message)"
UNNAMED_TOOL: Final = "unnamed_tool"

_SAFE_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}", re.ASCII)
_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)
_PREVIEW_CHARACTERS: Final = 200

#: Body fields that only this module sets.
_RESERVED: Final = frozenset({"model", "messages", "stream", "tools", "n"})


def encode_item(item: Item, provider: str) -> bytes:
    """One transcript item as message objects joined by commas, possibly none.

    Args:
        item: an applied input, or a response with the outcome of each of its calls.
        provider: who the bytes are for; opaque blocks of other providers stay out.

    Raises:
        ValueRefused: an input holds a value that JSON on the wire cannot carry.
    """
    if isinstance(item, UserItem):
        return wire_json({"role": "user", "content": item.content or EMPTY_INPUT}, "input")
    messages = _exchange_messages(item, provider)
    return b",".join(wire_json(message, "exchange") for message in messages)


def request_body(
    items: Sequence[bytes],
    tools: Sequence[ToolSpec],
    parameters: Parameters,
    *,
    max_tokens_field: str = "max_tokens",
) -> bytes:
    """The whole request body, from items that are encoded already.

    Args:
        items: what `encode_item` returned, in order.
        parameters: `extra` is added as it is; a None in it takes a field out
            (`{"stream_options": None}` for servers that do not know it).
        max_tokens_field: the name under which this server knows the output limit.

    Raises:
        InvalidOptions: `extra` names a field that is not free. Nothing was sent.
        ValueRefused: `extra` or a tool's schema holds what JSON cannot carry.
    """
    head = wire_json(_fields(tools, parameters, max_tokens_field), "parameters")
    messages = [item for item in items if item]
    if parameters.system_prompt:
        messages.insert(
            0, wire_json({"role": "system", "content": parameters.system_prompt}, "system_prompt")
        )
    return b"".join((head[:-1], b',"messages":[', b",".join(messages), b"]}"))


def wire_call_id(call_id: str) -> str:
    """`call_id` where every server takes it, otherwise a digest of it.

    The same for a call and its result, because it depends on the id alone.
    """
    if _SAFE_ID.fullmatch(call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"call_{digest[:32]}"


def wire_arguments(arguments: str) -> str:
    """Raw argument text as servers take it back: the text of one JSON object.

    Text that is an object goes back as it came; an empty one is `{}`. Anything
    else would be refused with the whole history, so the model is shown what it
    wrote, shortened, inside an object.
    """
    text: str = scrub(arguments)
    if not text.strip():
        return "{}"
    if _is_object(text):
        return text
    return _rewritten(text) or orjson.dumps({"_malformed": _shortened(text)}).decode()


# --- messages -----------------------------------------------------------------------


def _exchange_messages(exchange: Exchange, provider: str) -> list[dict[str, Any]]:
    text = "".join(block.text for block in exchange.blocks if block.kind == "text")
    if not exchange.calls:
        return [{"role": "assistant", "content": text}] if text.strip() else []
    message: dict[str, Any] = {
        "role": "assistant",
        "content": text if text.strip() else None,
        "tool_calls": [_call(call) for call in exchange.calls],
    }
    if (exchange.provider, exchange.api) == (provider, API):
        for block in exchange.blocks:
            _echo(block, message)
    return [message, *(_result(call) for call in exchange.calls)]


def _call(call: CallItem) -> dict[str, Any]:
    function = {"name": _wire_name(call.name), "arguments": wire_arguments(call.arguments)}
    return {"id": wire_call_id(call.wire_id), "type": "function", "function": function}


def _result(call: CallItem) -> dict[str, Any]:
    output = call.output if call.output.strip() else EMPTY_OUTPUT
    return {"role": "tool", "tool_call_id": wire_call_id(call.wire_id), "content": output}


def _echo(block: Block, message: dict[str, Any]) -> None:
    """Put one opaque block back where it came from, if servers want it."""
    if block.kind != "opaque" or not block.format.startswith(FORMAT_PREFIX):
        return
    field = block.format.removeprefix(FORMAT_PREFIX)
    of_call = _CALL_FIELD.fullmatch(field)
    if field in ECHOED_TEXT:
        message[field] = block.text
    elif field in ECHOED_JSON:
        message[field] = orjson.loads(block.text)
    elif of_call and int(of_call[1]) < len(message["tool_calls"]):
        message["tool_calls"][int(of_call[1])]["extra_content"] = orjson.loads(block.text)


def _wire_name(name: str) -> str:
    if _SAFE_NAME.fullmatch(name):
        return name
    return _NOT_IN_NAME.sub("_", name)[:64] or UNNAMED_TOOL


# --- arguments ----------------------------------------------------------------------


def _shortened(text: str) -> str:
    return text if len(text) <= _PREVIEW_CHARACTERS else text[:_PREVIEW_CHARACTERS] + "..."


def _is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def _rewritten(text: str) -> str | None:
    """An object that only escapes like `\\ud83d` keep from being valid, with those replaced."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        return orjson.dumps(scrub(value)).decode() if isinstance(value, dict) else None
    except (ValueError, TypeError, RecursionError):
        return None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        _refuse(number)
    return value


# --- the rest of the body -------------------------------------------------------------


def _fields(tools: Sequence[ToolSpec], parameters: Parameters, max_tokens_field: str) -> dict[str, Any]:
    taken = sorted(_RESERVED & parameters.extra.keys())
    if taken:
        raise InvalidOptions("extra", f"fields other than {sorted(_RESERVED)}", taken)
    fields: dict[str, Any] = {
        "model": parameters.model,
        "temperature": parameters.temperature,
        max_tokens_field: parameters.max_output_tokens,
        "tools": [_tool(tool) for tool in tools] or None,
        "stream_options": {"include_usage": True},
        **parameters.extra,
    }
    return {name: value for name, value in fields.items() if value is not None} | {"stream": True}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}

"""The transcript as Anthropic's messages dialect writes it.

Pure, and the only encoder of this dialect. Each item of the transcript is encoded
once, alone, as message objects joined by commas. Blocks go out in the order in which
the model wrote them, what belongs to the provider as the text that it was.

What servers refuse is never written: an empty text or message, a call without its
result in the next message, thinking without its signature, arguments that are not a
JSON object, ids or names outside the common alphabet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from domain.model_ports import Block, Parameters, ToolSpec
from domain.values import Stop
from projections.anthropic_parameters import fields
from projections.anthropic_server_tools import (
    ASSISTANT,
    Written,
    each_once,
    marked,
    message,
    one_line,
    settled,
    without_open,
    written,
)
from projections.transcript import CallItem, Exchange, Item, UserItem
from projections.wire_calls import EMPTY_INPUT, wire_arguments, wire_call_id, wire_name, wire_output
from projections.wire_families import encoded, for_model
from projections.wire_order import in_order
from projections.wire_parts import Media, Part, parts
from projections.wire_text import wire_json

API: Final = "anthropic-messages"

#: Prefix of the `format` of this dialect's blocks: `anthropic-messages/<type>`.
FORMAT_PREFIX: Final = f"{API}/"
#: Further members of the text block right before, as a JSON object (citations).
TEXT_FIELDS: Final = f"{API}/text/fields"
#: What the provider said about the end of the message; never sent.
ENDING: Final = f"{API}/message/ending"
#: Prefix of blocks that were cut; never sent.
INCOMPLETE: Final = f"{API}/incomplete/"

_IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF: Final = "application/pdf"
#: What only the family of models that wrote it takes back.
_SIGNED: Final = frozenset({f"{API}/thinking", f"{API}/redacted_thinking"})
#: Outcomes that the model is told without `is_error`.
_FINE: Final = frozenset({"completed", "open"})


def encode_item(item: Item, provider: str) -> bytes:
    """One transcript item as message objects joined by commas, possibly none.

    Args:
        item: an applied input, or a response with the outcome of each of its calls.
        provider: who the bytes are for; opaque blocks of other providers stay out. Thinking
            is for models of the family that signed it; the bytes carry their form without it.

    Raises:
        ValueRefused: an input holds a value that JSON on the wire cannot carry.
    """
    if isinstance(item, UserItem):
        return _user([wire_json(block, "input") for block in _content(item)])
    own = (item.provider, item.api) == (provider, API)
    return encoded(
        item,
        lambda blocks: _exchange(item, blocks, own=own),
        lambda block: own and block.format in _SIGNED,
    )


def request_body(items: Sequence[bytes], tools: Sequence[ToolSpec], parameters: Parameters) -> bytes:
    """The whole request body, from items that are encoded already.

    Args:
        items: what `encode_item` returned, in order.
        parameters: `extra` is added as it is, its `tools` behind ours; a None in it takes a field out.

    Raises:
        InvalidOptions: options that contradict each other, or `extra` names a field that
            is not free. Nothing was sent.
        ValueRefused: `extra` or a tool's schema holds what JSON cannot carry.
    """
    messages = settled(for_model(items, parameters.model))
    head = wire_json(fields(tools, parameters, _open_turn(messages)), "parameters")
    return b"".join((head[:-1], b',"messages":[', b",".join(messages), b"]}"))


def _open_turn(messages: Sequence[bytes]) -> bytes | None:
    """The first item of the turn that the request goes on with, or None where it begins one."""
    first = None
    for item in reversed(messages):
        if not item.startswith(ASSISTANT):
            break
        first = item
    return first


# --- inputs -------------------------------------------------------------------------


def _content(item: UserItem) -> list[dict[str, Any]]:
    blocks = [_part(part) for part in parts(item)]
    sent = [block for block in blocks if block.get("text", "x").strip()]
    return sent or [_text(EMPTY_INPUT)]


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, str):
        return _text(part)
    if part.kind == "image" and part.media_type in _IMAGES:
        return {"type": "image", "source": _base64(part)}
    source = _document(part)
    if source is None:
        shown = f"[{part.kind} {part.filename}, {part.media_type}: this model's API does not take it]"
        return _text(shown)
    return {"type": "document", "source": source} | ({"title": part.filename} if part.filename else {})


def _document(part: Media) -> dict[str, Any] | None:
    """The source of a document: a PDF as it is, any text as plain text."""
    if part.media_type == _PDF:
        return _base64(part)
    try:
        text = part.data.decode()
    except UnicodeDecodeError:
        return None
    readable = part.kind == "file" and text.strip()
    return {"type": "text", "media_type": "text/plain", "data": text} if readable else None


def _base64(part: Media) -> dict[str, Any]:
    return {"type": "base64", "media_type": part.media_type, "data": part.in_base64()}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


# --- exchanges ------------------------------------------------------------------------


def _exchange(exchange: Exchange, kept: Sequence[Block], *, own: bool) -> bytes:
    blocks = each_once(list(_written(kept, exchange.calls, own)))
    results = [wire_json(_result(call), "result") for call in exchange.calls]
    goes_on = exchange.stop == (Stop.TOOL_CALLS if results else Stop.PAUSE)
    if not goes_on:
        blocks = without_open(blocks)
    elif not results:
        blocks = _stripped(blocks)
    item = b",".join(part for part in (message(blocks), _user(results) if results else b"") if part)
    return marked(item, blocks)


def _user(blocks: Sequence[bytes]) -> bytes:
    return b'{"role":"user","content":[' + b",".join(blocks) + b"]}"


def _written(blocks: Sequence[Block], calls: Sequence[CallItem], own: bool) -> Iterator[Written]:
    """The blocks that are sent, in their order."""
    ordered = list(in_order(blocks, calls))
    for (block, call), (after, _) in zip(ordered, [*ordered, (None, None)][1:], strict=True):
        if call is not None:
            yield _call(call, block.text if own and block is not None else "")
        elif block is not None and block.kind == "text":
            more = after.text if own and after is not None and after.format == TEXT_FIELDS else ""
            if block.text.strip():
                yield _visible(block.text, more)
        elif block is not None and own and _goes_back(block) and (found := written(block.text)):
            yield found


def _visible(text: str, more: str) -> Written:
    return Written(_with_members(wire_json(_text(text), "text"), more), text=text, more=more)


def _stripped(blocks: list[Written]) -> list[Written]:
    """The blocks without white space at their end, which is refused where the model has to go on."""
    said = [i for i, block in enumerate(blocks) if not block.thought]
    if not said or not blocks[said[-1]].text:
        return blocks
    last = blocks[said[-1]]
    return [*blocks[: said[-1]], _visible(last.text.rstrip(), last.more)]


def _goes_back(block: Block) -> bool:
    if not block.format.startswith(FORMAT_PREFIX) or block.format.startswith(INCOMPLETE):
        return False
    return block.format not in (TEXT_FIELDS, ENDING)


def _call(call: CallItem, material: str) -> Written:
    """A call. `material`: further members of its block, as a JSON object."""
    names = {"type": "tool_use", "id": wire_call_id(call.wire_id), "name": wire_name(call.name)}
    head = wire_json(names, "call")[:-1]
    whole = head + b',"input":' + one_line(wire_arguments(call.arguments)) + b"}"
    return Written(_with_members(whole, material))


def _with_members(encoded: bytes, material: str) -> bytes:
    """An encoded object with further members; they are left out if they are no object."""
    more = written(material) if material else None
    inner = more.data.strip()[1:-1].strip() if more else b""
    return encoded[:-1] + b"," + inner + b"}" if inner else encoded


def _result(call: CallItem) -> dict[str, Any]:
    told = wire_output(call.output)
    result = {"type": "tool_result", "tool_use_id": wire_call_id(call.wire_id), "content": told}
    return result if call.outcome in _FINE else result | {"is_error": True}

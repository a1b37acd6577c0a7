"""The transcript as the OpenAI Responses dialect writes it.

Pure, and the only encoder of this dialect. Each item of the transcript is encoded
once, alone, as input items joined by commas. Nothing depends on what a server has
stored: no item ids, no references, reasoning only with its encrypted content or
its text.

What servers refuse is never written: a reasoning item without the item it led to, a
call without its output right behind it, arguments that are not a JSON object, call
ids or names outside the common alphabet, lone surrogates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from domain.model_ports import Block, Parameters, ToolSpec
from domain.values import ThinkingSettings
from projections.openai_chat_body import effort_of, metadata, named_schema
from projections.request_fields import check_free, filled, streamed
from projections.strict_schema import is_strict
from projections.transcript import CallItem, Exchange, Item, UserItem
from projections.wire_calls import EMPTY_INPUT, wire_arguments, wire_call_id, wire_name, wire_output
from projections.wire_families import OfFamily, encoded, for_model
from projections.wire_order import in_order
from projections.wire_parts import Media, Part, parts
from projections.wire_text import read_json, wire_json

API: Final = "openai-responses"

#: Prefix of the `format` of this dialect's blocks.
FORMAT_PREFIX: Final = f"{API}/"
#: A whole output item as JSON, reasoning and what the provider's own tools did.
ITEM_FORMAT: Final = f"{API}/item"
#: Text of a message; a further `/<phase>` where the model said which it is.
MESSAGE_FORMAT: Final = f"{API}/message"
REFUSAL_FORMAT: Final = f"{API}/refusal"
#: Material of a call's mark: the call was of a tool with free-form input.
CUSTOM_CALL: Final = "custom_tool_call"

#: What the provider ran itself and takes back as it was. Other items want an answer that
#: nobody here can give (approvals, computer calls), or are only known to the server.
_SENT_BACK: Final = frozenset(
    {"web_search_call", "file_search_call", "code_interpreter_call", "mcp_call", "mcp_list_tools"}
    | {"compaction"}
)

#: Body fields that only this module sets.
_RESERVED: Final = frozenset({"model", "input", "stream", "tools", "previous_response_id", "conversation"})

#: Models that reason: they alone take the request for encrypted reasoning.
_REASONS: Final = re.compile(r"(?:^|[/.:])(?:o[1-9]|gpt-[5-9]|codex|gpt-oss)(?!.*-chat)", re.ASCII)

#: Models that refuse a history with reasoning in it.
_NEVER_REASONS: Final = re.compile(r"(?:^|[/.:])(?:gpt-[34]|chatgpt-|gpt-[5-9].*-chat)", re.ASCII)


def encode_item(item: Item, provider: str) -> bytes:
    """One transcript item as input items joined by commas, possibly none.

    Args:
        item: an applied input, or a response with the outcome of each of its calls.
        provider: who the bytes are for; opaque blocks of other providers stay out. Reasoning
            is for models of the family that wrote it; the bytes carry their form without it.

    Raises:
        ValueRefused: an input holds a value that JSON on the wire cannot carry.
    """
    if isinstance(item, UserItem):
        return wire_json({"role": "user", "content": _content(item)}, "input")
    own = (item.provider, item.api) == (provider, API)
    return encoded(
        item,
        lambda blocks: _joined(_exchange_items(item, blocks, own)),
        lambda block: own and _is_reasoning(block),
    )


def request_body(
    items: Sequence[bytes],
    tools: Sequence[ToolSpec],
    parameters: Parameters,
    *,
    store: bool = False,
) -> bytes:
    """The whole request body, from items that are encoded already.

    Args:
        items: what `encode_item` returned, in order.
        parameters: `extra` is added as it is; a None in it takes a field out. `text` and
            `metadata` in it are merged with ours. A thinking budget without an effort
            becomes the effort that comes closest, because this API has no budgets.
        store: whether the server is to keep the response, so that it can be asked for later.

    Raises:
        InvalidOptions: `extra` names a field that is not free. Nothing was sent.
        ValueRefused: `extra` or a schema holds what JSON cannot carry.
    """
    head = wire_json(_fields(tools, parameters, store), "parameters")
    fitting = _without_reasoning(items) if _NEVER_REASONS.search(parameters.model) else items
    wanted = b",".join(for_model(fitting, parameters.model))
    return b"".join((head[:-1], b',"input":[', wanted, b"]}"))


# --- inputs -------------------------------------------------------------------------


def _content(item: UserItem) -> str | list[dict[str, Any]]:
    found = parts(item)
    if any(isinstance(part, Media) for part in found):
        return [_part(part) for part in found if not isinstance(part, str) or part.strip()]
    text = "\n".join(str(part) for part in found)
    return text if text.strip() else EMPTY_INPUT


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    if part.kind == "image":
        return {"type": "input_image", "image_url": part.as_url(), "detail": "auto"}
    return {"type": "input_file", "filename": part.filename or "file", "file_data": part.as_url()}


# --- exchanges ------------------------------------------------------------------------


#: An input item (None: not sent), and the output that has to follow it if it is a call.
_Written = tuple[dict[str, Any] | None, dict[str, Any] | None]


def _joined(items: Iterator[dict[str, Any]]) -> bytes:
    return b",".join(wire_json(item, "exchange") for item in items)


def _without_reasoning(items: Sequence[bytes]) -> list[bytes]:
    return [item.without if isinstance(item, OfFamily) else item for item in items]


def _is_reasoning(block: Block) -> bool:
    return _kept_item(block).get("type") == "reasoning"


def _kept_item(block: Block) -> dict[str, Any]:
    """The output item that a block holds; empty for any other block."""
    item = read_json(block.text) if block.format == ITEM_FORMAT else None
    return item if isinstance(item, dict) else {}


def _exchange_items(exchange: Exchange, blocks: Sequence[Block], own: bool) -> Iterator[dict[str, Any]]:
    """The response's items in their order; calls with their outputs right behind them."""
    waiting: list[dict[str, Any]] = []
    for item, output in _without_orphans([*_written(exchange, blocks, own)]):
        if output is None:
            yield from waiting
            waiting.clear()
        yield item
        if output is not None:
            waiting.append(output)
    yield from waiting


def _written(exchange: Exchange, blocks: Sequence[Block], own: bool) -> Iterator[_Written]:
    for block, call in in_order(blocks, exchange.calls):
        if call is not None:
            custom = block is not None and block.text == CUSTOM_CALL
            yield _call(call, custom=custom), _output(call, custom=custom)
        elif block is not None:
            yield _block(block, own), None


def _without_orphans(written: Sequence[_Written]) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """What is sent: reasoning only where the item that it led to is sent too."""
    kept = []
    followed = False
    for item, output in reversed(written):
        followed = item is not None and (followed or item["type"] != "reasoning")
        if item is not None and followed:
            kept.append((item, output))
    return reversed(kept)


def _block(block: Block, own: bool) -> dict[str, Any] | None:
    """The input item of a block, or None where it is not sent."""
    if block.kind == "text":
        return _message(block) if block.text.strip() else None
    item = _kept_item(block) if own else {}
    if item.get("type") == "reasoning":
        return _reasoning(item)
    return item if item.get("type") in _SENT_BACK else None


def _message(block: Block) -> dict[str, Any]:
    part: dict[str, Any]
    if block.format == REFUSAL_FORMAT:
        part = {"type": "refusal", "refusal": block.text}
    else:
        part = {"type": "output_text", "text": block.text, "annotations": []}
    message: dict[str, Any] = {"type": "message", "role": "assistant", "content": [part]}
    phase = block.format.removeprefix(MESSAGE_FORMAT).removeprefix("/")
    if block.format.startswith(MESSAGE_FORMAT) and phase:
        message["phase"] = phase
    return message


def _reasoning(item: dict[str, Any]) -> dict[str, Any] | None:
    """Reasoning as it goes back, or None where only the server knows what it was."""
    kinds = (("encrypted_content", str), ("content", list))
    kept = {key: item[key] for key, kind in kinds if item.get(key) and isinstance(item[key], kind)}
    return {"type": "reasoning", "summary": _summary(item.get("summary")), **kept} if kept else None


def _summary(summary: Any) -> list[Any]:
    """The parts of a summary that are parts of one: any other has the whole history refused."""
    parts_of = summary if isinstance(summary, list) else ()
    return [
        part
        for part in parts_of
        if isinstance(part, dict) and part.get("type") == "summary_text" and isinstance(part.get("text"), str)
    ]


def _call(call: CallItem, *, custom: bool) -> dict[str, Any]:
    head = {"call_id": wire_call_id(call.wire_id), "name": wire_name(call.name)}
    if custom:
        return {"type": "custom_tool_call", **head, "input": _free_form(call.arguments)}
    return {"type": "function_call", **head, "arguments": wire_arguments(call.arguments)}


def _free_form(arguments: str) -> str:
    """The text that the accumulator put into an object."""
    value = read_json(arguments)
    text = value.get("input") if isinstance(value, dict) else None
    return text if isinstance(text, str) else arguments


def _output(call: CallItem, *, custom: bool) -> dict[str, Any]:
    kind = "custom_tool_call_output" if custom else "function_call_output"
    return {"type": kind, "call_id": wire_call_id(call.wire_id), "output": wire_output(call.output)}


# --- the rest of the body -------------------------------------------------------------


def _fields(tools: Sequence[ToolSpec], parameters: Parameters, store: bool) -> dict[str, Any]:
    extra = parameters.extra
    check_free(extra, _RESERVED)
    every: dict[str, Any] = {
        "model": parameters.model,
        "instructions": filled(parameters.system_prompt),
        "temperature": parameters.temperature,
        "max_output_tokens": parameters.max_output_tokens,
        "tools": [_tool(tool) for tool in tools] or None,
        "reasoning": _reasoning_asked(parameters.thinking),
        "include": ["reasoning.encrypted_content"] if _REASONS.search(parameters.model) else None,
        "store": store,
        **extra,
        "text": _text(parameters.output_schema, extra.get("text")),
        "metadata": metadata(parameters, extra, stores=store),
    }
    return streamed(every)


def _text(schema: dict[str, Any] | None, theirs: object) -> dict[str, Any] | None:
    ours = {"format": {"type": "json_schema", **named_schema(schema)}} if schema is not None else {}
    return {**ours, **theirs} if isinstance(theirs, dict) else ours or None


def _reasoning_asked(thinking: ThinkingSettings | None) -> dict[str, Any] | None:
    if thinking is None:
        return None
    effort = effort_of(thinking)
    return {"effort": effort, "summary": "auto"} if effort else {"summary": "auto"}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": is_strict(tool.parameters),
    }

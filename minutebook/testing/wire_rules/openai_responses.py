"""What servers of the Responses dialect demand of a request body.

Taken from what they were seen to refuse (a reasoning item without its follower,
calls that are not followed by their outputs) and from what their reference demands.
Pure; imports no encoder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import orjson

_FIELDS: Final = frozenset(
    "background context_management conversation include input instructions max_output_tokens max_tool_calls "
    "metadata model parallel_tool_calls previous_response_id prompt_cache_key prompt_cache_options reasoning "
    "safety_identifier service_tier store stream stream_options temperature text tool_choice tools "
    "top_logprobs top_p truncation user".split()
)
_CALL_ID: Final = re.compile(r"[\x21-\x7e]{1,64}")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_URL: Final = re.compile(r"(https?://|data:[a-z0-9.+-]+/[a-z0-9.+-]+;base64,[A-Za-z0-9+/]+=*$)")
_PHASES: Final = (None, "commentary", "final_answer")

#: Calls we answer, by type: the type of their output, and the field with what was asked.
_CALLS: Final = {
    "function_call": ("function_call_output", "arguments"),
    "custom_tool_call": ("custom_tool_call_output", "input"),
}
#: What the provider ran itself.
_PROVIDER_RUN: Final = frozenset(
    {"web_search_call", "file_search_call", "code_interpreter_call", "mcp_call", "mcp_list_tools"}
    | {"compaction"}
)


def check(body: Mapping[str, Any]) -> None:
    """Hold a request body against the rules.

    Raises:
        AssertionError: a server would refuse it; says what, and where.
    """
    _need(body.keys() <= _FIELDS, "only fields that the API knows", sorted(body.keys() - _FIELDS))
    _need(bool(_text(body.get("model"))), "a model", body.get("model"))
    items = body.get("input")
    _need(isinstance(items, list) and bool(items), "input items", items)
    assert isinstance(items, list)
    for item in items:
        _check_item(item)
    _check_reasoning(items)
    _check_calls(items)
    _check_rest(body)


def _need(met: bool, expected: str, found: Any) -> None:
    if not met:
        raise AssertionError(f"expected {expected}, got {found!r}")


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


# --- items ----------------------------------------------------------------------------


def _kind(item: Mapping[str, Any]) -> str:
    return str(item.get("type") or "message")


def _check_item(item: Any) -> None:
    _need(isinstance(item, dict), "an object", item)
    kind = _kind(item)
    if kind == "message":
        _check_message(item)
    elif kind == "reasoning":
        summary = item.get("summary")
        _need(isinstance(summary, list), "a summary, if an empty one", item)
        parts_are = all(p.get("type") == "summary_text" and isinstance(p.get("text"), str) for p in summary)
        _need(parts_are, "summary parts", summary)
        whole = bool(item.get("encrypted_content") or item.get("content"))
        _need(whole, "what the model thought: nobody keeps it for us", item)
    elif kind in _CALLS:
        _check_call(item, kind)
    elif kind in {output for output, _ in _CALLS.values()}:
        _need(bool(_text(item.get("output"))), "an output", item)
    else:
        _need(kind in _PROVIDER_RUN, "a type of item that may be sent", kind)


def _check_message(item: Mapping[str, Any]) -> None:
    role, content = item.get("role"), item.get("content")
    _need(role in ("user", "assistant", "system", "developer"), "a role", role)
    _need(item.get("phase") in _PHASES and (role == "assistant" or "phase" not in item), "a phase", item)
    if isinstance(content, str):
        _need(bool(content.strip()), "text", item)
        return
    _need(isinstance(content, list) and bool(content), "content parts", content)
    assert isinstance(content, list)
    for part in content:
        _check_part(part, str(role))


def _check_part(part: Mapping[str, Any], role: str) -> None:
    kind = part.get("type")
    if role == "assistant":
        _need(kind in ("output_text", "refusal"), "a part that a model writes", part)
        _need(bool(_text(part.get("text" if kind == "output_text" else "refusal"))), "text", part)
        return
    match kind:
        case "input_text":
            _need(bool(_text(part.get("text"))), "text", part)
        case "input_image":
            _need(bool(_URL.match(str(part.get("image_url")))), "an image's URL", part)
        case "input_file":
            _need(bool(_text(part.get("filename"))), "a file name", part)
            _need(bool(_URL.match(str(part.get("file_data")))), "a file's bytes as URL", part)
        case _:
            _need(False, "a part that a user writes", part)


def _check_call(item: Mapping[str, Any], kind: str) -> None:
    _need(bool(_NAME.fullmatch(str(item.get("name")))), "a plain name", item)
    _need(bool(_CALL_ID.fullmatch(str(item.get("call_id")))), "a short call id", item)
    asked = item.get(_CALLS[kind][1])
    _need(isinstance(asked, str), "text", asked)
    if kind == "function_call":
        _need(isinstance(orjson.loads(str(asked)), dict), "a JSON object as arguments", asked)


# --- orders ----------------------------------------------------------------------------


def _check_reasoning(items: Sequence[Mapping[str, Any]]) -> None:
    """A reasoning item stands directly before what it led to, in the form in which that came."""
    for item, follower in pairwise([*items, {"type": "end"}]):
        if _kind(item) == "reasoning":
            came_so = follower.get("role") == "assistant" and isinstance(follower.get("content"), list)
            fits = came_so if _kind(follower) == "message" else _kind(follower) in _FOLLOWERS
            _need(fits, "an item of the same response after its reasoning", follower)


_FOLLOWERS: Final = frozenset({"reasoning", *_CALLS, *_PROVIDER_RUN})


def _check_calls(items: Sequence[Mapping[str, Any]]) -> None:
    """Calls that stand together are followed at once by exactly their outputs; ids are used once."""
    waiting: dict[str, str] = {}
    answering = False
    seen: set[str] = set()
    for item in items:
        kind, call_id = _kind(item), str(item.get("call_id"))
        if kind in _CALLS:
            _need(not (answering and waiting), "the outputs of the calls before", item)
            _need(call_id not in seen, "an id that no other call has", item)
            seen.add(call_id)
            waiting[call_id], answering = _CALLS[kind][0], False
        elif kind.endswith("_output"):
            _need(waiting.pop(call_id, None) == kind, "the output of a call right before", item)
            answering = True
        else:
            _need(not waiting, f"outputs for {sorted(waiting)}", item)
    _need(not waiting, "an output for each call", sorted(waiting))


# --- the rest ---------------------------------------------------------------------------


def _check_rest(body: Mapping[str, Any]) -> None:
    temperature = body.get("temperature", 0)
    _need(0 <= temperature <= 2, "a temperature from 0 to 2", temperature)
    names = [_check_tool(tool) for tool in body.get("tools", ())]
    _need(len(set(names)) == len(names), "a name of its own for each tool", names)
    given = body.get("text", {}).get("format")
    if given is not None:
        _need(given.get("type") == "json_schema", "a format by schema", given)
        _need(bool(_NAME.fullmatch(str(given.get("name")))), "a name of the schema", given)
        _check_strict(given, "schema")
    metadata = body.get("metadata") or {}
    fits = all(len(name) <= 64 and len(str(value)) <= 512 for name, value in metadata.items())
    _need(len(metadata) <= 16 and fits, "at most 16 short pairs", metadata)
    if body.get("store") is False:
        kept = [name for name in ("previous_response_id", "conversation") if body.get(name)]
        _need(not kept, "nothing that the server would have had to keep", kept)


def _check_tool(tool: Mapping[str, Any]) -> str:
    _need(tool.get("type") == "function", "a function", tool)
    name = str(tool.get("name"))
    _need(bool(_NAME.fullmatch(name)), "a plain name", tool)
    _check_strict(tool, "parameters")
    return name


def _check_strict(owner: Mapping[str, Any], field: str) -> None:
    schema = owner.get(field)
    _need(isinstance(schema, dict) and schema.get("type") == "object", "a schema of an object", schema)
    _need(isinstance(owner.get("strict"), bool), "a word on whether it is strict", owner)
    if owner["strict"]:
        for inner in _objects(schema):
            closed = inner.get("additionalProperties") is False
            _need(closed, "objects without further properties in a strict schema", inner)
            named = set(inner.get("properties", {})) == set(inner.get("required", ()))
            _need(named, "every property required in a strict schema", inner)


def _objects(schema: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for inner in schema.values():
            yield from _objects(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _objects(inner)

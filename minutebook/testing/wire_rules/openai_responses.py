"""What servers of the Responses dialect demand of a request body.

Taken from what they were seen to refuse (a reasoning item without its follower,
calls that are not followed by their outputs) and from what their reference demands.
Pure; imports no encoder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import orjson

from minutebook.testing.wire_rules.shared import NAME, check_named, need

_FIELDS: Final = frozenset(
    "background context_management conversation include input instructions max_output_tokens max_tool_calls "
    "metadata model parallel_tool_calls previous_response_id prompt_cache_key prompt_cache_options reasoning "
    "safety_identifier service_tier store stream stream_options temperature text tool_choice tools "
    "top_logprobs top_p truncation user".split()
)
_CALL_ID: Final = re.compile(r"[\x21-\x7e]{1,64}")
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
    need(body.keys() <= _FIELDS, "only fields that the API knows", sorted(body.keys() - _FIELDS))
    need(bool(_text(body.get("model"))), "a model", body.get("model"))
    items = body.get("input")
    need(isinstance(items, list) and bool(items), "input items", items)
    assert isinstance(items, list)
    for item in items:
        _check_item(item)
    _check_reasoning(items)
    _check_calls(items)
    _check_rest(body)


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


# --- items ----------------------------------------------------------------------------


def _kind(item: Mapping[str, Any]) -> str:
    return str(item.get("type") or "message")


def _check_item(item: Any) -> None:
    need(isinstance(item, dict), "an object", item)
    kind = _kind(item)
    if kind == "message":
        _check_message(item)
    elif kind == "reasoning":
        summary = item.get("summary")
        need(isinstance(summary, list), "a summary, if an empty one", item)
        parts_are = all(p.get("type") == "summary_text" and isinstance(p.get("text"), str) for p in summary)
        need(parts_are, "summary parts", summary)
        whole = bool(item.get("encrypted_content") or item.get("content"))
        need(whole, "what the model thought: nobody keeps it for us", item)
    elif kind in _CALLS:
        _check_call(item, kind)
    elif kind in {output for output, _ in _CALLS.values()}:
        need(bool(_text(item.get("output"))), "an output", item)
    else:
        need(kind in _PROVIDER_RUN, "a type of item that may be sent", kind)


def _check_message(item: Mapping[str, Any]) -> None:
    role, content = item.get("role"), item.get("content")
    need(role in ("user", "assistant", "system", "developer"), "a role", role)
    need(item.get("phase") in _PHASES and (role == "assistant" or "phase" not in item), "a phase", item)
    if isinstance(content, str):
        need(bool(content.strip()), "text", item)
        return
    need(isinstance(content, list) and bool(content), "content parts", content)
    assert isinstance(content, list)
    for part in content:
        _check_part(part, str(role))


def _check_part(part: Mapping[str, Any], role: str) -> None:
    kind = part.get("type")
    if role == "assistant":
        need(kind in ("output_text", "refusal"), "a part that a model writes", part)
        need(bool(_text(part.get("text" if kind == "output_text" else "refusal"))), "text", part)
        return
    match kind:
        case "input_text":
            need(bool(_text(part.get("text"))), "text", part)
        case "input_image":
            need(bool(_URL.match(str(part.get("image_url")))), "an image's URL", part)
        case "input_file":
            need(bool(_text(part.get("filename"))), "a file name", part)
            need(bool(_URL.match(str(part.get("file_data")))), "a file's bytes as URL", part)
        case _:
            need(False, "a part that a user writes", part)


def _check_call(item: Mapping[str, Any], kind: str) -> None:
    need(bool(NAME.fullmatch(str(item.get("name")))), "a plain name", item)
    need(bool(_CALL_ID.fullmatch(str(item.get("call_id")))), "a short call id", item)
    asked = item.get(_CALLS[kind][1])
    need(isinstance(asked, str), "text", asked)
    if kind == "function_call":
        need(isinstance(orjson.loads(str(asked)), dict), "a JSON object as arguments", asked)


# --- orders ----------------------------------------------------------------------------


def _check_reasoning(items: Sequence[Mapping[str, Any]]) -> None:
    """A reasoning item stands directly before what it led to, in the form in which that came."""
    for item, follower in pairwise([*items, {"type": "end"}]):
        if _kind(item) == "reasoning":
            came_so = follower.get("role") == "assistant" and isinstance(follower.get("content"), list)
            fits = came_so if _kind(follower) == "message" else _kind(follower) in _FOLLOWERS
            need(fits, "an item of the same response after its reasoning", follower)


_FOLLOWERS: Final = frozenset({"reasoning", *_CALLS, *_PROVIDER_RUN})


def _check_calls(items: Sequence[Mapping[str, Any]]) -> None:
    """Calls that stand together are followed at once by exactly their outputs; ids are used once."""
    waiting: dict[str, str] = {}
    answering = False
    seen: set[str] = set()
    for item in items:
        kind, call_id = _kind(item), str(item.get("call_id"))
        if kind in _CALLS:
            need(not (answering and waiting), "the outputs of the calls before", item)
            need(call_id not in seen, "an id that no other call has", item)
            seen.add(call_id)
            waiting[call_id], answering = _CALLS[kind][0], False
        elif kind.endswith("_output"):
            need(waiting.pop(call_id, None) == kind, "the output of a call right before", item)
            answering = True
        else:
            need(not waiting, f"outputs for {sorted(waiting)}", item)
    need(not waiting, "an output for each call", sorted(waiting))


# --- the rest ---------------------------------------------------------------------------


def _check_rest(body: Mapping[str, Any]) -> None:
    temperature = body.get("temperature", 0)
    need(0 <= temperature <= 2, "a temperature from 0 to 2", temperature)
    names = [_check_tool(tool) for tool in body.get("tools", ())]
    need(len(set(names)) == len(names), "a name of its own for each tool", names)
    given = body.get("text", {}).get("format")
    if given is not None:
        need(given.get("type") == "json_schema", "a format by schema", given)
        check_named(given, "schema")
    metadata = body.get("metadata") or {}
    fits = all(len(name) <= 64 and len(str(value)) <= 512 for name, value in metadata.items())
    need(len(metadata) <= 16 and fits, "at most 16 short pairs", metadata)
    if body.get("store") is False:
        kept = [name for name in ("previous_response_id", "conversation") if body.get(name)]
        need(not kept, "nothing that the server would have had to keep", kept)


def _check_tool(tool: Mapping[str, Any]) -> str:
    need(tool.get("type") == "function", "a function", tool)
    check_named(tool, "parameters")
    return str(tool["name"])

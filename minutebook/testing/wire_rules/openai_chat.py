"""What the strictest servers of the chat dialect demand of a request body.

Pure. Written from what servers refuse, not from what our encoder does: it knows
nothing of `projections`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Any, Final

import orjson

from minutebook.testing.wire_rules.shared import NAME, check_named

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}", re.ASCII)
_DATA_URL: Final = re.compile(r"data:([a-z]+/[a-z0-9.+-]+);base64,([A-Za-z0-9+/]*={0,2})", re.ASCII)
_EFFORT: Final = re.compile(r"[a-z]{1,16}", re.ASCII)

#: Fields of a message by its role; the last line are those of servers that write reasoning.
_FIELDS: Final = {
    "system": frozenset({"role", "content"}),
    "user": frozenset({"role", "content"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
    "assistant": frozenset({"role", "content", "tool_calls"})
    | {"reasoning_content", "reasoning_details", "extra_content"},
}


def check(body: dict[str, Any]) -> None:
    """Refuse a body that some server of this dialect refuses.

    Args:
        body: as plain values, the way it was sent.

    Raises:
        AssertionError: says what and where.
    """
    assert isinstance(body.get("model"), str) and body["model"], "no model"
    assert body.get("stream") is True, "not streamed"
    assert "n" not in body, "more than one choice"
    assert None not in body.values(), f"a field that says nothing: {body}"
    limits = [name for name in ("max_tokens", "max_completion_tokens") if name in body]
    assert len(limits) <= 1, f"one limit under two names: {limits}"
    check_tools(body.get("tools"))
    check_output(body.get("response_format"))
    check_thinking(body)
    check_messages(body["messages"])


def check_messages(messages: Sequence[dict[str, Any]]) -> None:
    """Every call has its result right behind it, ids are unique and plain, nothing is empty.

    Raises:
        AssertionError: says what and where.
    """
    assert messages, "no messages"
    seen: set[str] = set()
    waiting: list[str] = []
    leading = True
    for number, message in enumerate(messages):
        role = message["role"]
        assert role in _FIELDS, f"message {number}: role {role!r}"
        assert message.keys() <= _FIELDS[role], f"message {number}: {message.keys() - _FIELDS[role]}"
        assert role != "system" or leading, f"message {number}: a late system message"
        leading = role == "system"
        if role == "tool":
            _check_result(message, waiting)
            continue
        assert not waiting, f"message {number}: calls without results: {waiting}"
        waiting = _check_message(message, seen)
    assert not waiting, f"calls without results: {waiting}"


def check_tools(tools: Any) -> None:
    """Tools have plain, different names and schemas of objects. Raises AssertionError."""
    if tools is None:
        return
    assert tools, "an empty list of tools"
    names = [tool["function"]["name"] for tool in tools]
    assert len(set(names)) == len(names), f"a name twice: {names}"
    for tool in tools:
        assert tool["type"] == "function"
        assert NAME.fullmatch(tool["function"]["name"]), tool
        assert isinstance(tool["function"]["description"], str)
        assert isinstance(tool["function"]["parameters"], dict)


def check_output(response_format: Any) -> None:
    """A forced output names a schema. Raises AssertionError."""
    if response_format is None:
        return
    assert response_format["type"] == "json_schema", response_format
    check_named(response_format["json_schema"], "schema")


def check_thinking(body: dict[str, Any]) -> None:
    """Reasoning is asked for in one of the known ways, and in one way only. Raises AssertionError."""
    effort = body.get("reasoning_effort")
    assert effort is None or _EFFORT.fullmatch(effort), effort
    reasoning = body.get("reasoning")
    if reasoning is not None:
        assert effort is None, "an effort beside `reasoning`"
        assert len(reasoning) == 1, f"effort or budget, not both: {reasoning}"
        assert reasoning.keys() <= {"effort", "max_tokens", "enabled"}
    thinking = body.get("thinking")
    assert thinking is None or thinking["type"] in ("enabled", "disabled"), thinking
    assert thinking is None or thinking["type"] == "enabled" or effort is None, "an effort of nothing"


# --- messages -------------------------------------------------------------------------


def _check_result(message: dict[str, Any], waiting: list[str]) -> None:
    call_id = message["tool_call_id"]
    assert call_id in waiting, f"a result without its call: {message}"
    waiting.remove(call_id)
    assert _is_text(message["content"]), f"an empty result: {message}"


def _check_message(message: dict[str, Any], seen: set[str]) -> list[str]:
    """Check one message; return the ids of its calls, whose results have to follow."""
    calls = [_check_call(call, seen) for call in message.get("tool_calls", ())]
    assert "tool_calls" not in message or calls, f"an empty list of calls: {message}"
    content = message.get("content")
    if message["role"] == "assistant":
        assert _is_text(content) or (content is None and calls), f"an empty message: {message}"
        _check_reasoning(message)
    elif isinstance(content, list):
        assert content, f"an empty message: {message}"
        for part in content:
            _check_part(part)
    else:
        assert _is_text(content), f"an empty message: {message}"
    return calls


def _check_call(call: dict[str, Any], seen: set[str]) -> str:
    assert call.keys() <= {"id", "type", "function", "extra_content"}, call
    assert call["type"] == "function"
    call_id: str = call["id"]
    assert _ID.fullmatch(call_id), call_id
    assert call_id not in seen, f"{call_id} twice"
    seen.add(call_id)
    assert NAME.fullmatch(call["function"]["name"]), call
    assert isinstance(orjson.loads(call["function"]["arguments"]), dict), call
    assert isinstance(call.get("extra_content", {}), dict), call
    return call_id


def _check_reasoning(message: dict[str, Any]) -> None:
    assert isinstance(message.get("reasoning_content", ""), str)
    details = message.get("reasoning_details", [{}])
    assert isinstance(details, list) and details and all(isinstance(detail, dict) for detail in details)
    assert isinstance(message.get("extra_content", {}), dict)


def _check_part(part: dict[str, Any]) -> None:
    match part["type"]:
        case "text":
            assert _is_text(part["text"]), f"an empty part: {part}"
        case "image_url":
            assert _media_type(part["image_url"]["url"]).startswith("image/"), part
        case "file":
            assert part["file"].keys() == {"filename", "file_data"}
            assert part["file"]["filename"]
            assert _media_type(part["file"]["file_data"]) == "application/pdf"
        case other:
            raise AssertionError(f"a part of type {other!r}")


def _media_type(url: str) -> str:
    found = _DATA_URL.fullmatch(url)
    assert found, url[:80]
    try:
        assert base64.b64decode(found[2], validate=True), "no bytes"
    except binascii.Error as e:
        raise AssertionError(f"no base64: {e}") from None
    return found[1]


def _is_text(content: Any) -> bool:
    return isinstance(content, str) and bool(content.strip())

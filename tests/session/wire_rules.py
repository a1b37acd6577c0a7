"""What every server of the chat dialect demands of a request, checked on what was really sent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import orjson

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check(messages: Sequence[dict[str, Any]]) -> None:
    """Every call has its result right behind it, ids are unique and plain, nothing is empty."""
    seen: set[str] = set()
    waiting: list[str] = []
    for message in messages:
        match message["role"]:
            case "tool":
                assert message["tool_call_id"] in waiting, f"a result without its call: {message}"
                waiting.remove(message["tool_call_id"])
                assert isinstance(message["content"], str)
                assert message["content"].strip()
            case role:
                assert not waiting, f"calls without results: {waiting}"
                assert role in ("system", "user", "assistant")
                waiting = [_check_call(call, seen) for call in message.get("tool_calls", [])]
                assert message.get("content") or waiting, f"an empty message: {message}"
    assert not waiting, f"calls without results: {waiting}"


def _check_call(call: dict[str, Any], seen: set[str]) -> str:
    call_id: str = call["id"]
    assert _ID.fullmatch(call_id), call_id
    assert call_id not in seen, f"{call_id} twice"
    seen.add(call_id)
    assert _NAME.fullmatch(call["function"]["name"])
    assert isinstance(orjson.loads(call["function"]["arguments"]), dict)
    return call_id

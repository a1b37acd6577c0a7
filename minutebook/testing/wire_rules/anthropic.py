"""What servers of Anthropic's messages dialect demand of a request body.

Taken from what they were seen to refuse (empty text, calls without results in the
next message, thinking that is not first or not signed, a use of a provider's tool
that nobody answered) and from what their reference demands. Two messages of one role
in a row are accepted, because the reference says that they are combined into one.
Pure; imports no encoder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from minutebook.testing.wire_rules import anthropic_fields
from minutebook.testing.wire_rules.shared import NAME, need

_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_SERVER_ID: Final = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")
_WORD: Final = re.compile(r"[a-z0-9_]+")
_IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})
_USER_BLOCKS: Final = frozenset(
    {"text", "image", "document", "tool_result", "search_result", "container_upload"}
)
_RESULT_BLOCKS: Final = _USER_BLOCKS - {"tool_result", "container_upload"} | {"tool_reference"}

Block = Mapping[str, Any]


def check(body: Mapping[str, Any], signed: Mapping[str, str] | None = None) -> None:
    """Hold a request body against the rules.

    Args:
        signed: thinking by its signature, as the provider gave it; where it is given,
            thinking in the body has to be the same.

    Raises:
        AssertionError: a server would refuse it; says what, and where.
    """
    anthropic_fields.check(body)
    messages = body.get("messages")
    need(isinstance(messages, list) and bool(messages), "messages", messages)
    assert isinstance(messages, list)
    parsed = [_message(message, i) for i, message in enumerate(messages)]
    need(parsed[0][0] == "user", "the first message to be the user's", parsed[0][0])
    for role, blocks in parsed:
        for block in blocks:
            _check_block(role, block, signed)
        last = blocks[-1]["type"]
        need(role == "user" or last not in _THOUGHTS, "a message that does not end with thinking", last)
    _check_calls(parsed)
    _check_server_tools(parsed)
    _check_end(parsed)
    if body.get("thinking", {}).get("type") == "enabled":
        _check_thinking_leads(parsed)


def _message(message: Any, place: int) -> tuple[str, list[Block]]:
    need(isinstance(message, dict), f"an object as message {place}", message)
    need(message.keys() == {"role", "content"}, f"role and content in message {place}", sorted(message))
    role, content = message["role"], message["content"]
    need(role in ("user", "assistant"), f"user or assistant as role of message {place}", role)
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    need(isinstance(content, list) and bool(content), f"content in message {place}", content)
    for block in content:
        need(isinstance(block, dict) and isinstance(block.get("type"), str), "a block with a type", block)
    return role, content


# --- blocks ---------------------------------------------------------------------------


def _check_block(role: str, block: Block, signed: Mapping[str, str] | None) -> None:
    kind = block["type"]
    if role == "user":
        need(kind in _USER_BLOCKS, f"no block of the model's in the user's message ({kind})", block)
    else:
        need(kind not in _USER_BLOCKS - {"text", "container_upload"}, "a block of the model's", kind)
        need(bool(_WORD.fullmatch(kind)), "a type of block", kind)
    match kind:
        case "text":
            _check_text(block.get("text"))
        case "image":
            _check_source(block.get("source"), _IMAGES)
        case "document":
            _check_source(block.get("source"), frozenset({"application/pdf"}))
        case "tool_result":
            _check_result(block)
        case "tool_use":
            need(bool(NAME.fullmatch(_string(block, "name"))), "a plain name of a tool", block.get("name"))
            need(isinstance(block.get("input"), dict), "an object as input", block.get("input"))
        case "thinking":
            _check_thinking(block, signed)
        case "redacted_thinking":
            need(bool(_string(block, "data")), "data of redacted thinking", block)
        case "server_tool_use":
            need(bool(_SERVER_ID.fullmatch(_string(block, "id"))), "a server tool's id", block.get("id"))
            need(isinstance(block.get("input"), dict), "an object as input", block.get("input"))


def _check_text(text: Any) -> None:
    need(isinstance(text, str) and bool(text.strip()), "text with something in it", text)


def _check_thinking(block: Block, signed: Mapping[str, str] | None) -> None:
    signature, thought = _string(block, "signature"), block.get("thinking")
    need(bool(signature), "thinking with its signature", block)
    need(isinstance(thought, str), "thinking as text, which may be empty", thought)
    if signed is not None:
        need(signed.get(signature) == thought, "thinking exactly as it was signed", block)


def _check_result(block: Block) -> None:
    need(isinstance(block.get("is_error", False), bool), "is_error to be true or false", block)
    content = block.get("content", "")
    if isinstance(content, str):
        return
    need(isinstance(content, list), "text or blocks as a result", content)
    for inner in content:
        need(isinstance(inner, dict) and inner.get("type") in _RESULT_BLOCKS, "a block of a result", inner)
        if inner["type"] == "text":
            _check_text(inner.get("text"))


def _check_source(source: Any, media_types: frozenset[str]) -> None:
    need(isinstance(source, dict), "a source", source)
    match source.get("type"):
        case "base64":
            need(source.get("media_type") in media_types, f"one of {sorted(media_types)}", source)
            need(bool(_string(source, "data")), "bytes in base64", source)
        case "text":
            need(source.get("media_type") == "text/plain", "text/plain as a document's text", source)
            _check_text(source.get("data"))
        case other:
            need(other in ("url", "file", "content"), "a kind of source", other)


# --- calls ----------------------------------------------------------------------------


def _check_calls(messages: Sequence[tuple[str, list[Block]]]) -> None:
    """Every call is answered in the next message, before anything else in it, once."""
    seen: set[str] = set()
    waiting: list[str] = []
    for role, blocks in messages:
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        need(sorted(results) == sorted(waiting), f"results of exactly {waiting} in the next message", results)
        kinds = [block["type"] for block in blocks]
        need(kinds[: len(results)] == ["tool_result"] * len(results), "results before anything else", kinds)
        waiting = [_string(block, "id") for block in blocks if block["type"] == "tool_use"]
        for call_id in waiting:
            need(bool(_ID.fullmatch(call_id)), "an id of letters, digits, _ and -", call_id)
            need(call_id not in seen, "every id once", call_id)
            seen.add(call_id)
        need(role == "assistant" or not waiting, "calls of the model's only", waiting)
    need(not waiting, "the last calls to be answered", waiting)


@dataclass(slots=True)
class _ServerTools:
    """Uses of the provider's own tools, and which of them wait for their result."""

    seen: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)

    def take(self, block: Block) -> None:
        kind = block["type"]
        if kind != "tool_use" and kind.endswith("_tool_use"):
            use = _string(block, "id")
            need(bool(use) and use not in self.seen, "every use of a provider's tool once", use)
            self.seen.add(use)
            self.waiting.add(use)
        elif "tool_use_id" in block:
            need(block["tool_use_id"] in self.waiting, "a result behind its use, once", block["tool_use_id"])
            self.waiting.discard(block["tool_use_id"])


def _check_server_tools(messages: Sequence[tuple[str, list[Block]]]) -> None:
    """A use is answered before the user speaks again; results of calls are no speech."""
    tools = _ServerTools()
    for role, blocks in messages:
        if role == "assistant":
            for block in blocks:
                tools.take(block)
        elif not _only_results(blocks):
            need(
                not tools.waiting, "every use of a provider's tool to have its result", sorted(tools.waiting)
            )


# --- the end of the conversation ---------------------------------------------------------


def _check_end(messages: Sequence[tuple[str, list[Block]]]) -> None:
    role, blocks = messages[-1]
    last = blocks[-1]
    if role == "assistant" and last["type"] == "text":
        text = last["text"]
        need(text == text.rstrip(), "no white space at the end of what the model goes on with", text[-20:])


def _check_thinking_leads(messages: Sequence[tuple[str, list[Block]]]) -> None:
    """The turn that the model goes on with began with thinking."""
    first = None
    for role, blocks in reversed(messages):
        if role == "user" and not _only_results(blocks):
            break
        first = blocks[0]["type"] if role == "assistant" else first
    need(first is None or first in _THOUGHTS, "thinking first in the turn, because it is enabled", first)


def _only_results(blocks: Sequence[Block]) -> bool:
    return all(kind == "tool_result" for kind in _kinds(blocks))


def _kinds(blocks: Sequence[Block]) -> Iterator[str]:
    return (block["type"] for block in blocks)


def _string(block: Block, name: str) -> str:
    value = block.get(name)
    return value if isinstance(value, str) else ""

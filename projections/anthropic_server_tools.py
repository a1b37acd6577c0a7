"""What the provider ran itself: uses of its own tools that no result has answered yet.

Pure; the encoder of the dialect imports it. A use may be answered in the next
response only: a turn was paused, or a program at the provider waits for a call of
ours. Where the conversation does not go on from there, a use without its result
would have every later request refused, so it is taken out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from projections.raw_json import elements, joined, members
from projections.wire_text import scrub

#: Without this member the provider refuses its own thinking.
_SIGNED_BY: Final = {"thinking": "signature", "redacted_thinking": "data"}

#: How a message of the model begins; an input never does.
ASSISTANT: Final = b'{"role":"assistant"'

#: At the end of an encoded item: it has open uses, or results of uses in another item, if of
#: any. JSON is written without line ends.
_OPEN: Final = b"\n"


@dataclass(frozen=True, slots=True)
class Written:
    """A content block as bytes.

    Args:
        use: the id, if it is a use of one of the provider's own tools.
        answers: the id of the use that it is the result of.
        caller: the id of the use that called for it.
        thought: whether it is thinking, which must not be the end of a message.
        text, more: of visible text, what it was made of.
    """

    data: bytes
    use: str = ""
    answers: str = ""
    caller: str = ""
    thought: bool = False
    text: str = ""
    more: str = ""


def written(text: str) -> Written | None:
    """A provider's block as it goes back, or None where it would be refused.

    Thinking without a signature is refused; so is what is no JSON object.
    """
    plain = _parsed(text)
    if plain is None or _is_unsigned(plain):
        return None
    kind, caller = plain.get("type"), plain.get("caller")
    is_use = isinstance(kind, str) and kind.endswith("_tool_use")
    return Written(
        one_line(text),
        use=_id(plain, "id") if is_use else "",
        answers=_id(plain, "tool_use_id"),
        caller=_id(caller, "tool_id") if isinstance(caller, dict) else "",
        thought=kind in _SIGNED_BY,
    )


def one_line(text: str) -> bytes:
    """JSON text without line ends, which can only stand between its tokens."""
    return str(scrub(text)).replace("\n", " ").replace("\r", " ").encode()


def message(blocks: Sequence[Written]) -> bytes:
    """The model's message of these blocks, or nothing where none are left.

    Thinking at its end is left out, because it is refused there.
    """
    end = len(blocks)
    while end and blocks[end - 1].thought:
        end -= 1
    content = b",".join(block.data for block in blocks[:end])
    return ASSISTANT + b',"content":[' + content + b"]}" if content else b""


def unanswered(blocks: Sequence[Written]) -> frozenset[str]:
    """The ids of uses that have no result among the blocks."""
    answers = {block.answers for block in blocks}
    return frozenset(block.use for block in blocks if block.use and block.use not in answers)


def _unasked(blocks: Sequence[Written]) -> frozenset[str]:
    """The ids of uses that have a result among the blocks and are not there themselves."""
    uses = {block.use for block in blocks}
    return frozenset(block.answers for block in blocks if block.answers and block.answers not in uses)


def each_once(blocks: Sequence[Written]) -> list[Written]:
    """The blocks without a use, or a result of one, that comes a second time."""
    first: dict[tuple[str, str], Written] = {}
    for block in blocks:
        first.setdefault((block.use, block.answers), block)
    return [b for b in blocks if not (b.use or b.answers) or first[b.use, b.answers] is b]


def without_open(blocks: Sequence[Written]) -> list[Written]:
    """The blocks without open uses, and without the uses within these."""
    gone = set(unanswered(blocks))
    while within := {block.use for block in blocks if block.use and block.caller in gone} - gone:
        gone |= within
    kept = [block for block in blocks if block.use not in gone and block.answers not in gone]
    return [_called_directly(block) if block.caller in gone else block for block in kept]


def marked(item: bytes, blocks: Sequence[Written]) -> bytes:
    """An encoded item of which only its neighbours say whether it can go out as it is."""
    return item + _OPEN if unanswered(blocks) or _unasked(blocks) else item


def settled(items: Sequence[bytes]) -> list[bytes]:
    """Encoded items as they go out where they stand; empty ones are left out."""
    kept = [item for item in items if item]
    out = [_settled(kept, place) if item.endswith(_OPEN) else item for place, item in enumerate(kept)]
    return [item for item in out if item]


def _settled(items: Sequence[bytes], place: int) -> bytes:
    said, *rest = elements(f"[{items[place].decode()}]")
    blocks = [found for text in elements(members(said)["content"]) if (found := written(text))]
    lost = {use for use in _unasked(blocks) if not _named_in(items[:place], use)}
    open_uses = unanswered(blocks)
    goes_on = not open_uses or place + 1 == len(items) or _answered_in(items[place + 1], open_uses)
    if goes_on and not lost:
        return items[place].removesuffix(_OPEN)
    left = [block for block in blocks if block.answers not in lost]
    whole = message(left if goes_on else without_open(left))
    return b",".join(part for part in (whole, *(text.encode() for text in rest)) if part)


def _named_in(items: Sequence[bytes], use: str) -> bool:
    return any(use.encode() in item for item in items)


def _answered_in(item: bytes, uses: frozenset[str]) -> bool:
    return item.startswith(ASSISTANT) and any(use.encode() in item for use in uses)


def _called_directly(block: Written) -> Written:
    fields = members(block.data.decode())
    del fields["caller"]
    return replace(block, data=joined(fields).encode(), caller="")


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        plain = orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        plain = _parsed_leniently(text)
    return plain if isinstance(plain, dict) else None


def _parsed_leniently(text: str) -> Any:
    """Lone surrogate escapes are let in: they go back as they came."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _is_unsigned(plain: dict[str, Any]) -> bool:
    needed = _SIGNED_BY.get(str(plain.get("type")))
    return needed is not None and not _id(plain, needed)


def _id(plain: dict[str, Any], name: str) -> str:
    value = plain.get(name)
    return value if isinstance(value, str) else ""

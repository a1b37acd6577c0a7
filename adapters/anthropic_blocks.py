"""The blocks of an Anthropic message, put together from their pieces.

Pure. A block is kept as the texts of its members as they were received; a piece
extends the member it belongs to. So a kind of block that nobody here has heard of is
kept whole, and what has to go back unchanged is never written anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from adapters.joined_text import JoinedText
from adapters.model_failures import failed
from domain.model_ports import Block, CallInput, DeclaredCall, Signal, Text, Thinking
from projections.anthropic_wire import API, INCOMPLETE, TEXT_FIELDS
from projections.raw_json import elements, exact_json, is_object, joined, members, string
from projections.wire_order import call_mark

T = TypeVar("T")

_WORD: Final = re.compile(r"[a-z0-9_]{1,64}", re.ASCII)
_NOTHING: Final = frozenset({"null", "[]", "{}", '""'})

#: The kinds of block that mean something here; a piece of another kind does not belong into them.
_PIECES_OF: Final[Mapping[str, frozenset[str]]] = {
    "text": frozenset({"text_delta", "citations_delta"}),
    "thinking": frozenset({"thinking_delta", "signature_delta"}),
    "tool_use": frozenset({"input_json_delta"}),
}
_PIECES: Final = frozenset[str]().union(*_PIECES_OF.values())

#: Members that are extended under another name than the piece gives.
_MEMBER_OF: Final[Mapping[str, str]] = {"partial_json": "input"}


@dataclass(slots=True)
class PartialBlock:
    """A block so far. `call` is its position among the calls, if it is one."""

    kind: str
    fields: dict[str, str]
    call: int | None = None
    closed: bool = False
    _texts: dict[str, JoinedText] = field(default_factory=dict)
    _cited: list[str] = field(default_factory=list)

    def begin(self) -> list[Signal]:
        """What the block shows already: some servers send it whole."""
        return self._shown(self.kind, self._text(self.kind)) if self.kind in ("text", "thinking") else []

    def add(self, delta: dict[str, Any], event: str) -> list[Signal]:
        """Take one piece; return what it shows.

        Args:
            delta: as parsed.
            event: the text of the event that brought it.

        Raises:
            ModelFailed: it does not belong into this kind of block.
        """
        kind = delta.get("type")
        allowed = _PIECES_OF.get(self.kind)
        if self.closed or (allowed is not None and kind in _PIECES and kind not in allowed):
            state = "closed " if self.closed else ""
            raise failed("invalid_response", f"expected no {kind!r} in a {state}{self.kind!r} block")
        shown: list[Signal] = []
        for name, value in delta.items():
            if isinstance(value, str) and name != "type":
                shown += self._shown(name, self._extend(_MEMBER_OF.get(name, name), value))
            elif value is not None and name != "type":
                self._replace(name, raw_members(event, "delta")[name])
        return shown

    def close(self) -> list[Signal]:
        """Take the end of the block; return what it has not shown yet."""
        self.closed = True
        if self.call is None or "input" in self._texts or not (text := self.arguments()):
            return []
        return [CallInput(self.call, text)]

    def arguments(self) -> str:
        """A call's arguments as the model wrote them."""
        pieces = self._texts.get("input")
        if pieces is not None and (text := pieces.text()):
            return text
        whole = self.fields.get("input", "")
        return "" if whole in _NOTHING else whole

    def declared(self) -> DeclaredCall:
        """The call that the block is."""
        return DeclaredCall(self._string("id"), self._string("name"), self.arguments())

    def kept(self) -> list[Block]:
        """What is kept of it besides the call that it may be."""
        if self.kind == "text":
            return self._kept_text()
        fields = self._whole()
        if self.call is not None:
            more = _without(fields, "type", "id", "name", "input")
            return [call_mark(API, self.call, joined(more) if more else "")]
        name = self.kind if _WORD.fullmatch(self.kind) else "unknown"
        text = joined(fields)
        whole = self.closed or self._string("signature")
        usable = whole and name == self.kind and is_object(text)
        return [Block("opaque", text, f"{API}/{name}" if usable else f"{INCOMPLETE}{name}")]

    def _kept_text(self) -> list[Block]:
        text = self._string("text")
        if not text:
            return []
        more = _without(self._whole(), "type", "text")
        extra = [Block("opaque", joined(more), TEXT_FIELDS)] if more else []
        return [Block("text", text), *extra]

    def _extend(self, member: str, piece: str) -> str:
        """Add to a member's text; return what can be shown of it."""
        if member not in self._texts:
            self._text(member)
        known = self._texts[member]
        if member == "signature" and known.is_just(piece):
            return ""  # some servers repeat it
        return known.add(piece)

    def _text(self, member: str) -> str:
        """Make a member ready to be extended; return what it holds already."""
        known = self._texts[member] = JoinedText()
        return known.add(string(self.fields.get(member, "")) or "")

    def _replace(self, name: str, text: str) -> None:
        if name == "citation":
            self._cited.append(text)
        else:
            self.fields[name] = text

    def _string(self, member: str) -> str:
        known = self._texts.get(member)
        return known.text() if known else string(self.fields.get(member, "")) or ""

    def _whole(self) -> dict[str, str]:
        """The members with all of their pieces."""
        texts = {member: exact_json(text.text()) for member, text in self._texts.items()}
        if "input" in texts:
            texts["input"] = self.arguments() or "{}"
        if self._cited:
            known = self.fields.get("citations", "")
            before = read_elements(known) if known.startswith("[") else []
            texts["citations"] = f"[{','.join([*before, *self._cited])}]"
        return self.fields | texts

    def _shown(self, name: str, piece: str) -> list[Signal]:
        if not piece:
            return []
        if self.kind == "text" and name == "text":
            return [Text(piece)]
        if self.kind == "thinking" and name == "thinking":
            return [Thinking(piece)]
        if self.call is not None and name == "partial_json":
            return [CallInput(self.call, piece)]
        return []


def read_block(text: str) -> PartialBlock:
    """The block that `text`, a JSON object, begins.

    Raises:
        ModelFailed: it is no object with a type.
    """
    fields = read_members(text)
    kind = string(fields.get("type", ""))
    if not kind:
        raise failed("invalid_response", f"expected a block with a type, got {text[:80]!r}")
    return PartialBlock(kind, fields)


def raw_members(event: str, name: str) -> dict[str, str]:
    """The texts of the members of the object `name` in an event.

    Raises:
        ModelFailed: it is no object.
    """
    return read_members(read_members(event).get(name, ""))


def read_members(text: str) -> dict[str, str]:
    """The texts of the members of an object that a server sent.

    Raises:
        ModelFailed: it is no object, or one that is too deep.
    """
    return _taken_apart(members, text)


def read_elements(text: str) -> list[str]:
    """The texts of the elements of an array that a server sent.

    Raises:
        ModelFailed: it is no array, or one that is too deep.
    """
    return _taken_apart(elements, text)


def _taken_apart(take: Callable[[str], T], text: str) -> T:
    try:
        return take(text)
    except (ValueError, IndexError, RecursionError):
        raise failed("invalid_response", f"expected JSON of another kind, got {text[:80]!r}") from None


def _without(fields: Mapping[str, str], *names: str) -> dict[str, str]:
    """The members that say something, without the named ones."""
    return {name: text for name, text in fields.items() if name not in names and text not in _NOTHING}

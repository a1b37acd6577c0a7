"""The output items of a Responses answer, collected from events that servers cut in many ways.

Pure. Which item an event is about is where servers differ:

    OpenAI       `output_index` in every event, ids that stay
    llama.cpp    no `output_index`, ids that stay
    Copilot      `output_index`, another id in every event

An item is whole once its `output_item.done` came, or the response's own list has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from adapters.answer_facts import check_number_of_calls
from adapters.joined_text import JoinedText
from adapters.model_failures import failed
from domain.errors import ValueRefused
from domain.model_ports import Block, CallInput, DeclaredCall, Signal, Text, Thinking
from projections.openai_responses_wire import CUSTOM_CALL, ITEM_FORMAT, MESSAGE_FORMAT, REFUSAL_FORMAT
from projections.wire_text import wire_json

#: More than this in one answer is refused: servers that name no item have it looked for among all.
MAX_ITEMS: Final = 1024

CALLS: Final = frozenset({"function_call", CUSTOM_CALL})

#: What can be a phase of a message: anything else would be refused with the whole history.
_PHASE: Final = re.compile(r"[a-z0-9_]{1,64}", re.ASCII)

#: Content parts by type: the field that holds the text, and how it is shown.
_SHOWN: Final[dict[str, tuple[str, type[Text] | type[Thinking]]]] = {
    "output_text": ("text", Text),
    "refusal": ("refusal", Text),
    "summary_text": ("text", Thinking),
    "reasoning_text": ("text", Thinking),
}


@dataclass(slots=True, eq=False)
class OutputItem:
    """One output item so far. `call_index` is its place among the calls, if it is one."""

    call_index: int | None = None
    plain: dict[str, Any] = field(default_factory=dict)
    whole: bool = False
    _pieces: dict[tuple[str, int], JoinedText] = field(default_factory=dict)
    _arguments: JoinedText = field(default_factory=JoinedText)
    _arguments_done: bool = False

    @property
    def type(self) -> str:
        """The item's type; events may come before the item itself."""
        return _word(self.plain.get("type"))

    def add_text(self, kind: str, place: int, piece: str) -> list[Signal]:
        """Take a piece of the part of `kind` at `place`."""
        joined = self._pieces.setdefault((kind, place), JoinedText())
        shown = joined.add(piece)
        return [_SHOWN[kind][1](shown)] if shown else []

    def set_text(self, kind: str, place: int, whole: str) -> list[Signal]:
        """Take a part's whole text; what of it was not shown yet is shown."""
        known = self._pieces.get((kind, place), JoinedText()).text()
        return self.add_text(kind, place, whole[len(known) :]) if whole.startswith(known) else []

    def add_arguments(self, piece: str) -> list[Signal]:
        """Take a piece of a call's arguments."""
        shown = self._arguments.add(piece)
        return [CallInput(self.call_index or 0, shown)] if shown and self.type != CUSTOM_CALL else []

    def set_arguments(self, whole: Any) -> list[Signal]:
        """Take a call's whole arguments."""
        text = _json(whole) if isinstance(whole, dict) else whole
        if not isinstance(text, str):
            return []
        self._arguments_done = True
        known = self._arguments.text()
        if text.startswith(known):
            return self.add_arguments(text[len(known) :])
        self._arguments = JoinedText()  # pieces and whole disagree: the whole is what counts
        self._arguments.add(text)
        return []

    def close(self, plain: dict[str, Any]) -> list[Signal]:
        """Take the whole item; return the pieces that no event brought."""
        if self.whole:
            return []
        self.plain, self.whole = plain, True
        signals: list[Signal] = []
        for kind, place, text in _parts(plain):
            signals += self.set_text(kind, place, text)
        if self.type in CALLS:
            signals += self.set_arguments(plain.get("input" if self.type == CUSTOM_CALL else "arguments"))
        if self.type == CUSTOM_CALL:
            signals.append(CallInput(self.call_index or 0, self.declared().arguments))
        return signals

    def declared(self) -> DeclaredCall:
        """The call that this item is. Free-form input becomes an object with the one key `input`."""
        arguments = self._arguments.text()
        if self.type == CUSTOM_CALL:
            arguments = wire_json({"input": arguments}, "input").decode()
        return DeclaredCall(_word(self.plain.get("call_id")), _word(self.plain.get("name")), arguments)

    @property
    def cut_call(self) -> bool:
        """Whether it is a call that may not be all there: its arguments, or what it calls."""
        if not self.type:
            return bool(self._arguments.text())
        return self.type in CALLS and not (self.whole or self._arguments_done)

    @property
    def refused(self) -> bool:
        """Whether it holds a refusal."""
        return any(kind == "refusal" for kind, _ in self._pieces)

    def blocks(self) -> Iterator[Block]:
        """What is kept of an item that is no call."""
        if self.type == "message" or not self.type:
            phase = self.plain.get("phase")
            phase = phase if isinstance(phase, str) and _PHASE.fullmatch(phase) else ""
            yield Block("text", self._text("output_text"), f"{MESSAGE_FORMAT}/{phase}".rstrip("/"))
            yield Block("text", self._text("refusal"), REFUSAL_FORMAT)
        elif self.whole:
            yield Block("opaque", _json(self.plain), ITEM_FORMAT)

    def _text(self, kind: str) -> str:
        return "".join(joined.text() for (k, _), joined in sorted(self._pieces.items()) if k == kind)


@dataclass(slots=True)
class OutputItems:
    """The items of one answer, in the order in which they began."""

    items: list[OutputItem] = field(default_factory=list)
    calls: int = 0
    _by_index: dict[int, OutputItem] = field(default_factory=dict)
    _by_id: dict[str, OutputItem] = field(default_factory=dict)

    def begin(self, event: dict[str, Any]) -> OutputItem:
        """The item that `output_item.added` is about: a new one, unless it is known and open."""
        plain = _object(event.get("item"))
        known = self._known(event, plain)
        if known is None or known.whole or known.type not in ("", plain.get("type")):
            known = self._new(event.get("output_index"), plain)
        known.plain = plain
        self._count(known, plain)
        return known

    def of(self, event: dict[str, Any]) -> OutputItem:
        """The item that an event is about: by index, by id, otherwise the latest."""
        known = self._known(event, {})
        if known is None and self.items and type(event.get("output_index")) is not int:
            known = self.items[-1]
        return known or self._new(event.get("output_index"), {"id": event.get("item_id")})

    def close(self, event: dict[str, Any]) -> list[Signal]:
        """Take an item that is whole; return the pieces that no event brought."""
        plain = _object(event.get("item"))
        known = self._known(event, plain) or self._unclosed(plain)
        return self._close(known or self._new(event.get("output_index"), plain), plain)

    def fill(self, output: list[Any]) -> list[Signal]:
        """Take the response's own list of its items, for those that no event closed."""
        signals: list[Signal] = []
        left = list(self.items)
        for place, plain in enumerate(output):
            if isinstance(plain, dict):
                known = self._listed(left, place, plain)
                if known is not None:
                    left.remove(known)
                signals += self._close(known or self._new(None, plain), plain)
        return signals

    def _listed(self, left: list[OutputItem], place: int, plain: dict[str, Any]) -> OutputItem | None:
        """Which of the items that are left the list means at `place`. Lists leave items out,
        ids may have changed, and not every event had an index: the best sign there is decides."""
        fitting = [item for item in left if item.type in ("", plain.get("type"))]
        name = _word(plain.get("id"))
        named = (item for item in fitting if name and item.plain.get("id") == name)
        placed = (item for item in fitting if item is self._by_index.get(place))
        return next(chain(named, placed, fitting), None)

    def _close(self, item: OutputItem, plain: dict[str, Any]) -> list[Signal]:
        self._count(item, plain)
        return item.close(plain)

    def _known(self, event: dict[str, Any], plain: dict[str, Any]) -> OutputItem | None:
        index = event.get("output_index")
        if type(index) is int:
            return self._by_index.get(index)
        return self._by_id.get(_word(event.get("item_id")) or _word(plain.get("id")))

    def _unclosed(self, plain: dict[str, Any]) -> OutputItem | None:
        """The first item of the same type that is open, for servers that name nothing the same twice."""
        return next((i for i in self.items if not i.whole and i.type == plain.get("type")), None)

    def _new(self, index: Any, plain: dict[str, Any]) -> OutputItem:
        if len(self.items) == MAX_ITEMS:
            raise failed("response_too_large", f"expected at most {MAX_ITEMS} output items, got more")
        item = OutputItem(plain=plain)
        self.items.append(item)
        if type(index) is int:
            self._by_index[index] = item
        elif name := _word(plain.get("id")):
            self._by_id[name] = item
        return item

    def _count(self, item: OutputItem, plain: dict[str, Any]) -> None:
        """Give a call its place among the calls."""
        if _word(plain.get("type")) not in CALLS or item.call_index is not None:
            return
        check_number_of_calls(self.calls + 1)
        item.call_index = self.calls
        self.calls += 1


def _parts(plain: dict[str, Any]) -> Iterator[tuple[str, int, str]]:
    """(kind, place, text) of the parts of a whole item."""
    for name in ("content", "summary"):
        parts = plain.get(name)
        for place, part in enumerate(parts if isinstance(parts, list) else ()):
            kind = _word(_object(part).get("type"))
            if kind in _SHOWN and isinstance(text := part.get(_SHOWN[kind][0]), str):
                yield kind, place, text


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _json(value: dict[str, Any]) -> str:
    try:
        return wire_json(value, "an output item").decode()
    except ValueRefused as e:
        raise failed("invalid_response", f"expected JSON values, got others ({e})") from None


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""

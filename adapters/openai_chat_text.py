"""What a chat answer holds beside its calls: text, reasoning details, material of vendors.

Pure. Kept apart from the rest of the accumulator because servers send each in several
shapes, whole or in pieces.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

#: Kinds of reasoning detail that come in pieces; the others come whole.
_IN_PIECES: Final = {"reasoning.text": "text", "reasoning.summary": "summary"}


@dataclass(slots=True)
class ReasoningDetails:
    """A `reasoning_details` list that arrives in pieces."""

    _items: list[tuple[dict[str, Any], list[str]]] = field(default_factory=list)

    def add(self, details: Any) -> str:
        """Take the details of one chunk; return the text they brought."""
        shown = ""
        for detail in details if isinstance(details, list) else ():
            if isinstance(detail, dict):
                shown += self._take(detail)
        return shown

    def items(self) -> list[dict[str, Any]]:
        """All of it: each item with the text of all of its pieces."""
        return [
            {**item, key: "".join(pieces)} if (key := _text_key(item)) in item else item
            for item, pieces in self._items
        ]

    def _take(self, detail: dict[str, Any]) -> str:
        """Extend the last item, or begin another; return the text it brought."""
        key = _text_key(detail)
        if not key or not self._continues(detail):
            self._items.append(({}, []))
        item, pieces = self._items[-1]
        brought = text_of(detail.get(key))
        pieces.append(brought)
        item.update({name: value for name, value in detail.items() if _says_more(item, name, value)})
        return brought

    def _continues(self, detail: dict[str, Any]) -> bool:
        last = self._items[-1][0] if self._items else {}
        return all(last.get(same) == detail.get(same) for same in ("type", "index"))


def _text_key(detail: dict[str, Any]) -> str:
    return _IN_PIECES.get(str(detail.get("type")), "")


def _says_more(item: dict[str, Any], name: str, value: Any) -> bool:
    """Later pieces come with empty signatures: those must not wipe out one that is there."""
    return value is not None and (value != "" or name not in item)


def text_of(content: Any) -> str:
    """Text content: a string, or the text parts of a list of parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part.get("text") for part in content if isinstance(part, dict)]
    return "".join(part for part in parts if isinstance(part, str))


def merged(known: Any, more: Any) -> Any:
    """Material from two chunks: objects are merged into the first, otherwise the later one counts."""
    if isinstance(known, dict) and isinstance(more, dict):
        for key, value in more.items():
            known[key] = merged(known.get(key), value)
        return known
    return more if more not in (None, "", {}, []) else known

"""`JoinedText`: a string of an answer put together from pieces, in every dialect.

Pure. Some servers cut text between the two halves of a character outside the
basic plane, as JavaScript strings allow; the halves find each other here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from projections.wire_text import scrub

_HIGH_HALVES: Final = range(0xD800, 0xDC00)


@dataclass(slots=True)
class JoinedText:
    """A string that arrives in pieces."""

    _pieces: list[str] = field(default_factory=list)
    _held: str = ""
    _size: int = 0

    def add(self, piece: str) -> str:
        """Take a piece; return what can be shown of it: whole characters, valid Unicode."""
        if not piece:
            return ""
        self._pieces.append(piece)
        self._size += len(piece)
        shown, self._held = self._held + piece, ""
        if ord(shown[-1]) in _HIGH_HALVES:
            shown, self._held = shown[:-1], shown[-1]
        if shown.isascii():
            return shown
        return str(scrub(_with_halves_joined(shown)))

    def is_just(self, text: str) -> bool:
        """Whether all of it is `text`. Joins the pieces only where it may be."""
        return self._size == len(text) and self.text() == text

    def ends_with(self, mark: str) -> bool:
        """Whether that is the last of it but for white space. Does not join the pieces."""
        said = (piece.rstrip() for piece in reversed(self._pieces))
        return next((piece for piece in said if piece), "").endswith(mark)

    def text(self) -> str:
        """All of it; a half that never found its other half stays as it came."""
        return _with_halves_joined("".join(self._pieces))


def _with_halves_joined(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")

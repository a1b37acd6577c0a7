"""Everything that a journal holds and a terminal shows goes through here.

A journal keeps what models, tools and strangers wrote. On a terminal some of it
would move the cursor, hide text, turn it around or be invisible; here it becomes
text that can be seen. Pure; nothing here knows what is printed.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Final

import orjson

from domain import canonical

#: Control, format (bidi, zero-width, tags), surrogate, private and unassigned characters, separators.
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
#: Letters by name, nothing by sight.
_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
#: Spaces that are not the space: they hide where words end.
_SPACES: Final = frozenset(
    "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f"
)
_PLAIN: Final = re.compile(r"[ -~]*", re.ASCII)
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\x1b"}
_NOT_PRINTABLE_ASCII: Final = re.compile("[^ -~\n]")


def visible(text: str) -> str:
    """`text` with every character that cannot be seen, or that changes how others are seen, spelled out.

    Line ends become `\\n`; everything printable stays as it is.
    """
    if _PLAIN.fullmatch(text):
        return text
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if unicodedata.category(character) in _INVISIBLE or character in _BLANK or character in _SPACES:
        return _SHORT.get(character) or _spelled(character)
    return character


def _spelled(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def brief(value: Any, limit: int = 200) -> str:
    """A text or a plain value on one visible line of at most `limit` characters."""
    text = value if isinstance(value, str) else json_text(value, indent=False)
    if len(text) > limit:
        text = text[: limit - 3] + "..."
    shown = visible(text)
    return shown if len(shown) <= 4 * limit else shown[: 4 * limit - 3] + "..."


def json_text(value: Any, *, indent: bool = True) -> str:
    """A plain value as JSON in ASCII: whatever it holds, a terminal shows it and does nothing else.

    What JSON cannot hold is marked as in a journal (`domain.canonical`).
    """
    options = orjson.OPT_SORT_KEYS | (orjson.OPT_INDENT_2 if indent else 0)
    text = orjson.dumps(canonical.escape(value), option=options).decode()
    return _NOT_PRINTABLE_ASCII.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"

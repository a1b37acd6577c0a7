"""JSON taken apart without changing it: the text of each part, as it was received.

Pure. Provider material has to go back as it came; a number or an escape that was
parsed and written again may look different. Only for text that is known to be JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from typing import Final

import orjson

_SPACE: Final = re.compile(r"[ \t\n\r]*")
#: Numbers stay text: only where a value ends is wanted, and some have too many digits to be parsed.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str)


def members(text: str) -> dict[str, str]:
    """Name and text of each member of an object; of a name that comes twice, the last.

    Raises:
        ValueError: it is no object.
    """
    found: dict[str, str] = {}
    at = _opened(text, "{")
    while text[at] != "}":
        name, end = _DECODER.raw_decode(text, at)
        start = _skip(text, _skip(text, end) + 1)
        end = _DECODER.raw_decode(text, start)[1]
        found[name] = text[start:end]
        at = _next(text, end)
    return found


def elements(text: str) -> list[str]:
    """The text of each element of an array.

    Raises:
        ValueError: it is no array.
    """
    found: list[str] = []
    at = _opened(text, "[")
    while text[at] != "]":
        end = _DECODER.raw_decode(text, at)[1]
        found.append(text[at:end])
        at = _next(text, end)
    return found


def joined(fields: Mapping[str, str]) -> str:
    """The object with these members."""
    return "{" + ",".join(f"{exact_json(name)}:{value}" for name, value in fields.items()) + "}"


def exact_json(value: str) -> str:
    """A string as JSON that gives the same string back, lone surrogates included."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # it refuses surrogates
        return encode_basestring_ascii(value)


def string(text: str) -> str | None:
    """The string that `text` is the JSON of, or None where it is something else."""
    value = json.loads(text) if text.startswith('"') else None
    return value if isinstance(value, str) else None


def is_object(text: str) -> bool:
    """Whether `text` is one JSON object."""
    try:
        return isinstance(json.loads(text, parse_int=str, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _opened(text: str, bracket: str) -> int:
    """Where the first part begins, or the closing bracket."""
    at = _skip(text, 0)
    if text[at : at + 1] != bracket:
        raise ValueError(f"expected {bracket}, got {text[:40]!r}")
    return _skip(text, at + 1)


def _next(text: str, at: int) -> int:
    """Where the next part begins, or the closing bracket."""
    at = _skip(text, at)
    return _skip(text, at + 1) if text[at] == "," else at

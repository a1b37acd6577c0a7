"""The raw argument text of a call, read by one strict parser.

The plan judges a response with it, the tool runtime binds what it returns. It is
here and nowhere else, so that what a person approves, what the journal keeps and
what the tool gets are one value. Knowing a tool's schema does not belong here
(see `minutebook.arguments`).
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any, Final, NoReturn

from domain import canonical
from domain.errors import ArgumentsRefused, ValueRefused
from domain.limits import MAX_JSON_DEPTH
from domain.preview import preview

#: Levels that an event's payload needs around the arguments it holds.
PAYLOAD_LEVELS: Final = 8
MAX_ARGUMENT_DEPTH: Final = MAX_JSON_DEPTH - PAYLOAD_LEVELS
MAX_DIGITS: Final = 4000

_JSON_SPACE: Final = " \t\r\n"
_SHOWN: Final = 1000  # more than any preview shows; spares a copy of a huge text
#: A string (also one that is cut off), or one bracket. Cut-off strings are matched
#: to the end of the text, otherwise each quote in one would be tried again.
_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)


def parse_arguments(raw: str) -> dict[str, Any]:
    """Read the argument text of a call; it is one JSON object or it is refused.

    Nothing is repaired and nothing is guessed. An empty text, which providers
    send for tools without parameters, is an empty object. Integers stay
    integers however long, text keeps lone surrogates.

    Args:
        raw: the text as the provider sent it.

    Returns:
        The object. `canonical_digest` accepts it.

    Raises:
        ArgumentsRefused: not JSON, cut off, followed by more text, not an object, a key
            given twice, a number that is not finite or has more than `MAX_DIGITS` digits,
            or deeper than `MAX_ARGUMENT_DEPTH` levels. Tell the model; run nothing.
    """
    if not raw.strip(_JSON_SPACE):
        return {}
    if _depth_exceeds(raw, MAX_ARGUMENT_DEPTH):
        _refuse(f"expected at most {MAX_ARGUMENT_DEPTH} levels of nesting", raw)
    try:
        value = _DECODER.decode(raw)
        canonical.encode(value)
    except (json.JSONDecodeError, RecursionError) as e:
        _refuse(f"expected one JSON object: {_where(e)}", raw)
    except _Refusal as e:
        _refuse(str(e), raw)
    except ValueRefused as e:
        _refuse(f"at {preview(e.path)}: expected {e.expected}", raw)
    if not isinstance(value, dict):
        _refuse(f"expected one JSON object, found {_name(value)}", raw)
    return value


def canonical_digest(arguments: dict[str, Any]) -> str:
    """The digest of a call's input: equal values give equal digests.

    How the value was built does not count (shared or copied parts, order of
    keys); the kind of a number does (1 is not 1.0).

    Args:
        arguments: what `parse_arguments` returned, or plain values that a journal can keep.

    Returns:
        SHA-256 in hex.

    Raises:
        ValueRefused: a value cannot be kept; `path` says where.
    """
    return canonical.digest(arguments)


class _Refusal(Exception):
    """Raised inside the decoder's hooks, where the raw text is not at hand."""


def _refuse(reason: str, raw: str) -> NoReturn:
    raise ArgumentsRefused(reason, raw[:_SHOWN]) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        twice = [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]
        raise _Refusal(f"expected each key once, found {preview(twice[0])} again")
    return value


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise _Refusal(f"expected integers of at most {MAX_DIGITS} digits")
    try:
        return int(digits)
    except ValueError as e:  # the application may have set a lower limit for the interpreter
        raise _Refusal(f"expected shorter integers: {e}") from e


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Refusal(f"expected numbers that a float can hold, found {preview(text)}")
    return value


def _constant(name: str) -> NoReturn:
    raise _Refusal(f"expected finite numbers, found {name}")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_number, parse_constant=_constant
)


def _depth_exceeds(raw: str, limit: int) -> bool:
    if raw.count("{") + raw.count("[") <= limit:
        return False
    depth = 0
    for match in _TOKEN.finditer(raw):
        first = match[0][0]
        depth += (first in "[{") - (first in "]}")
        if depth > limit:
            return True
    return False


def _where(error: json.JSONDecodeError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "nested too deep to read"
    return f"{error.msg} (character {error.pos})"


def _name(value: object) -> str:
    if value is None:
        return "null"
    names = {list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return names[type(value)]

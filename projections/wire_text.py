"""Text and values as every provider's server can read them: JSON in valid UTF-8.

The dialects' encoders import this. The journal keeps what arrived, exactly; a
request body cannot, because servers refuse what is not Unicode. Nothing here is
ever stored.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from domain.errors import ValueRefused

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_REPLACEMENT: Final = "\ufffd"


def scrub(value: Any) -> Any:
    """`value` with every lone surrogate replaced by U+FFFD, in keys and in items."""
    if isinstance(value, str):
        return _SURROGATE.sub(_REPLACEMENT, value)
    if isinstance(value, dict):
        return {scrub(key): scrub(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrub(item) for item in value]
    return value


def wire_json(value: Any, where: str) -> bytes:
    """Encode a plain value for a request body.

    Args:
        value: what `orjson` can write; lone surrogates are replaced.
        where: what to call it in a message, e.g. "tools".

    Raises:
        ValueRefused: it holds something that JSON on the wire cannot carry
            (an integer beyond 64 bit, bytes). Change the value.
    """
    try:
        return orjson.dumps(value)
    except TypeError:  # surrogates are rare: look for them only when they are in the way
        return _scrubbed_json(value, where)


def read_json(text: str) -> Any:
    """The value that kept text says, or None where it is no JSON: it may come from a foreign journal."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _scrubbed_json(value: Any, where: str) -> bytes:
    try:
        return orjson.dumps(scrub(value))
    except (TypeError, RecursionError) as e:
        raise ValueRefused(where, f"a value that goes into a request body ({e})", value) from None

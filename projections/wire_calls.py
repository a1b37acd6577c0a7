"""Calls as every provider's server takes them: ids, names, arguments and results.

Pure; the dialects' encoders import it. The journal keeps what the model wrote; what
servers would refuse, and with it the whole history, is written differently here.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Final

import orjson

from projections.wire_text import scrub

EMPTY_OUTPUT: Final = "(no output)"
EMPTY_INPUT: Final = "(empty message)"
UNNAMED_TOOL: Final = "unnamed_tool"

_SAFE_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}", re.ASCII)
_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)
_PREVIEW_CHARACTERS: Final = 200


def wire_call_id(call_id: str) -> str:
    """`call_id` where every server takes it, otherwise a digest of it.

    The same for a call and its result, because it depends on the id alone.
    """
    if _SAFE_ID.fullmatch(call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"call_{digest[:32]}"


def wire_name(name: str) -> str:
    """A tool's name in the alphabet and length that every server takes."""
    if _SAFE_NAME.fullmatch(name):
        return name
    return _NOT_IN_NAME.sub("_", name)[:64] or UNNAMED_TOOL


def wire_arguments(arguments: str) -> str:
    """Raw argument text as servers take it back: the text of one JSON object.

    Text that is an object goes back as it came; an empty one is `{}`. Anything
    else would be refused with the whole history, so the model is shown what it
    wrote, shortened, inside an object.
    """
    text: str = scrub(arguments)
    if not text.strip():
        return "{}"
    if _is_object(text):
        return text
    return _rewritten(text) or orjson.dumps({"_malformed": _shortened(text)}).decode()


def wire_output(output: str) -> str:
    """What a call brought, as text that servers take: an empty one would be refused."""
    return output if output.strip() else EMPTY_OUTPUT


def _shortened(text: str) -> str:
    return text if len(text) <= _PREVIEW_CHARACTERS else text[:_PREVIEW_CHARACTERS] + "..."


def _is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def _rewritten(text: str) -> str | None:
    """An object that only escapes like `\\ud83d` keep from being valid, with those replaced."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        return orjson.dumps(scrub(value)).decode() if isinstance(value, dict) else None
    except (ValueError, TypeError, RecursionError):
        return None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        _refuse(number)
    return value

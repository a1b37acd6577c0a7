"""Values to bytes and back: the one encoder of everything a journal stores.

JSON with sorted keys, plus one reversible, marked escape for what JSON as we
write it cannot hold. The escape is part of the journal format:

    {"$mb": "int", "v": "<decimal digits>"}     integers outside 64 bit
    {"$mb": "str", "v": "<text>"}               text with lone surrogates, each as
                                                \\uXXXX, and backslashes doubled
    {"$mb": "bytes", "v": "<base64>"}           bytes
    {"$mb": "obj", "v": [[key, value], ...]}    objects whose keys need an escape,
                                                or that have a key "$mb" themselves

Refused, with the path of the offender: numbers that are not finite, keys that
are not text, nesting deeper than `MAX_JSON_DEPTH`, anything else.

"Canonical" means the bytes as stored. Verifiers hash stored bytes; they never
encode again. There is no second serialiser to fall back to.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from typing import Any, Final

import orjson

from domain.errors import Corrupt, ValueRefused
from domain.limits import MAX_JSON_DEPTH

MARK: Final = "$mb"
_MARK_BYTES: Final = b'"$mb"'
_INT64: Final = range(-(2**63), 2**63)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ESCAPED: Final = re.compile(r"\\(\\|u[0-9a-f]{4})")
_MAX_ESCAPED_DIGITS: Final = 4000  # int(text) refuses longer ones by default
_TOO_LONG: Final = 10**_MAX_ESCAPED_DIGITS


def encode(value: Any) -> bytes:
    """Encode a plain value (None, bool, int, float, str, bytes, list, tuple, dict).

    Raises:
        ValueRefused: the value cannot be kept; `path` says where.
    """
    escaped = escape(value)
    try:
        return orjson.dumps(escaped, option=orjson.OPT_SORT_KEYS)
    except TypeError as e:  # escaped objects take three levels each, and orjson stops at 254
        raise ValueRefused("$", f"at most {MAX_JSON_DEPTH} levels of nesting", "a deeper value") from e


def encode_envelope(value: dict[str, Any]) -> bytes:
    """`encode` for an envelope: small integers and text, nothing else that could need a mark.

    The same bytes as `encode`, without walking the value, unless a text in it needs a mark.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return encode(value)


def decode(data: bytes) -> Any:
    """The value that `encode` was given (tuples come back as lists).

    Raises:
        Corrupt: the bytes are not what `encode` writes.
    """
    try:
        value = orjson.loads(data)
        value = _unescape(value) if _MARK_BYTES in data else value
        if data.count(b"[") + data.count(b"{") > MAX_JSON_DEPTH:
            escape(value)  # refuses what is nested too deep to be written again
        return value
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise Corrupt("stored value", "canonical JSON", data[:80]) from e


def digest(value: Any) -> str:
    """SHA-256 (hex) of a value's stored form."""
    return hashlib.sha256(encode(value)).hexdigest()


def escape(value: Any, path: str = "$", depth: int = 0) -> Any:
    """`value` with everything marked that JSON as we write it cannot hold."""
    if depth > MAX_JSON_DEPTH:
        raise ValueRefused(path, f"at most {MAX_JSON_DEPTH} levels of nesting", "a deeper value")
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _escape_text(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if value in _INT64 else _escape_int(value, path)
    if kind is float:
        if not math.isfinite(value):
            raise ValueRefused(path, "a finite number", value)
        return value
    if kind is dict:
        return _escape_object(value, path, depth)
    if kind is list or kind is tuple:
        return [escape(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
    if kind is bytes:
        return {MARK: "bytes", "v": base64.b64encode(value).decode("ascii")}
    return escape(_base_value(value, path), path, depth)


def _base_value(value: Any, path: str) -> Any:
    """Subclasses (enums, named tuples) are kept as their base."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, list | tuple):
        return list(value)
    raise ValueRefused(path, "a JSON value", value)


def _escape_int(value: int, path: str) -> Any:
    if not -_TOO_LONG < value < _TOO_LONG:
        raise ValueRefused(path, f"an integer of at most {_MAX_ESCAPED_DIGITS} digits", "a longer one")
    return {MARK: "int", "v": str(value)}


def _escape_text(text: str) -> Any:
    if not _SURROGATE.search(text):
        return text
    doubled = text.replace("\\", "\\\\")
    return {MARK: "str", "v": _SURROGATE.sub(lambda m: f"\\u{ord(m[0]):04x}", doubled)}


def _escape_object(value: dict[Any, Any], path: str, depth: int) -> Any:
    plain: dict[str, Any] = {}
    odd = MARK in value
    for key, item in value.items():
        if not isinstance(key, str):
            raise ValueRefused(path, "text as object key", key)
        key = str.__str__(key)
        odd = odd or _SURROGATE.search(key) is not None
        plain[key] = escape(item, f"{path}.{key}", depth + 1)
    if not odd:
        return plain
    return {MARK: "obj", "v": [[_escape_text(key), plain[key]] for key in sorted(plain)]}


def _unescape(value: Any) -> Any:
    if isinstance(value, list):
        return [_unescape(item) for item in value]
    if not isinstance(value, dict):
        return value
    match value.get(MARK):
        case None:
            return {key: _unescape(item) for key, item in value.items()}
        case "int":
            return int(value["v"])
        case "str":
            return _ESCAPED.sub(lambda m: "\\" if m[1] == "\\" else chr(int(m[1][1:], 16)), value["v"])
        case "bytes":
            return base64.b64decode(value["v"], validate=True)
        case "obj":
            return {_unescape(key): _unescape(item) for key, item in value["v"]}
        case other:
            raise ValueError(f"unknown mark {other!r}")

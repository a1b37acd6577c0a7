"""Values, argument texts and names that nobody expects. Each is made new when asked for.

Imported by the suites of `tests/corpus`. What has to become of a value is said beside
it only where there is one right answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import partial
from typing import Any, Final

from tests.corpus.texts import RAW_BYTES, TEXTS

Make = Callable[[], Any]


def nested(levels: int, *, as_object: bool = False) -> Any:
    """A value inside so many lists, or objects."""
    value: Any = 1
    for _ in range(levels):
        value = {"k": value} if as_object else [value]
    return value


def circle() -> Any:
    """A list that holds itself."""
    value: list[Any] = []
    value.append(value)
    return value


def bomb() -> Any:
    """A few small lists that stand for 10^8 values."""
    value: Any = "x"
    for _ in range(8):
        value = [value] * 10
    return value


class Angry:
    """An object that fails however it is looked at."""

    @property
    def __dict__(self) -> Any:  # type: ignore[override]  # raising is what it is for
        raise RuntimeError("never")

    def __str__(self) -> str:
        raise RuntimeError("never")

    __repr__ = __str__


class Reduces:
    """An object that would run code where somebody pickled it and read it again."""

    def __reduce__(self) -> Any:
        raise AssertionError("somebody pickled a value")


#: Levels of nesting: around our own limit, orjson's, the interpreter's, and far beyond.
DEPTHS: Final = (99, 100, 101, 255, 1025, 100_000)

INTEGERS: Final[dict[str, int]] = {
    "2^53": 2**53,
    "2^53 + 1": 2**53 + 1,
    "2^63 - 1": 2**63 - 1,
    "2^63": 2**63,
    "-2^63 - 1": -(2**63) - 1,
    "2^64": 2**64,
    "4000 digits": 10**4000 - 1,
    "5000 digits": 10**4999,
}

FLOATS: Final[dict[str, float]] = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
    "-0.0": -0.0,
    "smallest": 5e-324,
    "largest": 1.7976931348623157e308,
    "1e16": 1e16,
}

OBJECTS: Final[dict[str, Make]] = {
    "langchain constructor": lambda: {
        "lc": 2,
        "type": "constructor",
        "id": ["os", "system"],
        "kwargs": {"c": "id"},
    },
    "langchain secret": lambda: {"lc": 1, "type": "secret", "id": ["OPENAI_API_KEY"]},
    "class key": lambda: {"__class__": "os.system", "__reduce__": ["id"], "__dict__": {}},
    "py/object": lambda: {"py/object": "os.system", "py/reduce": [{"py/function": "os.system"}]},
    "prototype keys": lambda: {"__proto__": {"x": 1}, "constructor": {"prototype": {}}, "toString": 1},
    "our own mark": lambda: {"$mb": "bytes", "v": "AAAA"},
    "our own mark, unknown": lambda: {"$mb": "code", "v": [{"$mb": "obj", "v": 5}]},
    "topic": lambda: {"type": "session_closed", "version": 1, "topic": "os:system"},
    "hostile keys": lambda: {text: name for name, text in TEXTS.items()},
    "dotted keys": lambda: {"a.b": 1, "a[0]": 2, "$": 3, "": 4, "a\nb": 5},
    "keys of two forms": lambda: {"\u00e9": 1, "e\u0301": 2},
}

#: What a tool may hand out besides plain values.
OTHERS: Final[dict[str, Make]] = {
    "a circle": circle,
    "10^5 small values": lambda: [0] * 99_999,
    "an angry object": Angry,
    "an object that reduces": Reduces,
    "an object deep inside": lambda: {"a": [{"b": object()}]},
    "a key that is no text": lambda: {1: "one", None: "none"},
    "a generator": lambda: (n for n in range(3)),
    "an endless generator": lambda: iter(int, 1),
    "a set": lambda: {"b", "a"},
    "a tuple": lambda: (1, (2, ())),
    "a decimal": lambda: Decimal("1.10"),
    "a decimal NaN": lambda: Decimal("NaN"),
    "a function": lambda: print,
    "a class": lambda: Angry,
    "an exception": lambda: ValueError("\x1b[31m"),
    "a complex number": lambda: 1j,
    "200,000 characters": lambda: "x" * 200_000,
    "2 million wide characters": lambda: "漢" * 2_000_000,
    "a line of 3 MiB of NULs": lambda: "\0" * (3 * 1024 * 1024),
}


#: Values of which reading a million parts takes a while.
MANY: Final[dict[str, Make]] = {
    "a bomb": bomb,
    "10^6 small values": lambda: [0] * 999_999,
    "more than 10^6 values": lambda: [[]] * 1_000_001,
}


def giving(value: Any) -> Make:
    """A value that need not be made."""
    return lambda: value


def plain_values() -> dict[str, Make]:
    """Everything that is text, bytes, numbers, lists and objects: what arguments and metadata can be."""
    made: dict[str, Make] = {f"text: {name}": giving(text) for name, text in TEXTS.items()}
    made |= {f"bytes: {name}": giving(data) for name, data in RAW_BYTES.items()}
    made |= {f"integer: {name}": giving(number) for name, number in INTEGERS.items()}
    made |= {f"float: {name}": giving(number) for name, number in FLOATS.items()}
    made |= {f"{levels} lists": partial(nested, levels) for levels in DEPTHS}
    made |= {f"{levels} objects": partial(nested, levels, as_object=True) for levels in DEPTHS}
    return made | {f"object: {name}": make for name, make in OBJECTS.items()}


def tool_outputs() -> dict[str, Make]:
    """Everything that a tool may return."""
    return plain_values() | OTHERS


def groups(names: Iterable[str], size: int = 16) -> list[list[str]]:
    """Names in groups of a size: one session for each group is much quicker than for each name."""
    listed = list(names)
    return [listed[at : at + size] for at in range(0, len(listed), size)]


def _in_text(text: str) -> str:
    """A text as a JSON string, as careless servers write it: surrogates escaped, the rest as it is."""
    short = {'"': '\\"', "\\": "\\\\"}
    return '"' + "".join(short.get(c) or _unit(c) for c in text) + '"'


def _unit(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x20 or 0xD800 <= code < 0xE000 else character


#: Argument texts as a model sends them, and whether a tool that takes any `value` gets them.
RAW_ARGUMENTS: Final[dict[str, tuple[str, bool]]] = {
    **{f"text: {name}": (f'{{"value":{_in_text(text)}}}', True) for name, text in TEXTS.items()},
    "empty": ("", True),
    "empty object": ("{}", True),
    "lone surrogate escaped": ('{"value":"\\ud800"}', True),
    "duplicate keys": ('{"value":1,"value":2}', False),
    "duplicate keys inside": ('{"value":{"a":1,"a":2}}', False),
    "duplicate keys written differently": ('{"value":1,"\\u0076alue":2}', False),
    "NaN": ('{"value":NaN}', False),
    "Infinity": ('{"value":-Infinity}', False),
    "1e999": ('{"value":1e999}', False),
    "-0.0": ('{"value":-0.0}', True),
    "2^53 + 1": ('{"value":9007199254740993}', True),
    "2^64": ('{"value":18446744073709551616}', True),
    "4000 digits": ('{"value":' + "9" * 4000 + "}", True),
    "5000 digits": ('{"value":' + "9" * 5000 + "}", False),
    "90 lists": ('{"value":' + "[" * 90 + "]" * 90 + "}", True),
    "255 lists": ('{"value":' + "[" * 255 + "]" * 255 + "}", False),
    "1025 lists": ('{"value":' + "[" * 1025 + "]" * 1025 + "}", False),
    "100,000 lists": ('{"value":' + "[" * 100_000 + "]" * 100_000 + "}", False),
    "100,000 objects": ('{"value":' + '{"":' * 100_000, False),
    "cut": ('{"value":"abc', False),
    "cut inside an escape": ('{"value":"\\ud8', False),
    "two values": ('{"value":1}{"value":2}', False),
    "comment": ('{"value":1/*x*/}', False),
    "trailing comma": ('{"value":1,}', False),
    "single quotes": ("{'value':1}", False),
    "a list": ('["value"]', False),
    "a text": ('"value"', False),
    "null": ("null", False),
    "BOM": ('\ufeff{"value":1}', False),
    "control character unescaped": ('{"value":"\x01"}', False),
    "raw lone surrogate": ('{"value":"\ud800"}', True),
    "prose": ("Sure! Here are the arguments: {}", False),
    "markdown": ('```json\n{"value":1}\n```', False),
    "prototype": ('{"value":{"__proto__":{"x":1},"constructor":{}}}', True),
    "langchain constructor": ('{"value":{"lc":2,"type":"constructor","id":["os","system"]}}', True),
    "our own mark": ('{"value":{"$mb":"bytes","v":"AAAA"}}', True),
    "unknown parameter": ('{"value":1,"__class__":2}', False),
    "a megabyte": ('{"value":"' + "x" * 300_000 + '"}', True),
}

#: Ids that are one path segment.
GOOD_IDS: Final = ("a", "A9._-", "x" * 128, "0", "a.b-c_d", "r1.t1.a1.c0", "CON", "NUL.txt", "-".join("abc"))

#: Ids that are not; a store must never see one of them.
BAD_IDS: Final[dict[str, Any]] = {
    **{f"text: {name}": text for name, text in TEXTS.items() if name not in ("device", "a thousand")},
    "129 characters": "x" * 129,
    "a thousand": "x" * 1000,
    "dot": ".",
    "two dots": "..",
    "two dots inside": "a..b",
    "hidden": ".hidden",
    "option": "-rf",
    "slash": "a/b",
    "absolute": "/etc/passwd",
    "backslash": "a\\b",
    "drive": "C:x",
    "percent": "%2e%2e%2f",
    "stream": "a:b",
    "line end": "a\n",
    "NUL at the end": "a\0",
    "fullwidth": "ａｂｃ",  # noqa: RUF001
    "one dot leader": "a\u2024\u2024b",
    "division slash": "a\u2215b",
    "arabic digits": "\u0661\u0662",
    "no text": 5,
    "bytes": b"a",
    "nothing": None,
    "a list": ["a"],
}

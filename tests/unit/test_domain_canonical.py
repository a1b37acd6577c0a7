"""Values that hurt others, one by one: kept exactly, or refused with the place."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest

from domain import catalogue
from domain import events as ev
from domain.canonical import decode, digest, encode
from domain.errors import Corrupt, ValueRefused
from domain.limits import MAX_JSON_DEPTH
from domain.settings import Settings
from domain.values import Priority
from minutebook.testing.scenario import SETTINGS

KEPT: dict[str, Any] = {
    "nothing": None,
    "nul": "a\x00b",
    "nul in a key": {"k\x00": 1},
    "lone high surrogate": "\ud83d",
    "lone low surrogate": "\ude00x",
    "surrogate in a key": {"\ud800": {"\udfff": "\ud800"}},
    "a whole pair": "\U0001f600",
    "pair in halves": "\ud83d\ude00",
    "line separators": "\u2028\u2029\x85",
    "byte order mark": "\ufeffx",
    "terminal escapes": "\x1b[2J\x1b]52;c;AA==\x07\x1b]8;;http://x\x1b\\",
    "right-to-left override": "abc\u202egpj.exe",
    "zero width": "a\u200b\u2060b",
    "backslashes": "\\ \\\\ \\u0041 \\ud800",
    "backslashes beside a surrogate": "\\ud800 \ud800 \\\\",
    "markup": "<script>alert(1)</script>",
    "spreadsheet formula": "=cmd|' /C calc'!A0",
    "python names": {"__class__": "os.system", "__reduce__": ["x"]},
    "class of another library": {"lc": 2, "type": "constructor", "id": ["os", "system"], "kwargs": {}},
    "pickle": b"\x80\x04\x95.",
    "our mark": {"$mb": "int", "v": "5"},
    "our mark with nothing": {"$mb": None},
    "our mark, nested": {"$mb": {"$mb": {"$mb": "obj", "v": []}}},
    "our mark in a list": [{"$mb": "bytes", "v": "AA=="}, {"$mb": 1}],
    "our mark as text": "$mb",
    "a key beside our mark": {"$mb": "str", "v": "\\ud800", "z": "\ud800"},
    "2**53 + 1": 2**53 + 1,
    "2**63 - 1": 2**63 - 1,
    "2**63": 2**63,
    "-2**63": -(2**63),
    "-2**63 - 1": -(2**63) - 1,
    "2**64": 2**64,
    "2**70": 2**70,
    "as many digits as there may be": 10**3999,
    "minus zero": -0.0,
    "whole floats": [1.0, 100.0, 1e16, 1e22],
    "smallest float": 5e-324,
    "largest float": 1.7976931348623157e308,
    "one three ways": [1, 1.0, True],
    "bytes": b"\x00\xff",
    "no bytes": b"",
    "keys out of order": {"b": 1, "a": {"d": 1, "c": 2}},
    "keys that are alike": {"\u00e9": 1, "e\u0301": 2},
    "keys beyond the basic plane": {"\U0001f600": 1, "\uffff": 2},
    "an empty key": {"": {"": []}},
}


@pytest.mark.parametrize("value", KEPT.values(), ids=KEPT)
def test_it_is_kept_exactly(value: Any) -> None:
    stored = encode(value)
    assert repr(decode(stored)) == repr(_sorted(value))
    assert encode(decode(stored)) == stored


@pytest.mark.parametrize("value", KEPT.values(), ids=KEPT)
def test_an_event_keeps_it_exactly(value: Any) -> None:
    payload = ev.ToolCompleted(output="ok", value=value, messages=[value])
    opened = catalogue.decode("tool_completed", 1, catalogue.encode(payload))
    assert isinstance(opened, ev.ToolCompleted)
    assert repr(opened.value) == repr(_sorted(value))
    assert opened == payload


def _sorted(value: Any) -> Any:
    """As decoded: objects come back in the order of their keys."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


Point = namedtuple("Point", "x y")


class Level(IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ((1, (2,)), [1, [2]]),
        (Point(1, 2), [1, 2]),
        (Priority.NOW, "now"),
        (Level.HIGH, 3),
        ({Priority.NOW: Level.HIGH}, {"now": 3}),
    ],
    ids=["tuple", "named tuple", "word", "number", "key"],
)
def test_what_is_a_list_text_or_number_underneath_is_kept_as_that(value: Any, kept: Any) -> None:
    decoded = decode(encode(value))
    assert repr(decoded) == repr(kept)


def circle() -> Any:
    loop: list[Any] = [1]
    loop.append({"again": loop})
    return loop


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "not a number": (lambda: {"a": [0, math.nan]}, "$.a[1]"),
    "infinity": (lambda: [math.inf], "$[0]"),
    "minus infinity": (lambda: {"x": {"y": -math.inf}}, "$.x.y"),
    "an object": (lambda: {"a": [{"b": object()}]}, "$.a[0].b"),
    "a set": (lambda: {"a": {1, 2}}, "$.a"),
    "a decimal": (lambda: [Decimal(1)], "$[0]"),
    "a bytearray": (lambda: {"a": bytearray(b"x")}, "$.a"),
    "a complex number": (lambda: [1j], "$[0]"),
    "a class": (lambda: {"a": int}, "$.a"),
    "a key that is a number": (lambda: {"a": {1: 2}}, "$.a"),
    "a key that is nothing": (lambda: {None: 2}, "$"),
    "a key that is bytes": (lambda: [{b"k": 2}], "$[0]"),
    "5000 digits": (lambda: {"a": 10**5000}, "$.a"),
    "minus 5000 digits": (lambda: {"a": -(10**5000)}, "$.a"),
    "a circle": (circle, "$[1].again[1].again"),
}


@pytest.mark.parametrize(("make", "path"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_with_the_place(make: Callable[[], Any], path: str) -> None:
    with pytest.raises(ValueRefused) as refused:
        encode(make())
    assert refused.value.path.startswith(path)
    assert refused.value.code == "VALUE_REFUSED"
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(("make", "path"), REFUSED.values(), ids=REFUSED)
def test_no_event_takes_it(make: Callable[[], Any], path: str) -> None:
    with pytest.raises(ValueRefused) as refused:
        catalogue.encode(ev.NoticeRecorded(kind="k", message="m", data=make()))
    assert refused.value.path.startswith("$.data" + path[1:])


def nested(levels: int, kind: str = "list", inner: Any = 1) -> Any:
    for _ in range(levels):
        inner = [inner] if kind == "list" else {"$mb" if kind == "mark" else "k": inner}
    return inner


@pytest.mark.parametrize("kind", ["list", "object"])
@pytest.mark.parametrize("levels", [99, MAX_JSON_DEPTH])
def test_a_hundred_levels_are_kept(levels: int, kind: str) -> None:
    value = nested(levels, kind)
    assert decode(encode(value)) == value


@pytest.mark.parametrize("kind", ["list", "object", "mark"])
@pytest.mark.parametrize("levels", [101, 255, 1025, 5000])
def test_more_are_refused(levels: int, kind: str) -> None:
    with pytest.raises(ValueRefused, match="levels of nesting"):
        encode(nested(levels, kind))


def test_objects_that_need_a_mark_nest_less_deep() -> None:
    """Each takes three levels of what is stored, and the encoder has a limit of its own."""
    assert decode(encode(nested(80, "mark"))) == nested(80, "mark")
    with pytest.raises(ValueRefused, match="levels of nesting"):
        encode(nested(100, "mark"))


@pytest.mark.parametrize("levels", [101, 255, 1023, 1024, 1025, 100_000])
def test_stored_bytes_of_more_levels_are_not_read(levels: int) -> None:
    with pytest.raises(Corrupt, match="canonical JSON"):
        decode(b"[" * levels + b"1" + b"]" * levels)


STRANGE: dict[str, bytes] = {
    "nothing": b"",
    "cut": b'{"a":1',
    "two values": b"1 2",
    "not a number": b"NaN",
    "too large for a float": b"1E400",
    "escaped surrogate": b'"\\ud83d"',
    "overlong encoding": b'"\xc0\x80"',
    "cut inside a character": b'"\xe2\x82',
    "byte order mark": b"\xef\xbb\xbf1",
    "utf-16": '{"a":1}'.encode("utf-16"),
    "nul bytes": b"\x00" * 16,
    "an unknown mark": b'{"$mb":"date","v":"x"}',
    "a mark without a value": b'{"$mb":"int"}',
    "an integer that is none": b'{"$mb":"int","v":"twelve"}',
    "text that is a number": b'{"$mb":"str","v":5}',
    "bytes that are none": b'{"$mb":"bytes","v":"!"}',
    "an object that is a number": b'{"$mb":"obj","v":5}',
    "an object with a list as key": b'{"$mb":"obj","v":[[["a"],1]]}',
    "a mark of a mark": b'{"$mb":{"$mb":"str","v":"int"},"v":"1"}',
}


@pytest.mark.parametrize("data", STRANGE.values(), ids=STRANGE)
def test_bytes_of_another_kind_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match="stored value: expected canonical JSON") as corrupt:
        decode(data)
    assert str(corrupt.value).isprintable()


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ({"b": 1, "a": 2}, b'{"a":2,"b":1}'),
        (2**64, b'{"$mb":"int","v":"18446744073709551616"}'),
        ("\ud800\\", b'{"$mb":"str","v":"\\\\ud800\\\\\\\\"}'),
        (b"\x00", b'{"$mb":"bytes","v":"AA=="}'),
        ({"$mb": 1}, b'{"$mb":"obj","v":[["$mb",1]]}'),
        ({"\udc00": 1}, b'{"$mb":"obj","v":[[{"$mb":"str","v":"\\\\udc00"},1]]}'),
        ("\u00e9", b'"\xc3\xa9"'),
        (-0.0, b"-0.0"),
    ],
    ids="order int str bytes mark key text float".split(),
)
def test_the_stored_form_is_part_of_the_format(value: Any, stored: bytes) -> None:
    assert encode(value) == stored


def test_equal_values_have_equal_digests_however_they_were_built() -> None:
    part = {"x": [1]}
    assert digest({"a": part, "b": part}) == digest({"b": {"x": [1]}, "a": {"x": [1]}})
    assert digest({"n": 1}) != digest({"n": 1.0})


HOSTILE_KEY = "\x1b[31m\u202e\ud800" + "k" * 5000


def test_a_refusal_is_safe_to_show_whatever_the_keys_are() -> None:
    with pytest.raises(ValueRefused) as refused:
        encode({HOSTILE_KEY: math.nan})
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 1200
    assert refused.value.path.startswith("$.\\x1b[31m\\u202e\\ud800kkk")


@pytest.mark.parametrize(
    "settings",
    [
        SETTINGS.changed({"system_prompt": "a\ud800"}),
        SETTINGS.changed({"context": {"a": b"\xff"}}),
        SETTINGS.changed({"context": {"a": b"text"}}),
        SETTINGS.changed({"context": {"a": 2**70, "\ud800": [1.0, 1]}}),
    ],
    ids=["surrogate", "bytes", "bytes like text", "numbers"],
)
def test_settings_are_kept_exactly(settings: Settings) -> None:
    created = ev.SessionCreated(
        owner_id="local", settings=settings.to_plain(), settings_digest=settings.digest()
    )
    opened = catalogue.decode("session_created", 1, catalogue.encode(created))
    assert isinstance(opened, ev.SessionCreated)
    read = Settings.model_validate(opened.settings)
    assert repr(read.context) == repr(_sorted(settings.context))
    assert read == settings
    assert read.digest() == opened.settings_digest


def test_settings_that_cannot_be_kept_are_refused_with_the_place() -> None:
    with pytest.raises(ValueRefused) as refused:
        SETTINGS.changed({"context": {"a": [math.nan]}}).digest()
    assert refused.value.path == "$.context.a[0]"


class LaterSettings(Settings):
    """What a later version may look like: one more setting, with a default."""

    patience: int = 3


def test_a_setting_that_is_added_later_leaves_old_digests_alone() -> None:
    later = LaterSettings.model_validate(SETTINGS.to_plain())
    assert later.digest() == SETTINGS.digest()
    assert later.model_copy(update={"patience": 4}).digest() != SETTINGS.digest()

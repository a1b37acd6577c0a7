"""Strategies for values that somebody may put into a journal, the odd ones above all."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

#: Pieces that look like our own marks and escapes, and text that engines stumble over.
ODD_TEXTS = (
    "$mb",
    "v",
    "int",
    "obj",
    "\\",
    "\\ud800",
    "\\\\",
    "\x00",
    "a\x00b",
    "\ud800",
    "\udfff",
    "\ud83d\ude00",
    "\U0001f600",
    "\u2028",
    "\ufeff",
    "\x1b]52;c;AA==\x07",
    "\u202e",
    "__class__",
    "lc",
)
ODD_NUMBERS = (2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 2**70, 10**20, -(10**30))

any_text = st.text(st.characters(exclude_categories=())) | st.sampled_from(ODD_TEXTS)
numbers = st.integers() | st.sampled_from(ODD_NUMBERS)
finite = st.floats(allow_nan=False, allow_infinity=False)
scalars: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | numbers | finite | any_text | st.binary(max_size=20)
)
look_alikes: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"$mb": st.sampled_from(("int", "str", "bytes", "obj", "other")) | scalars}, optional={"v": scalars}
)


def _deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4)


#: Everything that a journal keeps.
values: st.SearchStrategy[Any] = st.recursive(scalars | look_alikes, _deeper, max_leaves=12)


def same(a: Any, b: Any) -> bool:
    """Equal to the last detail: 1 is neither 1.0 nor True, and 0.0 is not -0.0."""
    if type(a) is not type(b):
        return False
    match a:
        case list():
            return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
        case dict():
            return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
        case float():
            return a == b and math.copysign(1, a) == math.copysign(1, b)
    return bool(a == b)


def reordered(value: Any) -> Any:
    """The same value, every object built in the opposite order."""
    match value:
        case list():
            return [reordered(item) for item in value]
        case dict():
            return {key: reordered(value[key]) for key in reversed(value)}
    return value

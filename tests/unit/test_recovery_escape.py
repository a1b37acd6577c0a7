"""What a journal holds can do nothing to a terminal."""

from __future__ import annotations

import unicodedata

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.escape import brief, json_text, visible
from tests.journals import HOSTILE

ANYTHING = st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=60)


def harmless(text: str) -> bool:
    """Whether a text moves nothing, hides nothing and turns nothing around."""
    return all(unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Cn") for c in text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, naïve 漢字 😀", "plain text, naïve 漢字 😀"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x00\x07\x7f\x9b", "\\x00\\x07\\x7f\\x9b"),
        ("\u202etxt.exe\u2066", "\\u202etxt.exe\\u2066"),
        ("a\u200bb\ufeffc", "a\\u200bb\\ufeffc"),
        ("\ud83d", "\\ud83d"),
        ("\U000e0041", "\\U000e0041"),
        ("\u2028\u3164\u00a0\u00ad", "\\u2028\\u3164\\xa0\\xad"),
    ],
)
def test_what_cannot_be_seen_is_spelled_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(ANYTHING)
def test_nothing_harmful_is_left_of_any_text(text: str) -> None:
    assert harmless(visible(text))
    visible(text).encode()


@given(ANYTHING)
def test_a_document_is_printable_ascii_and_says_the_same(text: str) -> None:
    shown = json_text({text: [text]})
    assert shown.isascii()
    assert harmless(shown.replace("\n", ""))
    if not any("\ud800" <= c <= "\udfff" for c in text) and text != "$mb":
        assert orjson.loads(shown) == {text: [text]}


def test_brief_shortens_and_escapes() -> None:
    assert brief("x" * 300, 10) == "xxxxxxx..."
    assert brief({"a": "\x1b"}) == '{"a":"\\u001b"}'
    assert len(brief("\U000e0041" * 300, 10)) <= 40
    assert harmless(brief(HOSTILE))

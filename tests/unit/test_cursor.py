"""A reader's place is made of values that can be one, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

import minutebook as mb
from domain.errors import InvalidOptions
from minutebook.stream_events import ContentDelta
from minutebook.testing.batches import dummy_batch

START = mb.Cursor.start("s1")
EVENT = dummy_batch(START, "c1").events[0]


def test_it_is_made_again_of_the_values_that_were_kept() -> None:
    place = mb.Cursor.after(EVENT)
    assert mb.Cursor(place.session_id, place.sequence, bytes.fromhex(place.head.hex())) == place


@pytest.mark.parametrize(
    "values",
    [
        ("s1", 1, EVENT.head.hex()),
        ("s1", 1, None),
        ("s1", "1", EVENT.head),
        ("s1", True, EVENT.head),
        ("s1", 1.0, EVENT.head),
        (None, 1, EVENT.head),
        (b"s1", 1, EVENT.head),
    ],
    ids=["head as hex", "no head", "number as text", "truth", "float", "no session", "session in bytes"],
)
def test_values_of_another_kind_are_refused(values: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidOptions, match="a session's id, a whole number and a head in bytes"):
        mb.Cursor(*values)


@pytest.mark.parametrize(
    "other", [ContentDelta("s1", "a piece"), START, 7, None], ids=lambda given: type(given).__name__
)
def test_there_is_no_place_after_what_is_no_event(other: Any) -> None:
    """`session.events` gives live pieces too."""
    with pytest.raises(InvalidOptions, match="an event of a journal"):
        mb.Cursor.after(other)

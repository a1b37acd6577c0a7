"""The feed of a session by itself: which live pieces a reader is given."""

from __future__ import annotations

import pytest

from adapters.memory_journal import MemoryStore
from adapters.system import no_probe
from minutebook.feed import MAX_DELTAS, Feed
from minutebook.stream_events import ContentDelta, ToolProgress

pytestmark = pytest.mark.anyio


def piece(number: int) -> ContentDelta:
    """A piece of an answer."""
    return ContentDelta("s1", f"piece {number}")


async def test_of_an_answer_whose_beginning_is_gone_a_late_reader_gets_nothing() -> None:
    async with MemoryStore().open() as journal:
        feed = Feed(journal, "s1", 7, no_probe)
        feed.delta(piece(0), part_of="r1.t1.a1")
        feed.delta(ToolProgress("s1", "r1.t1.a1.c0", "look", "half"))
        for number in range(1, MAX_DELTAS):
            feed.delta(piece(number), part_of="r1.t1.a1")
        last = ToolProgress("s1", "r1.t1.a1.c0", "look", "done")
        feed.delta(last)
        assert feed.deltas(feed.first_delta_from(0), 7)[1] == [last]


async def test_pieces_are_given_up_to_the_event_that_they_follow() -> None:
    async with MemoryStore().open() as journal:
        feed = Feed(journal, "s1", 7, no_probe)
        feed.delta(piece(0))
        feed.sequence = 8
        feed.delta(piece(1))
        assert feed.deltas(0, 6) == (0, [])
        assert feed.deltas(0, 7) == (0, [piece(0)])
        assert feed.deltas(1, 8) == (1, [piece(1)])


async def test_a_reader_that_missed_pieces_is_given_the_number_of_the_first_one_left() -> None:
    async with MemoryStore().open() as journal:
        feed = Feed(journal, "s1", 7, no_probe)
        for number in range(MAX_DELTAS + 3):
            feed.delta(piece(number))
        number, found = feed.deltas(1, 7)
    assert (number, found[0], len(found)) == (3, piece(3), MAX_DELTAS)

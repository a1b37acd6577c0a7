"""What a whole request costs beside its commits, counted: copies, folds, encodings, calls of ours."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import pytest

import domain
import minutebook
import projections
from adapters.memory_journal import MemoryStore
from adapters.system import no_probe
from domain import canonical, lifecycle, next_steps
from domain.envelope import Recorded
from domain.request import RequestState
from domain.state import State
from minutebook.feed import MAX_DELTAS, Feed
from minutebook.stream_events import ContentDelta
from minutebook.testing.scripted import call, reply
from tests.session.harness import Hands, Place

pytestmark = pytest.mark.anyio

#: What a request with one tool round is recorded as.
EVENTS = 18

OURS = tuple(f"{Path(each.__file__ or '').parent}/" for each in (domain, minutebook, projections))
COUNTED: dict[CodeType, str] = {
    lifecycle.advance.__code__: "folds",
    canonical.encode.__code__: "encodings",
    next_steps.next_steps.__code__: "looks at what comes next",
}
COPIED = (Recorded, State, RequestState)


@contextmanager
def counted() -> Iterator[Counter[object]]:
    """Counts calls of ours, some of them by name, and copies by their class."""
    counts = Counter[object]()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code is dataclasses.replace.__code__:
            copied = type(next(iter(frame.f_locals.values())))
            counts[copied] += copied in COPIED
        elif code.co_filename.startswith(OURS):
            counts["calls"] += 1
            counts[COUNTED.get(code, "others")] += 1

    sys.setprofile(profile)
    try:
        yield counts
    finally:
        sys.setprofile(None)


async def counts_of_a_request() -> Counter[object]:
    """A request with one tool round: two model calls, five commits."""
    place, hands = Place(), Hands()
    script = [reply("", call("look", {"what": "this"})), reply("done")] * 2
    async with place.create(script, tools=hands.tools()) as session:
        await session.run("warm up")
        before = len(await place.events())
        with counted() as counts:
            await session.run("hello")
        assert len(await place.events()) - before == EVENTS
    return counts


async def test_a_request_folds_each_event_into_the_state_once() -> None:
    assert (await counts_of_a_request())["folds"] == EVENTS


async def test_an_event_is_copied_for_its_command_s_size_and_for_its_head() -> None:
    assert (await counts_of_a_request())[Recorded] == 2 * EVENTS


async def test_a_fold_copies_what_it_changes_and_the_state_around_it_once_more() -> None:
    counts = await counts_of_a_request()
    assert counts[State] <= 2.75 * EVENTS
    assert counts[RequestState] <= 1.5 * EVENTS


async def test_a_request_encodes_and_looks_ahead_a_few_times_for_each_event() -> None:
    counts = await counts_of_a_request()
    assert counts["encodings"] <= 2.5 * EVENTS
    assert counts["looks at what comes next"] <= 2 * EVENTS


async def test_a_request_takes_few_calls_of_ours() -> None:
    assert (await counts_of_a_request())["calls"] <= 205 * EVENTS


# --- pieces of an answer -------------------------------------------------------------------------


@contextmanager
def lines_of(function: Callable[..., object]) -> Iterator[Counter[str]]:
    """Counts the lines that a function runs through."""
    counts = Counter[str]()

    def trace(frame: FrameType, event: str, argument: object) -> object:
        if frame.f_code is not function.__code__:
            return None
        counts["lines"] += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]  # typeshed wants a protocol that names its own type
    try:
        yield counts
    finally:
        sys.settrace(before)


async def lines_to_join_behind(pieces: int) -> int:
    """What a reader runs through who comes to the end of a feed that has so many pieces."""
    async with MemoryStore().open() as journal:
        feed = Feed(journal, "s1", 7, no_probe)
        for number in range(pieces):
            feed.delta(ContentDelta("s1", f"piece {number}"), part_of="r1.t1.a1")
        feed.sequence += 1
        with lines_of(Feed.first_delta_from) as counts:
            assert feed.first_delta_from(feed.sequence) == pieces
    return counts["lines"]


async def test_a_reader_of_what_comes_next_passes_no_old_piece() -> None:
    assert await lines_to_join_behind(MAX_DELTAS) == await lines_to_join_behind(3)

"""A reader goes on from the place it kept, or is told that the journal does not have it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

import minutebook as mb
from domain.envelope import Recorded, Stored
from domain.errors import CursorMismatch, InvalidOptions
from minutebook.testing.scripted import ScriptedProvider, reply
from tests.session.harness import LONG_S, Place

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

Views = Callable[[mb.Session, Any], AsyncIterator[Any]]
VIEWS: list[Views] = [lambda s, after: s.events(after=after), lambda s, after: s.journal_rows(after=after)]
views = pytest.mark.parametrize("view", VIEWS, ids=["events", "journal_rows"])


def config(*replies: Any) -> mb.SessionConfig:
    """An agent that says this."""
    return mb.SessionConfig(provider=ScriptedProvider(replies), model="test-model")


async def durable(view: AsyncIterator[Any]) -> Any:
    """The next one that is in the journal."""
    while not isinstance(event := await anext(view), Recorded | Stored):
        pass
    return event


@views
async def test_every_event_is_a_place_to_go_on_from(place: Place, view: Views) -> None:
    """Also one that was heard live, which was never read from the store."""
    async with place.create([reply("done")]) as session:
        live, heard = session.events(after=mb.Cursor.start(session.id)), list[Recorded]()
        await session.run("hello")
        while len(heard) < session.head_sequence:
            heard.append(await durable(live))
        assert [mb.Cursor.after(event) for event in heard] == list(
            map(mb.Cursor.after, await session.recorded())
        )
        for event, later in pairwise(heard):
            assert (await durable(view(session, mb.Cursor.after(event)))).sequence == later.sequence
        assert mb.Cursor.after(heard[-1]) == session.cursor


@views
@pytest.mark.parametrize("since", [(), ("Something else.",), ("a", "b", "c")], ids=len)
async def test_a_reader_is_told_that_the_file_was_restored(
    tmp_path: Path, view: Views, since: tuple[str, ...]
) -> None:
    """From a copy that lacks what the reader saw, whatever was written since."""
    journal, copy = tmp_path / "journal.db", tmp_path / "copy.db"
    store = mb.sqlite(journal)
    async with mb.create_session(config(reply("One.")), store=store, session_id="s1") as session:
        await session.run("Say one.")
    shutil.copy(journal, copy)
    async with mb.resume_session("s1", config(reply("Two.")), store=store) as session:
        await session.run("Say two.")
        seen = session.cursor
    shutil.copy(copy, journal)
    async with mb.resume_session("s1", config(*map(reply, since)), store=store) as session:
        for each in since:
            await session.run(each)
        with pytest.raises(CursorMismatch) as told, anyio.fail_after(LONG_S):
            await anext(view(session, seen))
    assert told.value.code == "JOURNAL_CURSOR_MISMATCH"
    assert str(seen) in str(told.value)


@views
async def test_a_place_of_another_session_is_none_of_this_one(place: Place, view: Views) -> None:
    async with place.create([], "s2") as other, place.create([]) as session:
        for there in (other.cursor, mb.Cursor.start(other.id)):
            with pytest.raises(CursorMismatch):
                await anext(view(session, there))


@views
async def test_a_sequence_is_no_cursor(place: Place, view: Views) -> None:
    async with place.create([]) as session:
        with pytest.raises(InvalidOptions, match="Cursor"):
            view(session, 0)

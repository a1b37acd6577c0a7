"""What follows a session's commits has no say in them: one that fails is stale, and says so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from domain.errors import StaleView
from minutebook.following import View
from minutebook.session import Session
from minutebook.testing.scripted import reply
from tests.session.harness import LONG_S, Place

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


async def _next(session: Session) -> object:
    return await anext(session.events())


async def _messages(session: Session) -> object:
    return session.messages


async def _history(session: Session) -> object:
    return session.history()


async def _usage(session: Session) -> object:
    return session.usage


async def _stream(session: Session) -> object:
    return session.stream()


#: Each follower of a session, in the order in which they are told, and who asks it.
FOLLOWERS: list[list[Callable[[Session], Any]]] = [[_messages, _history], [_usage], [_next], [_stream]]


def broken(_: object) -> None:
    """A defect."""
    raise ZeroDivisionError("a defect")


@pytest.mark.parametrize("which", range(len(FOLLOWERS)))
async def test_a_follower_that_fails_is_stale_and_nothing_else_happens(
    place: Place, which: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with anyio.fail_after(LONG_S):
        async with place.create([reply("one"), reply("two"), reply("three")]) as session:
            followers = session._parts.book.followers
            assert len(followers) == len(FOLLOWERS)
            monkeypatch.setattr(followers[which], "take", broken)
            head = session.head_sequence
            for text in ("hello", "again"):
                await session.send(text)
                await session.wait_idle()
            for number, asking in enumerate(FOLLOWERS):
                for ask in asking if number == which else ():
                    with pytest.raises(StaleView, match="a defect") as told:
                        await ask(session)
                    assert told.value.sequence == head
    assert [r.levelno for r in caplog.records if r.name == "minutebook"] == [logging.ERROR]
    assert (await place.types()).count("request_completed") == 2
    async with place.resume([reply("more")]) as session:
        assert len(session.messages) == 4
        assert (await session.run("more")).content == "more"


async def test_who_waits_in_the_feed_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was waited for has happened all the same."""
    async with place.create([reply("one"), reply("two")]) as session:
        await session.run("hello")
        monkeypatch.setattr(session._parts.feed, "take", broken)
        with anyio.fail_after(LONG_S), pytest.raises(StaleView):
            await session.run("again")
        await session.wait_idle()
    assert (await place.types()).count("request_completed") == 2


async def test_a_reader_that_waits_is_told_at_once(place: Place) -> None:
    """Nothing else may ever wake it."""
    async with place.create([]) as session:
        stale = StaleView(session.id, session.head_sequence, ZeroDivisionError())
        with anyio.fail_after(LONG_S), pytest.RaisesGroup(StaleView):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_next, session)
                await anyio.wait_all_tasks_blocked()
                session._parts.feed.fail(stale)


async def test_one_that_fails_on_an_old_event_keeps_no_session_closed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place.create([reply("one")]) as session:
        await session.run("hello")
    monkeypatch.setattr(View, "take", broken)
    async with place.resume([reply("two")]) as session:
        await session.send("again")
        await session.wait_idle()
        for ask in (_messages, _history, _usage, _stream):
            with pytest.raises(StaleView):
                await ask(session)
    assert (await place.types()).count("request_completed") == 2

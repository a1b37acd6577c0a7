"""Journals read in tests: proved, and played again."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import minutebook as mb
from domain.errors import InvalidOptions, ModelFailed, SessionNotFound
from domain.model_ports import Response
from minutebook.testing import Gate, ScriptedProvider, call, fail, journal_of, replay_of, reply
from recovery.exporting import export_session
from tests.session.harness import Hands

pytestmark = pytest.mark.anyio


def config(*attempts: Any, hands: Hands | None = None, **options: Any) -> mb.SessionConfig:
    tools = (hands or Hands()).tools()
    given: dict[str, Any] = {"provider": ScriptedProvider(attempts), "model": "m", "tools": tools, **options}
    return mb.SessionConfig(**given)


SCRIPT = (
    reply("Let me see.", call("look", {"what": "x"}), usage={"input_tokens": 3}, thinking="hm"),
    fail("overloaded", retry_after_s=0),
    reply("It is there."),
)


@pytest.fixture
async def journal(tmp_path: Path) -> Path:
    """A session with a tool round and a failed attempt, in a file."""
    path = tmp_path / "journal.db"
    async with mb.create_session(config(*SCRIPT), store=mb.sqlite(path), session_id="s1") as session:
        await session.run("look at x")
    return path


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_events_are_the_same_whatever_they_are_read_from(tmp_path: Path) -> None:
    store = mb.sqlite(tmp_path / "journal.db")
    async with mb.create_session(config(reply("hi")), store=store, session_id="s1") as session:
        await session.run("hello")
        events = await journal_of(session)
    assert [event.type for event in events][:3] == [
        "session_created",
        "lease_acquired",
        "input_accepted",
    ]
    assert await journal_of(store) == await journal_of(tmp_path / "journal.db", "s1") == events
    assert await journal_of(str(tmp_path / "journal.db")) == events


async def test_a_long_journal_is_read_to_its_end() -> None:
    many = [reply("ok")] * 60
    async with mb.create_session(config(*many)) as session:
        for _ in many:
            await session.run("hello")
        events = await journal_of(session)
        assert [event.sequence for event in events] == list(range(1, session.head_sequence + 1))
    assert len(events) > 300


async def test_a_journal_that_was_changed_is_not_believed(journal: Path) -> None:
    with sqlite3.connect(journal) as connection:
        connection.execute("UPDATE minutebook_events SET payload = x'7b7d' WHERE originator_version = 2")
    connection.close()
    with pytest.raises(AssertionError, match="s1: payload at sequence 2"):
        await journal_of(journal)


async def test_which_session_is_asked_where_there_are_several(journal: Path) -> None:
    async with mb.create_session(config(), store=mb.sqlite(journal), session_id="s2"):
        pass
    with pytest.raises(InvalidOptions, match="session_id"):
        await journal_of(journal)
    assert len(await journal_of(journal, "s2")) == 2
    with pytest.raises(SessionNotFound):
        await journal_of(journal, "s3")
    with pytest.raises(SessionNotFound):
        await journal_of(mb.memory())


async def test_a_replay_takes_the_same_way(journal: Path) -> None:
    provider = await replay_of(journal)
    hands = Hands()
    async with mb.create_session(config(provider=provider, hands=hands)) as session:
        result = await session.run("look at x")
        events = await journal_of(session)
    assert (result.content, hands.done) == ("It is there.", ["x"])
    assert provider.asked == ["r1.t1.a1", "r1.t2.a1", "r1.t2.a2"]
    recorded = [event.type for event in await journal_of(journal)]
    assert [event.type for event in events] == recorded


async def test_a_replay_knows_every_end_that_is_on_record(journal: Path) -> None:
    ends = (await replay_of(journal)).attempts
    first, failed = ends["r1.t1.a1"], ends["r1.t2.a1"]
    assert isinstance(first, Response)
    assert (first.calls[0].name, first.usage, first.stop) == ("look", {"input_tokens": 3}, "tool_calls")
    assert isinstance(failed, ModelFailed)
    assert (failed.kind, failed.retryable, failed.retry_after_s) == ("overloaded", True, 0)


async def test_an_attempt_without_an_end_is_no_answer(tmp_path: Path) -> None:
    gate, store = Gate(), mb.sqlite(tmp_path / "journal.db")
    async with mb.create_session(config([gate, *reply("never")]), store=store) as session:
        await session.send("hello")
        await gate.reached()
    assert (await replay_of(store)).attempts == {}


async def test_an_export_is_read_like_a_journal(journal: Path, tmp_path: Path) -> None:
    async with mb.sqlite(journal).open() as opened:
        with (tmp_path / "e.jsonl").open("wb") as file:
            await export_session(opened, "s1", file.write)
    assert await journal_of(tmp_path / "e.jsonl") == await journal_of(journal)
    assert (await replay_of(tmp_path / "e.jsonl")).attempts.keys() == (
        await replay_of(journal)
    ).attempts.keys()

"""Files that are no journal, and journals that are no longer what was written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adapters.sqlite_driver import sqlite
from adapters.sqlite_reader import open_reader
from adapters.sqlite_store import SqliteStore
from domain.errors import Corrupt, NewerFormat, NotAJournal
from tests.store.test_sqlite_reader import made, shown

pytestmark = pytest.mark.anyio


async def test_what_is_no_journal(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("not a database " * 100)
    with sqlite.connect(tmp_path / "other") as connection:
        connection.execute("CREATE TABLE notes (text)")
    connection.close()
    before = sorted(os.listdir(tmp_path))
    for name in ("missing", ".", "pipe", "empty", "text", "other", "text/below"):
        with pytest.raises(NotAJournal):
            await shown(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == before


async def test_a_newer_format(tmp_path: Path) -> None:
    await made(tmp_path / "j.db", "truncate")
    connection = sqlite.connect(tmp_path / "j.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(NewerFormat):
        await shown(tmp_path / "j.db")


async def test_a_row_that_does_not_stand_at_the_last_event(tmp_path: Path) -> None:
    for number, change in enumerate(
        (
            "UPDATE minutebook_sessions SET sequence = 19",
            "UPDATE minutebook_sessions SET head = zeroblob(32)",
            "DELETE FROM minutebook_events WHERE originator_version = 20",
            "INSERT INTO minutebook_events (originator_id, originator_version, topic, state, head) "
            "VALUES ('session-1', 21, 't', x'00', x'00')",
        )
    ):
        path = tmp_path / f"{number}.db"
        await made(path, "truncate")
        edit(path, change)
        async with open_reader(path) as reader:
            with pytest.raises(Corrupt):
                await reader.session("session-1")


async def test_a_row_that_no_commit_wrote(tmp_path: Path) -> None:
    for number, change in enumerate(
        (
            "UPDATE minutebook_events SET head = NULL WHERE originator_version = 7",
            "UPDATE minutebook_events SET state = 'text' WHERE originator_version = 7",
            "UPDATE minutebook_events SET payload = 5 WHERE originator_version = 7",
            "UPDATE minutebook_events SET topic = x'ff' WHERE originator_version = 7",
        )
    ):
        path = tmp_path / f"{number}.db"
        await made(path, "truncate")
        edit(path, change)
        async with open_reader(path) as reader:
            with pytest.raises(Corrupt) as refusal:
                await reader.read("session-1")
            assert refusal.value.sequence == 7


async def test_a_subscription_does_not_step_over_a_hole(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    await made(path, "truncate")
    edit(path, "DELETE FROM minutebook_events WHERE originator_version = 7")
    async with SqliteStore(path).open() as journal:
        rows = journal.subscribe("session-1")
        assert [(await anext(rows)).sequence for _ in range(6)] == [1, 2, 3, 4, 5, 6]
        with pytest.raises(Corrupt) as refusal:
            await anext(rows)
        assert refusal.value.sequence == 7


def edit(path: Path, statement: str) -> None:
    connection = sqlite.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


async def outcome(path: Path) -> str:
    """What reading everything of a damaged file comes to."""
    try:
        async with open_reader(path, timeout_s=1) as reader:
            for row in await reader.sessions():
                await reader.session(row.session_id)
                await reader.read(row.session_id)
                await reader.snapshot(row.session_id)
            for digest in await reader.blobs():
                await reader.blob(digest)
            await reader.damage()
    except (Corrupt, NotAJournal, NewerFormat) as e:
        return e.code
    return "read"


async def test_a_truncated_file_is_typed(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    await made(path, "truncate")
    whole = path.read_bytes()
    outcomes = set()
    for length in [*range(0, len(whole), 4096), *range(1, len(whole), 4099)]:
        path.write_bytes(whole[:length])
        outcomes.add(found := await outcome(path))
        assert found != "read" or length == len(whole), f"cut to {length} bytes and not noticed"
    assert {"NOT_A_JOURNAL", "SESSION_STORE_CORRUPT"} <= outcomes


async def test_flipped_bits_are_typed_and_never_worse(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    await made(path, "truncate")
    whole = path.read_bytes()
    outcomes: dict[str, int] = {}
    for number in range(400):
        position = number * 7919 % len(whole)
        damaged = bytearray(whole)
        damaged[position] ^= 1 << number % 8
        path.write_bytes(damaged)
        found = await outcome(path)
        outcomes[found] = outcomes.get(found, 0) + 1
    assert outcomes.keys() <= {"read", "SESSION_STORE_CORRUPT", "NOT_A_JOURNAL", "JOURNAL_FORMAT_NEWER"}
    assert outcomes["SESSION_STORE_CORRUPT"] > 0

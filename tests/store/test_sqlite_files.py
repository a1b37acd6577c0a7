"""The file itself: private, durable, ours, and left alone where it is not."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from adapters.sqlite_driver import driver_name, newest_driver, sqlite, sqlite_version, wal_is_safe
from adapters.sqlite_schema import APPLICATION_ID, FORMAT_VERSION
from adapters.sqlite_store import SqliteStore
from domain.cursor import Cursor
from domain.errors import (
    InvalidOptions,
    NewerFormat,
    NotAJournal,
    StoreTimeout,
    StoreUnsupported,
    StoreWriteFailed,
)
from minutebook.testing.batches import dummy_batch

pytestmark = pytest.mark.anyio

BATCH = dummy_batch(Cursor.start("session-1"), "c1")


async def made(path: Path, mode: str = "auto") -> None:
    async with SqliteStore(path, journal_mode=mode).open() as journal:
        await journal.commit(BATCH)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mode", ["wal", "truncate"])
async def test_files_and_new_directories_are_private(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "a" / "b" / "journal.db"
    old = os.umask(0)
    try:
        async with SqliteStore(path, journal_mode=mode).open() as journal:
            await journal.commit(BATCH)
            files = sorted(path.parent.iterdir())
            assert len(files) > 1
            assert {mode_of(file) for file in files} == {0o600}
    finally:
        os.umask(old)
    assert mode_of(tmp_path / "a") == mode_of(tmp_path / "a" / "b") == 0o700


async def test_a_directory_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o750)
    await made(tmp_path / "shared" / "journal.db")
    assert mode_of(tmp_path / "shared") == 0o750


@pytest.mark.parametrize("mode", ["wal", "truncate"])
async def test_every_connection_has_its_settings(tmp_path: Path, mode: str) -> None:
    expected = {
        "synchronous": 2,
        "journal_mode": mode,
        "trusted_schema": 0,
        "cell_size_check": 1,
        "mmap_size": 0,
        "fullfsync": 1,
        "application_id": APPLICATION_ID,
        "user_version": FORMAT_VERSION,
    }

    def settings(connection: sqlite.Connection) -> dict[str, object]:
        return {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in expected}

    async with SqliteStore(tmp_path / "journal.db", journal_mode=mode).open() as journal:
        look, change = journal.look, journal.change  # type: ignore[attr-defined]  # a SqliteJournal
        assert await look(settings) == expected
        assert await change("session-1", lambda changes: settings(changes.connection)) == expected


async def test_a_newer_format_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await made(path)
    with sqlite.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    connection.close()
    before = contents(path)
    with pytest.raises(NewerFormat):
        await made(path)
    assert contents(path) == before


FOREIGN = {
    "another application": ["CREATE TABLE notes (text)", "PRAGMA application_id = 7"],
    "no application id": ["CREATE TABLE notes (text)"],
    "an id without tables": [f"PRAGMA application_id = {APPLICATION_ID}"],
    "a table of ours, changed": [
        f"PRAGMA application_id = {APPLICATION_ID}",
        "PRAGMA user_version = 1",
        "CREATE TABLE minutebook_events (x)",
    ],
}


@pytest.mark.parametrize("name", sorted(FOREIGN))
async def test_another_program_s_database_is_not_touched(tmp_path: Path, name: str) -> None:
    path = tmp_path / "foreign.db"
    with sqlite.connect(path) as connection:
        for statement in FOREIGN[name]:
            connection.execute(statement)
    connection.close()
    before = contents(path)
    with pytest.raises(NotAJournal):
        await made(path)
    assert contents(path) == before


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON minutebook_events BEGIN DELETE FROM minutebook_events; END",
        "CREATE VIEW v AS SELECT 1",
    ],
)
async def test_a_journal_with_a_stranger_s_program_in_it_is_refused(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "journal.db"
    await made(path)
    with sqlite.connect(path) as connection:
        connection.execute(statement)
    connection.close()
    with pytest.raises(NotAJournal):
        await made(path)


async def test_an_empty_file_becomes_a_journal(tmp_path: Path) -> None:
    (tmp_path / "journal.db").touch()
    await made(tmp_path / "journal.db")


async def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(NotAJournal):
            await made(path)
    (tmp_path / "file").touch()
    with pytest.raises(StoreWriteFailed):
        await made(tmp_path / "file" / "journal.db")


@pytest.mark.parametrize("path", ["", ":memory:", "file:x.db?mode=memory", "a\0b"])
async def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidOptions):
        await made(Path(path) if path and "\0" not in path else path)  # type: ignore[arg-type]


async def test_an_unknown_journal_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptions):
        await made(tmp_path / "journal.db", "memory")
    assert contents(tmp_path / "journal.db") == []


async def test_a_file_that_is_open_elsewhere_in_another_mode_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await made(path, "wal")
    other = sqlite.connect(path)
    other.execute("SELECT * FROM minutebook_events").fetchall()
    try:
        with pytest.raises(StoreTimeout):
            async with SqliteStore(path, journal_mode="truncate", store_timeout_s=0.2).open():
                pass
    finally:
        other.close()


async def test_a_writer_without_a_wal_does_not_follow_another_program_into_one(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with SqliteStore(path, journal_mode="truncate").open() as journal:
        other = sqlite.connect(path)
        assert other.execute("PRAGMA journal_mode = WAL").fetchone()[0] == "wal"
        with pytest.raises(StoreUnsupported):
            await journal.commit(BATCH)
        other.close()
    await made(path)


async def test_a_journal_may_change_its_mode_while_nobody_uses_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    for mode in ("truncate", "wal", "truncate"):
        async with SqliteStore(path, journal_mode=mode).open() as journal:
            await journal.commit(BATCH)
            assert tuple(await journal.read("session-1")) == BATCH.events


async def test_odd_names_are_only_names(tmp_path: Path) -> None:
    for name in ("a?mode=memory", "100%", "#1", "with space", "ü"):
        await made(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 0


def test_the_newest_driver_is_taken() -> None:
    assert newest_driver().__name__ == driver_name
    assert newest_driver().sqlite_version == sqlite_version
    assert wal_is_safe == (tuple(map(int, sqlite_version.split("."))) >= (3, 51, 3))


def contents(path: Path) -> list[tuple[str, bytes, int]]:
    """Every file beside a path, to the byte and the nanosecond."""
    files = sorted(path.parent.iterdir())
    return [(file.name, file.read_bytes(), file.stat().st_mtime_ns) for file in files]

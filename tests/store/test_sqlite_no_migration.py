"""What is not migrated: files that are no journal, of a later version, exports."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from adapters.sqlite_driver import sqlite
from adapters.sqlite_migration import migrate, opening_of, planned
from adapters.sqlite_schema import FORMAT_VERSION, WAY_UP, create_tables
from domain.errors import InvalidOptions, NewerFormat, NotAJournal
from tests.integration.command_line import call, traces
from tests.store.golden_files import golden


def newer(path: Path) -> None:
    with closing(sqlite.connect(path, isolation_level=None)) as connection:
        create_tables(connection)
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")


@pytest.mark.parametrize("version", [0, -1])
def test_a_number_that_no_format_has(tmp_path: Path, version: int) -> None:
    old = golden(1, tmp_path / "kept")
    with closing(sqlite.connect(old, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    before = traces(old)
    for act in (planned, migrate):
        with pytest.raises(NotAJournal, match="expected journal format 1 to 2"):
            act(opening_of(old))
    assert traces(old) == before


def test_what_is_no_journal_of_ours_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with pytest.raises(NotAJournal):
        opening_of(path)
    for content, error in ((b"", NotAJournal), (b"text" * 1000, NotAJournal)):
        path.write_bytes(content)
        with pytest.raises(error):
            migrate(opening_of(path))
        assert path.read_bytes() == content
    path.unlink()
    newer(path)
    before = path.read_bytes()
    with pytest.raises(NewerFormat):
        migrate(opening_of(path))
    assert path.read_bytes() == before


def test_an_export_has_no_tables(tmp_path: Path) -> None:
    refused = call("migrate", tmp_path / "e.jsonl")
    assert (refused.code, refused.err.split(":")[0]) == (2, InvalidOptions.code)


def test_the_way_up_leads_from_every_format_to_the_next() -> None:
    assert sorted(WAY_UP) == list(range(1, FORMAT_VERSION))

"""Journal files of every format that was ever released: read as they are, exported, imported, migrated."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.sqlite_schema import FORMAT_VERSION, TABLES_OF_FORMAT
from adapters.sqlite_store import SqliteStore
from domain.errors import OlderFormat
from tests.integration.command_line import call, traces
from tests.store.golden_files import FILES, contents, expected, format_of, golden, read_as, without_exports

#: The files of released formats, written down a second time: they never change.
DIGESTS = {
    1: "c504389ba440a8ca3ab656b4055bcfa9a3a67227f1545a2b303706083eb01dcf",
    2: "227eccf02b2503fa067e71002f4c9cbe882e415eb69221125817d94cb688b869",
}


async def opened(store: SqliteStore) -> None:
    async with store.open():
        pass


def test_the_second_format_holds_leases_on_record() -> None:
    topics = {row[3] for row in contents(FILES[2])["minutebook_events"]}
    assert {"lease_acquired@1", "lease_released@1", "handoff_completed@1"} <= topics


def check_verified(path: Path) -> None:
    """Every session is consistent (there is no head from elsewhere); one names a blob that never was."""
    for session_id in ("asked", "lived", "s-long", "s-pay", "s-texts"):
        assert call("verify", path, session_id).code == 4
    found = [line for line in call("verify", path, "every-field").out.splitlines() if "wrong" in line]
    assert [line.split()[1:3] for line in found] == [["missing", "blob"]] * 2


def events(path: Path) -> list[tuple[Any, ...]]:
    """Every event but for its position among those of other sessions."""
    return sorted(row[1:] for row in contents(path)["minutebook_events"])


@pytest.mark.parametrize("format_", sorted(DIGESTS))
def test_no_golden_file_changes(format_: int) -> None:
    assert hashlib.sha256(FILES[format_].read_bytes()).hexdigest() == DIGESTS[format_]
    assert format_of(FILES[format_]) == format_


def test_every_format_has_its_golden_file() -> None:
    assert sorted(TABLES_OF_FORMAT) == [*range(1, FORMAT_VERSION + 1)] == sorted(DIGESTS) == sorted(FILES)


@pytest.mark.parametrize("format_", sorted(FILES))
def test_it_is_read_as_on_the_first_day_and_not_touched(format_: int, tmp_path: Path) -> None:
    path = golden(format_, tmp_path / "kept")
    before = traces(path)
    assert anyio.run(read_as, path) == expected(format_)
    assert traces(path) == before


@pytest.mark.parametrize("format_", sorted(FILES))
def test_every_command_that_looks_works_on_it_as_it_is(format_: int, tmp_path: Path) -> None:
    path = golden(format_, tmp_path / "kept")
    before = traces(path)
    check_verified(path)
    assert call("inspect", path).code == 1
    assert call("replay", path, "lived").code == call("timeline", path, "asked").code == 0
    assert call("backup", path, tmp_path / "copy.db").code == 0
    assert call("export", path, "--output", tmp_path / "e.jsonl").code == 0
    assert call("migrate", path, "--dry-run").code == 0
    assert traces(path) == before
    assert contents(tmp_path / "copy.db") == contents(path)
    assert format_of(tmp_path / "copy.db") == format_


@pytest.mark.parametrize("format_", sorted(FILES))
def test_its_export_is_imported_as_the_same_events(format_: int, tmp_path: Path) -> None:
    path, export, copy = golden(format_, tmp_path / "kept"), tmp_path / "e.jsonl", tmp_path / "copy.db"
    assert call("export", path, "--output", export).code == 0
    assert call("import", export, copy).code == 0
    assert events(copy) == events(path)
    assert contents(copy)["minutebook_blobs"] == contents(path)["minutebook_blobs"]
    # The head of an export says when the store got the session; everything else is the same.
    assert without_exports(anyio.run(read_as, copy)) == without_exports(expected(format_))


@pytest.mark.parametrize("format_", sorted(format_ for format_ in FILES if format_ < FORMAT_VERSION))
def test_an_older_one_is_not_written_before_it_is_migrated(format_: int, tmp_path: Path) -> None:
    path = golden(format_, tmp_path / "kept")
    before = traces(path)
    with pytest.raises(OlderFormat, match=f"python -m recovery migrate {path}"):
        anyio.run(opened, SqliteStore(path))
    refused = call("reconcile", path, "asked", "permission", "r1.t1.a1.c0", "--deny")
    assert (refused.code, refused.err.split(":")[0]) == (3, "JOURNAL_FORMAT_OLDER")
    assert traces(path) == before


@pytest.mark.parametrize("format_", sorted(FILES))
def test_a_migrated_one_is_the_same_journal_and_takes_events(format_: int, tmp_path: Path) -> None:
    path = golden(format_, tmp_path / "kept")
    before = contents(path)
    assert call("migrate", path).code == 0
    assert format_of(path) == FORMAT_VERSION
    assert contents(path) == before
    assert anyio.run(read_as, path) == expected(format_)
    check_verified(path)
    assert call("reconcile", path, "asked", "permission", "r1.t1.a1.c0", "--deny").code == 0

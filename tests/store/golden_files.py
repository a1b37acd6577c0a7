"""The golden journal files of every format, and what a file holds, told without this library."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import orjson

from adapters.sqlite_driver import sqlite
from adapters.sqlite_reader import open_reader
from tests.golden.making import EXPECTED, JOURNAL, expectation

GOLDEN: Final = Path(__file__).parents[1] / "golden"
#: By format; every format that was ever released is here.
FILES: Final = {
    int(file.parts[-3].removeprefix("format-")): file for file in sorted(GOLDEN.glob(f"*/file/{JOURNAL}"))
}

_KEPT: Final = {
    "minutebook_events": "*",
    "minutebook_sessions": "session_id, owner_id, sequence, head, created_at, updated_at, status, "
    "next_action, token, lease_id, holder_id, acquired_at, renewed_at, expires_at, process_id, "
    "process_started",
    "minutebook_commands": "*",
    "minutebook_snapshots": "*",
    "minutebook_blobs": "*",
}


def golden(format_: int, target: Path) -> Path:
    """A copy of a golden file, alone in its directory."""
    target.mkdir()
    return Path(shutil.copyfile(FILES[format_], target / "journal.db"))


def expected(format_: int) -> bytes:
    """What the sessions of a golden file were read as when it was made."""
    return FILES[format_].with_name(EXPECTED).read_bytes()


async def read_as(path: Path) -> bytes:
    """What the sessions of a file are read as now."""
    async with open_reader(path) as reader:
        return await expectation(reader)


def without_exports(told: bytes) -> list[dict[str, Any]]:
    """What was read, but for the bytes of exports."""
    return [{k: v for k, v in session.items() if k != "export_sha256"} for session in orjson.loads(told)]


def contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, but for where a format keeps the host of a lease."""
    with closing(sqlite.connect(path)) as connection:
        return {
            table: connection.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2").fetchall()
            for table, columns in _KEPT.items()
        }


def format_of(path: Path) -> int:
    """The number in the file."""
    with closing(sqlite.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])

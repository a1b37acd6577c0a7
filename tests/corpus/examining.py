"""What reading all of a damaged file comes to: a typed error, a named problem, or the same journal.

There is no fourth: an examination fails the test where a change went by unnoticed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from adapters.jsonl_reader import open_export
from adapters.sqlite_reader import open_reader
from domain.envelope import Stored
from domain.errors import MinutebookError
from domain.ports import JournalReader
from recovery import stores
from recovery.reading import load
from recovery.verify import Result, verify

#: The rows that were written, by session.
Written = Mapping[str, Sequence[Stored]]
BROKEN = "broken"
SAME = "same"
#: Codes that a damaged file may be refused with.
TYPED = frozenset(
    {
        "SESSION_STORE_CORRUPT",
        "NOT_A_JOURNAL",
        "JOURNAL_FORMAT_NEWER",
        "JOURNAL_BLOCKED",
        "STORE_UNSUPPORTED",
        "SESSION_STORE_READ_FAILED",
        "INVALID_ID",
        "SESSION_NOT_FOUND",
    }
)


def opened(path: Path) -> AbstractAsyncContextManager[JournalReader]:
    """A file as the command line opens it."""
    return open_export(str(path)) if path.suffix == ".jsonl" else open_reader(path, timeout_s=5)


def put(path: Path, data: bytes) -> None:
    """Write a damaged file."""
    path.write_bytes(data)


def content(path: Path) -> bytes:
    """What a file holds."""
    return path.read_bytes()


async def examined(path: Path, written: Written) -> str:
    """One word for what a file shows.

    Raises:
        AssertionError: rows that are not those that were written pass for good ones, or
            a session is missing without a word.
    """
    try:
        return await _read(path, written)
    except MinutebookError as e:
        refused = e
    assert refused.code in TYPED, repr(refused)
    assert str(refused).isprintable()
    return refused.code


async def _read(path: Path, written: Written) -> str:
    async with opened(path) as reader:
        found = [await _session(reader, row.session_id, written) for row in await reader.sessions()]
        if BROKEN in found or await stores.damage_of(reader):
            return BROKEN
    assert len(found) == len(written), "a session is gone and nobody says so"
    return SAME


async def _session(reader: JournalReader, session_id: str, written: Written) -> str:
    found = await verify(reader, session_id)
    loaded = await load(reader, session_id, use_snapshot=False)
    if found.result in (Result.BROKEN, Result.UNREADABLE):
        assert found.problems
        return BROKEN
    assert loaded.problem is None, "one reader sees a problem, the other one does not"
    rows = await reader.read(session_id, limit=len(written.get(session_id, ())) + 1)
    assert list(rows) == list(written.get(session_id, ())), "other rows pass for those that were written"
    return SAME

"""The commands that copy: export, import, backup.

Loaded by `recovery.cli`. An export never changes the journal; an import verifies
everything before it writes anything.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from domain.errors import InvalidOptions, SessionExists
from domain.ports import JournalReader, SessionRow
from recovery import stores
from recovery.escape import visible
from recovery.exit_codes import OK
from recovery.exporting import check_import, export_session, import_session
from recovery.looking import session_ids


async def export(options: argparse.Namespace) -> int:
    """Write sessions as JSON Lines to a new file or to standard output."""
    async with stores.open_reader(options.journal, owner_id=options.owner) as reader:
        with _output(options.output) as file:
            sessions = events = 0
            async for session_id in session_ids(reader, options.session):
                events += await export_session(reader, session_id, file.write)
                sessions += 1
            file.flush()
    print(f"exported {sessions} sessions, {events} events", file=sys.stderr)
    return OK


@contextmanager
def _output(path: str | None) -> Iterator[BinaryIO]:
    """Standard output, or a new file for its owner only that is whole or not there."""
    if path is None:
        if sys.stdout.isatty():  # stored text as it is: a terminal would take some of it for commands
            raise InvalidOptions("--output", "a new file, or a pipe to write to", "a terminal")
        yield sys.stdout.buffer
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as e:
        raise InvalidOptions("--output", "the path of a new file", path) from e
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
    except BaseException:
        os.unlink(path)
        raise


async def import_(options: argparse.Namespace) -> int:
    """Put an export's sessions into a journal that has none of them."""
    async with stores.open_reader(options.export) as reader:
        rows = [await check_import(reader, session_id) async for session_id in session_ids(reader, None)]
        await _check_absent(options.journal, rows)
        events = 0
        for row in rows:
            events += await _import(reader, row, options.journal)
    print(f"imported {len(rows)} sessions, {events} events")
    return OK


async def _check_absent(journal: str, rows: list[SessionRow]) -> None:
    if not await stores.is_there(journal):
        return
    async with stores.open_reader(journal) as target:
        for row in rows:
            if await target.session(row.session_id) is not None:
                raise SessionExists(row.session_id)


async def _import(reader: JournalReader, row: SessionRow, target: str) -> int:
    async with stores.open_journal(target, owner_id=row.owner_id, create=True) as journal:
        return await import_session(reader, row, journal, stores.id_source())


async def backup(options: argparse.Namespace) -> int:
    """Copy a journal with its engine's own backup."""
    await stores.back_up(options.journal, options.target)
    print(f"copied to {visible(options.target)}")
    return OK

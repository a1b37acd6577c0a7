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
from itertools import groupby
from typing import BinaryIO

from domain.errors import InvalidOptions, StoreWriteFailed
from domain.ports import JournalReader, SessionRow
from recovery import stores
from recovery.escape import visible
from recovery.exit_codes import OK
from recovery.exporting import already_there, check_import, export_session, import_sessions
from recovery.looking import session_ids
from recovery.progress import progress


async def export(options: argparse.Namespace) -> int:
    """Write sessions as JSON Lines to a new file or to standard output."""
    async with stores.open_reader(options.journal, owner_id=options.owner) as opened:
        with progress("exporting") as line, _output(options.output) as file:
            reader = line.watch(opened)
            sessions = events = 0
            async for session_id in session_ids(reader, options.session):
                events += await export_session(reader, session_id, file.write)
                sessions += 1
            _check_some(sessions, options)
            file.flush()
    print(f"exported {sessions} sessions, {events} events", file=sys.stderr)
    return OK


def _check_some(sessions: int, options: argparse.Namespace) -> None:
    """An empty file is what a full disk leaves behind; nothing takes it for an export, and none is made."""
    if not sessions:
        whose = "sessions" if options.owner is None else f"sessions of {options.owner!r}"
        raise InvalidOptions("JOURNAL", f"a journal with {whose}, to be exported", "none")


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
    except OSError as e:
        raise InvalidOptions("--output", f"the path of a new file ({e.strerror})", path) from e
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
    except BaseException as e:
        os.unlink(path)
        if isinstance(e, OSError):
            raise StoreWriteFailed(path, f"nothing was kept of the export: {e.strerror}") from e
        raise


async def import_(options: argparse.Namespace) -> int:
    """Put an export's sessions into a journal, or what it lacks of them."""
    stores.check_takes_events(options.journal)
    async with stores.open_reader(options.export) as opened:
        with progress("checking") as line:
            reader = line.watch(opened)
            rows = [await check_import(reader, session_id) async for session_id in session_ids(reader, None)]
            there = await _already_there(reader, rows, options.journal)
        with progress("importing") as line:
            events = await _import(line.watch(opened), rows, options.journal)
    kept = f"; {there} were there already" if there else ""
    print(f"imported {len(rows)} sessions, {events} events{kept}")
    return OK


async def _already_there(reader: JournalReader, rows: list[SessionRow], journal: str) -> int:
    """How many events of these sessions a journal has. Raises SessionExists where they are not the same."""
    if not await stores.is_there(journal):
        return 0
    async with stores.open_reader(journal) as target:
        return sum([await already_there(reader, row, target) for row in rows])


async def _import(reader: JournalReader, rows: list[SessionRow], target: str) -> int:
    """Write sessions that were checked. Returns how many events they have."""
    events = 0
    try:
        for owner_id, theirs in groupby(sorted(rows, key=_owner), _owner):
            async with stores.open_journal(target, owner_id=owner_id, create=True) as journal:
                events += await import_sessions(reader, theirs, journal, stores.id_source())
    except BaseException:
        print("The import was broken off. The same command goes on where it stopped.", file=sys.stderr)
        raise
    return events


def _owner(row: SessionRow) -> str:
    return row.owner_id


async def backup(options: argparse.Namespace) -> int:
    """Copy a journal with its engine's own backup."""
    await stores.back_up(options.journal, options.target)
    print(f"copied to {visible(options.target)}")
    return OK

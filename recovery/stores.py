"""The one module of this package that names adapters: what the command line opens.

Imported by `recovery.cli`, function by function, so that a command loads what it
needs and nothing else. Deciding and printing do not belong here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from domain import ids
from domain.errors import InvalidOptions, NotAJournal
from domain.ports import Clock, Holder, IdSource, Journal, JournalReader, Migration, StoreDescription
from recovery import addresses

if TYPE_CHECKING:
    from adapters.postgres_survey import ServerSurvey
    from adapters.sqlite_survey import Survey

#: How stores call themselves in messages and plans; accepted wherever a path is.
SQLITE_PREFIX: Final = "sqlite:"
EXPORT_SUFFIX: Final = ".jsonl"


def path_of(journal: str) -> str:
    """The file that a command's JOURNAL names.

    Raises:
        InvalidOptions: an address that this version has no engine for.
    """
    if "://" in journal:
        expected = "a SQLite file, an exported .jsonl file or a postgresql:// address"
        raise InvalidOptions("JOURNAL", expected, addresses.shown(journal))
    return journal.removeprefix(SQLITE_PREFIX)


@asynccontextmanager
async def open_reader(journal: str, *, owner_id: str | None = None) -> AsyncIterator[JournalReader]:
    """Open a journal, or an export of one, to look at it. Nothing is ever written.

    Args:
        owner_id: whose sessions to show; None: everybody's.

    Raises:
        InvalidOptions, NotAJournal, NewerFormat, StoreFailure.
    """
    if owner_id is not None:
        ids.owner_id(owner_id)
    if addresses.is_server(journal):
        async with _open_server(journal, owner_id) as server:
            yield server
        return
    path = path_of(journal)
    if path.endswith(EXPORT_SUFFIX):
        from adapters.jsonl_reader import open_export

        async with open_export(path, owner_id=owner_id) as export:
            yield export
    else:
        from adapters.sqlite_reader import open_reader as open_sqlite

        async with open_sqlite(path, owner_id=owner_id) as reader:
            yield reader


@asynccontextmanager
async def _open_server(journal: str, owner_id: str | None) -> AsyncIterator[JournalReader]:
    with addresses.driver_or_refuse():
        from adapters.postgres_reader import open_reader as open_postgres

    url, schema = addresses.parts(journal)
    async with open_postgres(url, owner_id=owner_id, schema=schema) as reader:
        yield reader


async def is_there(journal: str) -> bool:
    """Whether there is anything where a journal may be made.

    Raises:
        InvalidOptions, StoreFailure.
    """
    if not addresses.is_server(journal):
        return await anyio.Path(path_of(journal)).exists()
    try:
        async with open_reader(journal):
            return True
    except NotAJournal:  # no tables of ours; tables of somebody else are refused when they are written to
        return False


async def damage_of(reader: JournalReader) -> Sequence[str]:
    """What the engine's own check finds wrong with the whole file; an export has no engine.

    Raises:
        Corrupt: the check itself could not read on.
    """
    look = getattr(reader, "damage", None)
    return await look() if look is not None else ()


def caveats_of(reader: JournalReader) -> Sequence[str]:
    """What everybody has to know who goes by what a reader shows: that it is a standby's."""
    found: Sequence[str] = getattr(reader, "caveats", ())
    return found


def check_takes_events(journal: str) -> None:
    """Raises InvalidOptions for an export, which can only be looked at."""
    if not addresses.is_server(journal) and path_of(journal).endswith(EXPORT_SUFFIX):
        raise InvalidOptions("JOURNAL", "a journal that takes events; an export does not", journal)


@asynccontextmanager
async def open_journal(journal: str, *, owner_id: str, create: bool = False) -> AsyncIterator[Journal]:
    """Open a journal for decisions.

    Args:
        create: whether to make the file if it does not exist.

    Raises:
        InvalidOptions: an export, which takes no events, or a file that is not there.
        NotAJournal, NewerFormat, StoreFailure.
    """
    check_takes_events(journal)
    if not create and not await is_there(journal):
        raise InvalidOptions("JOURNAL", "a journal that exists", addresses.shown(journal))
    async with _store(journal).open(owner_id=owner_id) as opened:
        yield opened


def _store(journal: str) -> StoreDescription:
    if not addresses.is_server(journal):
        from adapters.sqlite_store import SqliteStore

        return SqliteStore(path_of(journal))
    with addresses.driver_or_refuse():
        from adapters.postgres_store import PostgresStore

    url, schema = addresses.parts(journal)
    return PostgresStore(url, schema=schema)


async def back_up(journal: str, target: str) -> None:
    """Copy a journal to a new file, as it is committed at one moment.

    Raises:
        InvalidOptions: an export, or the target exists.
        NotAJournal, NewerFormat, Corrupt, StoreFailure.
    """
    from adapters.sqlite_backup import back_up as copy

    if addresses.is_server(journal):
        expected = "a SQLite journal; copy a PostgreSQL journal with pg_dump, or its sessions with export"
        raise InvalidOptions("JOURNAL", expected, addresses.shown(journal))
    path = path_of(journal)
    if path.endswith(EXPORT_SUFFIX):
        raise InvalidOptions("JOURNAL", "a SQLite journal; an export is copied like any file", journal)
    await anyio.to_thread.run_sync(copy, path, target)


async def migrate(
    journal: str, *, dry_run: bool, backup: bool, progress: Callable[[int, int], None] | None
) -> Migration:
    """Bring a journal's tables up to date; see `recovery.migrating`.

    Raises:
        InvalidOptions: an export.
        LeaseConflict, NotAJournal, NewerFormat, StoreFailure.
    """
    if addresses.is_server(journal):
        return await _up_to_date(journal)
    from adapters import sqlite_migration

    path = path_of(journal)
    if path.endswith(EXPORT_SUFFIX):
        raise InvalidOptions("JOURNAL", "a journal with tables; an export is read as it is", journal)

    def change() -> Migration:
        opening = sqlite_migration.opening_of(path)
        if dry_run:
            return sqlite_migration.planned(opening, backup=backup)
        return sqlite_migration.migrate(opening, backup=backup, progress=progress)

    # Not to be abandoned half-way: it ends by itself, and what it did has to be told.
    with anyio.CancelScope(shield=True):
        done = await anyio.to_thread.run_sync(change)
    return done  # noqa: RET504  # by its type, the scope may swallow what is raised inside


async def _up_to_date(journal: str) -> Migration:
    """A server's tables have had one format so far; opening them says whether they are of it."""
    sessions = events = 0
    async with open_reader(journal) as reader:
        after = ""
        while rows := await reader.sessions(after=after):
            sessions, events = sessions + len(rows), events + sum(row.sequence for row in rows)
            after = rows[-1].session_id
        return Migration(reader.name, 1, 1, sessions, events, None)


def clock() -> Clock:
    """The system's clock."""
    from adapters.system import SystemClock

    return SystemClock()


def id_source() -> IdSource:
    """The system's random source."""
    from adapters.system import SystemIds

    return SystemIds()


def holder(worker_id: str) -> Holder:
    """This process as a holder of a lease, the lease id left open."""
    from adapters.system import this_process

    process = this_process()
    return Holder(worker_id, "", process.boot_id, process.process_id, process.process_started)


def sqlite_facts() -> Any:
    """Which SQLite is used here; satisfies `minutebook.doctor.SqliteFacts`."""
    from adapters import sqlite_driver

    return sqlite_driver


def survey(journal: str) -> Survey:
    """What the engine says about a journal file, for `minutebook doctor`.

    Raises:
        InvalidOptions, NotAJournal, NewerFormat, Corrupt, StoreFailure.
    """
    from adapters.sqlite_survey import survey as look

    path = path_of(journal)
    if path.endswith(EXPORT_SUFFIX):
        raise InvalidOptions("JOURNAL", "a journal with tables; verify examines an export", journal)
    return look(path)


def server_survey(journal: str) -> ServerSurvey:
    """What a PostgreSQL server says about itself and a journal in it, for `minutebook doctor`.

    Raises:
        InvalidOptions, NotAJournal, NewerFormat, StoreFailure.
    """
    with addresses.driver_or_refuse():
        from adapters.postgres_survey import survey as look

    url, schema = addresses.parts(journal)
    return look(url, schema=schema)

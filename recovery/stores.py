"""The one module of this package that names adapters: what the command line opens.

Imported by `recovery.cli`, function by function, so that a command loads what it
needs and nothing else. Deciding and printing do not belong here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from domain.errors import InvalidOptions
from domain.ports import Clock, Holder, IdSource, Journal, JournalReader, LeaseRow

if TYPE_CHECKING:
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
        raise InvalidOptions("JOURNAL", "a SQLite file or an exported .jsonl file", journal)
    return journal.removeprefix(SQLITE_PREFIX)


@asynccontextmanager
async def open_reader(journal: str, *, owner_id: str | None = None) -> AsyncIterator[JournalReader]:
    """Open a journal, or an export of one, to look at it. Nothing is ever written.

    Args:
        owner_id: whose sessions to show; None: everybody's.

    Raises:
        InvalidOptions, NotAJournal, NewerFormat, StoreFailure.
    """
    path = path_of(journal)
    if path.endswith(EXPORT_SUFFIX):
        from adapters.jsonl_reader import open_export

        async with open_export(path, owner_id=owner_id) as export:
            yield export
    else:
        from adapters.sqlite_reader import open_reader as open_sqlite

        async with open_sqlite(path, owner_id=owner_id) as reader:
            yield reader


async def damage_of(reader: JournalReader) -> Sequence[str]:
    """What the engine's own check finds wrong with the whole file; an export has no engine.

    Raises:
        Corrupt: the check itself could not read on.
    """
    look = getattr(reader, "damage", None)
    return await look() if look is not None else ()


@asynccontextmanager
async def open_journal(journal: str, *, owner_id: str, create: bool = False) -> AsyncIterator[Journal]:
    """Open a journal for decisions.

    Args:
        create: whether to make the file if it does not exist.

    Raises:
        InvalidOptions: an export, which takes no events, or a file that is not there.
        NotAJournal, NewerFormat, StoreFailure.
    """
    from adapters.sqlite_store import SqliteStore

    path = path_of(journal)
    if path.endswith(EXPORT_SUFFIX):
        raise InvalidOptions("JOURNAL", "a journal that takes events; an export does not", journal)
    if not create and not await anyio.Path(path).exists():
        raise InvalidOptions("JOURNAL", "a file that exists", journal)
    async with SqliteStore(path).open(owner_id=owner_id) as opened:
        yield opened


async def back_up(journal: str, target: str) -> None:
    """Copy a journal to a new file, as it is committed at one moment.

    Raises:
        InvalidOptions: an export, or the target exists.
        NotAJournal, NewerFormat, Corrupt, StoreFailure.
    """
    from adapters.sqlite_backup import back_up as copy

    path = path_of(journal)
    if path.endswith(EXPORT_SUFFIX):
        raise InvalidOptions("JOURNAL", "a SQLite journal; an export is copied like any file", journal)
    await anyio.to_thread.run_sync(copy, path, target)


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


def lease_lives(lease: LeaseRow | None) -> bool | None:
    """Whether a lease holds now: not given back, not run out, its process not provably dead."""
    if lease is None:
        return None
    from adapters.system import provably_dead

    if lease.lease_id is None or lease.expires_at <= clock().now():
        return False
    return not provably_dead(lease.boot_id, lease.process_id, lease.process_started)


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

    return look(path_of(journal))

"""Bringing a journal of an older format up to date: the command `migrate`, and the same from Python.

Loaded by `recovery.cli`. What an engine has to do is the adapters' business; a
journal that is up to date is left as it is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from domain.ports import Migration
from recovery import stores
from recovery.escape import visible
from recovery.exit_codes import OK

if TYPE_CHECKING:
    from collections.abc import Callable

    Progress = Callable[[int, int], None]


async def migrate(
    journal: str, *, dry_run: bool = False, backup: bool = True, progress: Progress | None = None
) -> Migration:
    """Bring a journal's tables to this version's format. Its events stay as they are, to the byte.

    Args:
        journal: a SQLite file, or a PostgreSQL URL.
        dry_run: only say what would be done; nothing is written.
        backup: copy a file first, to a new file beside it; PostgreSQL has its own ways.
        progress: told from another thread how the copy gets on: pages done, pages in all.

    Returns:
        What was done, or would be. Where `found` equals `target` there was nothing to do.

    Raises:
        InvalidOptions: an export; it has no tables.
        LeaseConflict: a worker holds a session; it says who, until when. Nothing was changed.
        NotAJournal, NewerFormat, StoreFailure: nothing was changed, or it says what is unknown.

    Guarantees: all of it or nothing, also when the process is killed; a second call is harmless.
    """
    return await stores.migrate(journal, dry_run=dry_run, backup=backup, progress=progress)


async def command(options: argparse.Namespace) -> int:
    """Migrate, and say what was done."""
    with _progress() as progress:
        done = await migrate(
            options.journal, dry_run=options.dry_run, backup=options.backup, progress=progress
        )
    for sentence in sentences(done, dry_run=options.dry_run):
        print(visible(sentence))
    return OK


def sentences(done: Migration, *, dry_run: bool) -> list[str]:
    """What was done, or would be."""
    inside = f"{done.sessions} sessions, {done.events} events"
    if done.found == done.target:
        return [f"{done.store}: format {done.found}, up to date ({inside}); there is nothing to do"]
    did, kept = ("would migrate", "would keep") if dry_run else ("migrated", "kept")
    copy = f"{kept} a backup: {done.backup}" if done.backup is not None else f"{kept} no backup"
    return [
        f"{done.store}: {did} from format {done.found} to {done.target}; {inside} stay as they are",
        copy,
    ]


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """On a terminal, a bar for the copy; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("backup", total=None)
        yield lambda done, all_: bar.update(task, completed=done, total=all_)

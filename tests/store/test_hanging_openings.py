"""Opening a file on a disk that does not answer: the time is limited, and nothing stays half open.

The file really does not answer: somebody has the kernel's lease on it, and SQLite waits in the system call
that opens it until the lease is given back.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import pytest

from adapters.sqlite_files import file_key
from adapters.sqlite_registry import OPEN_FILES
from adapters.sqlite_store import SqliteStore
from domain.cursor import Cursor
from domain.errors import StoreTimeout
from minutebook.testing.batches import dummy_batch
from tests.store.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


@contextmanager
def hanging(path: Path) -> Iterator[Callable[[], None]]:
    """The disk under a journal hangs until the end of the block, or until what is given is called."""
    with ExitStack() as held:
        descriptor = os.open(path, os.O_RDWR)
        held.callback(os.close, descriptor)
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)  # what the kernel asks with: it ends nobody
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield held.close


def openers(path: Path) -> list[threading.Thread]:
    """The threads that are opening it."""
    return [each for each in threading.enumerate() if each.name == f"opens {path}"]


@pytest.fixture
async def journal(tmp_path: Path) -> Path:
    """A journal with an event."""
    path = tmp_path / "journal.db"
    async with SqliteStore(path).open() as journal:
        await journal.commit(dummy_batch(Cursor.start("session-1"), "c1"))
    return path


async def test_it_has_the_limit_of_every_call_and_is_made_good_afterwards(journal: Path) -> None:
    store = SqliteStore(journal, store_timeout_s=0.1)
    with hanging(journal) as answer:
        for waiting in (1, 2):
            with anyio.fail_after(PATIENCE_S), pytest.raises(StoreTimeout) as told:
                async with store.open():
                    pass
            assert f"sqlite:{journal}: " in str(told.value)
            assert f"opens {journal}" in str(told.value)
            assert len(openers(journal)) == waiting
        async with SqliteStore(journal.with_name("other.db")).open() as other:  # another disk, say
            assert await other.sessions() == []
        answer()
        await until(lambda: not openers(journal))
    assert not OPEN_FILES.is_open(file_key(str(journal)))
    async with store.open() as opened:
        assert len(await opened.read("session-1")) == 1


async def test_who_does_not_wait_for_it_any_more_leaves_nothing_open(journal: Path) -> None:
    with hanging(journal) as answer:
        with anyio.move_on_after(0) as scope:
            async with SqliteStore(journal).open():
                pass
        assert scope.cancelled_caught
        answer()
        await until(lambda: not openers(journal))
    assert not OPEN_FILES.is_open(file_key(str(journal)))


async def test_who_still_waits_when_it_answers_has_it(journal: Path) -> None:
    """Also where another one gave up before."""
    with hanging(journal) as answer:
        with anyio.move_on_after(0):
            async with SqliteStore(journal).open():
                pass
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, SqliteStore(journal))
            await until(lambda: len(openers(journal)) == 2)
            answer()
    assert not OPEN_FILES.is_open(file_key(str(journal)))


async def _read(store: SqliteStore) -> None:
    async with store.open() as journal:
        assert len(await journal.read("session-1")) == 1

"""A disk that hangs: reads are told so in time, what comes late is dropped, closing does not wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.sqlite_driver import sqlite
from adapters.sqlite_jobs import Job, ReadingThread, answered
from adapters.sqlite_reader import open_reader
from adapters.sqlite_registry import OPEN_FILES
from adapters.sqlite_store import SqliteStore
from domain.cursor import Cursor
from domain.envelope import Fence
from domain.errors import StoreReadFailed, StoreTimeout
from domain.ports import Holder, Journal, JournalReader
from minutebook.testing.batches import dummy_batch
from tests.store.unknown import OVER_S, TIMEOUT_S, hanging
from tests.store.waiting import PATIENCE_S, until

pytestmark = pytest.mark.anyio

HOLDER, FENCE = Holder("w1", "l-1"), Fence("w1", "l-1", 1)
FIRST = dummy_batch(Cursor.start("session-1"), "c1", blobs=[b"blob"], snapshot_state=b"state", fence=FENCE)


async def _subscribe(journal: Journal) -> None:
    async for _ in journal.subscribe("session-1"):
        return


LOOKS: dict[str, Callable[[JournalReader], Awaitable[object]]] = {
    "session": lambda reader: reader.session("session-1"),
    "sessions": lambda reader: reader.sessions(),
    "read": lambda reader: reader.read("session-1"),
    "snapshot": lambda reader: reader.snapshot("session-1"),
    "blob": lambda reader: reader.blob(FIRST.blobs[0].digest),
    "command": lambda reader: reader.command("session-1", "c1"),
    "commands": lambda reader: reader.commands("session-1", ["c1"]),
}
CALLS: dict[str, Callable[[Journal], Awaitable[object]]] = {
    **LOOKS,
    "validate": lambda journal: journal.leases.validate("session-1", FENCE),
    "free": lambda journal: journal.leases.free(["none"]),
    "subscribe": _subscribe,
}


class Disk:
    """Reads wait while it hangs; writes never do."""

    def __init__(self) -> None:
        self.answering = threading.Event()
        self.answering.set()
        self.kind = hanging(sqlite.Connection, self.answering, only="SELECT")


@pytest.fixture
def disk() -> Iterator[Disk]:
    made = Disk()
    yield made
    made.answering.set()


async def told_in_time(call: Callable[[Any], Awaitable[object]], reader: JournalReader) -> None:
    """A typed error, and not much later than the store's timeout."""
    began = time.monotonic()
    with anyio.fail_after(PATIENCE_S), pytest.raises(StoreTimeout):
        await call(reader)
    assert time.monotonic() - began < TIMEOUT_S + OVER_S


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_every_read_on_a_disk_that_hangs_ends_in_time(tmp_path: Path, disk: Disk) -> None:
    store = SqliteStore(tmp_path / "j.db", store_timeout_s=TIMEOUT_S, connection_class=disk.kind)
    async with store.open() as journal:
        await journal.leases.acquire("session-1", HOLDER, 60_000)
        await journal.commit(FIRST)
        disk.answering.clear()
        async with anyio.create_task_group() as tasks:
            for call in CALLS.values():
                tasks.start_soon(told_in_time, call, journal)
        disk.answering.set()
        for call in CALLS.values():
            with anyio.fail_after(PATIENCE_S):
                await call(journal)
        assert await journal.read("session-1") == list(FIRST.events)


async def test_a_read_that_was_given_up_is_not_done_later(disk: Disk) -> None:
    """What waits behind it has not that to wait for, too."""
    done: list[str] = []
    thread: ReadingThread[Closed] = ReadingThread(Closed, "test", TIMEOUT_S)
    thread.start()

    def job(name: str) -> Job[Closed, None]:
        def run(source: Closed) -> None:
            disk.answering.wait()
            done.append(name)

        return Job(run, time.monotonic() + TIMEOUT_S)

    disk.answering.clear()
    jobs = [job(name) for name in ("first", "second")]
    for each in jobs:
        thread.submit(each)
    for each in jobs:
        with pytest.raises(StoreTimeout):
            await answered(each, "test")
    disk.answering.set()
    third = job("third")
    thread.submit(third)
    await answered(third, "test")
    assert done == ["first", "third"]
    assert thread.close()


class Closed:
    """A source that is closed without ado."""

    def close(self) -> None:
        pass


async def test_closing_does_not_wait_for_a_read_that_hangs(tmp_path: Path, disk: Disk) -> None:
    store = SqliteStore(tmp_path / "j.db", store_timeout_s=TIMEOUT_S, connection_class=disk.kind)
    async with store.open() as journal:
        await journal.leases.acquire("session-1", HOLDER, 60_000)
        await journal.commit(FIRST)
        disk.answering.clear()
        await told_in_time(LOOKS["read"], journal)
        began = time.monotonic()
    assert time.monotonic() - began < OVER_S
    with pytest.raises(StoreReadFailed):
        await journal.read("session-1")
    disk.answering.set()
    await until(lambda: not any(thread.name == f"reads {journal.name}" for thread in threading.enumerate()))


async def test_looking_at_a_file_that_hangs_ends_in_time(tmp_path: Path) -> None:
    """Whoever looks at a file waits for what else this process does to it; nobody waits for ever."""
    store = SqliteStore(tmp_path / "j.db")
    async with store.open() as journal:
        await journal.leases.acquire("session-1", HOLDER, 60_000)
        await journal.commit(FIRST)
    async with open_reader(tmp_path / "j.db", timeout_s=TIMEOUT_S) as reader:
        key, busy, over = reader.key, threading.Event(), threading.Event()

        def hold() -> None:
            with OPEN_FILES.unseen(key):
                busy.set()
                over.wait(PATIENCE_S)

        holding = threading.Thread(target=hold)
        holding.start()
        assert busy.wait(PATIENCE_S)
        async with anyio.create_task_group() as tasks:
            for call in LOOKS.values():
                tasks.start_soon(told_in_time, call, reader)
        began = time.monotonic()
    assert time.monotonic() - began < OVER_S
    over.set()
    holding.join()
    await until(lambda: not any(thread.name == f"reads {reader.name}" for thread in threading.enumerate()))

"""Several processes on one journal file."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from adapters.sqlite_store import SqliteStore
from domain.cursor import Cursor
from domain.envelope import Fence, check_link, genesis
from domain.errors import LeaseConflict, LeaseLost
from domain.ports import Holder
from minutebook.testing.batches import dummy_batch, end_of
from tests.store.children import child

pytestmark = pytest.mark.anyio

APPENDER = """
import json, sys
import anyio
from adapters.sqlite_store import SqliteStore
from domain.errors import HeadConflict
from domain.cursor import Cursor
from minutebook.testing.batches import dummy_batch

async def main(path, name, wanted, mode):
    won = lost = 0
    print("ready", flush=True)
    sys.stdin.readline()
    async with SqliteStore(path, journal_mode=mode).open() as journal:
        place = Cursor.start("session-1")
        while won < wanted:
            batch = dummy_batch(place, f"{name}-{won}", [b"1", b"2"])
            try:
                await journal.commit(batch)
                place = Cursor.after(batch.events[-1])
                won += 1
            except HeadConflict:
                lost += 1
                row = await journal.session("session-1")
                place = Cursor("session-1", row.sequence, row.head)
    print(json.dumps([won, lost]), flush=True)

anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
"""


@pytest.mark.parametrize("mode", ["wal", "truncate"])
async def test_two_processes_make_a_journal_and_append_to_one_session(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "new" / "journal.db"
    with child(APPENDER, path, "a", 15, mode) as a, child(APPENDER, path, "b", 15, mode) as b:
        for appender in (a, b):
            assert appender.hear() == "ready"
        for appender in (a, b):
            appender.tell()
        told = [json.loads(appender.hear()) for appender in (a, b)]
        assert [appender.end() for appender in (a, b)] == [0, 0]
    assert [won for won, _ in told] == [15, 15]
    assert sum(lost for _, lost in told) > 0, "they never met"
    sequence, head = 0, genesis("session-1")
    async with SqliteStore(path, journal_mode=mode).open() as journal:
        for row in await journal.read("session-1"):
            check_link(row, sequence, head)
            sequence, head = row.sequence, row.head
    assert sequence == 60


WRITER = """
import sys
import anyio
from adapters.sqlite_store import SqliteStore
from domain.cursor import Cursor
from minutebook.testing.batches import dummy_batch, end_of

async def main(path):
    async with SqliteStore(path).open() as journal:
        batch = dummy_batch(Cursor.start("session-1"), "c0")
        print("ready", flush=True)
        for number in range(1, 6):
            sys.stdin.readline()
            await journal.commit(batch)
            batch = dummy_batch(end_of(batch), f"c{number}")

anyio.run(main, sys.argv[1])
"""


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_another_process_s_commits_are_noticed(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "j.db").open() as journal:
        with child(WRITER, tmp_path / "j.db") as writer:
            assert writer.hear() == "ready"
            rows = journal.subscribe("session-1")
            for sequence in range(1, 6):
                writer.tell()
                with anyio.fail_after(20):
                    assert (await anext(rows)).sequence == sequence
            assert writer.end() == 0


LEASED = """
import sys
import anyio
from adapters.sqlite_store import SqliteStore
from adapters.system import this_process
from domain.envelope import Fence
from domain.ports import Holder
from domain.cursor import Cursor
from minutebook.testing.batches import dummy_batch

async def main(path):
    us = this_process()
    async with SqliteStore(path).open() as journal:
        holder = Holder("child", "lease-1", us.boot_id, us.process_id, us.process_started)
        lease = await journal.leases.acquire("session-1", holder, 3_600_000)
        fence = Fence("child", "lease-1", lease.token)
        await journal.commit(dummy_batch(Cursor.start("session-1"), "c1", fence=fence))
        print("leased", flush=True)
        sys.stdin.readline()

anyio.run(main, sys.argv[1])
"""


async def test_a_killed_holder_is_taken_over_at_once_and_a_live_one_is_not(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "j.db")
    ours = Holder("ours", "lease-2")
    first = dummy_batch(Cursor.start("session-1"), "c1", fence=Fence("child", "lease-1", 1))
    with child(LEASED, store.path) as holder:
        assert holder.hear() == "leased"
        async with store.open() as journal:
            with pytest.raises(LeaseConflict) as refusal:
                await journal.leases.acquire("session-1", ours, 30_000)
            assert refusal.value.holder == "child"
            holder.kill()
            lease = await journal.leases.acquire("session-1", ours, 30_000)
            assert lease.token == 2
            dead = dummy_batch(end_of(first), "c2", fence=Fence("child", "lease-1", 1))
            with pytest.raises(LeaseLost):
                await journal.commit(dead)
            await journal.commit(dummy_batch(end_of(first), "c2", fence=Fence("ours", "lease-2", 2)))


async def test_a_holder_on_another_host_is_waited_for(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "j.db").open() as journal:
        elsewhere = Holder("theirs", "lease-1", "another boot", 2**22 + 1, "1")
        await journal.leases.acquire("session-1", elsewhere, 3_600_000)
        with pytest.raises(LeaseConflict):
            await journal.leases.acquire("session-1", Holder("ours", "lease-2"), 30_000)

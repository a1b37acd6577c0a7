"""Looking at a journal that is whole, in use, or left behind by a killed process."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from adapters.sqlite_driver import sqlite
from adapters.sqlite_reader import open_reader
from adapters.sqlite_store import SqliteStore
from domain.cursor import Cursor
from domain.envelope import Stored
from domain.errors import StoreTimeout
from domain.ports import Batch, Holder, JournalReader
from minutebook.testing.batches import dummy_batch, end_of
from tests.store.children import LOCK_HOLDER, child

pytestmark = pytest.mark.anyio

FIRST = dummy_batch(
    Cursor.start("session-1"), "c1", [b'{"n":1}'] * 20, snapshot_state=b"state", blobs=[b"blob"]
)
SECOND = dummy_batch(end_of(FIRST), "c2")


async def made(path: Path, mode: str, *batches: Batch) -> None:
    async with SqliteStore(path, journal_mode=mode).open() as journal:
        for batch in batches or (FIRST,):
            await journal.commit(batch)


async def shown(path: Path) -> tuple[Stored, ...]:
    """What a reader shows of the session, with its row checked."""
    reader: JournalReader
    async with open_reader(path) as reader:
        row = await reader.session("session-1")
        rows = tuple(await reader.read("session-1"))
    assert row is not None
    assert (row.sequence, row.head) == (rows[-1].sequence, rows[-1].head)
    return rows


def state_of(directory: Path) -> list[tuple[str, bytes, int]]:
    """Every file, to the byte and the nanosecond."""
    files = sorted(directory.iterdir())
    return [(file.name, file.read_bytes(), file.stat().st_mtime_ns) for file in files]


@pytest.fixture(params=["wal", "truncate"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# --- a journal at rest ---------------------------------------------------------------


async def test_everything_can_be_read_and_nothing_changes(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "j.db"
    await made(path, mode, FIRST, SECOND, dummy_batch(Cursor.start("session-2"), "c1"))
    before = state_of(tmp_path)
    async with open_reader(path) as reader:
        assert [row.session_id for row in await reader.sessions()] == ["session-1", "session-2"]
        assert tuple(await reader.read("session-1", after=20)) == SECOND.events
        assert await reader.snapshot("session-1") == FIRST.snapshot
        assert await reader.blob(FIRST.blobs[0].digest) == b"blob"
        assert await reader.blobs() == [FIRST.blobs[0].digest]
        found = await reader.command("session-1", "c2")
        assert found is not None
        assert found[0] == SECOND.fingerprint
        assert await reader.damage() == []
        assert reader.name.endswith("j.db")
    assert state_of(tmp_path) == before


async def test_a_reader_for_an_owner_sees_that_owner_s_sessions(tmp_path: Path) -> None:
    await made(tmp_path / "j.db", "auto")
    async with open_reader(tmp_path / "j.db", owner_id="somebody") as reader:
        assert await reader.sessions() == []
        assert await reader.session("session-1") is None
        assert list(await reader.read("session-1")) == []
    async with open_reader(tmp_path / "j.db", owner_id="local") as reader:
        assert len(await reader.sessions()) == 1


async def test_a_lease_before_the_first_event_is_no_session(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "j.db").open() as journal:
        await journal.leases.acquire("session-1", Holder("w", "l"), 1_000)
    async with open_reader(tmp_path / "j.db") as reader:
        assert await reader.session("session-1") is None
        assert await reader.sessions() == []


# --- a journal left behind by a killed process -----------------------------------------

SPILLER = """
import os, sys
import anyio
from adapters.sqlite_driver import sqlite
from adapters.sqlite_store import SqliteStore
from domain.cursor import Cursor
from minutebook.testing.batches import dummy_batch, end_of
from tests.store.test_sqlite_reader import FIRST, SpillingConnection

async def main(path, mode):
    def probe(point):
        if point == "before_commit" and armed:
            print("in transaction", flush=True)
            sys.stdin.readline()
    armed = []
    store = SqliteStore(path, journal_mode=mode, probe=probe, connection_class=SpillingConnection)
    async with store.open() as journal:
        await journal.commit(FIRST)
        armed.append(True)
        await journal.commit(dummy_batch(end_of(FIRST), "big", [b"x" * 50_000] * 100))

anyio.run(main, sys.argv[1], sys.argv[2])
"""


class SpillingConnection(sqlite.Connection):
    """So small a cache that a big transaction is written to the files before its COMMIT."""

    def execute(self, sql: str, *parameters: object) -> sqlite.Cursor:
        if sql == "BEGIN IMMEDIATE":
            super().execute("PRAGMA cache_size = 5")
        return super().execute(sql, *parameters)  # type: ignore[arg-type]  # handed on as it came


@pytest.fixture
def killed(tmp_path: Path, mode: str) -> Iterator[Path]:
    """A journal whose writer was killed inside a transaction that had spilled."""
    path = tmp_path / "left" / "j.db"
    with child(SPILLER, path, mode) as spiller:
        assert spiller.hear() == "in transaction"
        size = path.stat().st_size + sum(f.stat().st_size for f in path.parent.glob("*-wal"))
        assert size > 2_000_000, "the transaction did not spill"
        spiller.kill()
        yield path


async def test_a_killed_transaction_shows_what_was_committed_only(killed: Path) -> None:
    before = state_of(killed.parent)
    assert await shown(killed) == FIRST.events
    async with open_reader(killed) as reader:
        assert await reader.command("session-1", "big") is None
        assert await reader.damage() == []
    assert state_of(killed.parent) == before


async def test_a_killed_journal_can_be_looked_at_and_then_resumed(killed: Path, mode: str) -> None:
    async with open_reader(killed) as reader:
        assert len(await reader.read("session-1")) == 20
        async with SqliteStore(killed, journal_mode=mode).open() as journal:
            await journal.commit(SECOND)
            assert len(await reader.read("session-1")) == 21
        assert len(await reader.read("session-1")) == 21
    assert await shown(killed) == FIRST.events + SECOND.events


async def test_a_killed_wal_without_its_shared_memory_file(tmp_path: Path) -> None:
    await copied_while_open(tmp_path)
    (tmp_path / "copy" / "j.db-shm").unlink()
    before = state_of(tmp_path / "copy")
    assert await shown(tmp_path / "copy" / "j.db") == FIRST.events
    assert state_of(tmp_path / "copy") == before


async def test_a_killed_wal_with_everything_still_in_it(tmp_path: Path) -> None:
    await copied_while_open(tmp_path)
    before = state_of(tmp_path / "copy")
    assert await shown(tmp_path / "copy" / "j.db") == FIRST.events
    assert state_of(tmp_path / "copy") == before


async def test_a_wal_that_was_begun_and_has_nothing_in_it_yet(tmp_path: Path) -> None:
    """As a kill leaves it between the log's header and its first frame. SQLite by itself takes ten seconds
    to say that it cannot read this."""
    await copied_while_open(tmp_path)
    begun = tmp_path / "copy" / "j.db"
    shutil.copyfile(begun.with_name("j.db-wal"), tmp_path / "wal")
    await checkpointed(begun)
    begun.with_name("j.db-wal").write_bytes((tmp_path / "wal").read_bytes()[:32])
    begun.with_name("j.db-shm").write_bytes(bytes(32768))
    before = state_of(tmp_path / "copy")
    with anyio.fail_after(5):
        assert await shown(begun) == FIRST.events
    assert state_of(tmp_path / "copy") == before


async def checkpointed(path: Path) -> None:
    """Take everything into the file itself."""
    async with SqliteStore(path, journal_mode="wal").open():
        pass


async def copied_while_open(tmp_path: Path) -> None:
    """What a crash leaves of a journal in a WAL: as copied while it was open and idle."""
    async with SqliteStore(tmp_path / "live" / "j.db", journal_mode="wal").open() as journal:
        await journal.commit(FIRST)
        shutil.copytree(tmp_path / "live", tmp_path / "copy")


UNPRIVILEGED = """
import os, sys
import anyio
from adapters.sqlite_reader import open_reader

async def main(path):
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    try:
        open(path + ".new", "w")
    except OSError:
        print("cannot write here", flush=True)
    async with open_reader(path) as reader:
        print(len(await reader.read("session-1")), flush=True)

anyio.run(main, sys.argv[1])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="directories are protected otherwise there")
async def test_a_directory_that_may_not_be_written(killed: Path, mode: str) -> None:
    opened = [killed.parent, *killed.parent.iterdir()]
    for place in [*killed.parents][: len(killed.parts) - 3]:
        place.chmod(place.stat().st_mode | 0o055)
    for place in opened:
        place.chmod(0o555 if place.is_dir() else 0o444)
    before = state_of(killed.parent)
    with child(UNPRIVILEGED, killed) as reader:
        assert reader.hear() == "cannot write here"
        assert reader.hear() == "20"
        assert reader.end() == 0
    assert state_of(killed.parent) == before
    killed.parent.chmod(0o700)


# --- a journal in use -----------------------------------------------------------------

BUSY_WRITER = """
import sys
import anyio
from adapters.sqlite_store import SqliteStore
from minutebook.testing.batches import dummy_batch, end_of
from tests.store.test_sqlite_reader import FIRST

async def main(path, mode):
    batch = FIRST
    async with SqliteStore(path, journal_mode=mode).open() as journal:
        number = 0
        while True:
            await journal.commit(batch)
            if number == 0:
                print("writing", flush=True)
            number += 1
            batch = dummy_batch(end_of(batch), f"n{number}", [b"x" * 2_000] * 3)

anyio.run(main, sys.argv[1], sys.argv[2])
"""


async def test_reading_while_another_process_writes(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "j.db"
    with child(BUSY_WRITER, path, mode) as writer:
        assert writer.hear() == "writing"
        reached = 0
        async with open_reader(path) as reader:
            with anyio.fail_after(30):
                while reached < 300:
                    row = await reader.session("session-1")
                    assert row is not None
                    rows = await reader.read("session-1", after=reached, limit=100)
                    assert [r.sequence for r in rows] == list(range(reached + 1, reached + 1 + len(rows)))
                    reached += len(rows)
        writer.kill()
    async with open_reader(path) as reader:
        row = await reader.session("session-1")
        assert row is not None
        assert row.sequence >= reached


async def test_a_writer_that_comes_while_a_reader_looks(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "j.db"
    await made(path, mode)
    async with open_reader(path) as reader:
        assert len(await reader.read("session-1")) == 20
        with child(APPEND_ONE, path, mode) as writer:
            assert writer.hear() == "committed"
            assert len(await reader.read("session-1")) == 21
            writer.tell()
            assert writer.end() == 0
        assert len(await reader.read("session-1")) == 21


APPEND_ONE = """
import sys
import anyio
from adapters.sqlite_store import SqliteStore
from tests.store.test_sqlite_reader import SECOND

async def main(path, mode):
    async with SqliteStore(path, journal_mode=mode).open() as journal:
        await journal.commit(SECOND)
        print("committed", flush=True)
        sys.stdin.readline()

anyio.run(main, sys.argv[1], sys.argv[2])
"""


async def test_a_store_and_a_reader_in_one_process(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "j.db"
    await made(path, mode)
    async with open_reader(path) as before:
        assert len(await before.read("session-1")) == 20
        async with SqliteStore(path, journal_mode=mode).open() as journal:
            async with open_reader(path) as during:
                await journal.commit(SECOND)
                for reader in (before, during):
                    assert len(await reader.read("session-1")) == 21
            await journal.commit(dummy_batch(end_of(SECOND), "c3"))
        assert len(await before.read("session-1")) == 22
    assert len(await shown(path)) == 22


async def test_reading_behind_a_writer_that_excludes_readers(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    await made(path, "truncate")
    with child(LOCK_HOLDER.replace("IMMEDIATE", "EXCLUSIVE"), path) as holder:
        assert holder.hear() == "held"
        with pytest.raises(StoreTimeout):
            async with open_reader(path, timeout_s=0.2):
                pass
        holder.tell()
        assert holder.hear() == "free"
    assert await shown(path) == FIRST.events

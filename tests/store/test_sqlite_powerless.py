"""A process that stopped in its transaction, a full disk, no right to write: typed, nothing written."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from adapters.sqlite_driver import FULL
from adapters.sqlite_store import SqliteStore
from domain.errors import OutcomeUnknown, StoreReadFailed, StoreWriteFailed
from domain.ports import CommitStatus
from tests.store.busy import (
    HOLDER,
    OURS,
    READS,
    SECOND,
    SESSION,
    WRITER,
    WRITES,
    Call,
    all_timed_out,
    begun,
    hold,
    let_go,
    store_at,
)
from tests.store.children import Child, child
from tests.store.faults import Faults, faulty

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["wal", "truncate"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Child]:
    """A process that has stopped inside its writing transaction, for no time that anybody knows."""
    with child(HOLDER, tmp_path / "j.db") as holder:
        yield holder
        with suppress(ProcessLookupError):
            os.kill(holder.process_id, signal.SIGCONT)


def stop(holder: Child) -> None:
    """Stop it in the middle of its transaction."""
    hold(holder, WRITER)
    os.kill(holder.process_id, signal.SIGSTOP)
    os.waitid(os.P_PID, holder.process_id, os.WSTOPPED)


@pytest.mark.skipif(sys.platform == "win32", reason="processes are not stopped like this there")
@pytest.mark.parametrize("then", ["goes on", "is killed"])
async def test_a_process_that_stops_inside_its_transaction(
    tmp_path: Path, mode: str, stopped: Child, then: str
) -> None:
    store = store_at(tmp_path / "j.db", mode)
    async with store.open() as journal:
        await begun(journal)
        stop(stopped)
        await all_timed_out(journal)
        for call in READS.values():
            await call(journal)
        if then == "is killed":
            stopped.kill()
        else:
            os.kill(stopped.process_id, signal.SIGCONT)
            let_go(stopped)
        assert (await journal.commit(SECOND)).status is CommitStatus.COMMITTED
        assert len(await journal.read(SESSION)) == 2


LEASES: dict[str, Call] = {name: WRITES[name] for name in ("acquire", "take again", "renew", "release")}


@pytest.mark.parametrize("name", sorted(LEASES))
async def test_a_full_disk_while_a_lease_is_written(tmp_path: Path, mode: str, name: str) -> None:
    faults = Faults()
    store = SqliteStore(tmp_path / "j.db", journal_mode=mode, connection_class=faulty(faults))
    async with store.open() as journal:
        await begun(journal)
        before = await journal.session(SESSION)
        for place in ("UPDATE", "COMMIT"):
            faults.arm(1, FULL, sticky=True, only=place)
            with pytest.raises(StoreWriteFailed, match="SQLITE_FULL"):
                await LEASES[name](journal)
            faults.disarm()
            assert await journal.session(SESSION) == before
        assert await journal.session("session-2") is None
        assert (await journal.leases.acquire("session-2", OURS, 60_000)).token == 1
        assert (await journal.commit(SECOND)).status is CommitStatus.COMMITTED


#: Tries every writing call where the files may not grow, or may not be written.
POWERLESS = """
import os, sys
import anyio
from adapters.sqlite_store import SqliteStore
from domain.errors import MinutebookError
from tests.store.busy import WRITES

async def main(way, *places):
    if way == "full":
        import resource
        most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, most))
    elif os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    for place in places:
        for call in WRITES.values():
            mode, path = place.split(":")
            try:
                async with SqliteStore(path, journal_mode=mode, store_timeout_s=0.3).open() as journal:
                    await call(journal)
                print("done", flush=True)
            except MinutebookError as e:
                print(e.code, flush=True)

anyio.run(main, *sys.argv[1:])
"""


def protect(path: Path, way: str) -> None:
    """Let others write to a file, or not."""
    path.chmod(0o444 if way == "read-only file" else 0o666)
    path.parent.chmod(0o555 if way == "read-only directory" else 0o777)


def reachable(directory: Path) -> None:
    """Let others get to a directory of a test."""
    for parent in [directory, *directory.parents][: len(directory.parts) - 2]:
        parent.chmod(parent.stat().st_mode | 0o055)


@pytest.mark.skipif(sys.platform != "linux", reason="rights and limits as Linux has them")
@pytest.mark.parametrize("way", ["full", "read-only file", "read-only directory"])
async def test_where_nothing_can_be_written_nothing_is(tmp_path: Path, way: str) -> None:
    stores = {mode: store_at(tmp_path / mode / "j.db", mode) for mode in ("wal", "truncate")}
    before = {}
    for mode, store in stores.items():
        async with store.open() as journal:
            await begun(journal)
            before[mode] = await journal.session(SESSION)
        protect(Path(store.path), way)
    reachable(tmp_path)
    places = [f"{mode}:{store.path}" for mode, store in stores.items()]
    with child(POWERLESS, way, *places) as powerless:
        told = {mode: {powerless.hear() for _ in WRITES} for mode in stores}
        assert powerless.end() == 0
    # A commit can fail at its very end: what became of it is then unknown, and said to be.
    failed = {StoreWriteFailed.code, OutcomeUnknown.code}
    assert told["truncate"] <= failed
    # With WAL even looking needs a file beside the journal, so it cannot be opened where none can be made.
    assert told["wal"] <= (failed if way == "read-only file" else {StoreReadFailed.code})
    for mode, store in stores.items():
        protect(Path(store.path), "")
        async with store.open() as journal:
            assert await journal.session(SESSION) == before[mode]
            assert await journal.session("session-2") is None
            assert (await journal.commit(SECOND)).status is CommitStatus.COMMITTED


#: Makes a copy where no file may grow beyond a few pages.
COPYING = """
import resource, sys
from adapters.sqlite_backup import back_up
from domain.errors import MinutebookError

resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    back_up(*sys.argv[1:])
except MinutebookError as e:
    print(e.code, e, flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits as Linux has them")
async def test_a_copy_that_finds_no_room_blames_the_copy(tmp_path: Path, mode: str) -> None:
    """And leaves nothing of it; the journal is as sound as before."""
    store, target = store_at(tmp_path / "j.db", mode), tmp_path / "copy.db"
    async with store.open() as journal:
        await begun(journal)
    with child(COPYING, store.path, target) as copying:
        told = copying.hear()
        assert copying.end() == 0
    assert told.startswith(f"{StoreWriteFailed.code} sqlite:{target}: nothing was copied from"), told
    assert not target.exists()
    async with store.open() as journal:
        assert (await journal.commit(SECOND)).status is CommitStatus.COMMITTED

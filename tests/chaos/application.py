"""What the fork server imports: programs that go on writing while their disk refuses.

Each waits until strace has hold of it, so that nothing before that moment is counted:
strace counts the calls of each thread by themselves, and a fault in an earlier thread would
hide the same number in a later one.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import anyio
import anyio._backends._asyncio

import minutebook as mb
from adapters.sqlite_store import SqliteStore
from adapters.system import no_probe, this_process
from domain.cursor import Cursor
from domain.envelope import Fence
from domain.ports import Batch, Holder, Journal, Probe
from minutebook import compose as compose
from minutebook.testing.batches import dummy_batch, end_of
from minutebook.testing.crash import Tell, Witness
from tests.chaos.errors import leaves
from tests.chaos.writers import tuned
from tests.crash.application import live as live
from tests.crash.examination import examine as examine
from tests.crash.program import Program, Story
from tests.crash.script import World, worlds

#: A session of the store's own program, and the length of its leases.
KEPT: Final = "s-kept"
TTL_MS: Final = 30_000
_ANY_TRACER: Final = (0x59616D61, ctypes.c_ulong(-1))


class Held:
    """Holds a program until its tracer has it.

    Args:
        at: "opening", "open" or "closing"; "" for a program that nobody traces.
    """

    def __init__(self, tell: Tell, at: str) -> None:
        self._tell, self._at = tell, at
        if at:  # threads inherit this: whoever made them waits for the signal
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
            ctypes.CDLL(None).prctl(*_ANY_TRACER)  # where only a parent may trace its children

    @asynccontextmanager
    async def store(self, store: SqliteStore) -> AsyncIterator[None]:
        """Hold it before the store is opened, while it is, or when nobody else uses it any more."""
        if self._at in ("open", "closing"):
            async with store.open():
                if self._at == "open":
                    self._wait()
                yield
                if self._at == "closing":
                    self._wait()
            return
        if self._at:
            self._wait()
        yield

    def _wait(self) -> None:
        self._tell(waiting=True)
        signal.sigwait([signal.SIGUSR1])


def run(tell: Tell, main: Callable[[], Any], backend: str = "asyncio") -> None:
    """Run a program; the library's errors are its answer, everything else is a defect."""
    try:
        anyio.run(main, backend=backend)
    except* mb.errors.MinutebookError as errors:
        found = list(leaves(errors))
        tell(failed=sorted({type(e).__name__ for e in found}), why=[str(e)[:300] for e in found])


# --- a session ----------------------------------------------------------------------------------


def session(tell: Tell, journal: str, witness: str, journal_mode: str = "auto", at: str = "") -> None:
    """The application of the crash tests."""
    held = Held(tell, at)

    async def main() -> None:
        store = SqliteStore(journal, journal_mode=journal_mode)
        async with held.store(store):
            await _play(tell, store, witness)

    run(tell, main)


async def _play(tell: Tell, store: SqliteStore, witness: str, probe: Probe = no_probe) -> None:
    world = World(Witness(witness), probe)
    worlds[:] = [world]
    await Program(tell, store, world, Story()).run()


def small_disk(tell: Tell, journal: str, witness: str, journal_mode: str, how: str, full_at: int) -> None:
    """A session whose disk is full from a certain COMMIT on; when it has failed, there is room again.

    Its lease could not be given back, so it is another process that goes on.

    Args:
        how: "space" takes what is left of the journal's file system, "limit" lets no file grow.
        full_at: before which COMMIT of events, from 1.
    """
    commits = count(1)
    ballast = Path(journal).with_name("ballast")

    def fill(point: str) -> None:
        if point == "before_commit" and next(commits) == full_at:
            tell(full=full_at)
            (take_all_of(ballast) if how == "space" else no_growth(journal))

    async def main() -> None:
        await _play(tell, SqliteStore(journal, journal_mode=journal_mode, probe=fill), witness)

    run(tell, main)
    ballast.unlink(missing_ok=True)


def take_all_of(ballast: Path) -> None:
    """Write until nothing more fits."""
    file = os.open(ballast, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for size in (65536, 4096, 512, 1):
            while _wrote(file, bytes(size)):
                pass
    finally:
        os.close(file)


def _wrote(file: int, some: bytes) -> bool:
    try:
        return os.write(file, some) > 0
    except OSError:
        return False


def no_growth(journal: str) -> None:
    """Let no file of this process grow beyond what the journal's largest file is.

    Python ignores the signal that comes with it, and the write fails.
    """
    sizes = [
        os.path.getsize(journal + end) for end in ("", "-wal", "-journal") if os.path.exists(journal + end)
    ]
    resource.setrlimit(resource.RLIMIT_FSIZE, (max(sizes), resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


# --- a store by itself ----------------------------------------------------------------------------


def keep(tell: Tell, journal: str, witness: str, journal_mode: str = "auto", at: str = "") -> None:
    """Lease, commit, renew, commit, release; tell how each call ended, settle what is unknown."""
    held = Held(tell, at)

    async def main() -> None:
        store = SqliteStore(journal, journal_mode=journal_mode, connection_class=tuned())
        async with held.store(store), store.open() as opened:
            holder = Holder("w", "l-1", this_process().boot_id, this_process().process_id)
            fence = await _leased(tell, opened, holder)
            if fence is None:
                return
            place = Cursor.start(KEPT)
            for number in range(6):
                batch = dummy_batch(place, f"c{number}", [b"x" * (9_000 if number % 2 else 90)], fence=fence)
                if await _committed(tell, opened, batch):
                    place = end_of(batch)
                if number == 2:
                    await _told(tell, "renew", opened.leases.renew(KEPT, fence, TTL_MS))
            await _told(tell, "release", opened.leases.release(KEPT, fence))

    run(tell, main)


async def _leased(tell: Tell, journal: Journal, holder: Holder) -> Fence | None:
    lease = await _told(tell, "acquire", journal.leases.acquire(KEPT, holder, TTL_MS))
    return None if lease is None else Fence(holder.worker_id, holder.lease_id, lease.token)


async def _committed(tell: Tell, journal: Journal, batch: Batch) -> bool:
    """Whether it is there, as far as the store says."""
    try:
        await journal.commit(batch)
    except mb.errors.OutcomeUnknown:
        return await _settled(tell, journal, batch)
    except mb.errors.MinutebookError as e:
        tell(command=batch.command_id, outcome="refused", code=e.code)
        return False
    tell(command=batch.command_id, outcome="committed")
    return True


async def _settled(tell: Tell, journal: Journal, batch: Batch) -> bool:
    try:
        found = await journal.settle(batch)
    except mb.errors.OutcomeUnknown:
        tell(command=batch.command_id, outcome="unknown")
        return False
    tell(command=batch.command_id, outcome="absent" if found is None else "found")
    return found is not None


async def _told(tell: Tell, name: str, call: Any) -> Any:
    """What a call about the lease returns; None if it failed."""
    try:
        result = await call
    except mb.errors.MinutebookError as e:
        tell(
            lease=name,
            outcome="unknown" if isinstance(e, mb.errors.OutcomeUnknown) else "refused",
            code=e.code,
        )
        return None
    tell(lease=name, outcome="done")
    return result if result is not None else True

"""Many writers at once without a library: one after the other, or sharing a transaction."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from typing import Final

from bench.conversations import Place
from bench.limits.disk import SIZE, RawCommits
from bench.workload import Metrics

EVENTS: Final = 3
_BODIES: Final = [b"x" * SIZE] * EVENTS


def probe(place: Place, *, writers: int, commits: int) -> Metrics:
    """Durable commits of three rows in a second, by `writers` tasks of `commits` each."""
    return {
        "direct_per_s": asyncio.run(_direct(place, writers, commits)),
        "group_per_s": asyncio.run(_group(place, writers, commits)),
    }


async def _direct(place: Place, writers: int, commits: int) -> float:
    raw = RawCommits(place.directory / "direct.db")

    async def write(name: str) -> None:
        for number in range(commits):
            raw.commit(name, number * EVENTS, _BODIES)
            await asyncio.sleep(0)

    start = time.perf_counter()
    await asyncio.gather(*(write(f"s{n}") for n in range(writers)))
    rate = writers * commits / (time.perf_counter() - start)
    raw.close()
    return rate


async def _group(place: Place, writers: int, commits: int) -> float:
    group = _Group(RawCommits(place.directory / "group.db"))

    async def write(name: str) -> None:
        for number in range(commits):
            await group.commit(name, number * EVENTS)

    start = time.perf_counter()
    await asyncio.gather(*(write(f"s{n}") for n in range(writers)))
    rate = writers * commits / (time.perf_counter() - start)
    await asyncio.to_thread(group.close)
    return rate


_Job = tuple[str, int, "asyncio.Future[None]"]


class _Group:
    """One thread that writes whatever waits in one transaction."""

    def __init__(self, raw: RawCommits) -> None:
        self._raw, self._loop = raw, asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    async def commit(self, name: str, after: int) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put((name, after, done))
        await done

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()
        self._raw.close()

    def _run(self) -> None:
        while (first := self._jobs.get()) is not None:
            jobs = [first]
            while not self._jobs.empty() and (job := self._jobs.get()) is not None:
                jobs.append(job)
            self._raw.begin()
            for name, after, _ in jobs:
                self._raw.put(name, after, _BODIES)
            self._raw.end()
            self._loop.call_soon_threadsafe(_tell, [done for *_, done in jobs])


def _tell(waiting: list[asyncio.Future[None]]) -> None:
    for done in waiting:
        done.set_result(None)

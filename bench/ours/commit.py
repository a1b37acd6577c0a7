"""C1, C2, C3: a durable commit through the journal port, beside the bare one.

Ours and the bare commit take turns in one process, in small blocks, so that a
disk that changes its mind does so for both.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from typing import Final, Protocol

import minutebook as mb
from bench.conversations import Place
from bench.limits.disk import RawCommits
from bench.measure import percentile
from bench.workload import Metrics
from domain.cursor import Cursor
from domain.envelope import Fence
from domain.ports import Batch, Holder, Journal
from minutebook.testing.batches import dummy_batch, end_of

#: About 600 bytes with its envelope's share, as the bare commit's rows.
PAYLOAD: Final = b'{"text":"%s"}' % (b"x" * 150)
BLOCK: Final = 10


def batches(
    session_id: str, events: int, count: int, fence: Fence | None = None, start: Cursor | None = None
) -> list[Batch]:
    """Commits that follow each other, sealed beforehand: only storing them is measured."""
    at, made = start or Cursor.start(session_id), []
    for number in range(count):
        made.append(dummy_batch(at, f"c{number}", [PAYLOAD] * events, fence=fence))
        at = end_of(made[-1])
    return made


def bodies(batch: Batch) -> list[bytes]:
    """The same bytes for the bare commit: one value for each row."""
    return [e.envelope + (e.payload or b"") + (e.salt or b"") + e.head for e in batch.events]


def one_writer(place: Place, *, sizes: Sequence[int], commits: int) -> Metrics:
    """Microseconds for each commit of so many events: bare, through the port, and fenced."""
    return asyncio.run(_one_writer(place, sizes, commits))


async def _one_writer(place: Place, sizes: Sequence[int], commits: int) -> Metrics:
    found: Metrics = {}
    raw = RawCommits(place.directory / "raw.db")
    async with mb.sqlite(place.directory / "journal.db").open() as journal:
        for size in sizes:
            fence = await fence_of(journal, f"fenced-{size}")
            plain, fenced = (
                batches(f"plain-{size}", size, commits),
                batches(f"fenced-{size}", size, commits, fence),
            )
            laps: dict[str, list[float]] = {"raw": [], "port": [], "fenced": []}
            for at in range(0, commits, BLOCK):
                part = slice(at, at + BLOCK)
                laps["raw"] += raw_laps(raw, plain[part])
                laps["port"] += await port_laps(journal, plain[part])
                laps["fenced"] += await port_laps(journal, fenced[part])
            found |= {f"{kind}_{size}_us": statistics.mean(each) for kind, each in laps.items()}
            found[f"port_{size}_p99_us"] = percentile(laps["port"], 0.99)
    raw.close()
    return found


class Bare(Protocol):
    """What commits rows without a library."""

    def commit(self, stream: str, after: int, bodies: list[bytes]) -> None:
        """Write rows of a stream and wait for the disk."""


def raw_laps(raw: Bare, made: Sequence[Batch]) -> list[float]:
    """Microseconds of each bare commit of the batches' bytes."""
    laps = []
    for batch in made:
        rows = bodies(batch)
        start = time.perf_counter()
        raw.commit(batch.session_id, batch.expected_sequence, rows)
        laps.append((time.perf_counter() - start) * 1e6)
    return laps


async def port_laps(journal: Journal, made: Sequence[Batch]) -> list[float]:
    """Microseconds of each commit through the port."""
    laps = []
    for batch in made:
        start = time.perf_counter()
        await journal.commit(batch)
        laps.append((time.perf_counter() - start) * 1e6)
    return laps


async def fence_of(journal: Journal, session_id: str) -> Fence:
    """Take a session's lease."""
    holder = Holder("bench", "l-1")
    lease = await journal.leases.acquire(session_id, holder, 600_000)
    return Fence(holder.worker_id, holder.lease_id, lease.token)


def many_writers(place: Place, *, writers: int, commits: int) -> Metrics:
    """Durable commits of three events in a second, by `writers` sessions of `commits` each.

    `unfair` is the slowest session's time for all of its commits over the quickest one's.
    """
    return asyncio.run(_many_writers(place, writers, commits))


async def _many_writers(place: Place, writers: int, commits: int) -> Metrics:
    made = [batches(f"s{n}", 3, commits) for n in range(writers)]
    async with mb.sqlite(place.directory / "journal.db").open() as journal:
        start = time.perf_counter()
        found = await run_writers(journal, made)
        found["per_s"] = writers * commits / (time.perf_counter() - start)
    return found


async def run_writers(journal: Journal, made: Sequence[Sequence[Batch]]) -> Metrics:
    """Commit the batches of each session, all sessions at once: `p99_ms`, `unfair`."""
    laps = await asyncio.gather(*(port_laps(journal, each) for each in made))
    totals = [sum(each) for each in laps]
    return {
        "p99_ms": percentile([lap for each in laps for lap in each], 0.99) / 1e3,
        "unfair": max(totals) / min(totals),
    }

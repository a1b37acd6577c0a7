"""C1 and C2 on PostgreSQL: a commit through the journal port beside the bare statement; round trips.

Ours and the bare statement take turns in one process, on one server of our own.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import replace
from typing import Final

import minutebook as mb
from bench.conversations import Place
from bench.limits.postgres import RawCommits, fresh_database, many_writers
from bench.measure import percentile
from bench.ours.commit import BLOCK, batches, bodies, fence_of, port_laps, raw_laps, run_writers
from bench.turns import Turns
from bench.workload import Metrics

EVENTS: Final = 3
#: Commits whose round trips are counted.
COUNTED: Final = 50
#: By this the connection is known that commits.
STATEMENT: Final = b"WITH moved AS"


def one_writer(place: Place, *, commits: int) -> Metrics:
    """Microseconds for each commit of three events: bare, through the port, fenced; and round trips."""
    with fresh_database() as url:
        return asyncio.run(_one_writer(url, commits))


async def _one_writer(url: str, commits: int) -> Metrics:
    raw = RawCommits(url)
    laps: dict[str, list[float]] = {"raw": [], "commit": [], "fenced": []}
    async with mb.postgres(url).open() as journal:
        fence = await fence_of(journal, "fenced")
        plain = batches("plain", EVENTS, commits)
        fenced = batches("fenced", EVENTS, commits, fence)
        for at in range(0, commits, BLOCK):
            part = slice(at, at + BLOCK)
            laps["raw"] += raw_laps(raw, plain[part])
            laps["commit"] += await port_laps(journal, plain[part])
            laps["fenced"] += await port_laps(journal, fenced[part])
    raw.close()
    return {
        **{f"{kind}_us": statistics.mean(each) for kind, each in laps.items()},
        "commit_p99_us": percentile(laps["commit"], 0.99),
        **dict(zip(("round_trips", "beside"), await round_trips(url, EVENTS, COUNTED), strict=True)),
    }


async def round_trips(url: str, events: int, commits: int) -> tuple[float, float]:
    """Round trips of a fenced commit; and beside it, those that nobody waits for (readers are woken)."""
    with Turns(url, STATEMENT) as turns:
        # One connection: each prepares its statements once, and that is not what is counted.
        async with replace(mb.postgres(turns.url), connections=1).open() as journal:
            made = batches("counted", events, 1 + commits, await fence_of(journal, "counted"))
            await journal.commit(made[0])
            before = turns.so_far()
            for batch in made[1:]:
                await journal.commit(batch)
            waited_for, beside = turns.between(before, turns.so_far())
        return waited_for / commits, beside / commits


def many_sessions(place: Place, *, writers: int, commits: int) -> Metrics:
    """Durable commits of three events in a second, by `writers` sessions of `commits` each.

    `raw_per_s`: the bare statement over as many connections as our store has;
    `raw_own_per_s`: with a connection for each session.
    """
    with fresh_database() as url:
        return asyncio.run(_many_sessions(url, writers, commits))


async def _many_sessions(url: str, writers: int, commits: int) -> Metrics:
    RawCommits(url).close()  # makes the table
    made = [batches(f"s{n}", EVENTS, commits) for n in range(writers)]
    store = mb.postgres(url)
    async with store.open() as journal:
        start = time.perf_counter()
        found = await run_writers(journal, made)
        found["per_s"] = writers * commits / (time.perf_counter() - start)
    for name, connections in (("raw_per_s", store.connections), ("raw_own_per_s", writers)):
        bare = [[(f"{name}-{b.session_id}", b.expected_sequence, bodies(b)) for b in each] for each in made]
        found[name] = await many_writers(url, connections, bare)
    return found

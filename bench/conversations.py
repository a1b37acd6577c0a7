"""Having the conversation with a system, and measuring it: T1, T2, T3 and resuming.

The same code for ours, the floor and the peers: what differs is the `System`.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from bench.measure import Watch, curve, directory_bytes, percentile, resident_kib
from bench.workload import LAST_WORDS, Conversation, Metrics, System

#: Requests of another session that come first and are not counted.
WARM_UP: Final = 3


@dataclass(frozen=True, slots=True)
class Place:
    """Where a case runs.

    Args:
        directory: empty, the case's own.
        url: of the fake model, without `/v1`.
        journals: files made before, by name.
    """

    directory: Path
    url: str
    journals: Mapping[str, str]


def loaded(name: str) -> Any:
    """What `module:name` names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def talk(
    place: Place, *, system: str, mode: str, requests: int, tools: int = 1, sessions: int = 1
) -> Metrics:
    """Have `requests` requests answered in each of `sessions` sessions at once, in one event loop.

    Opening a session is measured by itself (`open_ms`). Times in ms for each request:
    `ms` is wall time over all of them, `first_ms` and `last_ms` the medians of the first
    and the last tenth of a session.
    """
    return asyncio.run(_talk(loaded(system)(), mode, place, requests, tools, sessions))


async def _talk(system: System, mode: str, place: Place, requests: int, tools: int, sessions: int) -> Metrics:
    await system.open(mode, place.directory, place.url)
    await _warm_up(system, tools)
    with Watch() as opening:
        talks = [await system.begin(f"session-{n}", tools) for n in range(sessions)]
    with collected(), Watch() as watch:
        laps = await asyncio.gather(*(_laps(talk, requests) for talk in talks))
    for talk in reversed(talks):  # sessions that one task has opened are nested
        await talk.close()
    facts = system.facts()
    await system.close()
    total = requests * sessions
    return {
        "ms": watch.wall_s / total * 1e3,
        "open_ms": opening.wall_s / sessions * 1e3,
        "cpu_ms": watch.cpu_s / total * 1e3,
        "per_s": total / watch.wall_s,
        "p99_ms": percentile([lap for each in laps for lap in each], 0.99),
        "written_kib": watch.written / total / 1024 if watch.written is not None else None,
        "peak_mib": resident_kib("VmHWM") / 1024,
        "curve": curve(laps[0]),
        **_ends(laps),
        **facts,
    }


async def _warm_up(system: System, tools: int) -> None:
    talk = await system.begin("warm-up", tools)
    await _laps(talk, WARM_UP)
    await talk.close()


async def _laps(talk: Conversation, requests: int) -> list[float]:
    """The times of one session's requests in ms."""
    laps = []
    for number in range(requests):
        start = time.perf_counter()
        answer = await talk.request(number)
        laps.append((time.perf_counter() - start) * 1e3)
        if LAST_WORDS not in answer:
            raise AssertionError(f"expected an answer to its end, got {answer[-60:]!r}")
    return laps


def _ends(laps: list[list[float]]) -> Metrics:
    tenth = max(1, len(laps[0]) // 10)
    first = statistics.median(lap for each in laps for lap in each[:tenth])
    last = statistics.median(lap for each in laps for lap in each[-tenth:])
    return {"first_ms": first, "last_ms": last}


def resume(place: Place, *, system: str, mode: str, requests: int) -> Metrics:
    """Store a session of `requests` requests, let go of everything, and get the session back."""
    return asyncio.run(_resume(system, mode, place, requests))


async def _resume(name: str, mode: str, place: Place, requests: int) -> Metrics:
    first = loaded(name)()
    await first.open(mode, place.directory, place.url)
    await first.build(requests)
    await first.close()
    with collected(), Watch() as watch:
        again = loaded(name)()
        await again.open(mode, place.directory, place.url)
        messages = await again.resume()
    await again.close()
    if messages != 4 * requests:
        raise AssertionError(f"expected {4 * requests} messages back, got {messages}")
    return {"ms": watch.wall_s * 1e3, "kept_kib": directory_bytes(place.directory) / 1024}


@contextmanager
def collected() -> Iterator[None]:
    """Begin without garbage of what came before: a full collection over an SDK's modules takes 60 ms."""
    gc.collect()
    yield

"""What is counted, not timed: commits, bytes, encodings, rows of a plan. The hard goals.

The same on every machine; `tests/perf` asserts the same goals at the level of the code.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import minutebook as mb
from adapters.sqlite_reader import open_reader
from bench.conversations import Place
from bench.journals import SESSION
from bench.measure import directory_bytes
from bench.ours.talking import OfflineProvider, config
from bench.workload import PROMPT, Metrics
from domain.ports import Batch, Journal, Receipt, StoreDescription
from recovery.reading import load

TENTH: Final = 10


class CountedStore:
    """A store that keeps the size of every commit: (events, envelope and payload bytes)."""

    def __init__(self, inner: StoreDescription) -> None:
        self._inner = inner
        self.commits: list[tuple[int, int]] = []

    @property
    def durable(self) -> bool:
        """Whether the inner one is."""
        return self._inner.durable

    @asynccontextmanager
    async def open(self, *, owner_id: str = "local") -> AsyncIterator[Journal]:
        """The inner store's journal, counted."""
        async with self._inner.open(owner_id=owner_id) as journal:
            counted: Any = _CountedJournal(journal, self.commits)
            yield counted


class _CountedJournal:
    def __init__(self, inner: Journal, commits: list[tuple[int, int]]) -> None:
        self._inner, self._commits = inner, commits

    async def commit(self, batch: Batch) -> Receipt:
        size = sum(len(e.envelope) + len(e.payload or b"") for e in batch.events)
        self._commits.append((len(batch.events), size))
        return await self._inner.commit(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class CountedProvider(OfflineProvider):
    """A model that is a function, and counts what is encoded for it."""

    def __init__(self, tools: int) -> None:
        super().__init__(pieces=20, tools=tools)
        self.encoded: list[int] = []

    def encode(self, item: Any) -> bytes:
        """As always, noting the size."""
        self.encoded.append(len(made := super().encode(item)))
        return made


def requests(place: Place, *, requests: int, tools: int) -> Metrics:
    """Commits, bytes and encodings of each request of one session, early and late.

    `late_over_early` compares the stored bytes of the last with those of the first
    requests, `encoded_late_over_early` the bytes that were encoded for the model.
    """
    return asyncio.run(_requests(place, requests, tools))


async def _requests(place: Place, requests: int, tools: int) -> Metrics:
    store = CountedStore(mb.sqlite(place.directory / "journal.db"))
    provider = CountedProvider(tools)
    commits, sizes, encoded = [], [], []
    async with mb.create_session(config(provider, tools), store=store) as session:
        for _ in range(requests):
            before, encodings = len(store.commits), len(provider.encoded)
            await session.run(PROMPT)
            commits.append(len(store.commits) - before)
            sizes.append(sum(size for _, size in store.commits[before:]))
            encoded.append(sum(provider.encoded[encodings:]))
    kept = sum(size for _, size in store.commits)
    files = directory_bytes(place.directory) - await _empty(place)
    # The first request encodes what is said once for a session; those after it count.
    early, late = slice(1, 1 + TENTH), slice(-TENTH, None)
    return {
        "commits": max(commits),
        "fewest_commits": min(commits),
        "kib": sum(sizes) / requests / 1024,
        "late_over_early": sum(sizes[late]) / sum(sizes[early]),
        "encoded_late_over_early": sum(encoded[late]) / sum(encoded[early]),
        "file_over_content": files / kept,
    }


async def _empty(place: Place) -> int:
    """What a journal takes before anything is in it: pages for every table."""
    directory = place.directory / "empty"
    directory.mkdir()
    async with mb.sqlite(directory / "journal.db").open():
        pass
    return directory_bytes(directory)


def plan_rows(place: Place, *, journals: list[str]) -> Metrics:
    """Rows that are read for a recovery plan: the events and one snapshot, for each journal."""
    return asyncio.run(_plan_rows(place, journals))


async def _plan_rows(place: Place, journals: list[str]) -> Metrics:
    found: Metrics = {}
    for name in journals:
        async with open_reader(place.journals[name]) as reader:
            loaded = await load(reader, SESSION)
        found[f"{name}_rows"] = loaded.rows_read + (1 if loaded.snapshot_sequence else 0)
        found[f"{name}_sequence"] = loaded.row.sequence
    return found

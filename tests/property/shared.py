"""The store that several workers share, each one's own way to it, and the model that is asked beside it.

One call at a time, so that a run is the same every time, whatever threads a store has. Each
answer about a lease or a commit is held against `StoreModel`, which is a dictionary.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

import anyio
from anyio.from_thread import BlockingPortal

from domain.envelope import Fence, genesis
from domain.errors import MinutebookError, OutcomeUnknown
from domain.ports import Batch, Holder, Journal, StoreDescription
from minutebook.testing.clock import START, ManualClock
from tests.property.opinions import reduced
from tests.property.store_model import Answer, StoreModel

OWNER = "local"


@dataclass(eq=False)
class Shared:
    """The store, the model beside it, and how many calls are under way. Within an event loop."""

    inner: StoreDescription
    clock: ManualClock
    model: StoreModel = field(default_factory=StoreModel)
    #: Answers that the model did not expect; raised here, a session would take one for the store's fault.
    wrong: list[str] = field(default_factory=list)
    _turn: anyio.Lock = field(default_factory=anyio.Lock)
    _running: int = 0
    _none_runs: anyio.Event = field(default_factory=anyio.Event)

    async def one(self, call: Callable[[], Awaitable[Any]], expected: Callable[[], Answer] | None) -> Any:
        """Make a call when it is its turn."""
        with self.under_way():
            async with self._turn:
                if expected is None:
                    return await call()
                return await self._compared(call, expected)

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """What is done within is waited for, since the event loop does not see it: it is done elsewhere."""
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._none_runs.set()

    async def _compared(self, call: Callable[[], Awaitable[Any]], expected: Callable[[], Answer]) -> Any:
        with anyio.CancelScope(shield=True):  # one of them alone must not have heard of it
            self.model.seconds = self.clock.monotonic()
            theirs = self.model.asked(expected)
            try:
                answer: Any = await call()
            except MinutebookError as refusal:
                answer = refusal
        if reduced(answer) != theirs:
            self.wrong.append(f"expected {theirs}, found {reduced(answer)}")
        if isinstance(answer, MinutebookError):
            raise answer
        return answer

    async def settled(self) -> None:
        """Return once nobody has anything left to do, except to wait for what the machine decides."""
        while True:
            await _all_blocked()
            if not self._running:
                return
            self._none_runs = anyio.Event()
            await self._none_runs.wait()


@dataclass(eq=False)
class Stop:
    """A place at which a worker stands still: before or after one of its next calls of the store."""

    before: bool
    calls_left: int
    _reached: bool = False
    over: anyio.Event = field(default_factory=anyio.Event)

    @property
    def stands(self) -> bool:
        """Whether somebody stands there."""
        return self._reached and not self.over.is_set()

    async def here(self, *, before: bool) -> None:
        """Stand still if this is the place, or if somebody else of this worker stands already."""
        if self.before is before and not self._reached:
            self._reached = self.calls_left == 0
            self.calls_left -= 1
        if self._reached:
            await self.over.wait()


class Way:
    """One worker's way to the shared store. It may stand still on it, or be cut off for good."""

    #: The workers come and go in one process, which even a store in memory outlives.
    durable = True

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.stop: Stop | None = None
        self._is_cut = False

    @property
    def stands(self) -> bool:
        """Whether the worker stands still somewhere on it."""
        return self.stop is not None and self.stop.stands

    def go_on(self) -> None:
        """Stand still no more."""
        if self.stop is not None:
            self.stop.over.set()

    def cut(self) -> None:
        """Let nothing through any more."""
        self._is_cut = True
        self.go_on()

    @asynccontextmanager
    async def open(self, *, owner_id: str = "local") -> AsyncIterator[Journal]:
        """The shared store's journal. Opening and closing it cannot be held up."""
        opening = self.shared.inner.open(owner_id=owner_id)
        journal: Any = await self.shared.one(opening.__aenter__, None)
        try:
            seen: Any = _OneAtATime(journal, self, self.shared.model)
            yield seen
        finally:
            with anyio.CancelScope(shield=True):
                await self.shared.one(lambda: opening.__aexit__(None, None, None), None)

    async def through(self, call: Callable[[], Awaitable[Any]], expected: Callable[[], Answer] | None) -> Any:
        """Make a call of the store."""
        await self._place(before=True)
        try:
            return await self.shared.one(call, expected)
        finally:
            await self._place(before=False)

    async def _place(self, *, before: bool) -> None:
        if self.stop is not None:
            await self.stop.here(before=before)
        if self._is_cut:
            raise OutcomeUnknown("", "this process is dead")


class _OneAtATime:
    """A journal, or its leases: calls go one at a time, and some beside the model."""

    def __init__(self, inner: Any, way: Way, model: StoreModel) -> None:
        self._inner, self._way, self._model = inner, way, model

    @property
    def leases(self) -> Any:
        return _OneAtATime(self._inner.leases, self._way, self._model)

    async def commit(self, batch: Batch) -> Any:
        expected = partial(self._model.commit, batch, genesis(batch.session_id), None)
        return await self._way.through(lambda: self._inner.commit(batch), expected)

    async def settle(self, batch: Batch) -> Any:
        expected = partial(self._model.settle, batch)
        return await self._way.through(lambda: self._inner.settle(batch), expected)

    async def acquire(self, session_id: str, holder: Holder, ttl_ms: int) -> Any:
        expected = partial(self._model.acquire, session_id, OWNER, holder, ttl_ms)
        return await self._way.through(lambda: self._inner.acquire(session_id, holder, ttl_ms), expected)

    async def renew(self, session_id: str, fence: Fence, ttl_ms: int) -> Any:
        expected = partial(self._model.renew, session_id, OWNER, fence, ttl_ms)
        return await self._way.through(lambda: self._inner.renew(session_id, fence, ttl_ms), expected)

    async def validate(self, session_id: str, fence: Fence) -> Any:
        expected = partial(self._model.validate, session_id, OWNER, fence)
        return await self._way.through(lambda: self._inner.validate(session_id, fence), expected)

    async def release(self, session_id: str, fence: Fence) -> Any:
        expected = partial(self._model.release, session_id, fence)
        return await self._way.through(lambda: self._inner.release(session_id, fence), expected)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found
        return lambda *args, **options: self._way.through(lambda: found(*args, **options), None)


@dataclass(eq=False)
class Counts:
    """What a run came to: `seen` by rule and outcome, `cells` by what came next and the rule."""

    seen: Counter[str] = field(default_factory=Counter)
    cells: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: int = 0


@dataclass(eq=False)
class Place:
    """Where machines run: one store, kept open for all of them. Each has a session of its own in it."""

    portal: BlockingPortal
    store: StoreDescription
    reader: Journal
    clock: ManualClock
    counts: Counts
    numbers: Iterator[int] = field(default_factory=lambda: count(1))


class ServersClock:
    """The clock of a server: it goes on as the workers' does, and is not set when theirs is."""

    boot_id = None

    def __init__(self, workers: ManualClock) -> None:
        self._workers = workers

    def now(self) -> datetime:
        return START + timedelta(seconds=self._workers.monotonic())

    def monotonic(self) -> float:
        return self._workers.monotonic()


async def _all_blocked() -> None:
    """As `anyio.wait_all_tasks_blocked`, which sleeps for a tenth of a second between two looks."""
    own = asyncio.current_task()
    while any(task is not own and _is_ready(task) for task in asyncio.all_tasks()):  # noqa: ASYNC110  # tasks
        await asyncio.sleep(0)


def _is_ready(task: asyncio.Task[Any]) -> bool:
    waits_for = task._fut_waiter  # type: ignore[attr-defined]  # there is no other way to know
    return waits_for is None or waits_for.done()

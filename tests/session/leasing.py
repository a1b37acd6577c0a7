"""Leases that misbehave, and what a test waits for when it is another thread's doing."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

import anyio

from adapters.lease_keeper import ThreadLeaseKeeper
from adapters.memory_journal import MemoryStore
from adapters.system import SystemClock
from domain.envelope import Fence
from domain.errors import StoreReadFailed
from domain.ports import Holder, Journal, LeaseRow, LeaseStore, StoreDescription
from minutebook.lease_config import LeaseConfig
from minutebook.testing.clock import START
from minutebook.testing.faulty_store import FaultyStore
from tests.session.harness import LONG_S, Place

#: A lease that is renewed often, and soon lost where it cannot be.
SHORT = LeaseConfig(ttl_s=1.0, heartbeat_s=0.02)
#: A lease that nobody renews while a test lasts.
QUIET = LeaseConfig(ttl_s=3600.0, heartbeat_s=1000.0)


@dataclass(slots=True)
class Renewals:
    """How the store answers about leases from now on, and how often it was asked.

    how: "answer", "fail", "hang" (until cancelled), or "hang for good" (until `opened`).
    """

    how: str = "answer"
    asked: int = 0
    validated: int = 0
    opened: threading.Event = field(default_factory=threading.Event)

    async def answer(self) -> None:
        """Do what the store does."""
        self.asked += 1
        if self.how == "fail":
            raise StoreReadFailed("far away", "no answer")
        if self.how == "hang":
            await anyio.sleep_forever()
        if self.how == "hang for good":
            with anyio.CancelScope(shield=True):
                await until(self.opened.is_set)


@dataclass(slots=True)
class OddLeases:
    """A `LeaseStore` over another one."""

    inner: LeaseStore
    renewals: Renewals

    async def acquire(self, session_id: str, holder: Holder, ttl_ms: int) -> LeaseRow:
        """As the store within."""
        return await self.inner.acquire(session_id, holder, ttl_ms)

    async def renew(self, session_id: str, fence: Fence, ttl_ms: int) -> LeaseRow:
        """Extend a live lease, or not."""
        await self.renewals.answer()
        return await self.inner.renew(session_id, fence, ttl_ms)

    async def validate(self, session_id: str, fence: Fence) -> LeaseRow:
        """Count it, and do what the store does."""
        self.renewals.validated += 1
        if self.renewals.how != "answer":
            await self.renewals.answer()
        return await self.inner.validate(session_id, fence)

    async def release(self, session_id: str, fence: Fence) -> None:
        """As the store within."""
        await self.inner.release(session_id, fence)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@dataclass(slots=True)
class _Odd:
    journal: Journal
    leases: OddLeases

    def __getattr__(self, name: str) -> Any:
        return getattr(self.journal, name)


@dataclass(slots=True)
class OddStore:
    """A `StoreDescription` over another one, with `renewals` that a test may change."""

    inner: StoreDescription
    renewals: Renewals = field(default_factory=Renewals)

    @property
    def durable(self) -> bool:
        """As the store within."""
        return self.inner.durable

    @asynccontextmanager
    async def open(self, *, owner_id: str = "local") -> AsyncIterator[Journal]:
        """Open the store within."""
        async with self.inner.open(owner_id=owner_id) as journal:
            yield cast("Journal", _Odd(journal, OddLeases(journal.leases, self.renewals)))


@dataclass(frozen=True, slots=True)
class QuickClock:
    """Time that goes by quicker than it does."""

    speed: float = 5.0
    boot_id: str | None = None

    def now(self) -> datetime:
        """Aware UTC."""
        return START + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        """Seconds, never going back."""
        return SystemClock().monotonic() * self.speed

    async def sleep_until(self, moment: float) -> None:
        """Return once `monotonic` has reached `moment`; at once if it has."""
        while (left := moment - self.monotonic()) > 0:  # noqa: ASYNC110 - a sleep may end early
            await anyio.sleep(left / self.speed)


def odd_place(inner: StoreDescription) -> tuple[Place, Renewals]:
    """A place whose leases a test may disturb."""
    store = OddStore(inner)
    return Place(FaultyStore(store)), store.renewals


def hurry(place: Place) -> None:
    """Have the leases of a place run out quicker; before anything is opened there."""
    clock = QuickClock()
    assert isinstance(place.store.inner, OddStore)
    place.store.inner.inner = MemoryStore(clock=clock)
    place.keeper = ThreadLeaseKeeper(clock)


async def until(is_so: Callable[[], bool]) -> None:
    """Return once something is so that another thread, or another process, brings about."""
    with anyio.fail_after(LONG_S):
        while not is_so():  # noqa: ASYNC110 - what it waits for sets no event of this loop
            await anyio.sleep(0.002)


def keeping() -> list[str]:
    """The threads of this process that keep leases."""
    return [thread.name for thread in threading.enumerate() if thread.name == "keeps leases"]

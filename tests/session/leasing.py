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
from domain.envelope import Fence
from domain.errors import StoreReadFailed
from domain.ports import Holder, Journal, LeaseRow, LeaseStore, StoreDescription
from minutebook.lease_config import LeaseConfig
from minutebook.session import Session
from minutebook.testing.clock import START
from minutebook.testing.faulty_store import FaultyStore
from tests.session.harness import LONG_S, Place

#: A lease that is renewed all the time, and that no busy machine loses.
OFTEN = LeaseConfig(heartbeat_s=0.02)
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


@dataclass(slots=True)
class SteppedClock:
    """A clock for several threads that a test moves on; sleeping looks at it again and again.

    Args:
        awaited: every moment that somebody slept for, so that a test moves it on when they do.
    """

    seconds: float = 0.0
    boot_id: str | None = None
    awaited: list[float] = field(default_factory=list)

    def now(self) -> datetime:
        """Aware UTC."""
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        """Where it stands."""
        return self.seconds

    async def sleep_until(self, moment: float) -> None:
        """Return once it was moved there."""
        self.awaited.append(moment)
        while self.seconds < moment:  # noqa: ASYNC110 - no event: it is moved from another thread
            await anyio.sleep(0.002)


def odd_place() -> tuple[Place, Renewals, SteppedClock]:
    """A place in memory whose leases a test may disturb, and what they are measured by."""
    clock = SteppedClock()
    store = OddStore(MemoryStore(clock=clock))
    return Place(FaultyStore(store), keeper=ThreadLeaseKeeper(clock)), store.renewals, clock


async def until(is_so: Callable[[], bool]) -> None:
    """Return once something is so that another thread, or another process, brings about."""
    with anyio.fail_after(LONG_S):
        while not is_so():  # noqa: ASYNC110 - what it waits for sets no event of this loop
            await anyio.sleep(0.002)


async def landed(session: Session) -> None:
    """Return once nothing goes on that a session began, and it knows what came of it."""
    flights = session._parts.flights
    await until(lambda: not flights.running and not flights._unattended)


def keeping() -> list[str]:
    """The threads of this process that keep leases."""
    return [thread.name for thread in threading.enumerate() if thread.name == "keeps leases"]

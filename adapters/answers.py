"""Handing a value from a plain thread to a waiting task, under asyncio and trio.

Used by the stores, whose work is done by threads of their own. Nothing here
knows about journals. A thread that answers never waits for the event loop.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

import anyio

T = TypeVar("T")


class Event(Protocol):
    """What asyncio's and trio's events have in common."""

    def set(self) -> object:
        """Wake who waits."""

    async def wait(self) -> object:
        """Wait for `set`."""


#: Lets an event loop call a function soon; may be called from any thread.
Soon = Callable[..., object]


def _nothing() -> None:
    pass


def _drop(_: object) -> None:
    pass


def _waiting_place() -> tuple[Soon, Event]:
    """How to reach the event loop that runs here, and an event of it.

    anyio would give the same, and look four times for which library runs; that costs more than
    the wait. A loop of asyncio without a task of its own at work is trio's host.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    if task is not None:
        return task.get_loop().call_soon_threadsafe, asyncio.Event()
    import trio

    return trio.lowlevel.current_trio_token().run_sync_soon, trio.Event()


class Answer(Generic[T]):
    """One value that a thread owes to a task. Made in the task, filled in a thread, once.

    `done` turns True when it is filled; `wake` then lets the task know. Of
    several threads that fill it, the first one wins.
    """

    __slots__ = ("_error", "_event", "_first", "_soon", "_value", "done")

    def __init__(self) -> None:
        self._soon, self._event = _waiting_place()
        self._error: BaseException | None = None
        self._value: T | None = None
        self._first = threading.Lock()
        self.done = False

    def put(self, value: T, then: Callable[[], None] = _nothing) -> bool:
        """Fill it with a value; the task still sleeps until `wake`. False if somebody filled it earlier.

        Args:
            then: called before, and only if nobody filled it earlier.
        """
        if not self._first.acquire(blocking=False):
            return False
        then()
        self._value = value
        self.done = True
        return True

    def refuse(self, error: BaseException) -> bool:
        """Fill it with an error to be raised in the task; False if somebody filled it earlier."""
        if not self._first.acquire(blocking=False):
            return False
        self._error = error
        self.done = True
        return True

    async def wait(self) -> T:
        """Wait for the value. A cancelled wait leaves the thread's work alone."""
        await self._event.wait()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # `put` stored a T

    async def within(self, seconds: float, late: Exception, unwanted: Callable[[T], object] = _drop) -> T:
        """Wait for the value for so long; what comes later, or after a cancellation, is dropped.

        Args:
            unwanted: called with a value that had come when the wait was cancelled.

        Raises:
            Exception: `late`, if there is none in that time.
        """
        try:
            with anyio.move_on_after(seconds):
                return await self.wait()
            if self.refuse(late):
                raise late
            return await self.wait()  # it was filled at the last moment, and is about to be woken
        except anyio.get_cancelled_exc_class():
            if not self.refuse(late):
                with anyio.CancelScope(shield=True):
                    await self._event.wait()
                if self._error is None:
                    unwanted(self._value)  # type: ignore[arg-type]  # `put` stored a T
            raise

    async def outcome(self) -> T:
        """Wait for the value, through a cancellation: what was begun has an outcome to be told.

        The cancellation is not lost; it comes at the task's next checkpoint.
        """
        try:
            return await self.wait()
        except anyio.get_cancelled_exc_class():
            # Only now: a scope around every wait would cost more than the wait.
            with anyio.CancelScope(shield=True):
                value = await self.wait()
            if anyio.current_effective_deadline() != -math.inf:
                raise  # not a scope's cancellation, so it would not come again
            return value


def wake(answers: Iterable[Answer[Any]]) -> None:
    """Wake the tasks that wait for these answers; one call per event loop."""
    by_loop: dict[Soon, list[Event]] = {}
    for answer in answers:
        by_loop.setdefault(answer._soon, []).append(answer._event)
    for soon, events in by_loop.items():
        try:
            soon(_set_all, events)
        except RuntimeError:
            continue  # that event loop has ended: nobody waits there any more


def _set_all(events: list[Event]) -> None:
    for event in events:
        event.set()

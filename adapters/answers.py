"""Handing a value from a plain thread to a waiting task, under asyncio and trio.

Used by the stores, whose work is done by threads of their own. Nothing here
knows about journals. A thread that answers never waits for the event loop.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import anyio
from anyio.lowlevel import current_token

from domain.errors import OutcomeUnknown

T = TypeVar("T")


def _nothing() -> None:
    pass


class Answer(Generic[T]):
    """One value that a thread owes to a task. Made in the task, filled in a thread, once.

    `done` turns True when it is filled; `wake` then lets the task know. Of
    several threads that fill it, the first one wins.
    """

    __slots__ = ("_error", "_event", "_first", "_loop", "_value", "done")

    def __init__(self) -> None:
        self._loop: Any = current_token().native_token
        self._event = anyio.Event()
        self._error: BaseException | None = None
        self._value: T | None = None
        self._first = threading.Lock()
        self.done = False

    def put(self, value: T, then: Callable[[], None] = _nothing) -> None:
        """Fill it with a value; the task still sleeps until `wake`.

        Args:
            then: called before, and only if nobody filled it earlier.
        """
        if self._first.acquire(blocking=False):
            then()
            self._value = value
            self.done = True

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

    async def within(self, seconds: float, late: Exception) -> T:
        """Wait for the value for so long; what comes later, or after a cancellation, is dropped.

        Raises:
            Exception: `late`, if there is none in that time.
        """
        try:
            with anyio.move_on_after(seconds):
                return await self.wait()
        except anyio.get_cancelled_exc_class():
            self.refuse(late)
            raise
        if self.refuse(late):
            raise late
        return await self.wait()  # it was filled at the last moment, and is about to be woken

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


async def in_time(find: Callable[[], T], settled: Callable[[], None], seconds: float, session_id: str) -> T:
    """What a thread of its own finds out about a commit, or the news that it does not answer.

    The thread is left to itself then; what it finds afterwards is dropped.

    Args:
        find: called in the thread.
        settled: called there once it is found out and somebody still waits to hear it.

    Raises:
        OutcomeUnknown: it has not answered in that time.
    """
    answer: Answer[T] = Answer()
    threading.Thread(
        target=_find_out, args=(answer, find, settled), name=f"settles {session_id}", daemon=True
    ).start()
    late = OutcomeUnknown(session_id, "the store has not answered in time; settle it later")
    return await answer.within(seconds, late)


def _find_out(answer: Answer[T], find: Callable[[], T], settled: Callable[[], None]) -> None:
    try:
        answer.put(find(), settled)
    except Exception as e:  # whatever went wrong belongs to the one who asked
        answer.refuse(e)
    wake([answer])


def wake(answers: Iterable[Answer[Any]]) -> None:
    """Wake the tasks that wait for these answers; one call per event loop."""
    by_loop: dict[Any, list[anyio.Event]] = {}
    for answer in answers:
        by_loop.setdefault(answer._loop, []).append(answer._event)
    for loop, events in by_loop.items():
        _call_soon(loop, events)


def _call_soon(loop: Any, events: list[anyio.Event]) -> None:
    soon: Callable[..., Any] = getattr(loop, "call_soon_threadsafe", None) or loop.run_sync_soon
    try:
        soon(_set_all, events)
    except RuntimeError:
        return  # that event loop has ended: nobody waits there any more


def _set_all(events: list[anyio.Event]) -> None:
    for event in events:
        event.set()

"""Cancelling a call at exactly the n-th moment at which it lets go of the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import anyio

T = TypeVar("T")


@dataclass(slots=True)
class Tried(Generic[T]):
    """What came of a call.

    Args:
        suspensions: how often it let go of the loop.
        value: what it returned; None where it did not.
        error: what it raised, a cancellation apart.
    """

    suspensions: int
    value: T | None
    error: Exception | None


async def cancelled_at(number: int, call: Callable[[], Awaitable[T]]) -> Tried[T]:
    """Make a call and cancel it at its n-th suspension, counted from 1; 0: before it begins.

    Under asyncio and trio alike a coroutine lets go of the loop by a bare `yield`, so whoever
    drives it can count them. A call that has fewer is not cancelled.
    """
    scope = anyio.CancelScope()
    driven = _Driven(call, number, scope.cancel)
    tried: Tried[T] = Tried(0, None, None)
    with scope:
        if number == 0:
            scope.cancel()
        try:
            tried.value = await driven
        except Exception as error:
            tried.error = error
    tried.suspensions = driven.count
    return tried


class _Driven(Generic[T]):
    def __init__(self, call: Callable[[], Awaitable[T]], number: int, cancel: Callable[[], None]) -> None:
        self._call, self._number, self._cancel = call, number, cancel
        self.count = 0

    def __await__(self) -> Generator[Any, Any, T]:
        inner = self._call().__await__()
        given: Any = None
        raised: BaseException | None = None
        while True:
            try:
                asked = inner.send(given) if raised is None else inner.throw(raised)
            except StopIteration as stop:
                value: T = stop.value
                return value
            self.count += 1
            if self.count == self._number:
                self._cancel()
            given, raised = None, None
            try:
                given = yield asked
            except BaseException as error:
                raised = error

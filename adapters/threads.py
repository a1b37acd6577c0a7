"""Calls that may block, each in a thread of its own, waited for under asyncio and trio.

Used by the stores, to open and close what a process has open and to find out about a commit.
Nothing here knows about journals.
"""

from __future__ import annotations

import math
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
import anyio.to_thread

from adapters.answers import Answer, wake
from domain.errors import OutcomeUnknown

T = TypeVar("T")


async def in_thread(call: Callable[[], T]) -> T:
    """What a call comes to in a thread; a cancelled caller waits for its end."""
    # A limiter of its own: an application's blocked worker threads must not keep anything from closing.
    return await anyio.to_thread.run_sync(call, limiter=anyio.CapacityLimiter(1))


async def left_alone(
    call: Callable[[], T],
    *,
    name: str,
    seconds: float = math.inf,
    late: Exception | None = None,
    then: Callable[[], None] = lambda: None,
    unwanted: Callable[[T], object] = lambda value: None,
) -> T:
    """What a call comes to in a thread, which is left alone after so many seconds or a cancellation.

    Args:
        name: of the thread.
        late: raised where the call has not ended in that time; for a call with a limit.
        then: called in the thread once the call has ended, if somebody still waits for it.
        unwanted: called in a thread with what the call came to, if nobody has it.
    """
    answer: Answer[T] = Answer()

    def run() -> None:
        try:
            value = call()
            if not answer.put(value, then):
                unwanted(value)
        except BaseException as e:  # whatever went wrong belongs to the one who asked
            answer.refuse(e)
        wake([answer])

    def start(work: Callable[[], object]) -> None:
        threading.Thread(target=work, name=name, daemon=True).start()

    start(run)
    late = late or TimeoutError(name)
    return await answer.within(seconds, late, lambda value: start(lambda: unwanted(value)))


async def in_time(find: Callable[[], T], settled: Callable[[], None], seconds: float, session_id: str) -> T:
    """What a thread of its own finds out about a commit, or the news that it does not answer.

    Args:
        find: called in the thread.
        settled: called there once it is found out and somebody still waits to hear it.

    Raises:
        OutcomeUnknown: it has not answered in that time.
    """
    late = OutcomeUnknown(session_id, "the store has not answered in time; settle it later")
    return await left_alone(find, name=f"settles {session_id}", seconds=seconds, late=late, then=settled)


@asynccontextmanager
async def entered(
    enter: Callable[[], T],
    leave: Callable[[T], object],
    *,
    name: str,
    seconds: float = math.inf,
    late: Exception | None = None,
) -> AsyncIterator[T]:
    """Have something until the end of the block; whatever is cancelled, it is left as often as entered.

    Args:
        enter: called in a thread; the name and the limit are as for `left_alone`.
        leave: called in a thread with what it gave.
    """
    got = await left_alone(enter, name=name, seconds=seconds, late=late, unwanted=leave)
    try:
        yield got
    finally:
        with anyio.CancelScope(shield=True):
            await in_thread(lambda: leave(got))

"""A task of the running event loop that belongs to no block of the application.

Imported by `minutebook.compose`. Tasks of a task group hold the group's block open until they
have ended, and code that ignores its cancellation never does. What is to be left behind where
it must be needs a place apart, and neither anyio nor trio calls that usual. Nothing here
decides what runs there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any

#: asyncio itself keeps no task from being collected.
_running: set[asyncio.Task[Any]] = set()


def begin_apart(run: Callable[[], Awaitable[None]]) -> None:
    """Begin a task that ends with `run`, or is cancelled when the event loop is being ended.

    Args:
        run: must raise nothing but its cancellation: nobody would be told.
    """

    async def main() -> None:
        await run()

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio.lowlevel

        trio.lowlevel.spawn_system_task(main, context=copy_context())
        return
    task = loop.create_task(main())
    _running.add(task)
    task.add_done_callback(_running.discard)

"""Leaving a session in order when the process is asked to end."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio


@asynccontextmanager
async def stop_on_signals(*signals: signal.Signals) -> AsyncIterator[None]:
    """Cancel the block on SIGTERM or Ctrl-C, so that sessions inside it are left in order.

    A session that is left detaches at the durable frontier and says on the log how
    to go on. After the block everything goes on as usual; the first signal is used up.

    Args:
        signals: others than SIGTERM and SIGINT.

    Raises:
        ValueError: not called in the main thread, where Python handles signals.
    """
    wanted = signals or (signal.SIGTERM, signal.SIGINT)
    with anyio.open_signal_receiver(*wanted) as received:
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                async for _ in received:
                    tasks.cancel_scope.cancel()
                    return

            tasks.start_soon(wait)
            yield
            tasks.cancel_scope.cancel()

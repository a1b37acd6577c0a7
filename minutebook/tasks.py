"""The tasks of one open session: its loop, its writer, its flights.

Imported by `minutebook.opening` and `minutebook.flights`. What a task does, and when
it is told to end, is decided there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio


class SessionTasks:
    """Tasks that go on while the block they belong to is being cancelled.

    A cancelled block still leaves its session in order: what runs is told to stop, and
    its end is recorded. So each task is shielded, and ends by itself or when it is told.
    """

    def __init__(self) -> None:
        self._group = anyio.create_task_group()
        self._scopes: set[anyio.CancelScope] = set()

    async def open(self) -> None:
        """Be ready to start tasks. `close` is called by the same task."""
        await self._group.__aenter__()

    def start(self, run: Callable[..., Awaitable[object]], *arguments: Any, name: str) -> anyio.CancelScope:
        """Begin a task soon; cancelling what is returned ends it."""
        scope = anyio.CancelScope(shield=True)
        self._scopes.add(scope)
        self._group.start_soon(self._run, scope, run, arguments, name=name)
        return scope

    async def close(self) -> None:
        """End every task, and return when the last one has ended."""
        for scope in self._scopes:
            scope.cancel()
        # Entered and left by hand, so that an error of the block is not wrapped in a group.
        await self._group.__aexit__(None, None, None)

    async def _run(
        self,
        scope: anyio.CancelScope,
        run: Callable[..., Awaitable[object]],
        arguments: tuple[Any, ...],
    ) -> None:
        try:
            with scope:
                await run(*arguments)
        finally:
            self._scopes.discard(scope)

"""The tasks of one open session: its loop, its writer, its flights.

Imported by `minutebook.opening` and `minutebook.flights`. What a task does, and when
it is told to end, is decided there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from anyio.abc import TaskGroup

#: Begins a task that no block of the application waits for; see `adapters.apart`.
Apart = Callable[[Callable[[], Awaitable[None]]], None]


class SessionTasks:
    """Tasks that go on while the block they belong to is being cancelled.

    A cancelled block still leaves its session in order: what runs is told to stop, and
    its end is recorded. So no block holds them. `close` waits for each, but for those that
    were left: code that ignores its cancellation would hold it up for ever.
    """

    def __init__(self, apart: Apart) -> None:
        self._apart = apart
        self._scopes: set[anyio.CancelScope] = set()
        self._group: TaskGroup | None = None
        self._opened, self._closing, self._changed = anyio.Event(), anyio.Event(), anyio.Event()
        self._ended = anyio.Event()
        self._has_left = False
        self._failure: BaseException | None = None
        #: Called with what a task raises; that is a defect of ours.
        self.when_broken: Callable[[BaseException], None] = lambda _: None

    async def open(self) -> None:
        """Be ready to start tasks."""
        self._apart(self._serve)
        with anyio.CancelScope(shield=True):
            await self._opened.wait()

    def start(self, run: Callable[..., Awaitable[object]], *arguments: Any, name: str) -> anyio.CancelScope:
        """Begin a task soon; cancelling what is returned ends it."""
        assert self._group is not None, "opened before"
        scope = anyio.CancelScope()
        self._scopes.add(scope)
        self._group.start_soon(self._run, scope, run, arguments, name=name)
        return scope

    def leave(self, scope: anyio.CancelScope) -> None:
        """Cancel a task and wait for it no more."""
        scope.cancel()
        if scope in self._scopes:
            self._has_left = True
            self._gone(scope)

    async def close(self) -> None:
        """End every task, and return when the last one has ended that was not left."""
        self._closing.set()
        with anyio.CancelScope(shield=True):
            while self._scopes:
                for scope in self._scopes:
                    scope.cancel()
                await self._changed.wait()
            if not self._has_left:
                await self._ended.wait()
        if self._failure is not None:
            raise self._failure

    async def _serve(self) -> None:
        try:
            async with anyio.create_task_group() as self._group:
                self._opened.set()
                await self._closing.wait()
        finally:
            self._ended.set()

    async def _run(
        self,
        scope: anyio.CancelScope,
        run: Callable[..., Awaitable[object]],
        arguments: tuple[Any, ...],
    ) -> None:
        try:
            with scope:
                await run(*arguments)
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # `close` raises it in the application's own task
            self._failure = self._failure or error
            self.when_broken(error)
        finally:
            self._gone(scope)

    def _gone(self, scope: anyio.CancelScope) -> None:
        self._scopes.discard(scope)
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

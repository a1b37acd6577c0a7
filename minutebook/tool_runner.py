"""Runs one call's function, once, and says how that ended.

The session's loop calls it after `tool_started` is durable and records what it
returns. Nothing here writes to a journal, decides whether a call may run, or
tries again.
"""

from __future__ import annotations

import inspect
from asyncio import CancelledError, current_task  # noqa: TID251 - read only, see `_cancel_requests`
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any

import anyio
from anyio import CapacityLimiter, get_cancelled_exc_class, move_on_after, to_thread
from anyio.lowlevel import checkpoint_if_cancelled

from minutebook.tool_context import ToolContext
from minutebook.tool_definition import ToolDefinition
from minutebook.tool_result import ToolOutcome, describe_exception, normalise


@dataclass(frozen=True, slots=True)
class Completed:
    """The tool returned. It has succeeded, whatever its result looks like."""

    outcome: ToolOutcome


@dataclass(frozen=True, slots=True)
class Failed:
    """The tool raised; `error` has a `type` and a `message`."""

    error: dict[str, str]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The tool stopped by itself because its context said so."""

    reason: str


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The time was over. What the tool has done until then is not known.

    Args:
        timeout_s: the time it had, in seconds.
        still_running: a sync tool's thread may go on; nobody waits for it, its result is dropped.
    """

    timeout_s: float
    still_running: bool


Finished = Completed | Failed | Cancelled | TimedOut


async def run_tool(
    definition: ToolDefinition,
    kwargs: Mapping[str, Any],
    ctx: ToolContext,
    *,
    timeout_s: float | None = None,
    ended: Event | None = None,
) -> Finished:
    """Run a tool's function once.

    Async functions run in the calling task. Sync ones run in a thread of their own,
    which cannot be stopped: after a timeout or a cancellation it goes on unattended,
    and only a look at `ctx.cancelled` ends it early. So a sync tool that was
    cancelled from outside may still have its effect.

    Args:
        definition: the tool.
        kwargs: what `arguments.bind` returned.
        ctx: given to the function if it asks for it; told to stop when the run is over early.
        timeout_s: seconds the function may take; None takes the definition's.
        ended: set once the function has ended, also where nobody waits for it any more.

    Returns:
        How it ended. For a pure or idempotent tool `TimedOut` may be read as a failure;
        for any other the outcome is unknown.

    Raises:
        The event loop's cancelled exception, if the caller was cancelled. Whatever the tool raises
        by itself, also `SystemExit` and a cancellation of its own making, is `Failed`.
    """
    limit_s = definition.timeout_s if timeout_s is None else timeout_s
    if definition.context_parameter is not None:
        kwargs = {**kwargs, definition.context_parameter: ctx}
    call = partial(definition.function, **kwargs)
    finished: Finished | None = None
    try:
        with move_on_after(limit_s):
            attempt = _attempt(call, ctx) if definition.is_async else _attempt_in_thread(call, ctx, ended)
            finished = await attempt
    finally:
        if finished is None:
            ctx.stopping.set()
        if definition.is_async and ended is not None:
            ended.set()
    return finished or TimedOut(limit_s, still_running=not definition.is_async)


async def _attempt(call: Callable[[], Any], ctx: ToolContext) -> Finished:
    asked_before = _cancel_requests()
    try:
        value = await call()
    except BaseException as e:
        if _is_cancelled(asked_before):
            await _pass_on_cancellation(e)
        return _failure(e, ctx)
    return Completed(normalise(value))


async def _attempt_in_thread(call: Callable[[], Any], ctx: ToolContext, ended: Event | None) -> Finished:
    begun = Event()
    try:
        # A limiter for this call alone: no call waits for another one's thread.
        came = await to_thread.run_sync(
            _attempt_sync, call, ctx, begun, ended, abandon_on_cancel=True, limiter=CapacityLimiter(1)
        )
    except get_cancelled_exc_class():
        if ended is not None and not begun.is_set():
            ended.set()
        raise
    if isinstance(came, _Awaitable):  # a sync wrapper around an async function
        return await _attempt(lambda: came.value, ctx)
    return came


@dataclass(frozen=True, slots=True)
class _Awaitable:
    value: Any


def _attempt_sync(
    call: Callable[[], Any], ctx: ToolContext, begun: Event, ended: Event | None
) -> Finished | _Awaitable:
    begun.set()
    try:
        value = call()
    except BaseException as e:
        return _failure(e, ctx)
    finally:
        if ended is not None:
            ended.set()
    return _Awaitable(value) if inspect.isawaitable(value) else Completed(normalise(value))


def _failure(error: BaseException, ctx: ToolContext) -> Failed | Cancelled:
    if ctx.cancelled and isinstance(error, CancelledError):
        return Cancelled("the tool stopped when it was told to")
    return Failed(describe_exception(error))


def _is_cancelled(asked_before: int) -> bool:
    """Whether the running task was cancelled from outside, by a scope or by asyncio itself."""
    return anyio.current_effective_deadline() == float("-inf") or _cancel_requests() > asked_before


def _cancel_requests() -> int:
    """How often asyncio was asked to cancel this task. A tool that merely raises the
    exception, or awaits something that was cancelled, does not change it."""
    try:
        task = current_task()
    except RuntimeError:  # trio, where only scopes cancel
        return 0
    return task.cancelling() if task is not None else 0


async def _pass_on_cancellation(error: BaseException) -> None:
    """Raise the cancellation, also where the tool turned it into an error of its own:
    a tool that was cut off has not failed, it is not known how far it came."""
    cancelled = get_cancelled_exc_class()
    if isinstance(error, cancelled):
        raise error
    await checkpoint_if_cancelled()
    raise cancelled from error  # asyncio's own; scopes, all that trio has, raised a line above

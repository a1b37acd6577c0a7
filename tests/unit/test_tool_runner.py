"""One run of one call, on asyncio and on trio: how it can end, and what is said about it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest

from minutebook.tool_context import ToolContext
from minutebook.tool_definition import ToolDefinition, tool
from minutebook.tool_result import ToolOutput
from minutebook.tool_runner import Cancelled, Completed, Failed, Finished, TimedOut, run_tool

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

SOON_S = 0.01  # the time a call has in tests where the time runs out
LONG_S = 60.0  # never reached in a test that passes


def context(**more: Any) -> ToolContext:
    return ToolContext("s", "r1", "r1.t1", "r1.t1.a1.c0", "key", **more)


async def run(definition: ToolDefinition, ctx: ToolContext | None = None, **kwargs: Any) -> Finished:
    with anyio.fail_after(LONG_S):
        return await run_tool(definition, kwargs, ctx or context())


def told(finished: Finished) -> str:
    assert isinstance(finished, Completed)
    return finished.outcome.output_text


def error(finished: Finished) -> dict[str, str]:
    assert isinstance(finished, Failed)
    return finished.error


# --- how a call ends by itself -----------------------------------------------------------


async def test_async_functions_run_in_the_calling_task() -> None:
    @tool
    async def greet(name: str) -> tuple[str, bool]:
        return name, threading.current_thread() is threading.main_thread()

    assert told(await run(greet, name="Ada")) == '["Ada",true]'


async def test_sync_functions_run_in_a_thread() -> None:
    @tool
    def greet(name: str) -> tuple[str, bool]:
        return name, threading.current_thread() is threading.main_thread()

    assert told(await run(greet, name="Ada")) == '["Ada",false]'


async def test_a_sync_wrapper_around_an_async_function_is_awaited() -> None:
    async def inner(name: str) -> str:
        await anyio.lowlevel.checkpoint()
        return f"hello {name}"

    @tool
    def outer(name: str) -> Any:
        return inner(name)

    assert told(await run(outer, name="Ada")) == "hello Ada"


async def test_the_context_is_given_to_who_asks_for_it() -> None:
    @tool
    async def who(me: ToolContext) -> list[Any]:
        return [me.tool_id, me.idempotency_key, me.run]

    assert told(await run(who, context(run=2))) == '["r1.t1.a1.c0","key",2]'


async def test_a_result_that_cannot_be_kept_is_no_failure() -> None:
    @tool
    async def odd() -> object:
        return object()

    @tool
    def more() -> ToolOutput:
        return ToolOutput(1, display="one")

    assert told(await run(odd)).startswith("The tool succeeded")
    finished = await run(more)
    assert isinstance(finished, Completed)
    assert finished.outcome.display == "one"


RAISED: list[BaseException] = [
    ValueError("no"),
    Exception(""),
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    StopIteration("s"),
    asyncio.CancelledError("mine"),
    BaseExceptionGroup("two", [ValueError("a"), KeyboardInterrupt()]),
    ExceptionGroup("one", [ExceptionGroup("in", [OSError("deep")])]),
]


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("raised", RAISED, ids=lambda e: type(e).__name__)
async def test_p94_whatever_a_tool_raises_is_its_failure(raised: BaseException, sync: bool) -> None:
    ctx = context()
    finished = await run(raising(raised, sync), ctx)
    # Python itself turns a StopIteration inside a coroutine into a RuntimeError.
    expected = "RuntimeError" if isinstance(raised, StopIteration) and not sync else type(raised).__name__
    assert error(finished)["type"] == expected
    assert error(finished)["message"].strip()
    assert not ctx.cancelled, "the run ended by itself"


def raising(raised: BaseException, sync: bool) -> ToolDefinition:
    def fail_sync() -> None:
        raise raised

    async def fail() -> None:
        raise raised

    return tool(fail_sync if sync else fail)


async def test_a_wrong_parameter_is_the_tools_failure() -> None:
    @tool
    async def strict(a: int) -> None: ...

    assert error(await run(strict, b=1))["type"] == "TypeError"


async def test_a_function_called_async_that_is_not_is_the_tools_failure() -> None:
    definition = ToolDefinition("odd", "", {"type": "object"}, lambda: 1, is_async=True)
    assert error(await run(definition))["type"] == "TypeError"


async def test_a_scope_that_the_tool_cancels_itself_is_its_own_affair() -> None:
    @tool
    async def inner_scope() -> str:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anyio.sleep_forever()
        return "went on"

    assert told(await run(inner_scope)) == "went on"


# --- time ----------------------------------------------------------------------------------


async def test_time_over_is_not_a_failure_and_the_tool_is_told() -> None:
    @tool(timeout_s=SOON_S)
    async def hang() -> None:
        await anyio.sleep_forever()

    ctx = context()
    assert await run(hang, ctx) == TimedOut(SOON_S, still_running=False)
    assert ctx.cancelled


async def test_the_time_given_counts_more_than_the_definitions() -> None:
    @tool(timeout_s=LONG_S)
    async def hang() -> None:
        await anyio.sleep_forever()

    with anyio.fail_after(LONG_S / 2):
        assert await run_tool(hang, {}, context(), timeout_s=SOON_S) == TimedOut(SOON_S, False)


async def test_a_sync_tool_is_left_behind_and_can_see_it() -> None:
    seen = threading.Event()

    @tool(timeout_s=0.5)  # long enough for a thread to start on a busy machine
    def hang(ctx: ToolContext) -> None:
        if ctx.stopping.wait(LONG_S):
            seen.set()

    assert await run(hang) == TimedOut(0.5, still_running=True)
    assert await anyio.to_thread.run_sync(seen.wait, LONG_S)


async def test_an_error_while_being_stopped_for_time_is_no_failure() -> None:
    @tool(timeout_s=SOON_S)
    async def converts() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise OSError("connection lost")

    assert await run(converts) == TimedOut(SOON_S, still_running=False)


async def test_a_tool_that_finishes_although_it_was_stopped_has_finished() -> None:
    @tool(timeout_s=SOON_S)
    async def stubborn() -> str:
        with suppress(anyio.get_cancelled_exc_class()):
            await anyio.sleep_forever()
        return "done"

    assert told(await run(stubborn)) == "done"


async def test_a_timeout_of_its_own_is_the_tools_failure() -> None:
    @tool
    async def impatient() -> None:
        with anyio.fail_after(SOON_S):
            await anyio.sleep_forever()

    assert error(await run(impatient)) == {
        "type": "TimeoutError",
        "message": "TimeoutError without a message",
    }


# --- being cancelled --------------------------------------------------------------------------


async def cancelled_from_outside(definition: ToolDefinition, started: Callable[[], Any]) -> list[Any]:
    """Cancel a run once it has started; what came out of it."""
    came_out: list[Any] = []

    async def drive() -> None:
        try:
            came_out.append(await run_tool(definition, {}, ctx))
        except BaseException as e:
            came_out.append(e)
            raise

    ctx = context()
    with anyio.fail_after(LONG_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drive)
            await started()
            tasks.cancel_scope.cancel()
    came_out.append(ctx.cancelled)
    return came_out


async def test_our_own_cancellation_goes_through() -> None:
    started = anyio.Event()

    @tool
    async def hang() -> None:
        started.set()
        await anyio.sleep_forever()

    raised, told_to_stop = await cancelled_from_outside(hang, started.wait)
    assert isinstance(raised, anyio.get_cancelled_exc_class())
    assert told_to_stop


async def test_our_own_cancellation_goes_through_a_group_of_the_tools() -> None:
    started = anyio.Event()

    @tool
    async def hang() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep_forever)
            started.set()
            try:
                await anyio.sleep_forever()
            finally:
                raise OSError("in the tool's cleanup")

    raised, _ = await cancelled_from_outside(hang, started.wait)
    assert isinstance(raised, anyio.get_cancelled_exc_class()), "no failure: it was cut off"


async def test_our_own_cancellation_does_not_wait_for_a_thread() -> None:
    started, ended = threading.Event(), threading.Event()

    @tool
    def hang(ctx: ToolContext) -> None:
        started.set()
        ctx.stopping.wait(LONG_S)
        ended.set()

    async def has_started() -> None:
        assert await anyio.to_thread.run_sync(started.wait, LONG_S)

    raised, told_to_stop = await cancelled_from_outside(hang, has_started)
    assert isinstance(raised, anyio.get_cancelled_exc_class())
    assert told_to_stop
    assert await anyio.to_thread.run_sync(ended.wait, LONG_S)


async def test_a_result_in_spite_of_our_cancellation_is_kept() -> None:
    started = anyio.Event()

    @tool
    async def stubborn() -> str:
        started.set()
        with suppress(anyio.get_cancelled_exc_class()):
            await anyio.sleep_forever()
        return "charged the card"

    finished, _ = await cancelled_from_outside(stubborn, started.wait)
    assert told(finished) == "charged the card"


@pytest.mark.parametrize("sync", [False, True])
async def test_a_tool_that_stops_when_told_is_cancelled(sync: bool) -> None:
    stopping = threading.Event()
    stopping.set()

    @tool
    def polite_sync(ctx: ToolContext) -> None:
        ctx.raise_if_cancelled()

    @tool
    async def polite(ctx: ToolContext) -> None:
        ctx.raise_if_cancelled()

    finished = await run(polite_sync if sync else polite, context(stopping=stopping))
    assert finished == Cancelled("the tool stopped when it was told to")


async def test_a_tool_that_returns_after_it_was_told_to_stop_has_completed() -> None:
    @tool
    async def quick(ctx: ToolContext) -> str:
        ctx.stopping.set()
        return "done"

    assert told(await run(quick)) == "done"


# --- several at once ---------------------------------------------------------------------------


async def test_p94_one_of_several_fails_and_the_others_finish() -> None:
    second_failed = anyio.Event()

    @tool
    async def first() -> str:
        return "ok"

    @tool
    async def second() -> None:
        raise Exception("")

    @tool
    async def third() -> str:
        await second_failed.wait()
        return "slow"

    ended: dict[str, Finished] = {}

    async def drive(definition: ToolDefinition) -> None:
        ended[definition.name] = await run(definition)
        if definition is second:
            second_failed.set()

    async with anyio.create_task_group() as tasks:
        for definition in (third, second, first):
            tasks.start_soon(drive, definition)
    assert set(ended) == {"first", "second", "third"}
    assert told(ended["first"]) == "ok"
    assert error(ended["second"]) == {"type": "Exception", "message": "Exception without a message"}
    assert told(ended["third"]) == "slow"


async def test_no_sync_tool_waits_for_the_thread_of_another() -> None:
    all_started = threading.Barrier(60, timeout=LONG_S)

    @tool
    def meet() -> str:
        all_started.wait()
        return "met"

    ended: list[str] = []

    async def drive() -> None:
        ended.append(told(await run(meet)))

    async with anyio.create_task_group() as tasks:
        for _ in range(60):
            tasks.start_soon(drive)
    assert ended == ["met"] * 60


async def test_sync_and_async_tools_report_while_they_run() -> None:
    taken: list[Any] = []

    async def take(value: Any) -> None:
        taken.append(value)

    @tool
    def in_thread(ctx: ToolContext) -> None:
        ctx.progress_sync(0.5)
        ctx.message_sync("half")

    @tool
    async def in_task(ctx: ToolContext) -> None:
        await ctx.progress(1.0)

    await run(in_thread, context(on_progress=take, on_message=take))
    await run(in_task, context(on_progress=take))
    assert taken == [0.5, "half", 1.0]

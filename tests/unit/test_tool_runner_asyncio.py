"""What only asyncio has: tasks that are cancelled without a scope."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import anyio
import pytest

from minutebook.tool_context import ToolContext
from minutebook.tool_definition import ToolDefinition, tool
from minutebook.tool_runner import Completed, Failed, run_tool

pytestmark = pytest.mark.anyio


def start(definition: ToolDefinition) -> asyncio.Task[object]:
    context = ToolContext("s", "r1", "r1.t1", "r1.t1.a1.c0", "key")
    return asyncio.ensure_future(run_tool(definition, {}, context))


async def test_waiting_for_something_that_was_cancelled_is_the_tools_failure() -> None:
    @tool
    async def cancelled_future() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    finished = await start(cancelled_future)
    assert isinstance(finished, Failed)
    assert finished.error["type"] == "CancelledError"


@pytest.mark.parametrize("converted", [False, True])
async def test_a_cancellation_of_the_task_goes_through(converted: bool) -> None:
    started = anyio.Event()

    @tool
    async def hang() -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            if converted:
                raise OSError("connection lost") from None
            raise

    running = start(hang)
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_timeout_of_asyncio_inside_a_tool_is_its_own_affair() -> None:
    @tool
    async def impatient() -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        return "gave up"

    assert isinstance(await start(impatient), Completed)


async def test_a_task_group_of_asyncio_that_fails_is_the_tools_failure() -> None:
    async def fail() -> None:
        raise OSError("deep")

    @tool
    async def several() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())
            await asyncio.Event().wait()

    finished = await start(several)
    assert finished == Failed({"type": "ExceptionGroup", "message": "OSError: deep"})


async def test_a_tool_that_cancels_the_sessions_task_is_not_called_failed() -> None:
    @tool
    async def hostile() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        await start(hostile)

"""A value from a plain thread reaches the task that waits for it, whichever library runs the task."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio.lowlevel

from adapters.answers import Answer, wake
from adapters.threads import entered


async def told() -> int:
    """What a thread answers."""
    answer: Answer[int] = Answer()

    def fill() -> None:
        answer.put(7)
        wake([answer])

    threading.Thread(target=fill).start()
    return await answer.wait()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_thread_s_answer_arrives() -> None:
    assert await told() == 7


def test_a_thread_s_answer_arrives_where_trio_is_the_guest_of_asyncio() -> None:
    async def host() -> Any:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Any] = loop.create_future()
        trio.lowlevel.start_guest_run(
            told,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=ended.set_result,
            host_uses_signal_set_wakeup_fd=True,
        )
        return (await ended).unwrap()

    assert asyncio.run(host()) == 7


def test_an_answer_for_a_loop_that_has_ended_hurts_nobody() -> None:
    answers: list[Answer[int]] = []

    async def leave() -> None:
        answers.append(Answer())

    asyncio.run(leave())
    trio.run(leave)
    wake(answers)


class Door:
    """Something to be entered; the event loop can be held up until somebody is inside."""

    def __init__(self) -> None:
        self.inside = 0
        self.changed = threading.Condition()

    def change(self, by: int) -> int:
        with self.changed:
            self.inside += by
            self.changed.notify_all()
        return by

    def wait_for(self, inside: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.inside == inside, timeout=10)

    async def enter(self, got_in: Callable[[], Awaitable[None]] = anyio.sleep_forever) -> None:
        """Go in; stay as long as the call."""
        async with entered(lambda: self.change(1), lambda _: self.change(-1), name="enters"):
            await got_in()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_who_is_cancelled_as_it_gets_in_leaves_again() -> None:
    door = Door()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(door.enter)
        await anyio.wait_all_tasks_blocked()
        _hold_up_until_entered(door)
        tasks.cancel_scope.cancel()
    door.wait_for(0)


def test_also_who_is_cancelled_by_asyncio_itself() -> None:
    async def cancelled(door: Door) -> None:
        task = asyncio.create_task(door.enter())
        await asyncio.sleep(0)
        _hold_up_until_entered(door)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        door.wait_for(0)

    asyncio.run(cancelled(Door()))


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_what_was_entered_is_left_once() -> None:
    door = Door()
    await door.enter(anyio.lowlevel.checkpoint)
    door.wait_for(0)


@pytest.mark.anyio
@pytest.mark.parametrize("error", [OSError("the disk"), SystemExit(1)])
async def test_whatever_a_thread_ends_with_reaches_who_waits(error: BaseException) -> None:
    def fails() -> None:
        raise error

    with anyio.fail_after(10), pytest.raises(type(error)):
        async with entered(fails, lambda _: None, name="enters"):
            pass


def _hold_up_until_entered(door: Door) -> None:
    """The thread has entered and told so, and the task that waits has not gone on."""
    door.wait_for(1)
    for thread in threading.enumerate():
        if thread.name == "enters":
            thread.join()

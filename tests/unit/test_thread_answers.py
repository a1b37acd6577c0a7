"""A value from a plain thread reaches the task that waits for it, whichever library runs the task."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import trio.lowlevel

from adapters.answers import Answer, wake


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

"""The tasks of a session: apart from its block, of its context, and none ends unnoticed."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from adapters.apart import begin_apart
from domain.errors import Fenced
from domain.values import ToolKind
from minutebook.tasks import SessionTasks
from minutebook.testing.scripted import call, reply
from minutebook.tool_definition import tool
from tests.session.harness import LONG_S, Place

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

WHO: ContextVar[str] = ContextVar("who", default="nobody")


async def test_a_tool_sees_the_context_in_which_its_session_was_opened(place: Place) -> None:
    seen: list[str] = []

    @tool(kind=ToolKind.READ_ONLY)
    async def look() -> str:
        seen.append(WHO.get())
        return "looked"

    token = WHO.set("the opener")
    async with place.create([reply("", call("look")), reply("done")], tools=[look]) as session:
        assert (await session.run("hello")).content == "done"
    WHO.reset(token)
    assert seen == ["the opener"]


async def test_a_defect_in_a_task_stops_the_session_and_comes_out_of_its_block(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: Any) -> None:
        raise ZeroDivisionError("a defect")

    async def block() -> None:
        async with place.create([reply("never")]) as session:
            monkeypatch.setattr(session._parts.book, "_settled", broken)
            for ask in (session.run, session.send):
                with pytest.raises(Fenced):
                    await ask("hello")

    with anyio.fail_after(LONG_S), pytest.raises(ZeroDivisionError):
        await block()
    async with place.resume([reply("done")]) as session:
        await session.wait_idle()


async def test_what_was_left_is_waited_for_no_more_and_everything_else_is() -> None:
    tasks, free = SessionTasks(begin_apart), anyio.Event()
    ended: list[str] = []

    async def deaf(name: str) -> None:
        with anyio.CancelScope(shield=True):
            await free.wait()
        ended.append(name)

    async def heeding() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("heeding")

    await tasks.open()
    tasks.leave(tasks.start(deaf, "left", name="left"))
    tasks.start(heeding, name="heeding")
    await anyio.wait_all_tasks_blocked()
    with anyio.fail_after(LONG_S):
        await tasks.close()
    assert ended == ["heeding"]
    free.set()
    await anyio.wait_all_tasks_blocked()
    assert ended == ["heeding", "left"]

"""What only asyncio does: tasks that are cancelled by the loop itself, or that cancel themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from domain.model_ports import Text
from domain.values import Interrupt, ToolKind, Verdict
from minutebook.config import PermissionCall
from minutebook.interactions import Approve, Interaction
from minutebook.testing.scripted import Gate, ScriptedProvider, call, reply
from minutebook.tool_definition import tool
from tests.session.harness import Hands, Place, asked, data

pytestmark = pytest.mark.anyio


async def _cancelled() -> Any:
    """What awaiting something gives that was cancelled."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_send_whose_task_is_cancelled_is_sent_all_the_same(place: Place, side: str) -> None:
    getattr(place.store, side)[2] = gate = Gate()
    async with place.create([reply("one"), reply("two")]) as session:
        task = asyncio.create_task(session.send("hello"))
        await gate.reached()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.open()
        await session.wait_idle()
        assert (await place.told(session.stream()))[-1].content == "one"
        assert (await session.run("again")).content == "two"


async def test_an_answer_whose_task_is_cancelled_counts_all_the_same(place: Place, hands: Hands) -> None:
    place.store.before[5] = gate = Gate()
    script = [reply("", call("pay", {"what": "rent"})), reply("done")]
    async with place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        question = await asked(session)
        task = asyncio.create_task(session.respond(question.id, Approve(), digest=question.digest))
        await gate.reached()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.open()
        assert (await place.told(session.stream()))[-1].content == "done"
    assert hands.done == ["rent"]


async def test_a_time_limit_of_asyncio_around_running(place: Place) -> None:
    gate = Gate()
    async with place.create([[gate, *reply("one")], reply("two")]) as session:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await session.run("hello")
        gate.open()
        assert (await session.run("again")).content == "two"


async def test_a_block_whose_task_is_cancelled_is_left_in_order(place: Place) -> None:
    gate = Gate()

    async def work() -> None:
        async with place.create([[gate, *reply("never")]]) as session:
            await session.send("hello")
            await gate.reached()
            await anyio.sleep_forever()

    task = asyncio.create_task(work())
    await gate.reached()
    await anyio.wait_all_tasks_blocked()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await place.types())[-1] == "model_request_aborted"


# --- code that cancels itself ---------------------------------------------------------------------


async def test_a_tool_that_cancels_itself_has_failed(place: Place) -> None:
    @tool(kind=ToolKind.READ_ONLY)
    async def odd() -> None:
        await _cancelled()

    async with place.create([reply("", call("odd")), reply("done")], tools=[odd]) as session:
        assert (await session.run("hello")).content == "done"
    assert data(await place.events(), "tool_failed")[0].error_type == "CancelledError"


async def test_a_tool_that_has_its_own_task_cancelled_is_unknown_or_stopped(place: Place) -> None:
    @tool(kind=ToolKind.READ_ONLY, interrupt=Interrupt.CANCEL)
    async def odd() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await anyio.sleep_forever()

    async with place.create([reply("", call("odd")), reply("done")], tools=[odd]) as session:
        assert (await session.run("hello")).content == "done"
    assert data(await place.events(), "tool_cancelled")[0].reason == "cancelled from outside"


async def test_a_handler_that_cancels_itself_leaves_it_to_a_person(place: Place, hands: Hands) -> None:
    async def handler(_: PermissionCall) -> Verdict | None:
        await _cancelled()
        return Verdict.ALLOW

    async def confirm(_: Interaction) -> None:
        await _cancelled()

    options: dict[str, Any] = {"permission_handler": handler, "confirmation_handler": confirm}
    script = [reply("", call("look", {"what": "x"})), reply("done")]
    async with place.create(script, tools=hands.tools(), **options) as session:
        await session.send("hello")
        question = await asked(session)
        await session.respond(question.id, Approve(), digest=question.digest)
        assert (await place.told(session.stream()))[-1].content == "done"


class _Odd(ScriptedProvider):
    async def send(self, body: bytes, *, attempt_id: str) -> Any:
        yield Text("well")
        await _cancelled()


async def test_a_provider_that_cancels_itself_fails_the_request(place: Place) -> None:
    async with place.create(_Odd([])) as session:
        result = await session.run("hello")
        assert (result.status, result.error_code) == ("failed", "provider_error")
        assert not session.is_running

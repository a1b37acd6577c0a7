"""Closing a session for good, waiting for oneself, and sessions of one question."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from domain.cursor import Cursor
from domain.errors import CloseError, SessionClosed
from domain.values import ToolKind
from minutebook.prompting import prompt
from minutebook.session import Session
from minutebook.testing.clock import ManualClock
from minutebook.testing.scripted import Gate, ScriptedProvider, call, reply
from minutebook.tool_definition import tool
from tests.session import order
from tests.session.harness import Hands, Place, asked, data
from tests.session.leasing import landed

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


DEADLINE_S = 7.0


async def test_closing_for_good_ends_what_runs_and_cancels_what_waits(any_place: Place, hands: Hands) -> None:
    script = [reply("", call("pay", {"what": "rent"}))]
    told: list[str] = []

    async def watch(session: Session) -> None:
        told.extend([event.type async for event in session.events(after=Cursor.start(session.id))])

    options: dict[str, Any] = {"tools": hands.tools()}
    async with anyio.create_task_group() as tasks, any_place.create(script, **options) as session:
        tasks.start_soon(watch, session)
        await session.send("one")
        await asked(session)
        await session.send("two")
        await session.close(final=True, reason="enough")
        assert session.is_closed
        await session.close(final=True)
    types = await any_place.types()
    last = ["input_cancelled", "lease_released", "session_closed"]
    assert types[-4:] == ["request_interrupted", *last]
    assert order.types(order.commits(await any_place.events())[-1]) == last
    assert told[-1] == "session_closed"


async def test_closing_for_good_at_the_same_time_is_closing_once(place: Place) -> None:
    gate = Gate()
    async with place.create([[gate, *reply("never")]]) as session:
        await session.send("hello")
        await gate.reached()

        async def close() -> None:
            await session.close(final=True)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(close)
    assert (await place.types()).count("session_closed") == 1


async def test_nothing_is_sent_to_a_session_that_is_being_closed(place: Place) -> None:
    """Neither while what runs is stopped, nor while the end itself is being written."""
    for number in (4, 6):
        place.store.batches.clear()
        place.store.before = {number: (gate := Gate())}
        speaking, session_id = Gate(), f"s{number}"
        async with place.create([[speaking, *reply("never")]], session_id) as session:
            await session.send("hello")
            await speaking.reached()
            async with anyio.create_task_group() as tasks:

                async def close() -> None:
                    await session.close(final=True)

                tasks.start_soon(close)
                await gate.reached()
                with pytest.raises(SessionClosed):
                    await session.send("too late")
                gate.open()
        assert (await place.types(session_id)).count("input_accepted") == 1


async def test_an_effect_can_be_settled_after_the_session_was_closed(place: Place, hands: Hands) -> None:
    hands.gates["x"] = Gate()
    script = [reply("", call("put", {"what": "x"}))]
    async with place.create(script, tools=hands.tools(), permission_mode="autoEdit") as session:
        await session.send("hello")
        await hands.gates["x"].reached()
        await session.close(final=True)
        assert len(session.unsettled_effects) == 1
    async with place.coordinator() as coordinator:
        await coordinator.reconcile_tool_outcome("r1.t1.a1.c0", outcome="failed", evidence="no file there")
    assert (await place.types())[-1] == "tool_outcome_reconciled"
    with pytest.raises(SessionClosed):
        await place.resume([], tools=hands.tools()).__aenter__()


async def test_a_late_result_comes_before_the_end_of_the_session(place: Place) -> None:
    place.timer = clock = ManualClock()
    begun, release = anyio.Event(), threading.Event()

    @tool(kind=ToolKind.READ_ONLY)
    def hang() -> str:
        anyio.from_thread.run_sync(begun.set)
        release.wait(20)
        return "late"

    async def close(session: Session) -> None:
        with pytest.raises(CloseError):
            await session.close(final=True)

    async with place.create([reply("", call("hang"))], tools=[hang], abort_timeout_s=DEADLINE_S) as session:
        await session.send("hello")
        await begun.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(close, session)
            await clock.awaited(DEADLINE_S)
            clock.advance(DEADLINE_S)
        release.set()
        await landed(session)
        await session.close(final=True)
    types = await place.types()
    assert types[-1] == "session_closed"
    assert types.count("notice_recorded") == 2  # that it goes on, and what it said in the end


# --- waiting for oneself -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["run", "wait_idle", "close"])
async def test_a_tool_does_not_wait_for_its_own_session(place: Place, method: str) -> None:
    holder: list[Session] = []

    @tool(kind=ToolKind.READ_ONLY)
    async def wait() -> None:
        await getattr(holder[0], method)(*(["again"] if method == "run" else []))

    provider = ScriptedProvider([reply("", call("wait")), reply("done")])
    async with place.create(provider, tools=[wait]) as session:
        holder.append(session)
        assert (await session.run("hello")).content == "done"
    assert "REENTRANT_WAIT" in provider.sent[1].messages[-1]["content"]


async def test_a_tool_may_use_another_session(place: Place) -> None:
    @tool(kind=ToolKind.READ_ONLY)
    async def delegate() -> str:
        async with place.create([reply("from the other")], "s2") as other:
            return (await other.run("help")).content

    async with place.create([reply("", call("delegate")), reply("done")], tools=[delegate]) as session:
        assert (await session.run("hello")).content == "done"
    assert "from the other" in data(await place.events(), "tool_completed")[0].output


# --- one question, one answer ------------------------------------------------------------------------


async def test_a_prompt_makes_uses_and_closes_a_session(place: Place, hands: Hands) -> None:
    script = [reply("", call("look", {"what": "x"}), call("look", "oops")), reply("done", usage={"n": 3})]
    config = place.config(script, tools=hands.tools())
    result = await prompt("hello", config, store=place.store)
    assert (result.status, result.result, result.turns_count) == ("completed", "done", 2)
    first, second = result.tool_calls
    assert (first.name, first.output, first.is_error, second.is_error) == ("look", "did x", False, True)
    assert result.usage == {"n": 3}
    assert result.duration_ms >= 0
    assert (await place.types(result.session_id))[-1] == "session_closed"


async def test_aborting_a_request_that_has_ended_does_not_stop_the_next_one(place: Place) -> None:
    gate = Gate()
    script = ScriptedProvider([reply("one"), [gate, *reply("two")]])
    async with place.create(script) as session:
        assert (await session.run("first")).content == "one"
        await session.send("second")
        await gate.reached()
        await session.abort(request_id="r1")
        assert session.current_request_id == "r2"
        assert not session.is_aborting
        gate.open()
        await session.wait_idle()
        assert session.messages[-1].text == "two"  # type: ignore[union-attr]  # it is an exchange

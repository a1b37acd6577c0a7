"""Stopping a request: at any moment, within its time, with everything under it accounted for."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
import pytest

from domain.envelope import Recorded
from domain.errors import SessionClosed
from domain.values import SideEffect, ToolKind
from minutebook import stream_events as se
from minutebook.session import Session
from minutebook.testing.clock import ManualClock
from minutebook.testing.scripted import Gate, ScriptedProvider, call, fail, reply
from minutebook.tool_definition import tool
from tests.session import order
from tests.session.aborting import DEADLINE_S, abort, ended_as
from tests.session.harness import LONG_S, Hands, Place, approving, asked

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

# --- at every commit ---------------------------------------------------------------------------


def _script() -> ScriptedProvider:
    return ScriptedProvider(
        {
            "r1.t1.a1": reply("look", call("look", {"what": "x"}), call("pay", {"what": "rent"})),
            "r1.t2.a1": reply("done", pieces=2),
            "r2.t1.a1": reply("next"),
        }
    )


#: How many there are when nobody aborts.
COMMITS = 10


async def test_how_many_commits_there_are(place: Place, hands: Hands) -> None:
    async with place.create(_script(), tools=hands.tools()) as session:
        await _send_two_and_answer(session)
    assert COMMITS - 1 <= len(place.store.batches) <= COMMITS


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("number", range(2, COMMITS + 1))
async def test_aborting_while_any_commit_is_under_way(
    place: Place, hands: Hands, side: str, number: int
) -> None:
    gate = Gate()
    getattr(place.store, side)[number] = gate
    async with place.create(_script(), tools=hands.tools()) as session, anyio.create_task_group() as tasks:
        at_the_gate = anyio.Event()

        async def play() -> None:
            await _send_two_and_answer(session)
            at_the_gate.set()  # there are fewer commits where more of them are shared

        async def stand() -> None:
            await gate.reached()
            at_the_gate.set()

        tasks.start_soon(play)
        tasks.start_soon(stand)
        await at_the_gate.wait()
        tasks.start_soon(abort, session)
        await anyio.wait_all_tasks_blocked()
        gate.open()
        await session.wait_idle()
        tasks.cancel_scope.cancel()
    await place.check()
    events = await place.events()
    types = order.types(events)
    assert types.count("input_accepted") == 2
    aborted = {e.request_id for e in events if e.type == "abort_requested"}
    for request_id in ("r1", "r2"):
        expected = "request_interrupted" if request_id in aborted else "request_completed"
        assert ended_as(events, request_id) == expected
    assert len(aborted) == 1 or number > COMMITS - 2
    assert len(hands.done) == len(set(hands.done))
    assert await _accounted(events) == set()


async def _send_two_and_answer(session: Session) -> None:
    with anyio.fail_after(LONG_S):
        await session.send("one")
        await session.send("two")
        with suppress(Exception):  # somebody else may have closed the question
            async for event in approving(session):
                del event
        await session.wait_idle()


async def _accounted(events: list[Recorded]) -> set[str]:
    """Calls that were started and have neither an end nor an unknown outcome."""
    started = {str(e.tool_id) for e in events if e.type == "tool_started"}
    ended = {str(e.tool_id) for e in events if e.type in order.RUN_ENDS}
    return started - ended


# --- while something else is under way -----------------------------------------------------------


async def test_aborting_while_the_model_speaks(place: Place) -> None:
    gate = Gate()
    first, *rest = reply("hello there", pieces=2)
    async with place.create([[first, gate, *rest], reply("again")]) as session:
        await session.send("hello")
        await gate.reached()
        await session.abort("enough")
        told = await place.told(session.stream())
        assert (told[-1].code, told[-1].message) == ("REQUEST_INTERRUPTED", "enough")
        assert (await session.run("and now?")).content == "again"
    made = order.commits(await place.events())
    assert ["abort_requested"] in [order.types(commit) for commit in made]
    end = next(commit for commit in made if commit[-1].type == "request_interrupted")
    assert order.closing(end) == ["model_request_aborted", "turn_aborted", "request_interrupted"]


async def test_what_an_interrupted_model_said_is_not_fed_back(place: Place) -> None:
    gate = Gate()
    first, *rest = reply("half a sentence", pieces=2)
    provider = ScriptedProvider([[first, gate, *rest], reply("again")])
    async with place.create(provider) as session:
        await session.send("hello")
        await gate.reached()
        await session.abort()
        await session.run("and now?")
    assert [message["role"] for message in provider.sent[1].messages] == ["user", "user"]
    assert provider.counts.cancelled == 1


async def test_aborting_while_a_question_is_open_closes_it_with_its_call(
    any_place: Place, hands: Hands
) -> None:
    script = [reply("", call("pay", {"what": "rent"})), reply("hi")]
    async with any_place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        await asked(session)
        await session.abort()
        assert session.interactions == ()
        assert (await session.run("hi")).content == "hi"
    made = order.commits(await any_place.events())
    end = next(commit for commit in made if commit[-1].type == "request_interrupted")
    assert order.types(end) == [
        "permission_cancelled",
        "tool_cancelled",
        "turn_aborted",
        "request_interrupted",
    ]
    assert hands.begun == []


@pytest.mark.parametrize("kind", ["permission_handler", "confirmation_handler"])
async def test_aborting_while_the_application_thinks(place: Place, hands: Hands, kind: str) -> None:
    gate = Gate()

    async def think(_: Any) -> None:
        await gate.pass_through()

    script = [reply("", call("pay", {"what": "rent"})), reply("hi")]
    options: dict[str, Any] = {"tools": hands.tools(), kind: think}
    async with place.create(script, **options) as session:
        await session.send("hello")
        await gate.reached()
        await session.abort()
        assert (await session.run("hi")).content == "hi"
    assert hands.begun == []


async def test_aborting_while_a_retry_waits(place: Place) -> None:
    place.timer = clock = ManualClock()
    async with place.create([fail(), reply("hi")]) as session:
        await session.send("hello")
        await clock.awaited(0.5)
        await session.abort()
        await session.wait_idle()
        assert (await session.run("hi")).content == "hi"


async def test_aborting_before_the_model_was_asked(place: Place) -> None:
    place.store.before[3] = gate = Gate()
    provider = ScriptedProvider([reply("hi")])
    async with place.create(provider) as session, anyio.create_task_group() as tasks:
        await session.send("hello")
        await gate.reached()
        tasks.start_soon(abort, session)
        await anyio.wait_all_tasks_blocked()
        gate.open()
    assert provider.sent == []  # it was on record as sent, and still was not
    assert "model_request_aborted" in await place.types()


# --- who may abort, and how often --------------------------------------------------------------------


async def test_aborting_nothing_does_nothing(place: Place) -> None:
    async with place.create([reply("done")]) as session:
        await session.abort()
        await session.run("hello")
        await session.abort()
    assert "abort_requested" not in await place.types()


async def test_aborting_twice_is_aborting_once(place: Place) -> None:
    gate = Gate()
    async with place.create([[gate, *reply("done")]]) as session:
        await session.send("hello")
        await gate.reached()
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(abort, session)
        await session.abort()
    assert (await place.types()).count("abort_requested") == 1


async def test_aborting_without_waiting_returns_when_the_request_is_sealed(place: Place) -> None:
    gate = Gate()
    async with place.create([[gate, *reply("done")]]) as session:
        await session.send("hello")
        await gate.reached()
        await session.abort(wait=False)
        assert (await place.types())[9] == "abort_requested"
        assert (await place.told(session.stream()))[-1].code == "REQUEST_INTERRUPTED"


async def test_an_abort_that_is_overtaken_by_leaving_does_not_wait_for_ever(
    place: Place, hands: Hands
) -> None:
    place.timer = clock = ManualClock()
    begun, gate = anyio.Event(), anyio.Event()

    @tool(kind=ToolKind.READ_ONLY)
    async def hang() -> None:
        begun.set()
        with anyio.CancelScope(shield=True):
            await gate.wait()

    options: dict[str, Any] = {"tools": [hang], "abort_timeout_s": DEADLINE_S}
    async with place.create([reply("", call("hang"))], **options) as session:
        await session.send("hello")
        await begun.wait()
        async with anyio.create_task_group() as tasks:

            async def abort() -> None:
                with pytest.raises(SessionClosed):
                    await session.abort()

            tasks.start_soon(abort)
            await clock.awaited(DEADLINE_S)
            tasks.start_soon(session.close)
            await anyio.wait_all_tasks_blocked()
            gate.set()
    assert (await place.plan()).items[0].action == "finish_abort"
    async with place.resume([], **options) as session:
        assert (await place.told(session.stream()))[-1].code == "REQUEST_INTERRUPTED"


async def test_aborting_from_inside_the_stream(place: Place, hands: Hands) -> None:
    hands.gates["x"] = Gate()
    told = []
    async with place.create([reply("", call("look", {"what": "x"}))], tools=hands.tools()) as session:
        await session.send("hello")
        async for event in session.stream():
            told.append(event)
            if isinstance(event, se.ToolUse):
                await session.abort()
    assert [event.type for event in told[-3:]] == ["tool_result", "turn_interrupted", "error"]


async def test_aborting_from_inside_a_tool(place: Place) -> None:
    holder: list[Session] = []

    @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE)
    async def stop_everything() -> str:
        await holder[0].abort("the tool said so")
        return "not reached"

    async with place.create([reply("", call("stop_everything"))], tools=[stop_everything]) as session:
        holder.append(session)
        result = await session.run("hello")
    assert (result.status, result.message) == ("interrupted", "the tool said so")


async def test_what_is_queued_survives_and_is_next(any_place: Place, hands: Hands) -> None:
    gate = Gate()
    provider = ScriptedProvider([[gate, *reply("a")], reply("b"), reply("c")])
    async with any_place.create(provider) as session:
        await session.send("one")
        await session.send("two")
        await gate.reached()
        await session.abort()
        await session.send("three")
        await session.wait_idle()
    events = await any_place.events()
    assert [ended_as(events, request) for request in ("r1", "r2", "r3")] == [
        "request_interrupted",
        "request_completed",
        "request_completed",
    ]


async def test_an_abort_that_is_not_finished_is_finished_after_a_restart(place: Place, hands: Hands) -> None:
    hands.gates["x"] = Gate()
    script = [reply("", call("look", {"what": "x"})), reply("hi")]
    async with place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        await hands.gates["x"].reached()
        await session.abort(wait=False)
        commits = next(
            n for n, b in enumerate(place.store.batches, 1) if b.events[-1].topic == "abort_requested@1"
        )
    left = await place.killed_after(commits)
    assert (await left.plan()).items[0].action == "finish_abort"
    async with left.resume([reply("hi")], tools=hands.tools()) as session:
        assert (await left.told(session.stream()))[-1].code == "REQUEST_INTERRUPTED"
        assert (await session.run("hi")).content == "hi"
    assert hands.begun == ["x"]
    await left.check()

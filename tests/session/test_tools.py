"""Calls in a running session: what is run, what is refused, how each ends, alone and together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from domain.envelope import Recorded
from domain.values import Interrupt, SideEffect, Stop, ToolKind
from minutebook import stream_events as se
from minutebook.testing.scripted import Gate, ScriptedProvider, call, reply
from minutebook.tool_definition import ToolDefinition, tool
from tests.session import order
from tests.session.harness import Hands, Place, data

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

Make = Callable[[Callable[..., Any]], ToolDefinition]
SAFE: Make = tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE)
RISKY: Make = tool(kind=ToolKind.READ_ONLY)


def results(told: list[Any]) -> list[tuple[str, str]]:
    """(outcome, what the model is told) of each result, in order of the calls."""
    found = sorted((e for e in told if isinstance(e, se.ToolResult)), key=lambda e: e.id)
    return [(event.outcome, event.output) for event in found]


# --- what is refused before it runs -----------------------------------------------------------


BAD_ARGUMENTS = {
    "null": "null",
    "list": '["x"]',
    "text": '"ls"',
    "text in text": '"{\\"what\\": 1}"',
    "number": "3",
    "not a number": '{"what": NaN}',
    "twice": '{"what": "a", "what": "b"}',
    "cut off": '{"what": "a',
    "more after it": '{"what": "a"} x',
    "missing": "{}",
    "empty": "",
    "wrong type": '{"what": 1}',
    "unknown name": '{"what": "a", "why": "b"}',
    "too deep": '{"what": ' + "[" * 200 + "]" * 200 + "}",
}


@pytest.mark.parametrize("raw", BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS.keys())
async def test_arguments_that_do_not_fit_are_told_to_the_model(place: Place, hands: Hands, raw: str) -> None:
    provider = ScriptedProvider([reply("", call("look", raw)), reply("sorry")])
    async with place.create(provider, tools=hands.tools()) as session:
        await session.send("hello")
        told = await place.told(session.stream())
    ((outcome, output),) = results(told)
    assert outcome == "rejected"
    assert 10 < len(output) < 3000
    assert provider.sent[1].messages[-1]["content"] == output
    assert hands.begun == []
    assert told[-1].content == "sorry"


@pytest.mark.parametrize(
    ("size", "ends"),
    [(600_000, "completed"), (1_000_000, "completed"), (1_045_500, "rejected"), (1_050_000, "failed")],
)
async def test_arguments_of_any_size_end_in_something(
    place: Place, hands: Hands, size: int, ends: str
) -> None:
    script = [reply("", call("look", {"what": "x" * size})), reply("done")]
    async with place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        told = await place.told(session.stream())
        assert (await session.run("and then?")).status in ("completed", "failed")
    if ends == "failed":
        assert told[-1].code == "response_too_large"
    else:
        assert [outcome for outcome, _ in results(told)] == [ends]


async def test_a_tool_that_is_not_there_is_told_to_the_model(place: Place, hands: Hands) -> None:
    script = [reply("", call("steal", {}), call("n" * 300_000, {})), reply("sorry")]
    async with place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        told = await place.told(session.stream())
    for outcome, output in results(told):
        assert outcome == "rejected"
        assert "there are: look, put, pay" in output
        assert len(output) < 500


@pytest.mark.parametrize("stop", [Stop.LENGTH, Stop.REFUSAL, Stop.PAUSE])
async def test_a_response_that_was_cut_runs_none_of_its_calls(place: Place, hands: Hands, stop: Stop) -> None:
    script = [reply("", call("look", {"what": "x"}), stop=stop), reply("done")]
    async with place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        told = await place.told(session.stream())
    assert [outcome for outcome, _ in results(told)] == ["rejected"]
    assert hands.begun == []
    assert told[-1].content == "done"


@pytest.mark.parametrize(("stop", "turns"), [(Stop.PAUSE, 2), (Stop.REFUSAL, 1), (Stop.LENGTH, 1)])
async def test_a_paused_response_goes_on_and_others_end_the_request(
    place: Place, stop: Stop, turns: int
) -> None:
    async with place.create([reply("part", stop=stop), reply("rest")]) as session:
        result = await session.run("hello")
    assert result.status == "completed"
    assert (await place.types()).count("turn_started") == turns


# --- what a tool is given -------------------------------------------------------------------------


async def test_a_tool_knows_who_it_runs_for(place: Place, hands: Hands) -> None:
    script = [reply("", call("look", {"what": "x"}), call("look", {"what": "y"})), reply("done")]
    context = {"environment": {"HOME": "/nowhere"}, "metadata": {"ticket": 7}}
    async with place.create(script, tools=hands.tools(), context=context) as session:
        await session.run("hello")
    hands.contexts.sort(key=lambda ctx: ctx.tool_id)
    first, second = hands.contexts
    assert (first.session_id, first.request_id, first.turn_id) == ("s1", "r1", "r1.t1")
    assert [ctx.tool_id for ctx in hands.contexts] == ["r1.t1.a1.c0", "r1.t1.a1.c1"]
    assert (first.environment, first.metadata) == ({"HOME": "/nowhere"}, {"ticket": 7})
    assert first.idempotency_key != second.idempotency_key
    assert first.fence is not None
    assert first.fence.token == 1
    started = data(await place.events(), "tool_started")
    assert [event.idempotency_key for event in started] == [ctx.idempotency_key for ctx in hands.contexts]


async def test_a_tool_runs_only_once_its_start_is_durable(any_place: Place) -> None:
    seen: list[str] = []

    @RISKY
    async def act() -> str:
        seen.extend(await any_place.types())
        return "acted"

    async with any_place.create([reply("", call("act")), reply("done")], tools=[act]) as session:
        await session.run("hello")
    assert seen[-1] == "tool_started"


async def test_the_class_of_one_call_may_be_narrowed_and_why_is_on_record(place: Place) -> None:
    @tool(kind=ToolKind.READ_ONLY, narrow=lambda a: (SideEffect.PURE, "dry run") if a["dry"] else None)
    async def deploy(dry: bool) -> str:
        return "deployed"

    script = [reply("", call("deploy", {"dry": True}), call("deploy", {"dry": False})), reply("done")]
    async with place.create(script, tools=[deploy]) as session:
        await session.run("hello")
    started = data(await place.events(), "tool_started")
    assert [(event.side_effect, event.narrowed_because) for event in started] == [
        (SideEffect.PURE, "dry run"),
        (SideEffect.NON_IDEMPOTENT, None),
    ]


async def test_a_call_whose_class_cannot_be_told_does_not_run(place: Place) -> None:
    ran = []

    @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE, narrow=lambda _: (SideEffect.IDEMPOTENT, "x"))
    async def odd() -> str:
        ran.append(1)
        return "ran"

    async with place.create([reply("", call("odd")), reply("done")], tools=[odd]) as session:
        await session.send("hello")
        told = await place.told(session.stream())
    assert [outcome for outcome, _ in results(told)] == ["cancelled"]
    assert ran == []


# --- several at once ---------------------------------------------------------------------------------


async def test_calls_run_at_the_same_time_and_each_result_is_told_when_it_is_there(
    any_place: Place, hands: Hands
) -> None:
    hands.gates = {name: Gate() for name in "abc"}
    script = [reply("", *(call("look", {"what": name}) for name in "abc")), reply("done")]
    told: list[str] = []
    async with any_place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        stream = session.stream()
        for name in "abc":
            await hands.gates[name].reached()
        for name in "cab":
            hands.gates[name].open()
            while True:
                event = await anext(stream)
                if isinstance(event, se.ToolResult):
                    told.append(event.output)
                    break
        assert told == ["did c", "did a", "did b"]
        assert (await any_place.told(stream))[-1].content == "done"
    ends = [e for e in await any_place.events() if e.type == "tool_completed"]
    assert [str(event.tool_id)[-1] for event in ends] == ["2", "0", "1"]
    assert len({event.command_id for event in ends}) == 3


async def test_one_of_several_fails_and_each_has_its_own_end(place: Place, hands: Hands) -> None:
    @RISKY
    async def fails() -> None:
        raise Exception("")

    calls = [call("look", {"what": "a"}), call("fails"), call("look", '{"what"'), call("look", {"what": "b"})]
    async with place.create([reply("", *calls), reply("done")], tools=[*hands.tools(), fails]) as session:
        await session.send("hello")
        told = await place.told(session.stream())
    assert [outcome for outcome, _ in results(told)] == ["completed", "failed", "rejected", "completed"]
    assert sorted(hands.done) == ["a", "b"]
    assert told[-1].content == "done"


@pytest.mark.parametrize("count", [1, 50, 60])
async def test_every_call_of_a_large_response_is_carried_out(place: Place, hands: Hands, count: int) -> None:
    script = [reply("", *(call("look", {"what": str(n)}) for n in range(count))), reply("done")]
    async with place.create(script, tools=hands.tools()) as session:
        result = await session.run("hello")
    assert result.content == "done"
    assert sorted(hands.done, key=int) == [str(n) for n in range(count)]
    assert max(len(commit) for commit in order.commits(await place.events())) <= 128


async def test_a_response_with_too_many_calls_fails_the_request(place: Place, hands: Hands) -> None:
    script = [reply("", *(call("look", {"what": str(n)}) for n in range(61)))]
    async with place.create(script, tools=hands.tools()) as session:
        result = await session.run("hello")
    assert (result.status, result.error_code) == ("failed", "too_many_calls")
    assert hands.begun == []


async def test_many_that_end_at_the_same_time_are_all_recorded(place: Place, hands: Hands) -> None:
    def answer(sent: Any) -> Any:
        done = sent.messages[-1]["role"] == "tool"
        return reply("done") if done else reply("", *(call("look", {"what": name}) for name in "abc"))

    async with place.create(ScriptedProvider(answer), tools=hands.tools()) as session:
        for _ in range(20):
            await session.run("hello")
    events: list[Recorded] = await place.events()
    assert len(data(events, "tool_completed")) == 60
    assert len({event.tool_id for event in events if event.type == "tool_completed"}) == 60


async def test_a_blocking_sync_tool_does_not_hold_up_its_siblings(place: Place, hands: Hands) -> None:
    release = threading.Event()

    @tool(kind=ToolKind.READ_ONLY, interrupt=Interrupt.BLOCK)
    def blocks() -> str:
        release.wait(20)
        return "released"

    script = [reply("", call("blocks"), call("look", {"what": "x"})), reply("done")]
    async with place.create(script, tools=[*hands.tools(), blocks]) as session:
        await session.send("hello")
        stream = session.stream()
        while True:
            event = await anext(stream)
            if isinstance(event, se.ToolResult):
                break
        assert event.output == "did x"
        release.set()
        assert (await place.told(stream))[-1].content == "done"

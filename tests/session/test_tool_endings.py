"""How a call ends: whatever its tool raises or returns, and when its time is over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

from domain.values import SideEffect, ToolKind
from minutebook import stream_events as se
from minutebook.testing.scripted import ScriptedProvider, call, reply
from minutebook.tool_context import ToolContext
from minutebook.tool_definition import ToolDefinition, tool
from minutebook.tool_result import ToolOutput
from recovery.plan import RecoveryRequired
from tests.session.harness import Place, data, drained

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

Make = Callable[[Callable[..., Any]], ToolDefinition]
SAFE: Make = tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE)
RISKY: Make = tool(kind=ToolKind.READ_ONLY)


def results(told: list[Any]) -> list[tuple[str, str]]:
    """(outcome, what the model is told) of each result, in order of the calls."""
    found = sorted((e for e in told if isinstance(e, se.ToolResult)), key=lambda e: e.id)
    return [(event.outcome, event.output) for event in found]


class _Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text either")


def _raise(error: BaseException) -> Any:
    raise error


RAISED: dict[str, tuple[Callable[[], BaseException], str]] = {
    "an error": (lambda: ValueError("no such file"), "ValueError: no such file"),
    "without text": (lambda: RuntimeError(""), "RuntimeError without a message"),
    "text that raises": (_Odd, "_Odd"),
    "an exit": (lambda: SystemExit(3), "SystemExit: 3"),
    "an interrupt": (KeyboardInterrupt, "KeyboardInterrupt"),
    "a group": (lambda: ExceptionGroup("two", [ValueError("a"), KeyError("b")]), "ValueError: a"),
}


@pytest.mark.parametrize(("make", "text"), RAISED.values(), ids=RAISED.keys())
@pytest.mark.parametrize("in_thread", [False, True], ids=["async", "sync"])
async def test_a_tool_that_raises_has_failed_and_the_request_goes_on(
    place: Place, make: Callable[[], BaseException], text: str, in_thread: bool
) -> None:
    async def wrong() -> Any:
        _raise(make())

    def wrong_sync() -> Any:
        _raise(make())

    definition = RISKY(wrong_sync if in_thread else wrong)
    async with place.create([reply("", call(definition.name)), reply("done")], tools=[definition]) as session:
        await session.send("hello")
        told = await place.told(session.stream())
    ((outcome, output),) = results(told)
    assert outcome == "failed"
    assert text in output
    assert told[-1].content == "done"


def _endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


RETURNED: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing": (lambda: None, "(no result)"),
    "an empty text": (lambda: "", "(empty text)"),
    "NUL": (lambda: "a\0b", "a\0b"),
    "a lone surrogate": (lambda: "a\ud83d", "a\ufffd"),
    "bytes": (lambda: b"W\0s\0", "W\0s\0"),
    "not a number": (lambda: {"a": [float("nan")]}, "$.a[0]"),
    "an object": (lambda: {"a": [{"b": object()}]}, "$.a[0].b"),
    "endless": (_endless, "$"),
    "a huge number": (lambda: 2**70, str(2**70)),
    "a set": (lambda: {"x"}, "x"),
    "a page and more": (lambda: "x" * 2_000_000 + "THE END", "THE END"),
}


@pytest.mark.parametrize(("make", "text"), RETURNED.values(), ids=RETURNED.keys())
async def test_a_tool_that_returned_has_succeeded_whatever_it_returned(
    place: Place, make: Callable[[], Any], text: str
) -> None:
    @SAFE
    async def make_something() -> Any:
        return make()

    script = [reply("", call("make_something")), reply("done")]
    async with place.create(script, tools=[make_something]) as session:
        await session.send("hello")
        told = await place.told(session.stream())
    ((outcome, output),) = results(told)
    assert outcome == "completed"
    assert text in output
    for digest in data(await place.events(), "tool_completed")[0].blobs:
        async with place.reader() as reader:
            assert await reader.blob(digest) is not None


async def test_people_may_be_shown_something_else_than_the_model(place: Place) -> None:
    @SAFE
    async def chart() -> ToolOutput:
        return ToolOutput("12 rows", display={"rows": 12}, messages=["look at row 3"])

    async with place.create([reply("", call("chart")), reply("done")], tools=[chart]) as session:
        await session.send("hello")
        told = await place.told(session.stream())
    shown = next(event for event in told if isinstance(event, se.ToolResult))
    assert (shown.output, shown.display) == ("12 rows", {"rows": 12})
    assert data(await place.events(), "tool_completed")[0].messages == ["look at row 3"]


async def test_a_sync_tool_runs_in_a_thread_and_shows_its_progress(place: Place) -> None:
    @SAFE
    def work(ctx: ToolContext) -> bool:
        ctx.progress_sync(50)
        return threading.current_thread() is threading.main_thread()

    async with place.create([reply("", call("work")), reply("done")], tools=[work]) as session:
        await session.send("hello")
        told = await place.told(session.stream())
    assert results(told) == [("completed", "false")]
    assert [event.progress for event in told if isinstance(event, se.ToolProgress)] == [50]


# --- the time is over --------------------------------------------------------------------------------


async def test_a_harmless_tool_that_takes_too_long_has_failed(place: Place) -> None:
    @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.IDEMPOTENT, timeout_s=0.01)
    async def slow() -> None:
        await anyio.sleep_forever()

    async with place.create([reply("", call("slow")), reply("done")], tools=[slow]) as session:
        await session.send("hello")
        told = await place.told(session.stream())
    ((outcome, output),) = results(told)
    assert outcome == "failed"
    assert "0.01 s" in output


async def test_nobody_knows_what_a_risky_tool_did_whose_time_was_over(any_place: Place) -> None:
    @tool(kind=ToolKind.READ_ONLY, timeout_s=0.01)
    async def slow() -> None:
        await anyio.sleep_forever()

    told: list[Any] = []
    async with any_place.create([reply("", call("slow")), reply("no")], tools=[slow]) as session:
        await session.send("hello")
        stream = session.stream()
        with pytest.raises(RecoveryRequired) as required:
            await drained(stream, told)
        with pytest.raises(RecoveryRequired):
            await session.send("again")
        with pytest.raises(RecoveryRequired):
            await session.wait_idle()
    assert required.value.plan.items[0].action == "reconcile_tool_outcomes"
    assert (told[-1].outcome, told[-1].is_error) == ("unknown", True)
    async with any_place.coordinator() as coordinator:
        await coordinator.reconcile_tool_outcome(
            "r1.t1.a1.c0", outcome="completed", evidence="the log says so", output="it was done"
        )
    provider = ScriptedProvider([reply("done")])
    async with any_place.resume(provider, tools=[slow]) as session:
        assert (await any_place.told(session.stream()))[-1].content == "done"
    assert provider.sent[0].messages[-1]["content"] == "it was done"


async def test_a_harmless_thread_that_goes_on_is_given_up_and_the_call_run_again(place: Place) -> None:
    release, runs = threading.Event(), {}

    @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE, timeout_s=0.5)
    def stuck(ctx: ToolContext) -> str:
        runs[ctx.run] = ctx.idempotency_key
        if ctx.run == 1:
            release.wait(20)
        return "second time lucky"

    async with place.create([reply("", call("stuck")), reply("done")], tools=[stuck]) as session:
        await session.send("hello")
        told = await place.told(session.stream())
        release.set()
    assert results(told) == [("unknown", results(told)[0][1]), ("completed", "second time lucky")]
    assert runs[2] == runs.get(1, runs[2])

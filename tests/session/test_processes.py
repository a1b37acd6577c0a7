"""Processes that tools start: they end with their call, and everything they have started with them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from domain.errors import InvalidOptions, LeaseLost
from domain.values import Interrupt, SideEffect, ToolKind
from minutebook.session import Session
from minutebook.testing.scripted import call, reply
from minutebook.tool_context import ToolContext
from minutebook.tool_definition import ToolDefinition, tool
from tests.session.harness import Place, data
from tests.session.leasing import odd_place, until

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

#: Starts another process, says which two there are, and goes on (or ends, where it is told to).
PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=subprocess.DEVNULL)
print(os.getpid(), child.pid, flush=True)
if sys.argv[1] == "stay":
    child.wait()
"""
#: The same, deaf to being asked to end.
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + PARENT


def lives(process_id: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@dataclass
class Family:
    """What was started: every number is a process that must not survive."""

    numbers: list[int] = field(default_factory=list)

    async def born(self, process: Any) -> None:
        """Take the numbers that a parent tells."""
        text = b""
        while not text.endswith(b"\n"):
            text += await process.stdout.receive()
        self.numbers += map(int, text.split())
        assert all(map(lives, self.numbers))

    async def has_ended(self) -> None:
        """Return once nothing of it is left. A killed process takes a moment to be gone."""
        assert self.numbers
        await until(lambda: not any(map(lives, self.numbers)))


@pytest.fixture
async def family() -> AsyncIterator[Family]:
    """What the tools of a test start."""
    family = Family()
    yield family
    for number in family.numbers:
        assert not lives(number)


def starting(family: Family, program: str = PARENT, *, stay: bool = True, **options: Any) -> ToolDefinition:
    """A tool that starts a process, and then waits for it or ends with it behind it."""

    @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE, interrupt=Interrupt.CANCEL)
    async def work(ctx: ToolContext) -> str:
        argv = [sys.executable, "-c", program, "stay" if stay else "go"]
        process = await ctx.start_process(argv, **options)
        await family.born(process)
        await process.wait()
        return "over"

    return work


Ending = Callable[[Session], Any]


async def _abort(session: Session) -> None:
    await session.abort()


async def _leave(session: Session) -> None:
    await session.close()


async def _close(session: Session) -> None:
    await session.close(final=True)


@pytest.mark.parametrize("program", [PARENT, DEAF], ids=["", "deaf"])
@pytest.mark.parametrize("end", [_abort, _leave, _close])
async def test_nothing_survives_the_end_of_its_call(
    place: Place, family: Family, end: Ending, program: str
) -> None:
    options: dict[str, Any] = {"tools": [starting(family, program)], "abort_timeout_s": 0.2}
    async with place.create([reply("", call("work"))], **options) as session:
        await session.send("hello")
        await until(lambda: len(family.numbers) == 2)
        await end(session)
        await family.has_ended()


async def test_what_a_process_leaves_behind_ends_with_the_call(place: Place, family: Family) -> None:
    tools = [starting(family, stay=False)]
    async with place.create([reply("", call("work")), reply("done")], tools=tools) as session:
        assert (await session.run("hello")).content == "done"
        await family.has_ended()


async def test_a_call_out_of_time_ends_its_processes(place: Place, family: Family) -> None:
    @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE, timeout_s=0.01)
    async def slow(ctx: ToolContext) -> None:
        with anyio.CancelScope(shield=True):  # its time is over when they are there, however long that takes
            process = await ctx.start_process([sys.executable, "-c", DEAF, "stay"])
            await family.born(process)
        await anyio.sleep_forever()

    async with place.create([reply("", call("slow")), reply("done")], tools=[slow]) as session:
        await session.run("hello")
        await family.has_ended()


async def test_a_tool_that_is_told_to_stop_sees_its_process_end_and_says_so(
    place: Place, family: Family
) -> None:
    """The group is asked first, so a call that waits for its program has an end of its own."""
    async with place.create([reply("", call("work"))], tools=[starting(family)]) as session:
        await session.send("hello")
        await until(lambda: len(family.numbers) == 2)
        await session.close()
        await family.has_ended()
    assert (await place.types())[-1] == "tool_completed"


async def test_a_lost_lease_kills_every_group_and_nothing_more_is_started(family: Family) -> None:
    place, renewals, clock = odd_place()
    refused: list[str] = []

    @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE)
    async def work(ctx: ToolContext) -> None:
        for background in (False, True):
            process = await ctx.start_process([sys.executable, "-c", DEAF, "stay"], background=background)
            await family.born(process)
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True), pytest.raises(LeaseLost) as told:
                await ctx.start_process(["sleep", "600"])
            refused.append(told.value.code)

    async with place.create([reply("", call("work"))], tools=[work]) as session:
        await session.send("hello")
        await until(lambda: len(family.numbers) == 4)
        renewals.how = "fail"
        clock.seconds = 29
        with pytest.raises(LeaseLost):
            await session.wait_idle()
        await family.has_ended()
        await until(lambda: refused == ["DURABLE_EXECUTION_LEASE_LOST"])
    assert (await place.types())[-1] == "tool_started"
    renewals.opened.set()


async def test_a_background_process_goes_on_until_it_is_stopped(place: Place, family: Family) -> None:
    def behind(name: str) -> ToolDefinition:
        @tool(name=name, kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE)
        async def work(ctx: ToolContext) -> str:
            process = await ctx.start_process([sys.executable, "-c", DEAF, "stay"], background=True)
            await family.born(process)
            return "started"

        return work

    script = [reply("", call("one")), reply("", call("two")), reply("done")]
    options: dict[str, Any] = {"tools": [behind("one"), behind("two")], "abort_timeout_s": 0.05}
    async with place.create(script, **options) as session:
        assert (await session.run("hello")).content == "done"
        one, two = session.background.list()
        assert (one.id, one.tool_id, one.process_id) == ("r1.t1.a1.c0.p1", "r1.t1.a1.c0", family.numbers[0])
        assert all(map(lives, family.numbers))
        assert await session.background.stop(one.id)
        assert not await session.background.stop(one.id)
        assert session.background.list() == (two,)
        await until(lambda: not any(map(lives, family.numbers[:2])))
        assert all(map(lives, family.numbers[2:]))
    await family.has_ended()


async def test_a_process_gets_the_environment_of_the_context_and_no_other(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_HOST", "secret")

    @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE)
    async def show(ctx: ToolContext) -> str:
        process = await ctx.start_process(["env"], environment={"MORE": "2"})
        assert process.stdout is not None
        told = b"".join([part async for part in process.stdout])
        return told.decode()

    context = {"environment": {"GIVEN": "1"}}
    script = [reply("", call("show")), reply("done")]
    async with place.create(script, tools=[show], context=context) as session:
        await session.run("hello")
    (result,) = data(await place.events(), "tool_completed")
    assert sorted(result.output.split()) == ["GIVEN=1", "MORE=2"]


@pytest.mark.parametrize("argv", ["ls -l", [], ["ls", 1], b"ls"])
async def test_a_command_is_a_list_that_no_shell_reads(place: Place, argv: Any) -> None:
    @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE)
    async def work(ctx: ToolContext) -> str:
        with pytest.raises(InvalidOptions, match="argv"):
            await ctx.start_process(argv)
        return "refused"

    async with place.create([reply("", call("work")), reply("done")], tools=[work]) as session:
        await session.run("hello")
    assert (await place.types()).count("tool_completed") == 1


async def test_a_context_without_a_session_starts_nothing(tmp_path: Path) -> None:
    context = ToolContext("s", "r1", "r1.t1", "r1.t1.a1.c0", "key")
    with pytest.raises(InvalidOptions, match="context"):
        await context.start_process(["true"], stdout=subprocess.DEVNULL)

"""Programs that get to one moment of a session and stay there, and one that goes on from it.

For leaving a session in every way but a kill, and for two workers on one file.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import anyio

import minutebook as mb
from adapters.sqlite_store import SqliteStore
from adapters.system import SystemClock
from domain.model_ports import Text
from minutebook.testing.crash import Tell, Witness
from minutebook.testing.scripted import Attempt, Gate, ScriptedProvider, Sent, call, reply
from tests.crash.program import CONFLICT, decisions
from tests.crash.script import SESSION

witnesses: list[Witness] = []


def effect(name: str, ctx: mb.ToolContext) -> None:
    """Have an effect."""
    witnesses[0].record(ctx.tool_id, name, ctx.run, ctx.idempotency_key)


@mb.tool(check=lambda arguments: mb.Verdict.ALLOW)
async def hold(ctx: mb.ToolContext) -> str:
    """Has an effect that must not be repeated, and never ends by itself."""
    effect("hold", ctx)
    await ctx.progress("holding")
    await anyio.sleep_forever()
    return "unreachable"


@mb.tool(check=lambda arguments: mb.Verdict.ALLOW)
def heed(ctx: mb.ToolContext) -> str:
    """Has an effect that must not be repeated, and ends when it is told to."""
    effect("heed", ctx)
    ctx.progress_sync("heeding")
    ctx.stopping.wait()
    return "ended early"


@mb.tool(kind=mb.ToolKind.READ_ONLY, side_effect=mb.SideEffect.PURE)
async def gaze(ctx: mb.ToolContext) -> str:
    """Has no effect; the first run never ends."""
    await ctx.progress("gazing")
    if ctx.run == 1:
        await anyio.sleep_forever()
    return "nothing new"


@mb.tool
async def request(ctx: mb.ToolContext) -> str:
    """A person has to allow it."""
    effect("request", ctx)
    return "done as allowed"


class PipeGate(Gate):
    """A gate that another process opens, by writing to a named pipe."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    async def pass_through(self) -> None:
        """Wait for the other process."""
        self._reached.set()
        await anyio.Path(self._path).read_bytes()


#: By moment: the model's first answer, and what is told when the moment is there.
MOMENTS: dict[str, tuple[Attempt, type[mb.StreamEvent]]] = {
    "idle": (reply("Hello."), mb.Result),
    "model": ([Text("Let me think."), Gate()], mb.ContentDelta),
    "tool": (reply("", call("hold")), mb.ToolProgress),
    "tool that heeds": (reply("", call("heed")), mb.ToolProgress),
    "pure tool": (reply("", call("gaze")), mb.ToolProgress),
    "question": (reply("", call("request")), mb.InteractionOpened),
}


@dataclass(frozen=True, slots=True)
class ClockAhead:
    """A store's clock some hours from now: as if the whole host had gone on, all its clocks with it.

    Args:
        wall_only: only the wall clock is wrong, as if somebody had set it.
    """

    hours: float
    wall_only: bool = False

    @property
    def boot_id(self) -> str | None:
        """The boot that this host really had."""
        return SystemClock().boot_id

    def now(self) -> datetime:
        """The time in some hours."""
        return SystemClock().now() + timedelta(hours=self.hours)

    def monotonic(self) -> float:
        """Seconds, never going back."""
        ahead = timedelta(hours=0 if self.wall_only else self.hours)
        return SystemClock().monotonic() + ahead.total_seconds()


def config(answers: Callable[[Sent], Attempt]) -> mb.SessionConfig:
    """How every process opens the session."""
    return mb.SessionConfig(
        provider=ScriptedProvider(answers),
        model="scripted",
        tools=[hold, heed, gaze, request],
        abort_timeout_s=0.2,
    )


# --- what the server runs ---------------------------------------------------------------------


def stay(tell: Tell, journal: str, witness: str, moment: str, how: str, backend: str = "asyncio") -> None:
    """Create the session, get to the moment, and stay; or leave the block in one of two ways.

    Args:
        how: "stay" (until a signal), "stay, stopped by signals" (the same, inside
            `stop_on_signals`), "raise" or "return".
    """
    witnesses.append(Witness(witness))
    _tell_of_logs(tell)
    answer, sign = MOMENTS[moment]

    async def inside() -> None:
        store = SqliteStore(journal)
        async with mb.create_session(config(lambda _: answer), store=store, session_id=SESSION) as session:
            await session.send("begin", input_id="i-1")
            async for told in session.stream():
                if isinstance(told, sign):
                    break
            tell(at=moment)
            if how == "raise":
                raise LookupError("from inside the block")
            if how != "return":
                await anyio.sleep_forever()

    async def main() -> None:
        if how != "stay, stopped by signals":
            await inside()
            return
        async with mb.stop_on_signals():
            await inside()
        tell(after="the block")

    _run(main, backend)


def go_on(tell: Tell, journal: str, witness: str, hours_ahead: float = 0.0, wall_only: bool = False) -> None:
    """Open the session again, decide what has to be decided, and let it run until it is idle."""
    witnesses.append(Witness(witness))

    async def main() -> None:
        store = SqliteStore(journal, clock=ClockAhead(hours_ahead, wall_only))
        try:
            while not await _gone_on(tell, store):
                await _decide(tell, store)
        except mb.errors.LeaseConflict as conflict:
            tell(conflict=str(conflict))
            sys.exit(CONFLICT)

    anyio.run(main)


def answer_late(tell: Tell, journal: str, witness: str, pipe: str) -> None:
    """Create the session; the model's answer, which runs a tool, comes when the pipe is written to."""
    witnesses.append(Witness(witness))

    async def main() -> None:
        answer: Attempt = [PipeGate(pipe), *reply("", call("hold"))]
        store = SqliteStore(journal)
        async with mb.create_session(config(lambda _: answer), store=store, session_id=SESSION) as session:
            await session.send("begin", input_id="i-1")
            tell(lease=session.lease and session.lease.token)
            try:
                async for _ in session.stream():
                    pass
            except mb.errors.Fenced as fenced:
                tell(fenced=fenced.code)

    anyio.run(main)


def take_over(tell: Tell, journal: str, witness: str, hours_ahead: float) -> None:
    """Take the session's lease, write nothing, and stay."""

    async def main() -> None:
        store = SqliteStore(journal, clock=ClockAhead(hours_ahead))
        async with mb.open_coordinator(SESSION, store=store) as coordinator:
            tell(lease=coordinator.plan.lease and coordinator.plan.lease.token)
            await anyio.sleep_forever()

    anyio.run(main)


# --- inside ------------------------------------------------------------------------------------


def _run(main: Callable[[], Awaitable[None]], backend: str) -> None:
    if backend == "asyncio":
        asyncio.run(main())  # type: ignore[arg-type]  # as applications do it
    else:
        anyio.run(main, backend=backend)


def _tell_of_logs(tell: Tell) -> None:
    class Teller(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell(log=record.getMessage())

    logging.getLogger("minutebook").addHandler(Teller())


async def _gone_on(tell: Tell, store: SqliteStore) -> bool:
    try:
        async with mb.resume_session(SESSION, config(lambda _: reply("Goodbye.")), store=store) as session:
            tell(lease=session.lease and session.lease.token)
            for question in session.interactions:
                await session.respond(question.id, mb.Approve(), digest=question.digest)
            await session.wait_idle()
    except mb.RecoveryRequired:
        return False
    return True


async def _decide(tell: Tell, store: SqliteStore) -> None:
    async with mb.open_coordinator(SESSION, store=store) as coordinator:
        for item in decisions(coordinator.plan):
            tell(decided=item.action, id=item.subject)
            if item.action == mb.Action.RECONCILE_MODEL_OUTCOME:
                await coordinator.reconcile_model_outcome(item.subject, outcome="lost", evidence="it died")
            else:
                await coordinator.reconcile_tool_outcome(
                    item.subject, outcome="completed", evidence="the witness has it", output="held"
                )

"""Processes around one session: one that stops itself at a commit, one that hands over, one that waits."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import anyio
import anyio.lowlevel

import minutebook as mb
from adapters.sqlite_store import SqliteStore
from minutebook.testing.crash import KillAt, Tell, Witness, loop_turns
from minutebook.testing.scripted import Attempt, Gate, ScriptedProvider, Sent, call, reply

SESSION = "s1"


def config(
    witness: str, answers: Callable[[Sent], Attempt] | None = None, ttl_s: float = 30.0
) -> mb.SessionConfig:
    """How every process opens the session: a tool whose effect must not happen twice."""
    effects = Witness(witness)

    @mb.tool(check=lambda arguments: mb.Verdict.ALLOW)
    async def pay(ctx: mb.ToolContext) -> str:
        """Has an effect."""
        effects.record(ctx.tool_id, os.getpid())
        return "paid"

    def usual(sent: Sent) -> Attempt:
        effects.record("asked", os.getpid())
        return reply("done") if sent.messages[-1]["role"] == "tool" else reply("", call("pay"))

    return mb.SessionConfig(
        ScriptedProvider(answers or usual),
        model="scripted",
        tools=[pay],
        abort_timeout_s=0.2,
        on_lost_attempt="retry",
        lease=mb.LeaseConfig(ttl_s=ttl_s),
    )


class StopsAt:
    """A probe that stops its process after a commit, by its number; it is continued from outside."""

    def __init__(self, commit: int, tell: Tell) -> None:
        self._left, self._tell = commit, tell

    def __call__(self, point: str) -> None:
        if point == "after_commit":
            self._left -= 1
            if self._left == 0:
                self._tell(stopping=threading.current_thread().name)
                os.kill(os.getpid(), signal.SIGSTOP)


def run(tell: Tell, journal: str, witness: str, stop_at: int, ttl_s: float) -> None:
    """Create the session and run one request; the process is stopped after a commit."""

    async def main() -> None:
        store = SqliteStore(journal, probe=StopsAt(stop_at, tell))
        settings = config(witness, ttl_s=ttl_s)
        async with mb.create_session(settings, store=store, session_id=SESSION) as session:
            try:
                await session.send("hello", input_id="i-1")
                await session.wait_idle()
                tell(ended="idle")
            except mb.errors.Fenced as fenced:
                tell(ended=fenced.code)

    anyio.run(main)


def go_on(tell: Tell, journal: str, witness: str) -> None:
    """Take the session over as soon as it is free, and let it run as far as it goes by itself."""

    async def main() -> None:
        tell(waiting=True)
        while True:
            try:
                await _gone_on(tell, journal, witness)
                return
            except mb.errors.LeaseConflict:
                await anyio.sleep(0.01)

    anyio.run(main)


async def _gone_on(tell: Tell, journal: str, witness: str) -> None:
    try:
        async with mb.resume_session(SESSION, config(witness), store=SqliteStore(journal)) as session:
            tell(token=session.lease and session.lease.token)
            await session.wait_idle()
            tell(ended="idle")
    except mb.RecoveryRequired as required:
        tell(ended=required.plan.items[0].action)


def hand_over(tell: Tell, journal: str, witness: str, kill_at: int, what: str) -> None:
    """Hand the session over in the middle of a request; die at a point of that.

    Args:
        what: "idle", "model" (is answering) or "tool" (is running, and heeds).
    """
    gate = Gate()

    async def main() -> None:
        probe = KillAt(0, tell, loop_turns())
        settings = _busy(witness, what, gate)
        store = SqliteStore(journal, probe=probe)
        async with mb.create_session(settings, store=store, session_id=SESSION) as session:
            if what == "idle":
                await session.run("hello")
            else:
                await session.send("hello", input_id="i-1")
                await gate.reached()
                await anyio.wait_all_tasks_blocked()
            with_passed = len(probe.passed)
            probe.number = with_passed + kill_at
            handoff = await session.suspend_for_handoff()
            tell(handed_over=handoff.head_sequence, points=len(probe.passed) - with_passed)

    anyio.run(main)


def _busy(witness: str, what: str, gate: Gate) -> mb.SessionConfig:
    if what == "idle":
        return config(witness, lambda _: reply("done"))
    if what == "model":
        return config(witness, lambda _: [gate, *reply("never")])
    effects = Witness(witness)

    @mb.tool(name="pay", check=lambda arguments: mb.Verdict.ALLOW)
    async def pay(ctx: mb.ToolContext) -> str:
        """Has an effect, and ends when it is told to."""
        effects.record(ctx.tool_id, os.getpid())
        gate._reached.set()
        while not ctx.cancelled:
            await anyio.lowlevel.checkpoint()
            await anyio.sleep(0.001)
        return "paid"

    return mb.SessionConfig(
        ScriptedProvider(lambda _: reply("", call("pay"))), model="scripted", tools=[pay], abort_timeout_s=5
    )


def hold(tell: Tell, journal: str, witness: str) -> None:
    """Open the session, wait for a line from outside, hand it over."""

    async def main() -> None:
        settings = config(witness, lambda _: [Gate(), *reply("never")])
        async with mb.create_session(settings, store=SqliteStore(journal), session_id=SESSION) as session:
            await session.send("hello", input_id="i-1")
            async for event in session.stream():
                if isinstance(event, mb.TurnStart):
                    break
            with anyio.open_signal_receiver(signal.SIGUSR1) as received:
                tell(holding=True)
                async for _ in received:
                    break
            handoff = await session.suspend_for_handoff()
            tell(handed_over=handoff.head_sequence)

    anyio.run(main)

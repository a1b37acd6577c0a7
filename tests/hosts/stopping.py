"""Processes of the lease tests: a worker that stops at one moment, one that follows, one that looks.

What the fork server imports. A worker stops itself with SIGSTOP, so the moment is exact: every
thread of it, the one that keeps the lease among them, stands still until somebody sends SIGCONT.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

import minutebook as mb
from adapters.sqlite_journal import SqliteJournal
from adapters.sqlite_store import SqliteStore
from adapters.system import SystemClock
from domain.ports import Batch, Holder, Journal, LeaseStore, Receipt, StoreDescription
from minutebook.testing.crash import Tell, Witness
from minutebook.testing.scripted import Attempt, Gate, ScriptedProvider, Sent, call, reply
from recovery.plan import RecoveryPlan

SESSION: Final = "s-stopped"
TTL_S: Final = 1.0
#: How long the follower's store waits for a lock: longer than the lease, so that it has run out.
STORE_TIMEOUT_S: Final = 1.2
#: How often the follower asks: each time it opens the store, which is what most of its work is.
POLL_S: Final = 0.1
#: Moments at which a worker can be stopped.
MOMENTS: Final = (
    "idle",
    "append",
    "transaction",
    "committed",
    "model",
    "before effect",
    "after effect",
    "heartbeat",
    "handoff",
)


#: Two of them: around the COMMIT, in the thread that carries it out.
IN_COMMIT: Final = ("transaction", "committed")


# --- the clock of a host -----------------------------------------------------------------


@dataclass(slots=True)
class Wall:
    """How far this process's wall clock is off, as if it were another host's."""

    hours: float = 0.0

    def set(self, hours: float) -> None:
        """Let every clock of the process be off from now on."""
        self.hours = hours
        SystemClock.now = _now  # type: ignore[method-assign]  # of a real clock, for this process


WALL: Final = Wall()


def _now(self: SystemClock) -> datetime:
    return datetime.now(UTC) + timedelta(hours=WALL.hours)


# --- stopping ----------------------------------------------------------------------------


@dataclass(slots=True)
class Stop:
    """The one moment at which a process stops itself.

    Args:
        moment: one of `MOMENTS`; "" never.
        step_hours: what its wall clock jumps by while it stands still.
    """

    tell: Tell
    moment: str
    step_hours: float = 0.0
    #: Set while the commit that the moment is about is under way.
    armed: str = ""
    awake: bool = False
    #: Held by the thread that writes, while it does. Whoever stops then stands in a transaction, too.
    writing: Any = field(default_factory=threading.Lock)

    def at(self, moment: str) -> None:
        """Stop here if this is the moment."""
        if moment != self.moment or self.awake:
            return
        # A renewal or another task's commit may be under way. Around a COMMIT it is the writer that stops.
        with nullcontext() if moment in IN_COMMIT else self.writing:
            self._stand_still(moment)

    def _stand_still(self, moment: str) -> None:
        self.tell(at=moment, stopped=time.monotonic())
        # To this thread: the process would be stopped by whichever thread the kernel wakes, too late.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        self.awake = True
        if self.step_hours:
            WALL.set(WALL.hours + self.step_hours)
        self.tell(awake=moment)

    def probe(self, point: str) -> None:
        """The store's probe: around the COMMIT, in the thread that carries it out."""
        if self.armed == point:
            self.armed = ""
            self.at(IN_COMMIT[1] if point == "after_commit" else IN_COMMIT[0])


class StoppingGate(Gate):
    """The model's answer is half there."""

    def __init__(self, stop: Stop) -> None:
        super().__init__()
        self._stop = stop

    async def pass_through(self) -> None:
        """Stop here; or wait, with the whole process busy with nothing, for the lease to be renewed."""
        self._stop.at("model")
        while self._stop.moment == "heartbeat" and not self._stop.awake:  # noqa: ASYNC110  # set by a thread
            await anyio.sleep(POLL_S)


class StoppingStore:
    """A store whose owner may stop on the way into it."""

    durable = True

    def __init__(self, inner: StoreDescription, stop: Stop) -> None:
        self._inner, self._stop = inner, stop

    @asynccontextmanager
    async def open(self, *, owner_id: str = "local") -> AsyncIterator[Journal]:
        """The inner store's journal."""
        async with self._inner.open(owner_id=owner_id) as journal:
            made: Any = _StoppingJournal(journal, self._stop)
            if isinstance(journal, SqliteJournal):
                self._stop.writing = journal.file.writer.busy
            yield made


class _StoppingJournal:
    def __init__(self, inner: Journal, stop: Stop) -> None:
        self._inner, self._stop = inner, stop
        self.leases: Any = _StoppingLeases(inner.leases, stop)

    async def commit(self, batch: Batch) -> Receipt:
        types = {event.topic.partition("@")[0] for event in batch.events}
        if "handoff_completed" in types:
            self._stop.at("handoff")
        if "model_request_completed" in types:
            self._stop.at("append")
            self._stop.armed = {"transaction": "before_commit", "committed": "after_commit"}.get(
                self._stop.moment, ""
            )
        return await self._inner.commit(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _StoppingLeases:
    def __init__(self, inner: LeaseStore, stop: Stop) -> None:
        self._inner, self._stop = inner, stop

    async def renew(self, *arguments: Any) -> Any:
        self._stop.at("heartbeat")
        return await self._inner.renew(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


# --- the application -----------------------------------------------------------------------


@dataclass(slots=True)
class Agent:
    """One worker's model and tool. Each request pays once, then answers."""

    name: str
    witness: Witness
    stop: Stop
    holder: Holder | None = field(default=None)

    def record(self, *words: object) -> None:
        """What happened, by whom, and whether that was after it had stood still."""
        self.witness.record(*words, self.name, "awake" if self.stop.awake else "")

    def config(self) -> mb.SessionConfig:
        """How this worker opens the session."""

        @mb.tool
        async def pay(ctx: mb.ToolContext) -> str:
            """Has an effect that must not be repeated."""
            self.stop.at("before effect")
            self.record(ctx.tool_id, "pay")
            self.stop.at("after effect")
            return "paid"

        return mb.SessionConfig(
            provider=ScriptedProvider(self.answer),
            model="scripted",
            tools=[pay],
            permission_mode=mb.PermissionMode.YOLO,
            on_lost_attempt="retry",
            abort_timeout_s=0.2,
            lease=mb.LeaseConfig(ttl_s=TTL_S, store_timeout_s=STORE_TIMEOUT_S, worker_id=self.name),
        )

    def answer(self, sent: Sent) -> Attempt:
        """A call first, text after its result."""
        self.record(sent.attempt_id, "asked")
        if sent.messages[-1]["role"] == "tool":
            return reply("Done.")
        piece, *rest = reply("One moment.", call("pay"))
        return [piece, StoppingGate(self.stop), *rest]


def store_of(journal: str, stop: Stop) -> StoreDescription:
    """A file by its path, a database by its address."""
    if "://" in journal:
        return mb.postgres(journal, probe=stop.probe)
    return SqliteStore(journal, probe=stop.probe, store_timeout_s=STORE_TIMEOUT_S)


# --- what the server runs ----------------------------------------------------------------------


def stopped(
    tell: Tell, journal: str, witness: str, moment: str, hours: float = 0.0, step_hours: float = 0.0
) -> None:
    """Create the session, work, stop at the moment; once awake, go on as if nothing had been."""
    WALL.set(hours)
    stop = Stop(tell, moment, step_hours)
    agent = Agent("first", Witness(witness), stop)

    async def main() -> None:
        store: Any = StoppingStore(store_of(journal, stop), stop)
        async with mb.create_session(agent.config(), store=store, session_id=SESSION) as session:
            await _work(tell, session, stop)

    _told(tell, main)


async def _work(tell: Tell, session: mb.Session, stop: Stop) -> None:
    for number in (1, 2):
        tell(receipt=(await session.send(f"order {number}", input_id=f"i-{number}")).input_id)
    await session.wait_idle()
    stop.at("idle")
    tell(receipt=(await session.send("order 3", input_id="i-3")).input_id)
    if stop.moment == "handoff":
        await session.suspend_for_handoff()
        return
    await session.wait_idle()


def _told(tell: Tell, main: Any) -> None:
    """Run it; an end for the want of authority, or because a call stood still too long, is told."""
    try:
        anyio.run(main)
    except (mb.errors.Fenced, mb.errors.HandoffError, mb.errors.StoreFailure) as error:
        tell(refused=error.code)


def follow(
    tell: Tell, journal: str, witness: str, hours: float = 0.0, pipe: str = "", name: str = "second"
) -> None:
    """Take the session as soon as it can be had, and bring everything in it to its end.

    Args:
        pipe: once taken over, wait until somebody writes to this named pipe.
    """
    WALL.set(hours)
    stop = Stop(tell, "")
    follower = _Follower(tell, store_of(journal, stop), Agent(name, Witness(witness), stop), pipe)
    anyio.run(follower.run)


@dataclass(slots=True)
class _Follower:
    tell: Tell
    store: StoreDescription
    agent: Agent
    pipe: str

    async def run(self) -> None:
        while True:
            began = time.monotonic()
            try:
                async with mb.resume_session(SESSION, self.agent.config(), store=self.store) as session:
                    await self._taken()
                    await session.wait_idle()
                    return
            except mb.errors.LeaseConflict:
                self.tell(conflict=began)
            except mb.errors.StoreTimeout as timeout:
                self.tell(timeout=timeout.code)
            except mb.errors.SessionNotFound:
                pass
            except mb.RecoveryRequired:
                try:
                    await self._decide()
                except mb.errors.StoreTimeout as timeout:
                    self.tell(timeout=timeout.code)
            self.tell(tried=began)
            await anyio.sleep(POLL_S)

    async def _taken(self) -> None:
        self.tell(taken=time.monotonic(), tried=True, kept_waiting=kept_waiting_s())
        if self.pipe:
            pipe, self.pipe = self.pipe, ""
            await anyio.to_thread.run_sync(_read_one, pipe)

    async def _decide(self) -> None:
        try:
            async with mb.open_coordinator(SESSION, store=self.store, actor_id="operator") as coordinator:
                await self._taken()
                await self._settle(coordinator, coordinator.plan)
        except (mb.errors.LeaseConflict, mb.errors.LeaseLost):
            return

    async def _settle(self, coordinator: mb.RecoveryCoordinator, plan: RecoveryPlan) -> None:
        paid = {line[0] for line in self.agent.witness.lines() if line[1] == "pay"}
        for item in plan.items:
            if item.action == mb.Action.RECONCILE_TOOL_OUTCOMES:
                what = "completed" if item.subject in paid else "cancelled"
                await coordinator.reconcile_tool_outcome(item.subject, outcome=what, evidence="the witness")


def kept_waiting_s() -> float:
    """How long the threads of this process were ready to run, and the machine was busy with others."""
    waited = 0
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it ended meanwhile
            waited += int((thread / "schedstat").read_text().split()[1])
    return waited / 1e9


def _read_one(pipe: str) -> None:
    with open(pipe, "rb") as file:
        file.read(1)


def wait_free(tell: Tell, journal: str, hours: float = 0.0) -> None:
    """Look until nobody holds the session any more. Takes nothing."""
    WALL.set(hours)
    actions = [action.value for action in mb.Action]

    async def main() -> None:
        async with store_of(journal, Stop(tell, "")).open() as opened:
            while not await opened.leases.free(actions):  # noqa: ASYNC110  # another process's doing
                await anyio.sleep(POLL_S)

    anyio.run(main)

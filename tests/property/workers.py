"""Workers of one session in one process, under a clock and a model that a machine moves.

A worker here is an open session with a lease and tools of its own, and its own way to the store
that all of them share (`shared.py`). What it does waits at a gate until the machine lets it go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import count
from subprocess import DEVNULL, PIPE
from typing import Any, cast

import anyio
from anyio.abc import TaskStatus

from adapters.apart import begin_apart
from domain import catalogue
from domain.envelope import SALT_BYTES, Fence
from domain.errors import LeaseLost, MinutebookError
from domain.model_ports import ModelProvider
from domain.ports import Holder, Journal, LeaseRow, LeaseStore, LeaseTimes
from domain.values import Interrupt, SideEffect, ToolKind
from minutebook.config import SessionConfig
from minutebook.lease_config import LeaseConfig
from minutebook.opening import OpenSession, World
from minutebook.session import Session
from minutebook.testing.clock import ManualClock
from minutebook.testing.faulty_store import Fault, FaultyStore
from minutebook.testing.scripted import Attempt, Gate, ScriptedProvider, Sent, Step, call, fail, reply
from minutebook.tool_context import ToolContext
from minutebook.tool_definition import tool
from recovery.plan import RecoveryRequired
from tests.property.shared import Shared, Way

TTL_S = 30
#: What a tool that does not look has when its session is left, or its request aborted.
ABORT_S = 0.5
MAX_TURNS = 6
NON_IDEMPOTENT = "pay"

#: What a model may say, by a word of the machine's.
SAYS: dict[str, Attempt] = {
    "text": reply("done"),
    "look": reply("", call("look", {"what": "x"})),
    "put": reply("", call("put", {"what": "x"})),
    "pay": reply("", call("pay", {"what": "x"})),
    "two": reply("", call("look", {"what": "x"}), call("pay", {"what": "y"})),
    "watch": reply("", call("watch", {"what": "x"})),
    "malformed": reply("", call("pay", "{")),
    "overloaded": fail("overloaded", retry_after_s=5),
    "refused": fail("bad_request", retryable=False),
}


@dataclass(eq=False)
class Ids:
    """Ids in order: one seed, one run."""

    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def new(self, prefix: str) -> str:
        return f"{prefix}-{next(self.numbers):020d}"

    def salt(self) -> bytes:
        return next(self.numbers).to_bytes(SALT_BYTES, "big")


@dataclass(eq=False)
class Held:
    """A lease that is renewed when the machine says so. A dead worker's is not given back."""

    leases: LeaseStore
    session_id: str
    row: LeaseRow
    fence: Fence
    times: LeaseTimes
    clock: ManualClock
    good_until: float
    dead: bool = False
    released: bool = False
    error: LeaseLost | None = None
    _lost: anyio.Event = field(default_factory=anyio.Event)

    def check(self) -> None:
        if self.error is None and self.clock.monotonic() >= self.good_until:
            self._lose(LeaseLost(self.session_id, "its time is over"))
        if self.error is not None:
            raise self.error.with_traceback(None)

    async def lost(self) -> MinutebookError:
        await self._lost.wait()
        assert self.error is not None
        return self.error

    async def release(self) -> None:
        if not self.dead and not self.released:
            self.released = True
            await self.leases.release(self.session_id, self.fence)

    async def let_run_out(self) -> None:
        self.released = True

    async def beat(self) -> None:
        """Renew it, as the keeper's thread does."""
        asked = self.clock.monotonic()
        try:
            self.row = await self.leases.renew(self.session_id, self.fence, self.times.ttl_ms)
            self.good_until = asked + self.times.ttl_s
        except LeaseLost as error:
            self._lose(error)

    def _lose(self, error: LeaseLost) -> None:
        self.error = self.error or error
        self._lost.set()


@dataclass(eq=False)
class Keeper:
    """`domain.ports.LeaseKeeper` without a thread. `held` is the latest lease."""

    clock: ManualClock
    held: Held | None = None

    async def hold(self, leases: LeaseStore, session_id: str, holder: Holder, times: LeaseTimes) -> Held:
        asked = self.clock.monotonic()
        row = await leases.acquire(session_id, holder, times.ttl_ms)
        fence = Fence(holder.worker_id, holder.lease_id, row.token)
        self.held = Held(leases, session_id, row, fence, times, self.clock, asked + times.ttl_s)
        return self.held


@dataclass(eq=False)
class Waiting:
    """An attempt or a call that waits for the machine to say how it ends."""

    what: str
    ends: Any = None
    gate: Gate = field(default_factory=Gate)

    def end(self, ends: Any) -> None:
        self.ends = ends
        self.gate.open()


class Said(Sequence[Step]):
    """An attempt whose end is chosen while it runs."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting

    def __iter__(self) -> Iterator[Step]:
        yield self._waiting.gate
        yield from self._waiting.ends

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        raise IndexError(index)


@dataclass(eq=False)
class Effects:
    """What the world has seen: attempts that were sent, calls whose code began, and their effects.

    `early` and `stale` are never right: what began and was not on record as begun, and what began
    for a worker whose lease was over.
    """

    reader: Journal
    session_id: str
    sent: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)

    async def begins(self, tool_id: str) -> None:
        """A tool's code begins: that it does has to be on record."""
        self.begun.append(tool_id)
        after = 0
        while page := await self.reader.read(self.session_id, after=after):
            events = [catalogue.open_stored(row) for row in page]
            if any(e.type == "tool_started" and e.tool_id == tool_id for e in events):
                return
            after = page[-1].sequence
        self.early.append(tool_id)


class Worker:
    """One process's part: it opens the session, drives it, and may die or stand still.

    Args:
        lease_id: None: one of its own, as is usual.
    """

    def __init__(
        self,
        name: str,
        shared: Shared,
        clock: ManualClock,
        ids: Ids,
        effects: Effects,
        lease_id: str | None = None,
    ) -> None:
        self.name, self.clock, self.effects = name, clock, effects
        self.way = Way(shared)
        self.store = FaultyStore(self.way)
        self.keeper = Keeper(clock)
        self.session: Session | None = None
        self.attempts: list[Waiting] = []
        self.calls: list[Waiting] = []
        self.told: list[tuple[int, str]] = []
        self.watching = 0
        #: What it was told to do, and whose answer was not heard yet.
        self.asked: list[tuple[str, Future[Any], Callable[[Worker, Any], None]]] = []
        #: Those who listen to its session and wait for it.
        self.waits: list[Future[None]] = []
        self.leaving = anyio.Event()
        self._ids, self._lease_id = ids, lease_id

    @property
    def held(self) -> Held:
        """Its lease, once it has one."""
        assert self.keeper.held is not None
        return self.keeper.held

    def opening(self, *, resume: bool) -> OpenSession:
        """The session, not yet entered."""
        config = SessionConfig(
            provider=cast(Any, ScriptedProvider(self._next_attempt)),
            model="test-model",
            tools=[replace(each, function=self.watch if each is watch else self.do) for each in TOOLS],
            lease=LeaseConfig(ttl_s=TTL_S, worker_id=self.name, lease_id=self._lease_id),
            max_turns=MAX_TURNS,
            abort_timeout_s=ABORT_S,
        )
        world = World(
            self.store,
            lambda given: cast(ModelProvider, given),
            self.clock,
            self._ids,
            lambda worker_id, lease_id: Holder(worker_id or "", lease_id, boot_id=self.clock.boot_id),
            self.keeper,
            begin_apart,
        )
        return OpenSession(config, world, self.effects.session_id, resume=resume)

    async def live(self, *, resume: bool, task_status: TaskStatus[None]) -> None:
        """Open the session, and leave it when told to. Raises what the opening does."""
        async with self.opening(resume=resume) as self.session:
            task_status.started()
            await self.leaving.wait()

    async def listen(self) -> None:
        """Take everything that the session tells, for as long as it is open."""
        assert self.session is not None
        try:
            async for event in self.session.events():
                sequence = getattr(event, "sequence", None)
                if sequence is not None:
                    self.told.append((sequence, type(event).__name__))
        except MinutebookError:
            return  # it was fenced

    async def drive(self) -> None:
        """Have the session go on by itself until it rests; a resumed one does nothing before."""
        assert self.session is not None
        try:
            await self.session.wait_idle()
        except (MinutebookError, RecoveryRequired):
            return  # whoever opens it next is told

    def die(self) -> None:
        """From here on nothing of it reaches the store; it gives nothing back."""
        self.way.cut()
        if self.keeper.held is not None:
            self.keeper.held.dead = True

    def fail_next(self, fault: Fault) -> None:
        """The next commit goes wrong."""
        self.store.faults[len(self.store.batches) + 1] = fault

    def _next_attempt(self, sent: Sent) -> Attempt:
        self._begins(sent.attempt_id)
        self.effects.sent.append(sent.attempt_id)
        waiting = Waiting(sent.attempt_id)
        self.attempts.append(waiting)
        return Said(waiting)

    def _begins(self, what: str) -> None:
        lease = self.way.shared.model.sessions[self.effects.session_id].lease
        assert lease is not None
        if lease.token != self.held.fence.token or self.clock.monotonic() >= lease.until:
            self.effects.stale.append(what)

    async def do(self, what: str, ctx: ToolContext) -> str:
        """A tool whose end the machine chooses."""
        self._begins(ctx.tool_id)
        with self.way.shared.under_way():
            await self.effects.begins(ctx.tool_id)
        waiting = Waiting(ctx.tool_id)
        self.calls.append(waiting)
        await waiting.gate.pass_through()
        self.effects.done.append(ctx.tool_id)
        if waiting.ends == "raises":
            raise ValueError("it broke afterwards")
        return "did it"

    async def watch(self, what: str, ctx: ToolContext) -> str:
        """A tool that leaves a process running behind it."""
        self._begins(ctx.tool_id)
        with self.way.shared.under_way():
            await self.effects.begins(ctx.tool_id)
            await ctx.start_process(["cat"], stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, background=True)
        self.watching += 1
        return "watching"


# What the model is told of them; what they do is the worker's.


@tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE, interrupt=Interrupt.CANCEL)
async def look(what: str, ctx: ToolContext) -> str:
    """Look at something."""
    raise NotImplementedError


@tool(kind=ToolKind.WRITE, side_effect=SideEffect.IDEMPOTENT, category="files")
async def put(what: str, ctx: ToolContext) -> str:
    """Put something somewhere."""
    raise NotImplementedError


@tool(category="money")
async def pay(what: str, ctx: ToolContext) -> str:
    """Pay for something."""
    raise NotImplementedError


@tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.IDEMPOTENT)
async def watch(what: str, ctx: ToolContext) -> str:
    """Watch something."""
    raise NotImplementedError


TOOLS = (look, put, pay, watch)


# What may hold of a worker.


def exists(worker: Worker) -> bool:
    """Any worker."""
    return True


def is_asked(worker: Worker) -> bool:
    """Somebody has to answer a question."""
    return worker.session is not None and bool(worker.session.interactions)


def thinks(worker: Worker) -> bool:
    """A model was asked."""
    return bool(worker.attempts)


def works(worker: Worker) -> bool:
    """A tool runs."""
    return bool(worker.calls)


def watches(worker: Worker) -> bool:
    """A process goes on behind it."""
    return bool(worker.watching)

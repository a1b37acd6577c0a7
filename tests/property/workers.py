"""Two workers of one session in one process, under a clock and a model that a machine moves.

A worker here is an open session with a store, a lease and tools of its own; all of them share
one journal in memory. Everything it does waits at a gate until the machine lets it go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

import anyio
from anyio.abc import TaskStatus

from adapters.apart import begin_apart
from domain import catalogue
from domain.envelope import SALT_BYTES, Fence
from domain.errors import LeaseLost, MinutebookError
from domain.model_ports import ModelProvider
from domain.ports import Holder, Journal, LeaseRow, LeaseStore, LeaseTimes, StoreDescription
from domain.values import SideEffect, ToolKind
from minutebook.config import SessionConfig
from minutebook.lease_config import LeaseConfig
from minutebook.opening import OpenSession, World
from minutebook.session import Session
from minutebook.testing.clock import ManualClock
from minutebook.testing.faulty_store import Fault, FaultyStore
from minutebook.testing.scripted import Attempt, Gate, ScriptedProvider, Sent, Step, call, fail, reply
from minutebook.tool_context import ToolContext
from minutebook.tool_definition import ToolDefinition, tool
from recovery.plan import RecoveryRequired

SESSION = "s1"
TTL_S = 30
#: What a tool that does not look has when its session is left, or its request aborted.
ABORT_S = 0.5
#: More commits than a worker makes after its death.
FOR_GOOD = 100

#: What a model may say, by a word of the machine's.
SAYS: dict[str, Attempt] = {
    "text": reply("done"),
    "look": reply("", call("look", {"what": "x"})),
    "put": reply("", call("put", {"what": "x"})),
    "pay": reply("", call("pay", {"what": "x"})),
    "two": reply("", call("look", {"what": "x"}), call("pay", {"what": "y"})),
    "malformed": reply("", call("pay", '{"what": ')),
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
            self._lose(LeaseLost(SESSION, "its time is over"))
        if self.error is not None:
            raise self.error.with_traceback(None)

    async def lost(self) -> MinutebookError:
        await self._lost.wait()
        assert self.error is not None
        return self.error

    async def release(self) -> None:
        if not self.dead and not self.released:
            self.released = True
            await self.leases.release(SESSION, self.fence)

    async def let_run_out(self) -> None:
        self.released = True

    async def beat(self) -> None:
        """Renew it, as the keeper's thread does."""
        asked = self.clock.monotonic()
        try:
            self.row = await self.leases.renew(SESSION, self.fence, self.times.ttl_ms)
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
        self.held = Held(leases, row, fence, times, self.clock, asked + times.ttl_s)
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
    """What the world has seen: calls by id, in the order of their effects. `early` is never right."""

    reader: Journal
    done: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)

    async def begins(self, tool_id: str) -> None:
        """A tool's code begins: that it does has to be on record."""
        after, started = 0, False
        while page := await self.reader.read(SESSION, after=after):
            events = [catalogue.open_stored(row) for row in page]
            started = started or any(e.type == "tool_started" and e.tool_id == tool_id for e in events)
            after = page[-1].sequence
        if not started:
            self.early.append(tool_id)


class Worker:
    """One process's part: it opens the session, drives it, and may die.

    Args:
        inner: the journal's store, which outlives it.
    """

    def __init__(
        self, name: str, inner: StoreDescription, clock: ManualClock, ids: Ids, effects: Effects
    ) -> None:
        self.name, self.clock, self.effects = name, clock, effects
        self.store = FaultyStore(inner)
        self.keeper = Keeper(clock)
        self.session: Session | None = None
        self.attempts: list[Waiting] = []
        self.calls: list[Waiting] = []
        self.told: list[tuple[int, str]] = []
        self.leaving = anyio.Event()
        self._ids = ids

    def opening(self, *, resume: bool) -> OpenSession:
        """The session, not yet entered."""
        config = SessionConfig(
            provider=cast(Any, ScriptedProvider(self._next_attempt)),
            model="test-model",
            tools=self._tools(),
            lease=LeaseConfig(ttl_s=TTL_S, worker_id=self.name),
            max_turns=6,
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
        return OpenSession(config, world, SESSION, resume=resume)

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
        at = len(self.store.batches)
        self.store.faults = dict.fromkeys(range(at + 1, at + FOR_GOOD), Fault.LOST_ABSENT)
        if self.keeper.held is not None:
            self.keeper.held.dead = True

    def fail_next(self, fault: Fault) -> None:
        """The next commit goes wrong."""
        self.store.faults[len(self.store.batches) + 1] = fault

    def _next_attempt(self, sent: Sent) -> Attempt:
        waiting = Waiting(sent.attempt_id)
        self.attempts.append(waiting)
        return Said(waiting)

    async def _do(self, ctx: ToolContext) -> str:
        await self.effects.begins(ctx.tool_id)
        waiting = Waiting(ctx.tool_id)
        self.calls.append(waiting)
        await waiting.gate.pass_through()
        self.effects.done.append(ctx.tool_id)
        if waiting.ends == "raises":
            raise ValueError("it broke afterwards")
        return "did it"

    def _tools(self) -> list[ToolDefinition]:
        @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE)
        async def look(what: str, ctx: ToolContext) -> str:
            """Look at something."""
            return await self._do(ctx)

        @tool(kind=ToolKind.WRITE, side_effect=SideEffect.IDEMPOTENT, category="files")
        async def put(what: str, ctx: ToolContext) -> str:
            """Put something somewhere."""
            return await self._do(ctx)

        @tool(category="money")
        async def pay(what: str, ctx: ToolContext) -> str:
            """Pay for something."""
            return await self._do(ctx)

        return [look, put, pay]

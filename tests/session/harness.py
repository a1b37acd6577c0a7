"""A place to open sessions in, tools that remember what they did, and kills without a process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import anyio

from adapters.apart import begin_apart
from adapters.lease_keeper import KEEPER
from adapters.memory_journal import MemoryStore
from adapters.system import SystemClock, SystemIds
from domain import catalogue
from domain.cursor import Cursor
from domain.envelope import Fence, Recorded, open_envelope, seal
from domain.model_ports import ModelProvider
from domain.ports import Batch, Holder, Journal, LeaseKeeper, Timer
from domain.values import Interrupt, SideEffect, ToolKind
from minutebook.config import SessionConfig
from minutebook.interactions import Approve, Interaction
from minutebook.opening import OpenSession, World
from minutebook.session import Session
from minutebook.stream_events import InteractionOpened
from minutebook.testing.batches import dummy_batch, dummy_event
from minutebook.testing.faulty_store import FaultyStore
from minutebook.testing.scripted import Attempt, Gate, ScriptedProvider
from minutebook.testing.wire_rules import CHECKS
from minutebook.tool_context import ToolContext
from minutebook.tool_definition import ToolDefinition, tool
from recovery.coordinator import RecoveryCoordinator
from recovery.plan import RecoveryPlan, plan_of
from recovery.reading import load
from tests.session import order
from tests.session.watching import Watch

#: Never reached in a test that passes, on a busy machine either: a whole session has to fit.
LONG_S = 30.0


@dataclass(slots=True)
class Place:
    """A store, and what is needed to open sessions in it. The session is `s1` unless named."""

    store: FaultyStore = field(default_factory=lambda: FaultyStore(MemoryStore()))
    timer: Timer = field(default_factory=SystemClock)
    providers: list[ScriptedProvider] = field(default_factory=list, repr=False)
    keeper: LeaseKeeper = KEEPER

    def config(self, provider: ModelProvider | Sequence[Attempt], **options: Any) -> SessionConfig:
        """A configuration; a list of attempts becomes a scripted provider."""
        if isinstance(provider, Sequence):
            provider = ScriptedProvider(provider)
        if isinstance(provider, ScriptedProvider):
            self.providers.append(provider)
        return SessionConfig(**{"provider": provider, "model": "test-model", **options})

    def create(
        self, provider: ModelProvider | Sequence[Attempt], session_id: str = "s1", **options: Any
    ) -> AbstractAsyncContextManager[Session]:
        """A new session."""
        return _timed(OpenSession(self.config(provider, **options), self._world(), session_id, resume=False))

    def resume(
        self, provider: ModelProvider | Sequence[Attempt], session_id: str = "s1", **options: Any
    ) -> AbstractAsyncContextManager[Session]:
        """A session that is there already."""
        return _timed(OpenSession(self.config(provider, **options), self._world(), session_id, resume=True))

    def _world(self) -> World:
        return World(self.store, _provider, self.timer, SystemIds(), _holder, self.keeper, begin_apart)

    # --- looking ------------------------------------------------------------------------

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[Journal]:
        """The store as somebody else sees it."""
        async with self.store.inner.open() as journal:
            yield journal

    async def events(self, session_id: str = "s1") -> list[Recorded]:
        """The session's journal, read apart from the session."""
        async with self.reader() as reader:
            watch = Watch(reader, session_id)
            await watch.look()
            return watch.events

    async def types(self, session_id: str = "s1") -> list[str]:
        """The words of the session's journal."""
        return order.types(await self.events(session_id))

    async def told(self, stream: Any, session_id: str = "s1") -> list[Any]:
        """Everything a stream tells, each thing checked to be durable when it is told."""
        async with self.reader() as reader:
            with anyio.fail_after(LONG_S):
                return await Watch(reader, session_id).all(stream)

    async def plan(self, session_id: str = "s1") -> RecoveryPlan:
        """What the journal alone says comes next."""
        async with self.reader() as reader:
            return plan_of(await load(reader, session_id))

    @asynccontextmanager
    async def coordinator(self, session_id: str = "s1") -> AsyncIterator[RecoveryCoordinator]:
        """Somebody who decides what happened."""
        async with (
            self.store.inner.open() as journal,
            RecoveryCoordinator.open(
                journal,
                session_id,
                clock=SystemClock(),
                ids=SystemIds(),
                holder=Holder("operator", ""),
            ) as coordinator,
        ):
            yield coordinator

    async def check(self) -> None:
        """Hold every journal of the store against the order contract and the rules, and
        everything that was sent to a model against the rules of its dialect."""
        for provider in self.providers:
            for sent in provider.sent:
                CHECKS[provider.api](sent.parsed)
        async with self.reader() as reader:
            for row in await reader.sessions():
                order.check(await self.events(row.session_id))
                loaded = await load(reader, row.session_id, use_snapshot=False)
                assert loaded.problem is None
                assert loaded.head == row.head

    async def append_raw(self, type_: str, version: int, payload: bytes, session_id: str = "s1") -> None:
        """Write an event that no version of ours writes, as a newer one might."""
        async with self.reader() as journal:
            row = await journal.session(session_id)
            assert row is not None
            holder = Holder("newer", "l-newer")
            lease = await journal.leases.acquire(session_id, holder, 30_000)
            fence = Fence(holder.worker_id, holder.lease_id, lease.token)
            made = dummy_event(Cursor(session_id, row.sequence, row.head), "c-newer", payload, fence)
            newer = replace(open_envelope(made), type=type_, version=version)
            assert made.salt is not None
            stored = seal(newer, payload, made.salt, row.head)
            place = Cursor(session_id, row.sequence, row.head)
            batch = dummy_batch(place, "c-newer", [payload], fence=fence)
            await journal.commit(replace(batch, events=(stored,)))
            await journal.leases.release(session_id, fence)

    # --- kills --------------------------------------------------------------------------

    async def killed_after(self, commits: int) -> Place:
        """The same store as a worker leaves it that dies right after its n-th commit."""
        place = Place(timer=self.timer)
        await _replay(place.store.inner.open(), self.store.batches[:commits])
        return place


@asynccontextmanager
async def _timed(opened: OpenSession) -> AsyncIterator[Session]:
    """A test that would hang fails instead."""
    with anyio.fail_after(LONG_S):
        async with opened as session:
            yield session


def _provider(given: Any) -> ModelProvider:
    return cast(ModelProvider, given)


def _holder(worker_id: str | None, lease_id: str) -> Holder:
    return Holder(worker_id or "w1", lease_id)


async def _replay(opened: Any, batches: Sequence[Batch]) -> None:
    """Write batches again under the leases they were written under; the last one is given back."""
    async with opened as journal:
        held: Fence | None = None
        for batch in batches:
            if batch.fence != held and batch.fence is not None:
                if held is not None:
                    await journal.leases.release(batch.session_id, held)
                holder = Holder(batch.fence.worker_id, batch.fence.lease_id)
                lease = await journal.leases.acquire(batch.session_id, holder, 30_000)
                assert lease.token == batch.fence.token
                held = batch.fence
            await journal.commit(batch)
        if held is not None:
            await journal.leases.release(batches[-1].session_id, held)


# --- tools ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Hands:
    """Tools, and what they did. A gate named by a call's `what` holds that call before its effect."""

    begun: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    contexts: list[ToolContext] = field(default_factory=list)
    gates: dict[str, Gate] = field(default_factory=dict)

    async def _do(self, what: str, ctx: ToolContext) -> str:
        self.contexts.append(ctx)
        self.begun.append(what)
        if what in self.gates:
            await self.gates[what].pass_through()
        self.done.append(what)
        return f"did {what}"

    def tools(self) -> list[ToolDefinition]:
        """`look` (pure, read only), `put` (idempotent, writes), `pay` (neither, and asks)."""

        @tool(kind=ToolKind.READ_ONLY, side_effect=SideEffect.PURE, interrupt=Interrupt.CANCEL)
        async def look(what: str, ctx: ToolContext) -> str:
            """Look at something."""
            return await self._do(what, ctx)

        @tool(kind=ToolKind.WRITE, side_effect=SideEffect.IDEMPOTENT, category="files")
        async def put(what: str, ctx: ToolContext) -> str:
            """Put something somewhere."""
            return await self._do(what, ctx)

        @tool(category="money")
        async def pay(what: str, ctx: ToolContext) -> str:
            """Pay for something."""
            return await self._do(what, ctx)

        return [look, put, pay]


async def drained(stream: Any, into: list[Any] | None = None) -> None:
    """Take everything that a stream gives."""
    async for event in stream:
        if into is not None:
            into.append(event)


def approving(session: Session, answer: Any = None) -> Any:
    """The session's stream, where every question is answered as it comes."""

    async def told() -> AsyncIterator[Any]:
        async for event in session.stream():
            yield event
            if isinstance(event, InteractionOpened):
                await session.respond(event.interaction_id, answer or Approve(), digest=event.digest)

    return told()


async def asked(session: Session) -> Interaction:
    """The first open question, as soon as there is one."""
    async for _ in session.events(after=Cursor.start(session.id)):
        if session.interactions:
            return session.interactions[0]
    raise AssertionError("the session was left before it asked anything")


def recorded(events: Sequence[Recorded], *types: str) -> Iterator[Recorded]:
    """Those of some types."""
    return (event for event in events if event.type in types)


def data(events: Sequence[Recorded], type_: str) -> list[Any]:
    """The payloads of one type."""
    return [event.data for event in events if event.type == type_]


def decoded(batch: Batch) -> list[Recorded]:
    """A batch's events."""
    return [catalogue.open_stored(row) for row in batch.events]

"""Opening a session: store, lease, fold, loop; and leaving it in the reverse order.

The parts come from `minutebook.compose`, which knows the adapters. Entering a
resumed session executes nothing; leaving the block stops at the durable frontier
whatever the reason, and lets the next worker go on from there.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import anyio

from domain import catalogue, ids, session
from domain.envelope import genesis
from domain.errors import InvalidOptions, SessionClosed, SessionExists, SessionNotFound
from domain.lease import AcquireLease
from domain.model_ports import ModelProvider
from domain.ports import HeldLease, Holder, IdSource, Journal, LeaseKeeper, LeaseRow, StoreDescription, Timer
from domain.state import State
from domain.taking_over import announcement, is_due
from minutebook import beginning
from minutebook.answers import Answers
from minutebook.authority import Authority
from minutebook.book import Book
from minutebook.carrying import Carrier
from minutebook.config import SessionConfig
from minutebook.conversation import Conversation
from minutebook.feed import Feed
from minutebook.flights import Flights
from minutebook.following import Follower, View, tell
from minutebook.loop import Loop
from minutebook.lost import Lookups
from minutebook.models import Providers, check_capabilities
from minutebook.parts import Parts
from minutebook.processes import Processes
from minutebook.provider_config import ProviderConfig
from minutebook.session import Session
from minutebook.tasks import Apart, SessionTasks
from minutebook.tool_definition import ToolSet
from projections.transcript import Transcript
from projections.usage import Usage
from recovery.facts import Facts
from recovery.plan import Kind, RecoveryPlan, RecoveryRequired, make_plan, plan_of
from recovery.reading import load

PAGE: Final = 256

log = logging.getLogger("minutebook")


@dataclass(frozen=True, slots=True)
class World:
    """What the opening of a session needs from outside."""

    store: StoreDescription
    provider: Callable[[ProviderConfig | ModelProvider], ModelProvider]
    clock: Timer
    ids: IdSource
    holder: Callable[[str | None, str], Holder]
    keeper: LeaseKeeper
    apart: Apart


class OpenSession(AbstractAsyncContextManager[Session]):
    """`async with` it to get the session. Used once."""

    def __init__(self, config: SessionConfig, world: World, session_id: str | None, *, resume: bool) -> None:
        if not isinstance(config, SessionConfig):
            raise InvalidOptions("config", "mb.SessionConfig(...)", config)
        self._config, self._world, self._resume = config, world, resume
        self._id = ids.session_id(session_id) if session_id is not None else world.ids.new("s")
        self._tools = ToolSet(config.tools)
        self._undo: list[Callable[[], Awaitable[Any]]] = []
        self._session: Session | None = None

    async def __aenter__(self) -> Session:
        """Open the session.

        Raises:
            SessionExists, SessionNotFound, SessionClosed: as the names say.
            LeaseConflict: another live worker has it; says who, until when.
            RecoveryRequired: somebody has to decide first; carries the plan.
            InvalidOptions, StoreFailure: nothing was written.
        """
        try:
            return await self._open()
        except BaseException:
            await self._unwind()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        if kind is not None and self._session.is_running:
            log.warning(
                "session %s was left in the middle of %s at sequence %d; go on with resume_session(%r, ...)",
                self._id,
                self._session.current_request_id,
                self._session.head_sequence,
                self._id,
            )
        try:
            await self._session.leave()
        finally:
            await self._unwind()

    async def _unwind(self) -> None:
        """Undo every step of the opening, the last one first, whatever one of them raises."""
        failed: BaseException | None = None
        while self._undo:
            undo = self._undo.pop()
            try:
                await undo()
            except BaseException as error:
                failed = failed or error
        if failed is not None:
            raise failed

    # --- opening ------------------------------------------------------------------------

    async def _open(self) -> Session:
        providers = await self._providers()
        first = providers.of(self._config.settings())
        check_capabilities(self._config.settings(), first)
        opened = self._world.store.open(owner_id=self._config.owner_id)
        journal = await opened.__aenter__()
        self._undo.append(_shielded(lambda: opened.__aexit__(None, None, None)))
        former = await self._check_row(journal)
        held = await self._acquire(journal)
        announced = announcement(former, held.row, self._config.lease.times().ttl_ms)
        conversation, shown, usage = Conversation(first), View(Transcript()), View(Usage())
        book = await self._book(journal, providers, conversation, [shown, usage], held)
        tasks = SessionTasks(self._world.apart)
        tasks.when_broken = book.broken
        self._undo.append(tasks.close)
        await tasks.open()
        tasks.start(book.write, name="writer")
        parts = self._assemble(journal, book, conversation, (shown, usage), providers, tasks)
        tasks.start(_watch, held, book, name="lease")
        kind = "resume" if self._resume else "create"
        first = self._first_entry(book, announced if is_due(book.state, held.row) else None)
        await book.put(first, kind, fold=conversation.apply).wait()
        self._session = Session(parts, self._config, self._world.ids.new)
        return self._session

    async def _providers(self) -> Providers:
        made: dict[str, ModelProvider] = {}
        for name, given in self._config.all_providers().items():
            # In a thread: an SDK takes more than a second to import.
            made[name] = await anyio.to_thread.run_sync(self._world.provider, given)
            self._undo.append(_shielded(made[name].aclose))
        return Providers(self._config.provider_name, made)

    async def _check_row(self, journal: Journal) -> LeaseRow | None:
        """The lease as it is before it is taken."""
        row = await journal.session(self._id)
        if self._resume and row is None:
            raise SessionNotFound(self._id, journal.name)
        if not self._resume and row is not None:
            raise SessionExists(self._id)
        return row.lease if row is not None else None

    async def _acquire(self, journal: Journal) -> HeldLease:
        lease = self._config.lease
        holder = self._world.holder(lease.worker_id, lease.lease_id or self._world.ids.new("l"))
        held = await self._world.keeper.hold(journal.leases, self._id, holder, lease.times())
        self._undo.append(held.release)
        return held

    async def _book(
        self,
        journal: Journal,
        providers: Providers,
        conversation: Conversation,
        followers: list[Follower],
        held: HeldLease,
    ) -> Book:
        state, head = State(self._id), genesis(self._id)
        if self._resume:
            state, head = await self._stands(journal, providers)
            asked = beginning.asked_next(state, self._config.settings(), providers)
            beginning.check_budget(state, self._config)
            await _reread(journal, self._id, conversation, followers, state.sequence)
            for provider in asked:
                await conversation.prepare(provider, journal)
        book = Book(
            journal,
            state,
            head,
            owner_id=self._config.owner_id,
            clock=self._world.clock,
            ids=self._world.ids,
            held=held,
        )
        book.followers = followers
        return book

    async def _stands(self, journal: Journal, providers: Providers) -> tuple[State, bytes]:
        loaded = await load(journal, self._id)
        plan = plan_of(loaded, journal=_argument(journal))
        closed = loaded.state.session is not None and loaded.state.session.status is session.Status.CLOSED
        lookups = Lookups(providers, self._config.look_up_lost_attempts)
        decided = plan.kind is Kind.DECISION and not lookups.can_ask(loaded.state)
        if decided or plan.kind is Kind.BLOCKED:
            raise RecoveryRequired(plan)
        if closed:
            raise SessionClosed(self._id, final=True)
        return loaded.state, loaded.head

    def _first_entry(self, book: Book, holds: AcquireLease | None) -> Any:
        tools = {name: definition.digest for name, definition in self._tools.items()}
        if self._resume:
            commands = beginning.resumed(book.state, self._config, tools, holds)
        else:
            assert holds is not None, "nobody has written about a session that is new"
            commands = beginning.created(self._config, tools, holds)
        entry = book.begin()
        for command in commands:
            entry.add(command)
        return entry

    def _assemble(
        self,
        journal: Journal,
        book: Book,
        conversation: Conversation,
        durable: tuple[View[Transcript], View[Usage]],
        providers: Providers,
        tasks: SessionTasks,
    ) -> Parts:
        config, timer = self._config, self._world.clock
        feed = Feed(journal, self._id, book.durable_sequence, config.probe)
        book.followers.append(feed)
        held = book.held
        assert held is not None
        authority = Authority(book, held, journal.leases, timer, config.lease.store_timeout_s)
        processes = Processes(book.check_open)
        flights = Flights(self._id, tasks, feed, config.probe, timer, authority, processes)
        has_handler = config.permission_handler is not None
        carrier = Carrier(providers, self._tools, conversation, has_handler)
        answers = Answers(carrier, self._tools)

        def plan() -> RecoveryPlan:
            facts = Facts(head=book.durable_head, lease=held.row, journal=_argument(journal))
            return make_plan(book.durable, facts)

        def required() -> RecoveryRequired:
            return RecoveryRequired(plan())

        lookups = Lookups(providers, config.look_up_lost_attempts)
        loop = Loop(book, feed, flights, carrier, conversation, answers, config, timer, required, lookups)
        book.when_fenced = loop.fenced

        def begin() -> None:
            tasks.start(loop.run, name="loop")

        return Parts(
            journal,
            self._world.store.durable,
            book,
            conversation,
            *durable,
            providers,
            feed,
            flights,
            loop,
            answers,
            plan,
            _Once(begin),
        )


class _Once:
    """Calls something the first time it is called."""

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin: Callable[[], None] | None = begin

    def __call__(self) -> None:
        begin, self._begin = self._begin, None
        if begin is not None:
            begin()


def _argument(journal: Journal) -> str:
    """What the command line calls the journal."""
    return journal.name.removeprefix("sqlite:")


async def _reread(
    journal: Journal, session_id: str, conversation: Conversation, followers: list[Follower], upto: int
) -> None:
    """Rebuild the conversation, and what follows, from the journal, page by page."""
    after = 0
    while after < upto:
        rows = await journal.read(session_id, after=after, upto=upto, limit=PAGE)
        events = [catalogue.open_stored(row) for row in rows]
        for event in events:
            conversation.apply(event)
        tell(followers, events)
        after += len(rows)


def _shielded(undo: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    async def run() -> None:
        with anyio.CancelScope(shield=True):
            await undo()

    return run


async def _watch(held: HeldLease, book: Book) -> None:
    """Have the book take no more entries once its lease is lost."""
    error = await held.lost()
    if book.held is not None:
        book.fence_off(error)

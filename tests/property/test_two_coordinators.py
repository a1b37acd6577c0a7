"""Two operators at one session, interleaved at random: every decision is made once, by who may make it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import anyio
from hypothesis import given
from hypothesis import strategies as st

from adapters.memory_journal import MemoryStore
from adapters.system import SystemIds
from domain import catalogue
from domain.envelope import Fence, Recorded
from domain.errors import CommandConflict, LeaseConflict, LeaseLost, RecoveryRejected
from domain.lifecycle import fold
from domain.ports import CommitStatus, Holder, Journal, Receipt
from domain.state import State
from minutebook.testing.clock import ManualClock
from minutebook.testing.keeping import keep
from recovery.coordinator import RecoveryCoordinator
from recovery.decisions import Abandon, Choice, ModelOutcome, ToolOutcome
from recovery.rollover import TurnRollover
from tests.journals import lost_attempt
from tests.property.examples import share

SESSION = "s-lost"
TTL_S = 10.0
CHOICES: tuple[Choice, ...] = (
    ModelOutcome("r1.t1.a1", "lost", "no trace"),
    ModelOutcome("r1.t1.a1", "failed", "the console"),
    TurnRollover("ticket 4"),
    Abandon("enough"),
    ToolOutcome("r1.t1.a1.c0", "completed", "not there"),
)
#: What an operator may do next: come, go, wait, decide something under some command id.
Act = tuple[str, Any]
acts = st.one_of(
    st.just(("open", None)),
    st.just(("leave", None)),
    st.tuples(st.just("wait"), st.sampled_from([0.7 * TTL_S, TTL_S + 1])),
    st.tuples(
        st.just("decide"), st.tuples(st.sampled_from(CHOICES), st.sampled_from(["d-1", "d-2", "d-3", None]))
    ),
)


@dataclass
class Operator:
    """One of the two, while it holds the session or believes that it does. `until`: as it knows."""

    name: str
    journal: Journal
    clock: ManualClock
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    coordinator: RecoveryCoordinator | None = None
    until: float = 0.0
    deposed: bool = False

    @property
    def may_write(self) -> bool:
        return self.coordinator is not None and not self.deposed and self.clock.monotonic() < self.until

    async def open(self) -> None:
        self.coordinator = await self.stack.enter_async_context(
            RecoveryCoordinator.open(
                self.journal,
                SESSION,
                clock=self.clock,
                ids=SystemIds(),
                ttl_ms=int(TTL_S * 1000),
                holder=Holder(self.name, ""),
                actor_id=self.name,
            )
        )
        self.until, self.deposed = self.clock.monotonic() + TTL_S, False

    async def leave(self) -> None:
        await self.stack.aclose()
        self.coordinator = None


@dataclass
class Race:
    """Both of them, and what every command was first used for."""

    journal: Journal
    clock: ManualClock
    one: Operator
    two: Operator
    receipts: dict[str, tuple[Choice, Receipt]] = field(default_factory=dict)
    written: int = 0

    async def take(self, first: bool, act: Act) -> None:
        operator, other = (self.one, self.two) if first else (self.two, self.one)
        match act:
            case "open", _ if operator.coordinator is None:
                await self._open(operator, other)
            case "leave", _ if operator.coordinator is not None:
                await operator.leave()
            case "wait", seconds:
                self.clock.advance(seconds)
            case "decide", (choice, command_id) if operator.coordinator is not None:
                await self._decide(operator, choice, command_id)
        await self._is_sound()

    async def _open(self, operator: Operator, other: Operator) -> None:
        held = other.may_write
        refused: str | None = None
        try:
            await operator.open()
        except LeaseConflict as conflict:
            refused = conflict.holder
        else:
            other.deposed = other.coordinator is not None
        assert refused == (other.name if held else None), "held by one, and by who says so"

    async def _decide(self, operator: Operator, choice: Choice, command_id: str | None) -> None:
        assert operator.coordinator is not None
        before = await self._rows()
        known = self.receipts.get(command_id or "")
        receipt = error = None
        try:
            receipt = await operator.coordinator.decide(choice, command_id=command_id)
        except (LeaseLost, CommandConflict, RecoveryRejected) as refused:
            error = refused
        after = await self._rows()
        if receipt is not None and receipt.status is CommitStatus.COMMITTED:
            assert operator.may_write, "written without the right to"
            assert known is None
            assert len(after) == receipt.last_sequence > len(before)
            assert {e.recorded_by.worker_id for e in after[len(before) :] if e.recorded_by} == {operator.name}
            operator.until = self.clock.monotonic() + TTL_S
            self.written += 1
            if command_id is not None:
                self.receipts[command_id] = choice, receipt
            return
        assert after == before, f"{error or receipt} and yet something was written"
        if receipt is not None:
            assert known is not None
            assert (known[0], known[1].head) == (choice, receipt.head)
        elif isinstance(error, CommandConflict):
            assert known is not None
            assert known[0] != choice
        elif isinstance(error, LeaseLost):
            assert not operator.may_write

    async def _rows(self) -> list[Recorded]:
        return [catalogue.open_stored(row) for row in await self.journal.read(SESSION)]

    async def _is_sound(self) -> None:
        """The journal can be followed, and each commit is named once."""
        rows = await self._rows()
        assert fold(State(SESSION), rows).sequence == len(rows)
        commands = [event.command_id for event in rows if event.command_index == 0]
        assert len(commands) == len(set(commands)) == 3 + self.written
        named = [event.recorded_by for event in rows if event.type == "lease_acquired"]
        tokens = [fence.token for fence in named if fence is not None]
        assert tokens == sorted(set(tokens))


async def _run(script: list[tuple[bool, Act]]) -> None:
    clock = ManualClock()
    async with MemoryStore(clock).open() as journal:
        await keep(journal, lost_attempt())
        race = Race(journal, clock, Operator("ann", journal, clock), Operator("bob", journal, clock))
        try:
            for first, act in script:
                await race.take(first, act)
        finally:
            await race.one.leave()
            await race.two.leave()
        # Nobody is left with the session: the next one gets it at once.
        lease = await journal.leases.acquire(SESSION, Holder("carl", "l-9"), 1000)
        await journal.leases.release(SESSION, Fence("carl", "l-9", lease.token))


@share(60)
@given(st.lists(st.tuples(st.booleans(), acts), max_size=30))
def test_however_two_operators_interleave_each_decision_is_made_once(script: list[tuple[bool, Act]]) -> None:
    anyio.run(_run, script)

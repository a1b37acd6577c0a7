"""Several who decide about one session: one of them does, the others are told who, or what.

Over every store; commits that fail, are of unknown outcome, or are cancelled; and
random interleavings of two coordinators.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.memory_journal import MemoryStore
from adapters.postgres_store import PostgresStore
from adapters.sqlite_store import SqliteStore
from adapters.system import SystemIds
from domain import catalogue, model_attempt
from domain.envelope import Fence
from domain.errors import (
    CommandConflict,
    HeadConflict,
    JournalBlocked,
    LeaseConflict,
    LeaseLost,
    MinutebookError,
    ModelFailed,
    OutcomeUnknown,
    RecoveryRejected,
    StoreReadFailed,
    StoreTimeout,
    StoreWriteFailed,
)
from domain.ports import CommitStatus, Holder, Journal, StoreDescription
from minutebook.testing import Gate
from minutebook.testing.clock import ManualClock
from minutebook.testing.faulty_store import PASSING, Fault, FaultyStore
from minutebook.testing.keeping import keep
from recovery.coordinator import RecoveryCoordinator, answered
from recovery.decisions import ModelOutcome
from tests.journals import BEGUN, Altered, lost_attempt, session_of

pytestmark = pytest.mark.anyio

SESSION = "s-lost"
ATTEMPT = "r1.t1.a1"
BEFORE = 8  # events of `lost_attempt`


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> StoreDescription:
    if request.param == "memory":
        return MemoryStore(clock)
    if request.param == "postgres":
        return PostgresStore(request.getfixturevalue("postgres_url"), clock=clock)
    tmp_path.chmod(0o700)
    return SqliteStore(tmp_path / "journal.db", clock=clock)


@asynccontextmanager
async def filled(store: StoreDescription) -> AsyncIterator[Journal]:
    """The store, open, with a session whose model attempt is lost."""
    async with store.open() as journal:
        await keep(journal, lost_attempt())
        yield journal


def deciding(journal: Journal, clock: ManualClock, holder: Holder | None = None, **options: Any) -> Any:
    return RecoveryCoordinator.open(
        journal, SESSION, clock=clock, ids=SystemIds(), holder=holder or Holder("ann", ""), **options
    )


async def lost(coordinator: RecoveryCoordinator, command_id: str | None = None, **other: Any) -> Any:
    """Decide that the attempt is lost."""
    told = {"outcome": "lost", "evidence": "no trace", **other}
    return await coordinator.reconcile_model_outcome(ATTEMPT, command_id=command_id, **told)


async def head_of(journal: Journal) -> int:
    row = await journal.session(SESSION)
    assert row is not None
    return row.sequence


# --- two at once --------------------------------------------------------------------------


async def test_the_second_is_told_who_decides_and_until_when(
    store: StoreDescription, clock: ManualClock
) -> None:
    async with filled(store) as journal, deciding(journal, clock, ttl_ms=5000):
        with pytest.raises(LeaseConflict) as refused:
            async with deciding(journal, clock, Holder("bob", "")):
                raise AssertionError("it was opened")
        assert refused.value.holder == "ann"
        assert refused.value.expires_at.startswith("2026-01-01T00:00:05")


async def test_the_second_gets_the_answer_of_the_first_by_its_command(
    store: StoreDescription, clock: ManualClock
) -> None:
    """Also while the first one holds the session: to be told takes no lease."""
    same = ModelOutcome(ATTEMPT, "lost", "no trace")
    async with filled(store) as journal:
        async with deciding(journal, clock) as first:
            receipt = await lost(first, "d-1")
            told = await answered(journal, SESSION, same, "d-1")
            assert told is not None
            assert (told.status, told.head) == (CommitStatus.REPLAYED, receipt.head)
            assert await answered(journal, SESSION, same, "d-2") is None
            with pytest.raises(CommandConflict):
                await answered(journal, SESSION, ModelOutcome(ATTEMPT, "failed", "no trace"), "d-1")
        async with deciding(journal, clock, Holder("bob", "")) as second:
            assert (await lost(second, "d-1")).status is CommitStatus.REPLAYED
            with pytest.raises(CommandConflict):
                await lost(second, "d-1", outcome="failed")
            with pytest.raises(RecoveryRejected, match="next_attempt"):
                await lost(second, "d-2")
        assert await head_of(journal) == BEFORE + 2


async def test_whose_lease_ran_out_and_was_taken_writes_nothing(
    store: StoreDescription, clock: ManualClock
) -> None:
    async with filled(store) as journal, deciding(journal, clock, ttl_ms=1000) as first:
        clock.advance(1.5)
        async with deciding(journal, clock, Holder("bob", "")) as second:
            with pytest.raises(LeaseLost):
                await lost(first, "d-1")
            assert await head_of(journal) == BEFORE
            await lost(second, "d-1")
        with pytest.raises(LeaseLost):  # for good: not even after the other one has left
            await lost(first, "d-1")
        assert await head_of(journal) == BEFORE + 2


async def test_whose_lease_ran_out_writes_nothing_even_if_nobody_took_it(
    store: StoreDescription, clock: ManualClock
) -> None:
    async with filled(store) as journal, deciding(journal, clock, ttl_ms=1000) as first:
        clock.advance(1.5)
        with pytest.raises(LeaseLost, match="ran out"):
            await lost(first)
        assert await head_of(journal) == BEFORE


async def test_each_decision_renews_the_lease(store: StoreDescription, clock: ManualClock) -> None:
    async with filled(store) as journal, deciding(journal, clock, ttl_ms=1000) as first:
        clock.advance(0.8)
        await lost(first)
        clock.advance(0.8)
        await first.abandon_request(reason="enough")
        with pytest.raises(LeaseConflict):
            async with deciding(journal, clock, Holder("bob", "")):
                raise AssertionError("it was opened")


async def test_two_of_one_identity_are_told_apart_by_the_head(
    store: StoreDescription, clock: ManualClock
) -> None:
    """Whoever names the same worker and the same lease has the same token: the head decides."""
    one = Holder("ann", "lease-1")
    async with filled(store) as journal, deciding(journal, clock, one) as first:
        async with deciding(journal, clock, one) as second:
            await lost(first)
            with pytest.raises(HeadConflict, match="expected head 8, found 10"):
                await second.abandon_request(reason="enough")
        assert await head_of(journal) == BEFORE + 2


async def test_the_next_one_says_what_became_of_the_one_before(
    store: StoreDescription, clock: ManualClock
) -> None:
    """Contract of every writer: its first commit names it, once."""
    async with filled(store) as journal:
        async with deciding(journal, clock, ttl_ms=1000) as first:
            await lost(first)
            await first.abandon_request(reason="enough")
        async with deciding(journal, clock, Holder("bob", ""), ttl_ms=1000) as second:
            assert await second.apply_automatic() == []
            clock.advance(2)
        rows = await journal.read(SESSION, after=BEFORE)
        named = [e for e in map(catalogue.open_stored, rows) if e.type == "lease_acquired"]
        assert [(e.sequence, e.data.former_end, e.actor.kind) for e in named] == [(9, None, "operator")]
        assert rows[0].sequence == 9


@pytest.mark.parametrize(
    ("leave", "seconds", "end"), [(True, 0.0, "released"), (False, 2.0, "ran_out")], ids=["left", "silent"]
)
async def test_former_holders_are_named(
    store: StoreDescription, clock: ManualClock, leave: bool, seconds: float, end: str
) -> None:
    async with filled(store) as journal:
        row = await journal.leases.acquire(SESSION, Holder("worker-7", "l-7"), 1000)
        if leave:
            await journal.leases.release(SESSION, Fence("worker-7", "l-7", row.token))
        clock.advance(seconds)
        async with deciding(journal, clock) as coordinator:
            await lost(coordinator)
        (stored,) = await journal.read(SESSION, after=BEFORE, limit=1)
        data = catalogue.open_stored(stored).data
        assert (data.former_worker_id, data.former_token, data.former_end) == ("worker-7", 1, end)


# --- failing stores -----------------------------------------------------------------------


FAILED = model_attempt.Fail(ModelFailed("overloaded", "try later", retryable=True))
#: A turn that can be rolled over; the decision is this one's fifth commit.
ROLLABLE = session_of(*BEGUN, FAILED, session_id=SESSION)
ROLLED = ["lease_acquired", "turn_aborted", "request_superseded", "input_accepted", "request_accepted"]
FAILURES: dict[Fault, type[MinutebookError]] = {
    Fault.WRITE_FAILED: StoreWriteFailed,
    Fault.TIMEOUT: StoreTimeout,
    Fault.LEASE_LOST: LeaseLost,
    Fault.HEAD_CONFLICT: HeadConflict,
    Fault.DEFECT: OutcomeUnknown,
    Fault.LOST_ABSENT: OutcomeUnknown,
    Fault.LOST_FOUND: OutcomeUnknown,
}


@asynccontextmanager
async def failing(clock: ManualClock, fault: Fault) -> AsyncIterator[Journal]:
    """A journal that fails at the first decision."""
    async with FaultyStore(MemoryStore(clock), faults={5: fault}).open() as journal:
        await keep(journal, ROLLABLE)
        yield journal


async def decided(journal: Journal) -> list[str]:
    """What was appended since."""
    return [e.type for e in map(catalogue.open_stored, await journal.read(SESSION, after=BEFORE + 1))]


async def roll_over(coordinator: RecoveryCoordinator) -> CommitStatus:
    receipt = await coordinator.prepare_turn_recovery(evidence="ticket 4", command_id="d-1")
    return receipt.status


@pytest.mark.parametrize("fault", FAILURES)
async def test_a_failed_commit_leaves_all_of_a_decision_or_nothing(fault: Fault, clock: ManualClock) -> None:
    """It is not told as decided, the lease is given back, and whoever tries again gets through."""
    written = ROLLED if fault is Fault.LOST_FOUND else []
    async with failing(clock, fault) as journal:
        with pytest.raises(FAILURES[fault]):
            async with deciding(journal, clock) as coordinator:
                await roll_over(coordinator)
        assert await decided(journal) == written
        async with FaultyStore(journal._store.inner).open() as healed, deciding(healed, clock) as again:  # type: ignore[attr-defined]  # the same store, in order again
            status = await roll_over(again)
        assert status is (CommitStatus.REPLAYED if written else CommitStatus.COMMITTED)
        assert await decided(journal) == ROLLED


@pytest.mark.parametrize("fault", PASSING)
async def test_an_unknown_outcome_is_settled_and_the_same_bytes_are_tried_once_more(
    fault: Fault, clock: ManualClock
) -> None:
    async with failing(clock, fault) as journal, deciding(journal, clock) as coordinator:
        status = await roll_over(coordinator)
        assert status is (CommitStatus.RECONCILED if fault is Fault.FOUND else CommitStatus.COMMITTED)
        assert await decided(journal) == ROLLED
        batches = journal._store.batches[4:]  # type: ignore[attr-defined]  # what it was given
        assert len({batch.events for batch in batches}) == 1
        assert coordinator.plan.items[0].action == "resume_request"


@pytest.mark.parametrize("fault", [Fault.LOST_ABSENT, Fault.DEFECT, Fault.LEASE_LOST])
async def test_who_does_not_know_the_outcome_decides_nothing_more(fault: Fault, clock: ManualClock) -> None:
    async with failing(clock, fault) as journal, deciding(journal, clock) as coordinator:
        for _ in range(2):
            with pytest.raises(FAILURES[fault]):
                await roll_over(coordinator)
        with pytest.raises(FAILURES[fault]):
            await coordinator.apply_automatic()
        assert len(journal._store.batches) == 5  # type: ignore[attr-defined]  # what it was given


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_decision_that_is_cancelled_in_the_middle_is_made_or_not(
    moment: str, clock: ManualClock
) -> None:
    """Once the store has it, it is made, and whoever asks again is told so."""
    gate = Gate()
    store = FaultyStore(MemoryStore(clock), **{moment: {5: gate}})  # type: ignore[arg-type]  # one of its gates
    async with store.open() as journal:
        await keep(journal, ROLLABLE)
        async with anyio.create_task_group() as tasks:

            async def decide() -> None:
                async with deciding(journal, clock) as coordinator:
                    await roll_over(coordinator)

            tasks.start_soon(decide)
            await gate.reached()
            tasks.cancel_scope.cancel()
            gate.open()
        assert await decided(journal) == ROLLED
        async with deciding(journal, clock) as again:  # the lease was given back
            assert await roll_over(again) is CommitStatus.REPLAYED


class Unleasing:
    """A journal that cannot give leases back."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    @property
    def leases(self) -> Any:
        return self

    async def acquire(self, *arguments: Any) -> Any:
        return await self._journal.leases.acquire(*arguments)

    async def release(self, *_: Any) -> None:
        raise StoreReadFailed("memory", "the disk is gone")


async def test_a_lease_that_cannot_be_given_back_hides_no_error(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with failing(clock, Fault.WRITE_FAILED) as journal:
        broken: Any = Unleasing(journal)
        with caplog.at_level(logging.WARNING), pytest.raises(RecoveryRejected):
            async with deciding(broken, clock) as coordinator:
                await lost(coordinator)
        assert "runs out by itself: memory: the disk is gone" in caplog.text


async def test_a_journal_that_broke_after_the_lease_was_taken_takes_no_decision(clock: ManualClock) -> None:
    """The first look was good; the lease is given back all the same."""
    async with failing(clock, Fault.WRITE_FAILED) as journal:
        reads = 0

        def broken(row: Any) -> Any:
            nonlocal reads
            reads += row.sequence == 1
            return replace(row, payload=b"{}") if reads > 1 and row.sequence == 3 else row

        shown: Any = Altered(journal, broken)
        shown.leases = journal.leases
        with pytest.raises(JournalBlocked, match="sequence 3"):
            async with deciding(shown, clock):
                raise AssertionError("it was opened")
        async with deciding(journal, clock):
            pass

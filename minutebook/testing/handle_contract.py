"""The part of the store contract about several handles of one store, and about closed ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from domain.envelope import Fence
from domain.errors import (
    HeadConflict,
    LeaseConflict,
    LeaseLost,
    LeaseRequired,
    MinutebookError,
    StoreFailure,
)
from domain.ports import CommitStatus, Holder, Journal, LeaseRow, Receipt
from minutebook.testing.batches import dummy_batch, end_of
from minutebook.testing.commit_contract import outcome_of
from minutebook.testing.store_suite import SESSION, START, StoreSuite

TWO = (b'{"n":1}', b'{"n":2}')
OURS, THEIRS = Holder("ours", "lease-1"), Holder("theirs", "lease-2")
FENCE = Fence("ours", "lease-1", 1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LEASE = LeaseRow(1, "lease-1", "ours", NOON, NOON, NOON + timedelta(minutes=1))

#: Every call of the port, with arguments that an open handle takes.
CALLS: dict[str, Callable[[Journal], Awaitable[Any]]] = {
    "session": lambda journal: journal.session(SESSION),
    "sessions": lambda journal: journal.sessions(),
    "read": lambda journal: journal.read(SESSION),
    "snapshot": lambda journal: journal.snapshot(SESSION),
    "blob": lambda journal: journal.blob("0" * 64),
    "command": lambda journal: journal.command(SESSION, "c1"),
    "commands": lambda journal: journal.commands(SESSION, ["c1"]),
    "commit": lambda journal: journal.commit(dummy_batch(START, "c2", fence=FENCE)),
    "settle": lambda journal: journal.settle(dummy_batch(START, "c2", fence=FENCE)),
    "acquire": lambda journal: journal.leases.acquire(SESSION, OURS, 60_000),
    "renew": lambda journal: journal.leases.renew(SESSION, FENCE, 60_000),
    "validate": lambda journal: journal.leases.validate(SESSION, FENCE),
    "release": lambda journal: journal.leases.release(SESSION, FENCE),
    "free": lambda journal: journal.leases.free({"go_on"}),
    "lease_lives": lambda journal: journal.lease_lives(LEASE),
}


class HandleContract(StoreSuite):
    """Handles of one store show one truth; a closed one does nothing."""

    async def test_what_one_handle_commits_another_has_at_once(self) -> None:
        first = dummy_batch(START, "c1", TWO, blobs=[b"blob"], snapshot_state=b"state")
        second = dummy_batch(end_of(first), "c2", TWO)
        async with self.opened() as one, self.opened() as two:
            receipt = await one.commit(first)
            assert tuple(await two.read(SESSION)) == first.events
            assert await two.session(SESSION) == await one.session(SESSION)
            assert await two.command(SESSION, "c1") == (first.fingerprint, receipt)
            assert await two.snapshot(SESSION) == first.snapshot
            assert await two.blob(first.blobs[0].digest) == b"blob"
            await two.commit(second)
            assert tuple(await one.read(SESSION)) == first.events + second.events

    async def test_one_command_through_two_handles_is_there_once(self) -> None:
        batch = dummy_batch(START, "c1", TWO)
        async with self.opened() as one, self.opened() as two:
            committed = await one.commit(batch)
            assert await two.commit(batch) == replace(committed, status=CommitStatus.REPLAYED)
            assert await two.settle(batch) == replace(committed, status=CommitStatus.RECONCILED)
            assert tuple(await one.read(SESSION)) == batch.events

    async def test_of_handles_that_commit_at_one_place_one_wins(self) -> None:
        outcomes: list[Receipt | MinutebookError] = []
        async with self.opened() as one, self.opened() as two, anyio.create_task_group() as tasks:
            for number, journal in enumerate((one, two, one, two)):
                batch = dummy_batch(START, f"c{number}", (b'{"n":%d}' % number,))
                tasks.start_soon(outcome_of, journal, batch, outcomes)
        assert sorted(type(x).__name__ for x in outcomes) == ["HeadConflict"] * 3 + ["Receipt"]

    async def test_a_handle_that_stands_behind_is_told_so(self) -> None:
        first = dummy_batch(START, "c1", TWO)
        async with self.opened() as one, self.opened() as two:
            await one.commit(first)
            with pytest.raises(HeadConflict) as refusal:
                await two.commit(dummy_batch(START, "c2"))
            assert refusal.value.actual == 2

    async def test_a_lease_counts_for_every_handle(self) -> None:
        async with self.opened() as one, self.opened() as two:
            lease = await one.leases.acquire(SESSION, OURS, 60_000)
            fence = Fence("ours", "lease-1", lease.token)
            assert await two.leases.validate(SESSION, fence) == lease
            with pytest.raises(LeaseConflict):
                await two.leases.acquire(SESSION, THEIRS, 60_000)
            with pytest.raises(LeaseRequired):
                await two.commit(dummy_batch(START, "c1"))
            await two.commit(dummy_batch(START, "c1", fence=fence))  # who writes is in the fence
            await self.pass_time(60)
            assert (await two.leases.acquire(SESSION, THEIRS, 60_000)).token == lease.token + 1
            with pytest.raises(LeaseLost):
                await one.leases.renew(SESSION, fence, 60_000)

    async def test_tokens_rise_through_every_change_of_hands(self) -> None:
        tokens: list[int] = []
        for number in range(6):
            async with self.opened() as journal:
                holder = Holder(f"worker-{number % 2}", f"lease-{number}")
                tokens.append((await journal.leases.acquire(SESSION, holder, 1_000)).token)
                if number % 3 == 0:
                    fence = Fence(holder.worker_id, holder.lease_id, tokens[-1])
                    await journal.leases.release(SESSION, fence)
                else:
                    await self.pass_time(1)
        assert tokens == [1, 2, 3, 4, 5, 6]

    async def test_closing_one_handle_leaves_the_others_open(self) -> None:
        first = dummy_batch(START, "c1", TWO)
        async with self.opened() as one:
            async with self.opened() as two:
                await two.commit(first)
            await one.commit(dummy_batch(end_of(first), "c2", TWO))
            assert len(await one.read(SESSION)) == 4

    async def test_a_closed_handle_refuses_every_call_and_does_nothing(self) -> None:
        async with self.opened() as open_handle:
            async with self.opened() as journal:
                await journal.leases.acquire(SESSION, OURS, 30_000)
                await journal.commit(dummy_batch(START, "c1", fence=FENCE))
            before = await open_handle.session(SESSION)
            for name, call in CALLS.items():
                with pytest.raises(StoreFailure):
                    print(name, await call(journal))  # seen where it is not refused
            assert await open_handle.session(SESSION) == before
            assert await open_handle.command(SESSION, "c2") is None

    async def test_a_subscription_of_a_closed_handle_gives_nothing(self) -> None:
        async with self.opened() as journal:
            await journal.commit(dummy_batch(START, "c1", TWO))
        with anyio.fail_after(self.patience_s):
            try:
                rows = [row async for row in journal.subscribe(SESSION)]
            except StoreFailure:
                rows = []
        assert rows == []

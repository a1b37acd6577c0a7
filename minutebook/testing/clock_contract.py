"""The part of the store contract about clocks, for stores that judge leases by their host's clocks.

A store with a clock of its own, such as a database server, takes `StoreContract` alone:
the tests here set the wall clock of one host and leave its boot-time clock as it is.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Final

import pytest

from domain.cursor import Cursor
from domain.envelope import Fence
from domain.errors import LeaseConflict, LeaseLost
from domain.ports import Holder, Journal, LeaseRow
from minutebook.testing.batches import dummy_batch, end_of
from minutebook.testing.store_suite import SESSION, StoreSuite

TTL_S: Final = 30
TTL_MS: Final = 1000 * TTL_S
TICK_S: Final = 0.001
HOUR_S: Final = 3600
STEPS: Final = (-HOUR_S, 0, HOUR_S)
HERE: Final = "boot-1"
OURS: Final = Holder("ours", "lease-1", HERE, 41, "1")
THEIRS: Final = Holder("theirs", "lease-2", HERE, 42, "2")


def fence_of(lease: LeaseRow) -> Fence:
    """What the holder of a lease writes with."""
    assert lease.lease_id is not None
    return Fence(lease.holder_id, lease.lease_id, lease.token)


class HostClockContract(StoreSuite):
    """On one host seconds are counted, whatever the wall clock is set to; elsewhere it decides."""

    async def test_no_setting_of_the_wall_clock_shortens_or_lengthens_a_lease(self) -> None:
        """Set an hour forward or back before the acquire, the renewal, the commit, and at the end."""
        async with self.opened() as journal:
            for number, steps in enumerate(product(STEPS, repeat=4)):
                await self._one_life(journal, f"session-{number}", steps)

    async def _one_life(self, journal: Journal, session_id: str, steps: tuple[int, ...]) -> None:
        self.clock.step(steps[0])
        fence = fence_of(await journal.leases.acquire(session_id, OURS, TTL_MS))
        self.clock.step(steps[1])
        self.clock.advance(TTL_S - TICK_S)
        await self._held(journal, session_id)
        await journal.leases.renew(session_id, fence, TTL_MS)
        self.clock.step(steps[2])
        self.clock.advance(TTL_S - TICK_S)
        await self._held(journal, session_id)
        batch = dummy_batch(Cursor.start(session_id), "c1", fence=fence)
        await journal.commit(batch)
        self.clock.step(steps[3])
        await journal.leases.validate(session_id, fence)
        self.clock.advance(TICK_S)
        with pytest.raises(LeaseLost):
            await journal.commit(dummy_batch(end_of(batch), "c2", fence=fence))
        with pytest.raises(LeaseLost):
            await journal.leases.validate(session_id, fence)
        with pytest.raises(LeaseLost):
            await journal.leases.renew(session_id, fence, TTL_MS)
        assert (await journal.leases.acquire(session_id, THEIRS, TTL_MS)).token == fence.token + 1

    async def _held(self, journal: Journal, session_id: str) -> None:
        with pytest.raises(LeaseConflict):
            await journal.leases.acquire(session_id, THEIRS, TTL_MS)

    async def test_a_lease_says_when_it_runs_out_by_both_clocks(self) -> None:
        async with self.opened() as journal:
            self.clock.advance(7)
            lease = await journal.leases.acquire(SESSION, OURS, TTL_MS)
            assert (lease.runs_out, lease.boot_id) == (7 + TTL_S, HERE)
            assert lease.expires_at == self.clock.now() + timedelta(seconds=TTL_S)
            self.clock.advance(1)
            renewed = await journal.leases.renew(SESSION, fence_of(lease), TTL_MS)
            assert renewed.runs_out == 8 + TTL_S
            assert await journal.leases.validate(SESSION, fence_of(lease)) == renewed

    async def test_who_is_refused_is_told_until_when_by_the_clock_as_it_is_set_now(self) -> None:
        async with self.opened() as journal:
            await journal.leases.acquire(SESSION, OURS, TTL_MS)
            self.clock.step(HOUR_S)
            with pytest.raises(LeaseConflict, match="since this host was started") as refusal:
                await journal.leases.acquire(SESSION, THEIRS, TTL_MS)
        until = self.clock.now() + timedelta(seconds=TTL_S)
        assert refusal.value.expires_at == until.isoformat(timespec="milliseconds")

    @pytest.mark.parametrize("boot_id", ["boot-2", None, "", f"{HERE}/pid:[1]/time:[2]"])
    async def test_of_a_holder_elsewhere_the_wall_clock_decides(self, boot_id: str | None) -> None:
        elsewhere = Holder("elsewhere", "lease-3", boot_id, 43, "3")
        async with self.opened() as journal:
            lease = await journal.leases.acquire(SESSION, elsewhere, TTL_MS)
            assert lease.runs_out is None
            self.clock.advance(TTL_S)
            self.clock.step(-TICK_S)
            with pytest.raises(LeaseConflict, match="by this host's wall clock"):
                await journal.leases.acquire(SESSION, THEIRS, TTL_MS)
            assert (await journal.leases.renew(SESSION, fence_of(lease), TTL_MS)).runs_out is None
            self.clock.step(TTL_S)
            with pytest.raises(LeaseLost, match="by this host's wall clock"):
                await journal.leases.validate(SESSION, fence_of(lease))
            assert (await journal.leases.acquire(SESSION, THEIRS, TTL_MS)).token == 2

    async def test_after_a_restart_the_wall_clock_decides(self) -> None:
        async with self.opened() as journal:
            self.clock.advance(HOUR_S)
            await journal.leases.acquire(SESSION, OURS, TTL_MS)
            self.clock.restart("boot-2")
            self.clock.advance(TTL_S - TICK_S)
            with pytest.raises(LeaseConflict, match="before a restart"):
                await journal.leases.acquire(SESSION, THEIRS, TTL_MS)
            self.clock.advance(TICK_S)
            after = Holder("theirs", "lease-2", "boot-2")
            lease = await journal.leases.acquire(SESSION, after, TTL_MS)
            assert (lease.token, lease.runs_out) == (2, 2 * TTL_S)

    async def test_a_store_that_knows_no_boot_has_the_wall_clock(self) -> None:
        async with self.opened() as journal:
            await journal.leases.acquire(SESSION, OURS, TTL_MS)
            self.clock.boot_id = None
            self.clock.advance(TTL_S)
            self.clock.step(-TICK_S)
            with pytest.raises(LeaseConflict, match="by the store's clock"):
                await journal.leases.acquire(SESSION, Holder("theirs", "lease-2"), TTL_MS)
            self.clock.step(TICK_S)
            assert (await journal.leases.acquire(SESSION, THEIRS, TTL_MS)).runs_out is None

    async def test_containers_of_one_machine_count_the_same_seconds(self) -> None:
        self.clock.boot_id = f"{HERE}/pid:[1]/time:[1]"
        next_door = Holder("ours", "lease-1", f"{HERE}/pid:[2]/time:[1]")
        async with self.opened() as journal:
            lease = await journal.leases.acquire(SESSION, next_door, TTL_MS)
            self.clock.step(HOUR_S)
            assert lease.runs_out == TTL_S
            with pytest.raises(LeaseConflict):
                await journal.leases.acquire(SESSION, THEIRS, TTL_MS)

    async def test_a_lease_taken_again_names_the_process_that_asked_last(self) -> None:
        async with self.opened() as journal:
            first = await journal.leases.acquire(SESSION, OURS, TTL_MS)
            self.clock.advance(TTL_S)
            again = await journal.leases.acquire(
                SESSION, Holder("ours", "lease-1", "boot-2", 44, "4"), TTL_MS
            )
            assert (again.token, again.acquired_at) == (first.token, first.acquired_at)
            assert (again.boot_id, again.process_id, again.process_started) == ("boot-2", 44, "4")
            assert again.runs_out is None
            assert await journal.leases.validate(SESSION, fence_of(first)) == again

    async def test_a_lease_given_back_runs_out_never(self) -> None:
        async with self.opened() as journal:
            lease = await journal.leases.acquire(SESSION, OURS, TTL_MS)
            await journal.commit(dummy_batch(Cursor.start(SESSION), "c1", fence=fence_of(lease)))
            await journal.leases.release(SESSION, fence_of(lease))
            row = await journal.session(SESSION)
        assert row is not None
        assert row.lease is not None
        assert (row.lease.lease_id, row.lease.runs_out) == (None, None)

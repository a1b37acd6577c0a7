"""The part of the store contract about leases: who holds a session, and who may write."""

from __future__ import annotations

from datetime import timedelta

import pytest

from domain.envelope import Fence
from domain.errors import HeadConflict, InvalidOptions, LeaseConflict, LeaseLost, LeaseRequired
from domain.ports import CommitStatus, Holder, Journal
from minutebook.testing.batches import dummy_batch, end_of
from minutebook.testing.store_suite import SESSION, START, StoreSuite

OURS = Holder("ours", "lease-1")
THEIRS = Holder("theirs", "lease-2")
TTL_S = 30
TTL_MS = 1000 * TTL_S


async def fence_of(journal: Journal, holder: Holder, ttl_ms: int = TTL_MS) -> Fence:
    """Acquire, and what a writer then carries."""
    lease = await journal.leases.acquire(SESSION, holder, ttl_ms)
    return Fence(holder.worker_id, holder.lease_id, lease.token)


class LeaseContract(StoreSuite):
    """`leases`, and what `commit` makes of a fence."""

    async def test_the_first_lease(self) -> None:
        async with self.opened() as journal:
            holder = Holder("ours", "lease-1", "boot", 42, "started")
            lease = await journal.leases.acquire(SESSION, holder, TTL_MS)
        assert (lease.token, lease.lease_id, lease.holder_id) == (1, "lease-1", "ours")
        assert (lease.boot_id, lease.process_id, lease.process_started) == ("boot", 42, "started")
        assert lease.acquired_at == lease.renewed_at == self.clock.now()
        assert lease.expires_at == self.clock.now() + timedelta(milliseconds=TTL_MS)

    async def test_a_session_may_be_leased_before_its_first_event(self) -> None:
        async with self.opened() as journal:
            fence = await fence_of(journal, OURS)
            assert await journal.session(SESSION) is None
            assert await journal.sessions() == []
            await journal.commit(dummy_batch(START, "c1", fence=fence))
            row = await journal.session(SESSION)
        assert row is not None
        assert row.lease is not None
        assert row.lease.token == 1

    async def test_another_live_holder_is_a_conflict_that_names_it(self) -> None:
        async with self.opened() as journal:
            await fence_of(journal, OURS)
            with pytest.raises(LeaseConflict) as refusal:
                await journal.leases.acquire(SESSION, THEIRS, TTL_MS)
        assert refusal.value.holder == "ours"

    async def test_the_same_holder_gets_the_same_token_and_more_time(self) -> None:
        async with self.opened() as journal:
            first = await journal.leases.acquire(SESSION, OURS, TTL_MS)
            self.clock.advance(10)
            again = await journal.leases.acquire(SESSION, OURS, TTL_MS)
        assert again.token == first.token
        assert again.acquired_at == first.acquired_at
        assert again.expires_at == first.expires_at + timedelta(seconds=10)

    async def test_one_worker_s_next_run_is_another_holder(self) -> None:
        async with self.opened() as journal:
            await fence_of(journal, OURS)
            with pytest.raises(LeaseConflict):
                await journal.leases.acquire(SESSION, Holder("ours", "lease-9"), TTL_MS)

    async def test_a_lease_that_ran_out_is_taken_over_with_the_next_token(self) -> None:
        first = dummy_batch(START, "c1")
        async with self.opened() as journal:
            old = await fence_of(journal, OURS)
            self.clock.advance(TTL_S)
            new = await fence_of(journal, THEIRS)
            assert (old.token, new.token) == (1, 2)
            with pytest.raises(LeaseLost):
                await journal.commit(dummy_batch(START, "c1", fence=old))
            await journal.commit(dummy_batch(START, "c1", fence=new))
            assert list(await journal.read(SESSION)) != list(first.events)

    async def test_a_lease_is_live_until_its_last_moment(self) -> None:
        async with self.opened() as journal:
            fence = await fence_of(journal, OURS)
            self.clock.advance(TTL_S - 0.001)
            with pytest.raises(LeaseConflict):
                await journal.leases.acquire(SESSION, THEIRS, TTL_MS)
            await journal.commit(dummy_batch(START, "c1", fence=fence))

    async def test_a_writer_whose_lease_ran_out_is_refused_though_nobody_took_over(self) -> None:
        batch = dummy_batch(START, "c1")
        async with self.opened() as journal:
            fence = await fence_of(journal, OURS)
            self.clock.advance(TTL_S)
            with pytest.raises(LeaseLost):
                await journal.commit(dummy_batch(START, "c1", fence=fence))
            assert list(await journal.read(SESSION)) == []
            await journal.leases.acquire(SESSION, OURS, TTL_MS)
            await journal.commit(dummy_batch(START, batch.command_id, fence=fence))

    async def test_a_leased_session_is_written_with_its_fence_only(self) -> None:
        async with self.opened() as journal:
            fence = await fence_of(journal, OURS)
            with pytest.raises(LeaseRequired):
                await journal.commit(dummy_batch(START, "c1"))
            for other in (
                Fence("ours", "lease-1", fence.token + 1),
                Fence("ours", "lease-9", fence.token),
                Fence("theirs", "lease-1", fence.token),
            ):
                with pytest.raises(LeaseLost):
                    await journal.commit(dummy_batch(START, "c1", fence=other))
            assert list(await journal.read(SESSION)) == []
            await journal.commit(dummy_batch(START, "c1", fence=fence))

    async def test_once_leased_a_session_needs_a_lease_for_ever(self) -> None:
        async with self.opened() as journal:
            fence = await fence_of(journal, OURS)
            self.clock.advance(TTL_S)
            with pytest.raises(LeaseRequired):  # run out
                await journal.commit(dummy_batch(START, "c1"))
            await journal.leases.release(SESSION, fence)
            with pytest.raises(LeaseRequired):  # given back
                await journal.commit(dummy_batch(START, "c1"))

    async def test_a_fence_for_a_session_that_was_never_leased_is_refused(self) -> None:
        first = dummy_batch(START, "c1")
        async with self.opened() as journal:
            fence = Fence("ours", "lease-1", 1)
            with pytest.raises(LeaseLost):
                await journal.commit(dummy_batch(START, "c1", fence=fence))
            await journal.commit(first)
            with pytest.raises(LeaseLost):
                await journal.commit(dummy_batch(end_of(first), "c2", fence=fence))

    async def test_a_command_is_looked_up_before_the_fence_and_the_fence_before_the_head(self) -> None:
        first = dummy_batch(START, "c1")
        async with self.opened() as journal:
            await journal.commit(first)
            await fence_of(journal, OURS)
            assert (await journal.commit(first)).status is CommitStatus.REPLAYED
            with pytest.raises(LeaseRequired):
                await journal.commit(dummy_batch(START, "c2"))
            with pytest.raises(HeadConflict):
                await journal.commit(dummy_batch(START, "c2", fence=await fence_of(journal, OURS)))

    async def test_renewing(self) -> None:
        async with self.opened() as journal:
            fence = await fence_of(journal, OURS)
            self.clock.advance(TTL_S - 0.001)
            renewed = await journal.leases.renew(SESSION, fence, TTL_MS)
            assert renewed.token == fence.token
            self.clock.advance(TTL_S - 0.001)
            assert await journal.leases.validate(SESSION, fence) == renewed
            self.clock.advance(0.001)
            with pytest.raises(LeaseLost):
                await journal.leases.renew(SESSION, fence, TTL_MS)
            with pytest.raises(LeaseLost):
                await journal.leases.validate(SESSION, fence)

    async def test_a_lost_lease_can_not_be_renewed(self) -> None:
        async with self.opened() as journal:
            fence = await fence_of(journal, OURS)
            self.clock.advance(TTL_S)
            await fence_of(journal, THEIRS)
            with pytest.raises(LeaseLost):
                await journal.leases.renew(SESSION, fence, TTL_MS)
            with pytest.raises(LeaseLost):
                await journal.leases.renew("session-2", fence, TTL_MS)

    async def test_a_released_lease_is_free_at_once_and_the_token_goes_on(self) -> None:
        async with self.opened() as journal:
            fence = await fence_of(journal, OURS)
            await journal.leases.release(SESSION, fence)
            with pytest.raises(LeaseLost):
                await journal.leases.validate(SESSION, fence)
            assert (await fence_of(journal, THEIRS)).token == 2
            await journal.leases.release(SESSION, Fence("theirs", "lease-2", 2))
            assert (await fence_of(journal, OURS)).token == 3

    async def test_releasing_what_is_not_ours_does_nothing(self) -> None:
        async with self.opened() as journal:
            old = await fence_of(journal, OURS)
            self.clock.advance(TTL_S)
            new = await fence_of(journal, THEIRS)
            await journal.leases.release(SESSION, old)
            await journal.leases.release("session-2", old)
            assert (await journal.leases.validate(SESSION, new)).token == 2

    async def test_a_session_row_shows_its_lease(self) -> None:
        async with self.opened() as journal:
            await journal.commit(dummy_batch(START, "c1"))
            fence = await fence_of(journal, OURS)
            row = await journal.session(SESSION)
            assert row is not None
            assert row.lease == await journal.leases.validate(SESSION, fence)
            await journal.leases.release(SESSION, fence)
            row = await journal.session(SESSION)
        assert row is not None
        assert row.lease is not None
        assert (row.lease.token, row.lease.lease_id) == (1, None)

    async def test_a_lease_outlives_the_handle_that_took_it(self) -> None:
        async with self.opened() as journal:
            fence = await fence_of(journal, OURS)
        async with self.opened() as journal:
            assert (await journal.leases.validate(SESSION, fence)).token == fence.token
            with pytest.raises(LeaseConflict):
                await journal.leases.acquire(SESSION, THEIRS, TTL_MS)

    @pytest.mark.parametrize("ttl_ms", [0, -1, 10**12])
    async def test_a_lease_has_a_length(self, ttl_ms: int) -> None:
        async with self.opened() as journal:
            with pytest.raises(InvalidOptions):
                await journal.leases.acquire(SESSION, OURS, ttl_ms)

"""The part of the store contract about leases: who holds a session, and who may write."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from domain.cursor import Cursor
from domain.envelope import Fence
from domain.errors import HeadConflict, InvalidOptions, LeaseConflict, LeaseLost, LeaseRequired
from domain.ports import CommitStatus, Holder, Journal, Listing
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
            before = await self.store_time()
            lease = await journal.leases.acquire(SESSION, holder, TTL_MS)
            after = await self.store_time()
        assert (lease.token, lease.lease_id, lease.holder_id) == (1, "lease-1", "ours")
        assert (lease.boot_id, lease.process_id, lease.process_started) == ("boot", 42, "started")
        assert before <= lease.acquired_at == lease.renewed_at <= after
        assert lease.expires_at == lease.renewed_at + timedelta(milliseconds=TTL_MS)

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
            await self.pass_time(10)
            again = await journal.leases.acquire(SESSION, OURS, TTL_MS)
        assert again.token == first.token
        assert again.acquired_at == first.acquired_at
        assert again.renewed_at >= first.renewed_at + timedelta(seconds=10)
        assert again.expires_at == again.renewed_at + timedelta(milliseconds=TTL_MS)

    async def test_one_worker_s_next_run_is_another_holder(self) -> None:
        async with self.opened() as journal:
            await fence_of(journal, OURS)
            with pytest.raises(LeaseConflict):
                await journal.leases.acquire(SESSION, Holder("ours", "lease-9"), TTL_MS)

    async def test_a_lease_that_ran_out_is_taken_over_with_the_next_token(self) -> None:
        first = dummy_batch(START, "c1")
        async with self.opened() as journal:
            old = await fence_of(journal, OURS)
            await self.pass_time(TTL_S)
            new = await fence_of(journal, THEIRS)
            assert (old.token, new.token) == (1, 2)
            with pytest.raises(LeaseLost):
                await journal.commit(dummy_batch(START, "c1", fence=old))
            await journal.commit(dummy_batch(START, "c1", fence=new))
            assert list(await journal.read(SESSION)) != list(first.events)

    async def test_a_lease_is_live_until_its_last_moment(self) -> None:
        async with self.opened() as journal:
            fence = await fence_of(journal, OURS)
            await self.pass_time(TTL_S - self.tick_s)
            with pytest.raises(LeaseConflict):
                await journal.leases.acquire(SESSION, THEIRS, TTL_MS)
            await journal.commit(dummy_batch(START, "c1", fence=fence))

    async def test_a_journal_says_whether_a_lease_holds_by_the_store_s_clock(self) -> None:
        async with self.opened() as journal:
            fence = await fence_of(journal, OURS)
            await journal.commit(dummy_batch(START, "c1", fence=fence))
            await self._is_held(journal, True)
            await self.pass_time(TTL_S - self.tick_s)
            await self._is_held(journal, True)
            await self.pass_time(self.tick_s)
            await self._is_held(journal, False)
            fence = await fence_of(journal, OURS)
            await self._is_held(journal, True)
            await journal.leases.release(SESSION, fence)
            await self._is_held(journal, False)

    async def _is_held(self, journal: Journal, expected: bool) -> None:
        row = await journal.session(SESSION)
        assert row is not None
        assert row.lease is not None
        assert await journal.lease_lives(row.lease) is expected

    async def test_a_writer_whose_lease_ran_out_is_refused_though_nobody_took_over(self) -> None:
        batch = dummy_batch(START, "c1")
        async with self.opened() as journal:
            fence = await fence_of(journal, OURS)
            await self.pass_time(TTL_S)
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
            await self.pass_time(TTL_S)
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
            await self.pass_time(TTL_S - self.tick_s)
            renewed = await journal.leases.renew(SESSION, fence, TTL_MS)
            assert renewed.token == fence.token
            await self.pass_time(TTL_S - self.tick_s)
            assert await journal.leases.validate(SESSION, fence) == renewed
            await self.pass_time(self.tick_s)
            with pytest.raises(LeaseLost):
                await journal.leases.renew(SESSION, fence, TTL_MS)
            with pytest.raises(LeaseLost):
                await journal.leases.validate(SESSION, fence)

    async def test_a_lost_lease_can_not_be_renewed(self) -> None:
        async with self.opened() as journal:
            fence = await fence_of(journal, OURS)
            await self.pass_time(TTL_S)
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
            await self.pass_time(TTL_S)
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

    # --- looking for work -----------------------------------------------------------------

    async def with_work(self, journal: Journal, *names: str) -> None:
        """Sessions of these names whose next action is `go_on`."""
        for name in names:
            await journal.commit(dummy_batch(Cursor.start(name), "c1", listing=Listing("open", "go_on")))

    async def free(self, journal: Journal, **options: Any) -> list[str]:
        """The sessions with the action `go_on` that nobody holds."""
        return [row.session_id for row in await journal.leases.free({"go_on", "or_else"}, **options)]

    async def test_sessions_with_work_that_nobody_holds_come_by_id_and_in_pages(self) -> None:
        async with self.opened() as journal:
            assert await self.free(journal) == []
            await self.with_work(journal, "b", "d", "a", "c")
            assert await self.free(journal, limit=3) == ["a", "b", "c"]
            assert await self.free(journal, after="b") == ["c", "d"]
            assert await self.free(journal, after="d") == []
            row = await journal.session("a")
            assert list(await journal.leases.free({"go_on"}, limit=1)) == [row]

    async def test_only_the_actions_that_were_asked_for(self) -> None:
        async with self.opened() as journal:
            for name, action in (("a", "none"), ("b", "or_else"), ("c", "ask"), ("d", "go_on")):
                await journal.commit(dummy_batch(Cursor.start(name), "c1", listing=Listing("open", action)))
            assert await self.free(journal) == ["b", "d"]
            assert list(await journal.leases.free(())) == []

    async def test_what_is_held_is_not_free_until_its_time_is_over_or_it_is_given_back(self) -> None:
        async with self.opened() as journal:
            await self.with_work(journal, SESSION, "a", "z")
            fence = await fence_of(journal, OURS)
            assert await self.free(journal) == ["a", "z"]
            assert await self.free(journal, limit=2) == ["a", "z"]  # a page is filled, whatever is left out
            await self.pass_time(TTL_S - self.tick_s)
            assert await self.free(journal) == ["a", "z"]
            await self.pass_time(self.tick_s)
            assert await self.free(journal) == ["a", SESSION, "z"]
            assert (await fence_of(journal, THEIRS)).token == fence.token + 1
            await journal.leases.release(SESSION, Fence("theirs", "lease-2", 2))
            assert await self.free(journal) == ["a", SESSION, "z"]

    async def test_no_work_is_found_where_there_is_no_event_or_in_others_sessions(self) -> None:
        async with self.opened() as journal, self.opened("somebody") as theirs:
            await journal.leases.acquire("empty", OURS, 1)
            await self.with_work(journal, "a")
            await self.pass_time(1)
            assert await self.free(journal) == ["a"]
            assert await self.free(theirs) == []

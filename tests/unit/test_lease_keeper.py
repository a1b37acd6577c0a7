"""The thread that keeps leases: how long a lease counts, and what it leaves behind."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from adapters.lease_keeper import ThreadLeaseKeeper
from adapters.memory_journal import MemoryStore
from domain.errors import InvalidOptions, LeaseConflict, LeaseLost, StoreTimeout
from domain.ports import Holder, Journal, LeaseTimes
from minutebook.lease_config import LeaseConfig
from tests.session.leasing import OddLeases, Renewals, SteppedClock, keeping, until

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

TIMES = LeaseTimes(ttl_s=30, heartbeat_s=10, store_timeout_s=15)
HOLDER = Holder("w1", "l1")


@pytest.fixture
async def journal() -> AsyncIterator[Journal]:
    """A store in memory."""
    async with MemoryStore().open() as journal:
        yield journal


async def test_it_counts_from_before_it_was_asked_for_until_a_second_before_its_end(journal: Journal) -> None:
    clock = SteppedClock()

    class Slow(OddLeases):
        async def acquire(self, *arguments: Any) -> Any:
            row = await self.inner.acquire(*arguments)
            clock.seconds += 5  # the answer takes its time
            return row

    renewals = Renewals("hang")
    held = await ThreadLeaseKeeper(clock).hold(Slow(journal.leases, renewals), "s1", HOLDER, TIMES)
    clock.seconds = 28.9
    held.check()
    clock.seconds = 29.0
    with pytest.raises(LeaseLost, match=r"not renewed for 29\.0 seconds"):
        held.check()
    clock.seconds = 0.0
    with pytest.raises(LeaseLost):  # lost is lost
        held.check()
    await held.release()
    assert keeping() == []


async def test_a_renewal_counts_from_before_it_was_asked_for(journal: Journal) -> None:
    clock, renewals = SteppedClock(), Renewals()
    held = await ThreadLeaseKeeper(clock).hold(OddLeases(journal.leases, renewals), "s1", HOLDER, TIMES)
    first = held.row
    clock.seconds = 10
    await until(lambda: held.row is not first)
    clock.seconds = 38.9
    held.check()
    renewals.how = "fail"
    clock.seconds = 39.0
    with pytest.raises(LeaseLost):
        held.check()
    await held.release()


async def test_the_loss_is_told_where_nobody_asks(journal: Journal) -> None:
    clock, renewals = SteppedClock(), Renewals("fail")
    held = await ThreadLeaseKeeper(clock).hold(OddLeases(journal.leases, renewals), "s1", HOLDER, TIMES)
    told: list[BaseException] = []

    async def wait() -> None:
        told.append(await held.lost())

    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(wait)
        clock.seconds = 10
        await until(lambda: renewals.asked == 1)
        clock.seconds = 29
    assert [str(each) for each in told] == [str(await held.lost())] * 2
    assert "the last try failed: far away: no answer" in str(told[0])
    await held.release()


async def test_a_failed_renewal_is_tried_again_before_the_next_one_is_due(journal: Journal) -> None:
    clock, renewals = SteppedClock(), Renewals("fail")
    held = await ThreadLeaseKeeper(clock).hold(OddLeases(journal.leases, renewals), "s1", HOLDER, TIMES)
    first = held.row
    for clock.seconds in (10, 13):
        await until(lambda: clock.seconds + 3 in clock.awaited)
    assert renewals.asked == 2
    held.check()
    renewals.how = "answer"
    clock.seconds = 16
    await until(lambda: held.row is not first)
    clock.seconds = 40
    held.check()
    await held.release()


async def test_giving_back_is_losing_it_and_frees_it_at_once(journal: Journal) -> None:
    keeper = ThreadLeaseKeeper()
    held = await keeper.hold(journal.leases, "s1", HOLDER, TIMES)
    with pytest.raises(LeaseConflict):
        await keeper.hold(journal.leases, "s1", Holder("w2", "l2"), TIMES)
    held.check()
    await held.release()
    await held.release()
    assert held.row.lease_id is None
    with pytest.raises(LeaseLost, match="given back"):
        held.check()
    assert isinstance(await held.lost(), LeaseLost)
    other = await keeper.hold(journal.leases, "s1", Holder("w2", "l2"), TIMES)
    assert other.fence.token == 2
    await other.release()
    assert keeping() == []


async def test_a_store_that_does_not_answer_gives_no_lease_and_leaves_no_thread(journal: Journal) -> None:
    class Silent(OddLeases):
        async def acquire(self, *arguments: Any) -> Any:
            await anyio.sleep_forever()

    quick = LeaseTimes(ttl_s=30, heartbeat_s=10, store_timeout_s=0.05)
    with pytest.raises(StoreTimeout):
        await ThreadLeaseKeeper().hold(Silent(journal.leases, Renewals()), "s1", HOLDER, quick)
    assert keeping() == []


async def test_a_store_that_cannot_take_it_back_lets_it_run_out(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    class Mute(OddLeases):
        async def release(self, *arguments: Any) -> None:
            await anyio.sleep_forever()

    quick = LeaseTimes(ttl_s=30, heartbeat_s=10, store_timeout_s=0.05)
    held = await ThreadLeaseKeeper().hold(Mute(journal.leases, Renewals()), "s1", HOLDER, quick)
    await held.release()
    assert "runs out by itself" in caplog.text
    assert keeping() == []


async def test_several_are_kept_by_one_thread(journal: Journal) -> None:
    keeper, before = ThreadLeaseKeeper(), threading.active_count()
    held = [await keeper.hold(journal.leases, f"s{n}", HOLDER, TIMES) for n in range(5)]
    assert keeping() == ["keeps leases"]
    for each in held[1:]:
        await each.release()
    held[0].check()
    assert keeping() == ["keeps leases"]
    await held[0].release()
    assert keeping() == []
    assert threading.active_count() <= before + 1  # a worker thread of the event loop


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"ttl_s": 0.5}, "ttl_s"),
        ({"ttl_s": 10**400}, "ttl_s"),
        ({"ttl_s": "30"}, "ttl_s"),
        ({"ttl_s": True}, "ttl_s"),
        ({"ttl_s": float("nan")}, "ttl_s"),
        ({"ttl_s": 86_401}, "ttl_s"),
        ({"heartbeat_s": 16}, "heartbeat_s"),
        ({"heartbeat_s": 0}, "heartbeat_s"),
        ({"store_timeout_s": 31}, "store_timeout_s"),
        ({"store_timeout_s": None}, "store_timeout_s"),
        ({"worker_id": ""}, "worker_id"),
        ({"worker_id": "\ud800"}, "worker_id"),
        ({"worker_id": "a\0b"}, "worker_id"),
        ({"lease_id": "\0"}, "lease_id"),
        ({"lease_id": 7}, "lease_id"),
    ],
    ids=repr,
)
async def test_options_that_cannot_work_are_refused_by_name(options: dict[str, Any], option: str) -> None:
    with pytest.raises(InvalidOptions) as refused:
        LeaseConfig(**options)
    assert refused.value.option == f"lease.{option}"


@pytest.mark.parametrize(("ttl_s", "heartbeat_s"), [(30.0, 10.0), (90.0, 10.0), (6.0, 2.0)])
async def test_the_heartbeat_follows_from_the_length(ttl_s: float, heartbeat_s: float) -> None:
    assert LeaseConfig(ttl_s=ttl_s).times() == LeaseTimes(ttl_s, heartbeat_s, 15.0)

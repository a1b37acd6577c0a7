"""The part of the store contract for stores that outlive a process.

class TestMyStore(DurableContract, StoreContract):
    def make_store(self, clock): ...
    def same_store(self, timeout_s): ...
    def held_up(self): ...
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import anyio
import pytest

from domain.cursor import Cursor
from domain.envelope import Fence
from domain.errors import LeaseConflict, LeaseRequired, StoreTimeout
from domain.ports import CommitStatus, Holder, Journal, StoreDescription
from minutebook.testing.batches import OWNER, dummy_batch, end_of
from minutebook.testing.store_suite import SESSION, START, StoreSuite

TWO = (b'{"n":1}', b'{"n":2}')
OURS, THEIRS = Holder("ours", "lease-1"), Holder("theirs", "lease-2")
#: How long a call may take beyond the time that its store was given.
GRACE_S = 5.0


class DurableContract(StoreSuite):
    """What is durable is there for whoever opens the store next; nobody waits for ever."""

    def same_store(self, timeout_s: float) -> StoreDescription:
        """The test's store described once more, as another process would, with `self.clock`.

        Args:
            timeout_s: how long its calls may wait for somebody else.
        """
        raise NotImplementedError(
            "a durable store's suite says how to describe it again: same_store(timeout_s)"
        )

    def held_up(self) -> AbstractAsyncContextManager[object]:
        """While this is entered, somebody else holds the engine's lock and no one can write."""
        raise NotImplementedError("a durable store's suite says how its engine is held up: held_up()")

    async def test_it_says_that_it_is_durable(self) -> None:
        assert self.store.durable
        assert self.same_store(1.0) is not self.store

    async def test_everything_is_there_for_another_description(self) -> None:
        first = dummy_batch(START, "c1", TWO, blobs=[b"blob"], snapshot_state=b"state")
        redacted = replace(dummy_batch(end_of(first), "c2").events[0], payload=None, salt=None)
        second = replace(dummy_batch(end_of(first), "c2"), events=(redacted,))
        async with self.opened() as journal:
            receipt = await journal.commit(first)
            await journal.commit(second)
            row = await journal.session(SESSION)
        async with self.same_store(15.0).open(owner_id=OWNER) as journal:
            assert tuple(await journal.read(SESSION)) == first.events + second.events
            assert await journal.session(SESSION) == row
            assert list(await journal.sessions()) == [row]
            assert await journal.snapshot(SESSION) == first.snapshot
            assert await journal.blob(first.blobs[0].digest) == b"blob"
            assert await journal.command(SESSION, "c1") == (first.fingerprint, receipt)
            assert await journal.commit(first) == replace(receipt, status=CommitStatus.REPLAYED)
            assert await journal.settle(first) == replace(receipt, status=CommitStatus.RECONCILED)

    async def test_a_lease_and_its_token_are_there_for_another_description(self) -> None:
        async with self.opened() as journal:
            lease = await journal.leases.acquire(SESSION, OURS, 30_000)
        async with self.same_store(15.0).open(owner_id=OWNER) as journal:
            fence = Fence("ours", "lease-1", lease.token)
            assert await journal.leases.validate(SESSION, fence) == lease
            with pytest.raises(LeaseConflict):
                await journal.leases.acquire(SESSION, THEIRS, 30_000)
            await journal.leases.release(SESSION, fence)
        async with self.opened() as journal:
            with pytest.raises(LeaseRequired):
                await journal.commit(dummy_batch(START, "c1"))
            assert (await journal.leases.acquire(SESSION, THEIRS, 30_000)).token == lease.token + 1

    @pytest.mark.parametrize("call", ["commit", "acquire"])
    async def test_a_call_that_is_held_up_ends_in_time_and_did_nothing(self, call: str) -> None:
        batch = dummy_batch(START, "c1", TWO)

        async def ask(journal: Journal) -> object:
            if call == "commit":
                return await journal.commit(batch)
            return await journal.leases.acquire(SESSION, OURS, 30_000)

        async with self.same_store(0.3).open(owner_id=OWNER) as journal:
            await journal.commit(dummy_batch(Cursor.start("session-2"), "c1"))
            async with self.held_up():
                with anyio.fail_after(0.3 + GRACE_S), pytest.raises(StoreTimeout):
                    await ask(journal)
        async with self.opened() as journal:  # with the usual patience
            assert await journal.command(SESSION, "c1") is None
            assert (await journal.commit(batch)).status is CommitStatus.COMMITTED
            assert [row.session_id for row in await journal.sessions()] == [SESSION, "session-2"]

"""The part of the store contract about cancelled calls: what was begun is there or not, and can be told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from domain.cursor import Cursor
from domain.errors import HeadConflict, LeaseConflict, MinutebookError
from domain.ports import Batch, CommitStatus, Holder, Journal, Receipt
from minutebook.testing.batches import dummy_batch, end_of
from minutebook.testing.commit_contract import assert_no_trace, outcome_of
from minutebook.testing.store_suite import SESSION, START, StoreSuite

TWO = (b'{"n":1}', b'{"n":2}')
#: After how many turns of the event loop a call is cancelled: before it began, then ever later.
TURNS = [0, 1, 2, 3, 5, 9, 30]


class CancellationContract(StoreSuite):
    """Every call may be cancelled at any moment; a `commit` is then settled by its command."""

    async def cancelled(self, call: Callable[[], Awaitable[Any]], turns: int) -> None:
        """Cancel a call after some turns of the event loop. It has to end, whatever comes of it."""
        scope = anyio.CancelScope()

        async def run() -> None:
            with scope:
                await call()

        with anyio.fail_after(self.patience_s):
            async with anyio.create_task_group() as tasks:
                if turns == 0:
                    scope.cancel()
                tasks.start_soon(run)
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()

    async def test_a_cancelled_commit_is_there_or_not_and_settling_says_which(self) -> None:
        async with self.opened() as journal:
            for turns in TURNS:
                await self._is_there_or_not(journal, f"session-{turns}", turns)

    async def _is_there_or_not(self, journal: Journal, name: str, turns: int) -> None:
        blob = f"blob {turns}".encode()
        batch = dummy_batch(Cursor.start(name), "c1", TWO, blobs=[blob], snapshot_state=b"state")
        await self.cancelled(lambda: journal.commit(batch), turns)
        settled = await journal.settle(batch)
        if settled is None:
            assert list(await journal.read(name)) == []
            assert await journal.snapshot(name) is None
            await assert_no_trace(journal, replace(batch, blobs=()))
        else:
            assert settled == Receipt(CommitStatus.RECONCILED, 1, 2, batch.events[-1].head)
            assert tuple(await journal.read(name)) == batch.events
            assert await journal.snapshot(name) == batch.snapshot
            assert await journal.blob(batch.blobs[0].digest) == blob
        again = await journal.commit(batch)
        assert again.status is (CommitStatus.COMMITTED if settled is None else CommitStatus.REPLAYED)
        assert tuple(await journal.read(name)) == batch.events

    async def test_a_cancelled_commit_that_was_settled_can_not_come_later(self) -> None:
        expected: dict[str, Batch] = {}
        async with self.opened() as journal:
            for turns in TURNS:
                name = f"session-{turns}"
                cancelled = dummy_batch(Cursor.start(name), "c1", (b'{"cancelled":1}',))
                other = dummy_batch(Cursor.start(name), "c2", (b'{"other":1}',))
                await self.cancelled(partial(journal.commit, cancelled), turns)
                absent = await journal.settle(cancelled) is None
                if absent:
                    await journal.commit(other)
                with pytest.raises(HeadConflict):
                    await journal.commit(cancelled if absent else other)
                expected[name] = other if absent else cancelled
        async with self.opened() as journal:  # closing waits for what is under way
            for name, batch in expected.items():
                assert tuple(await journal.read(name)) == batch.events

    async def test_a_cancelled_commit_takes_nobody_else_along(self) -> None:
        async with self.opened() as journal:
            for turns in TURNS:
                place = Cursor.start(f"session-{turns}")
                batch = dummy_batch(place, "c1", TWO)
                others = [dummy_batch(Cursor.start(f"beside-{turns}-{n}"), "c1", TWO) for n in range(4)]
                outcomes: list[Receipt | MinutebookError] = []
                async with anyio.create_task_group() as tasks:
                    for other in others:
                        tasks.start_soon(outcome_of, journal, other, outcomes)
                    await self.cancelled(partial(journal.commit, batch), turns)
                assert [x.status for x in outcomes if isinstance(x, Receipt)] == [CommitStatus.COMMITTED] * 4
                await journal.settle(batch)
                await self._goes_on(journal, place.session_id, turns)

    async def test_a_handle_goes_on_after_a_cancelled_read(self) -> None:
        async with self.opened() as journal:
            await journal.commit(dummy_batch(START, "c1", TWO))
            for turns in TURNS:
                for call in (
                    lambda: journal.read(SESSION),
                    lambda: journal.session(SESSION),
                    lambda: journal.sessions(),
                    lambda: journal.commands(SESSION, ["c1"]),
                    lambda: journal.snapshot(SESSION),
                    lambda: journal.blob("0" * 64),
                ):
                    await self.cancelled(call, turns)
                await self._goes_on(journal, SESSION, turns)

    async def test_a_cancelled_acquire_got_the_lease_or_not(self) -> None:
        ours, theirs = Holder("ours", "lease-1"), Holder("theirs", "lease-2")
        async with self.opened() as journal:
            for turns in TURNS:
                acquire = partial(journal.leases.acquire, f"session-{turns}")
                await self.cancelled(partial(acquire, ours, 30_000), turns)
                assert (await acquire(ours, 30_000)).token == 1
                await self.cancelled(partial(acquire, theirs, 30_000), 0)
                with pytest.raises(LeaseConflict):
                    await acquire(theirs, 30_000)

    async def _goes_on(self, journal: Journal, name: str, turns: int) -> None:
        row = await journal.session(name)
        place = Cursor.start(name) if row is None else Cursor(name, row.sequence, row.head)
        batch = dummy_batch(place, f"next-{turns}", TWO)
        assert (await journal.commit(batch)).status is CommitStatus.COMMITTED
        assert tuple(await journal.read(name, after=place.sequence)) == batch.events
        assert end_of(batch).head == (await journal.commit(batch)).head

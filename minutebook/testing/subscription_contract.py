"""The part of the store contract about subscriptions: everything, in order, as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from domain.cursor import Cursor
from domain.envelope import Stored
from domain.errors import CursorMismatch
from domain.limits import MAX_EVENTS_PER_COMMIT
from domain.ports import Batch, Journal
from minutebook.testing.batches import dummy_batch, end_of
from minutebook.testing.store_suite import SESSION, START, StoreSuite


def batches(count: int, start: Cursor = START) -> list[Batch]:
    """Batches of two events that follow one another."""
    made: list[Batch] = []
    for number in range(count):
        place = end_of(made[-1]) if made else start
        made.append(dummy_batch(place, f"c{number}", (b'{"n":1}', b'{"n":2}')))
    return made


async def commit_all(journal: Journal, made: list[Batch]) -> None:
    """Commit batches one after another."""
    for batch in made:
        await journal.commit(batch)


ELSEWHERE = b"a head that this journal never had"[:32]
#: Of a session with two events, beside another one with two.
NOT_THERE = [
    Cursor(SESSION, 0, ELSEWHERE),
    Cursor(SESSION, 1, ELSEWHERE),
    Cursor(SESSION, 2, ELSEWHERE),
    Cursor(SESSION, 3, ELSEWHERE),
    Cursor(SESSION, 99, ELSEWHERE),
    Cursor(SESSION, 2**64, ELSEWHERE),
    Cursor(SESSION, -1, START.head),
    Cursor.start("session-2"),
    end_of(*batches(1, Cursor.start("session-2"))),
]


class SubscriptionContract(StoreSuite):
    """`subscribe`."""

    async def take(self, rows: AsyncIterator[Stored], count: int) -> list[Stored]:
        """The next `count` rows."""
        with anyio.fail_after(self.patience_s):
            return [await anext(rows) for _ in range(count)]

    async def test_what_is_there_comes_first_and_then_what_is_committed(self) -> None:
        made = batches(6)
        expected = [event for batch in made for event in batch.events]
        async with self.opened() as journal:
            await commit_all(journal, made[:3])
            rows = journal.subscribe(SESSION)
            assert await self.take(rows, 4) == expected[:4]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(commit_all, journal, made[3:])
                assert await self.take(rows, 8) == expected[4:]

    @pytest.mark.parametrize("sequence", [0, 1, 3, 4])
    async def test_a_subscription_may_begin_after_any_place(self, sequence: int) -> None:
        made = batches(3)
        expected = [event for batch in made for event in batch.events]
        places = [START, *map(Cursor.after, expected)]
        async with self.opened() as journal:
            await commit_all(journal, made[:2])
            rows = journal.subscribe(SESSION, after=places[sequence])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(commit_all, journal, made[2:])
                assert await self.take(rows, 6 - sequence) == expected[sequence:]

    async def test_a_subscription_waits_for_the_first_event(self) -> None:
        (batch,) = batches(1)
        async with self.opened() as journal:
            rows = journal.subscribe(SESSION)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(commit_all, journal, [batch])
                assert tuple(await self.take(rows, 2)) == batch.events

    async def test_many_subscribers_each_get_everything(self) -> None:
        made = batches(10)
        expected = [event for batch in made for event in batch.events]
        got: list[list[Stored]] = []

        async def listen(journal: Journal) -> None:
            got.append(await self.take(journal.subscribe(SESSION), len(expected)))

        async with self.opened() as journal, anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(listen, journal)
            tasks.start_soon(commit_all, journal, made)
        assert got == [expected] * 5

    async def test_a_slow_subscriber_loses_nothing(self) -> None:
        made = [dummy_batch(START, "c0", [b"{}"] * MAX_EVENTS_PER_COMMIT)]
        while len(made) < 8:
            made.append(dummy_batch(end_of(made[-1]), f"c{len(made)}", [b"{}"] * MAX_EVENTS_PER_COMMIT))
        async with self.opened() as journal:
            rows = journal.subscribe(SESSION)
            await commit_all(journal, made)
            expected = list(range(1, 8 * MAX_EVENTS_PER_COMMIT + 1))
            assert [row.sequence for row in await self.take(rows, len(expected))] == expected

    async def test_other_sessions_and_owners_are_not_heard(self) -> None:
        made = batches(1)
        async with self.opened() as journal, self.opened("somebody") as theirs:
            rows = journal.subscribe(SESSION)
            await commit_all(journal, batches(2, Cursor.start("session-2")))
            await theirs.commit(dummy_batch(Cursor.start("session-3"), "c1", owner_id="somebody"))
            await commit_all(journal, made)
            assert [row.session_id for row in await self.take(rows, 2)] == [SESSION] * 2

    async def test_another_handle_s_commits_are_heard(self) -> None:
        made = batches(2)
        async with self.opened() as journal, self.opened() as other:
            rows = journal.subscribe(SESSION)
            await commit_all(other, made)
            assert [row.sequence for row in await self.take(rows, 4)] == [1, 2, 3, 4]

    @pytest.mark.parametrize("there", NOT_THERE, ids=str)
    async def test_a_place_that_the_journal_does_not_have_is_refused(self, there: Cursor) -> None:
        """It was restored from a copy, lost its end, or is another session's."""
        async with self.opened() as journal:
            await commit_all(journal, batches(1))
            await commit_all(journal, batches(1, Cursor.start("session-2")))
            with pytest.raises(CursorMismatch) as refused, anyio.fail_after(self.patience_s):
                await anext(journal.subscribe(SESSION, after=there))
        assert refused.value.expected == str(there)

    async def test_a_place_in_a_session_that_is_gone_is_refused(self) -> None:
        (batch,) = batches(1)
        async with self.opened() as journal:
            with pytest.raises(CursorMismatch) as refused, anyio.fail_after(self.patience_s):
                await anext(journal.subscribe(SESSION, after=end_of(batch)))
        assert refused.value.actual == "no such event"

    async def test_a_cancelled_subscriber_goes_on_where_it_was(self) -> None:
        made = batches(2)
        async with self.opened() as journal:
            rows = journal.subscribe(SESSION)
            with anyio.CancelScope() as scope:
                scope.cancel()
                await anext(rows)
            await commit_all(journal, made)
            assert [row.sequence for row in await self.take(rows, 4)] == [1, 2, 3, 4]

    async def test_subscriptions_end_when_the_handle_is_closed(self) -> None:
        got: list[Stored] = []
        waiting = anyio.Event()

        async def listen(journal: Journal) -> None:
            async for row in journal.subscribe(SESSION):
                got.append(row)
                if len(got) == 2:
                    waiting.set()

        with anyio.fail_after(self.patience_s):
            async with anyio.create_task_group() as tasks, self.opened() as journal:
                await commit_all(journal, batches(1))
                tasks.start_soon(listen, journal)
                await waiting.wait()
        assert [row.sequence for row in got] == [1, 2]

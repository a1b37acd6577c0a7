"""The part of the store contract about commits: all or nothing, once, where expected."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import anyio
import pytest

from domain.cursor import Cursor
from domain.envelope import genesis
from domain.errors import CommandConflict, HeadConflict, MinutebookError, Rejected, SessionNotFound
from domain.limits import MAX_EVENTS_PER_COMMIT, MAX_PAYLOAD_BYTES
from domain.ports import Batch, Blob, CommitStatus, Journal, Listing, Receipt
from minutebook.testing.batches import dummy_batch, end_of
from minutebook.testing.store_suite import SESSION, START, StoreSuite

TWO = (b'{"n":1}', b'{"n":2}')
#: What `malformed` knows.
MALFORMED = "empty long gap chain foreign half big id command fingerprint snapshot blob".split()


class CommitContract(StoreSuite):
    """`commit` and `settle`."""

    async def test_a_commit_is_read_back_byte_for_byte(self) -> None:
        batch = dummy_batch(START, "c1", TWO)
        async with self.opened() as journal:
            receipt = await journal.commit(batch)
            assert receipt == Receipt(CommitStatus.COMMITTED, 1, 2, batch.events[-1].head)
            assert tuple(await journal.read(SESSION)) == batch.events

    async def test_commits_follow_one_another(self) -> None:
        first = dummy_batch(START, "c1", TWO)
        second = dummy_batch(end_of(first), "c2", TWO)
        async with self.opened() as journal:
            await journal.commit(first)
            receipt = await journal.commit(second)
            assert (receipt.first_sequence, receipt.last_sequence) == (3, 4)
            assert tuple(await journal.read(SESSION)) == first.events + second.events

    async def test_what_was_committed_is_there_when_the_store_is_opened_again(self) -> None:
        batch = dummy_batch(START, "c1", TWO, blobs=[b"blob"], snapshot_state=b"state")
        async with self.opened() as journal:
            await journal.commit(batch)
        async with self.opened() as journal:
            assert tuple(await journal.read(SESSION)) == batch.events
            assert await journal.snapshot(SESSION) == batch.snapshot
            assert await journal.blob(batch.blobs[0].digest) == b"blob"

    async def test_the_session_row_stands_at_the_last_event(self) -> None:
        first = dummy_batch(START, "c1", listing=Listing("open", "none"))
        second = dummy_batch(end_of(first), "c2", TWO, listing=Listing("closed", "none"))
        async with self.opened() as journal:
            moments = [await self.store_time()]
            await journal.commit(first)
            moments.append(await self.store_time())
            await self.pass_time(5)
            moments.append(await self.store_time())
            await journal.commit(second)
            moments.append(await self.store_time())
            row = await journal.session(SESSION)
        assert row is not None
        assert (row.sequence, row.head, row.listing) == (3, second.events[-1].head, second.listing)
        assert moments[0] <= row.created_at <= moments[1]
        assert moments[2] <= row.updated_at <= moments[3]
        assert row.lease is None

    async def test_the_same_command_again_is_replayed_wherever_the_head_is(self) -> None:
        first = dummy_batch(START, "c1", TWO)
        async with self.opened() as journal:
            committed = await journal.commit(first)
            await journal.commit(dummy_batch(end_of(first), "c2"))
            again = await journal.commit(first)
            assert again == replace(committed, status=CommitStatus.REPLAYED)
            assert len(await journal.read(SESSION)) == 3

    async def test_a_command_decides_by_its_fingerprint_and_not_by_its_events(self) -> None:
        first = dummy_batch(START, "c1", (b'{"minted":1}',), fingerprint=b"f" * 32)
        retried = dummy_batch(START, "c1", (b'{"minted":2}',), fingerprint=b"f" * 32)
        async with self.opened() as journal:
            committed = await journal.commit(first)
            assert (await journal.commit(retried)).head == committed.head

    async def test_a_command_id_used_for_something_else_is_a_conflict(self) -> None:
        first = dummy_batch(START, "c1")
        async with self.opened() as journal:
            await journal.commit(first)
            for place in (START, end_of(first)):  # looked up before the head is compared
                with pytest.raises(CommandConflict):
                    await journal.commit(dummy_batch(place, "c1", (b'{"other":true}',)))
            assert tuple(await journal.read(SESSION)) == first.events

    async def test_a_command_id_is_one_session_s_own(self) -> None:
        async with self.opened() as journal:
            await journal.commit(dummy_batch(START, "c1"))
            receipt = await journal.commit(dummy_batch(Cursor.start("session-2"), "c1"))
            assert receipt.status is CommitStatus.COMMITTED

    async def test_another_head_is_a_conflict_and_writes_nothing(self) -> None:
        first = dummy_batch(START, "c1", TWO)
        late = dummy_batch(START, "c2", blobs=[b"late"])
        async with self.opened() as journal:
            await journal.commit(first)
            with pytest.raises(HeadConflict) as refusal:
                await journal.commit(late)
            assert (refusal.value.expected, refusal.value.actual) == (0, 2)
            await assert_no_trace(journal, late)
            assert tuple(await journal.read(SESSION)) == first.events

    async def test_a_head_ahead_of_the_journal_is_a_conflict(self) -> None:
        ahead = dummy_batch(Cursor(SESSION, 7, b"h" * 32), "c1")
        async with self.opened() as journal:
            with pytest.raises(HeadConflict):
                await journal.commit(ahead)
            await assert_no_trace(journal, ahead)
            assert await journal.session(SESSION) is None

    async def test_the_right_sequence_with_another_history_is_a_conflict(self) -> None:
        ours = dummy_batch(START, "c1", (b'{"history":"ours"}',))
        theirs = dummy_batch(START, "c1", (b'{"history":"theirs"}',))
        async with self.opened() as journal:
            await journal.commit(ours)
            with pytest.raises(HeadConflict):
                await journal.commit(dummy_batch(end_of(theirs), "c2"))

    async def test_of_commits_at_one_place_one_wins(self) -> None:
        outcomes: list[Receipt | MinutebookError] = []
        batches = [dummy_batch(START, f"c{n}", (b'{"n":%d}' % n,) * 3) for n in range(8)]
        async with self.opened() as journal, anyio.create_task_group() as tasks:
            for batch in batches:
                tasks.start_soon(outcome_of, journal, batch, outcomes)
        won = [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
        assert len(outcomes) == 8
        assert len(won) == 1
        assert all(isinstance(x, HeadConflict) for x in outcomes if x is not won[0])
        async with self.opened() as journal:
            rows = await journal.read(SESSION)
        assert tuple(rows) in [batch.events for batch in batches]

    async def test_one_command_committed_many_times_at_once_is_there_once(self) -> None:
        outcomes: list[Receipt | MinutebookError] = []
        batch = dummy_batch(START, "c1", TWO)
        async with self.opened() as journal, anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(outcome_of, journal, batch, outcomes)
        statuses = sorted(x.status for x in outcomes if isinstance(x, Receipt))
        assert statuses == [CommitStatus.COMMITTED] + [CommitStatus.REPLAYED] * 7
        async with self.opened() as journal:
            assert tuple(await journal.read(SESSION)) == batch.events

    async def test_sessions_commit_side_by_side(self) -> None:
        outcomes: list[Receipt | MinutebookError] = []
        async with self.opened() as journal:
            async with anyio.create_task_group() as tasks:
                for n in range(8):
                    batch = dummy_batch(Cursor.start(f"session-{n}"), "c1", TWO)
                    tasks.start_soon(outcome_of, journal, batch, outcomes)
            assert {x.status for x in outcomes if isinstance(x, Receipt)} == {CommitStatus.COMMITTED}
            assert len(await journal.sessions()) == 8

    async def test_the_biggest_commit_is_taken(self) -> None:
        batch = dummy_batch(START, "c1", [b"{}"] * MAX_EVENTS_PER_COMMIT, snapshot_state=b"state")
        async with self.opened() as journal:
            assert (await journal.commit(batch)).last_sequence == MAX_EVENTS_PER_COMMIT
            assert tuple(await journal.read(SESSION)) == batch.events

    async def test_any_bytes_are_kept(self) -> None:
        payload = bytes(range(256)) + b"\x00\xff\xed\xa0\xbd"
        batch = dummy_batch(START, "c1", (payload, b""))
        async with self.opened() as journal:
            await journal.commit(batch)
            assert [row.payload for row in await journal.read(SESSION)] == [payload, b""]

    async def test_a_redacted_event_is_kept_without_its_content(self) -> None:
        batch = dummy_batch(START, "c1", TWO)
        redacted = replace(batch.events[0], payload=None, salt=None)
        async with self.opened() as journal:
            await journal.commit(replace(batch, events=(redacted, batch.events[1])))
            assert tuple(await journal.read(SESSION)) == (redacted, batch.events[1])

    async def test_a_batch_that_could_not_be_read_back_is_refused(self) -> None:
        async with self.opened() as journal:
            for name in MALFORMED:
                batch = malformed(name)
                with pytest.raises(Rejected):
                    print(name, await journal.commit(batch))  # seen where it is not refused
                await assert_no_trace(journal, batch)
            assert await journal.sessions() == []

    async def test_a_refused_commit_changes_nothing_at_all(self) -> None:
        first = dummy_batch(START, "c1", TWO, snapshot_state=b"first")
        behind = dummy_batch(START, "c2", TWO, snapshot_state=b"behind", blobs=[b"blob"])
        used = dummy_batch(end_of(first), "c1", TWO, snapshot_state=b"used", blobs=[b"blob"])
        async with self.opened() as journal:
            await journal.commit(first)
            before = await journal.session(SESSION)
            await self.pass_time(5)
            for batch in (behind, used, replace(behind, fingerprint=b"short"), first):  # the last: replayed
                await outcome_of(journal, batch, [])
                assert await journal.session(SESSION) == before
                assert await journal.snapshot(SESSION) == first.snapshot
                assert await journal.blob(behind.blobs[0].digest) is None
                assert tuple(await journal.read(SESSION)) == first.events

    async def test_a_batch_of_another_owner_is_refused(self) -> None:
        async with self.opened() as journal:
            with pytest.raises(SessionNotFound):
                await journal.commit(dummy_batch(START, "c1", owner_id="somebody"))

    async def test_settling_a_batch_that_is_there(self) -> None:
        batch = dummy_batch(START, "c1", TWO)
        async with self.opened() as journal:
            committed = await journal.commit(batch)
            settled = await journal.settle(batch)
            assert settled == replace(committed, status=CommitStatus.RECONCILED)

    async def test_settling_a_batch_that_is_not_there_lets_it_be_committed(self) -> None:
        first = dummy_batch(START, "c1")
        batch = dummy_batch(end_of(first), "c2")
        async with self.opened() as journal:
            assert await journal.settle(first) is None
            await journal.commit(first)
            assert await journal.settle(batch) is None
            assert (await journal.commit(batch)).status is CommitStatus.COMMITTED

    async def test_settling_a_command_that_was_used_for_something_else(self) -> None:
        async with self.opened() as journal:
            await journal.commit(dummy_batch(START, "c1"))
            with pytest.raises(CommandConflict):
                await journal.settle(dummy_batch(START, "c1", TWO))


async def outcome_of(journal: Journal, batch: Batch, outcomes: list[Receipt | MinutebookError]) -> None:
    """Commit a batch and note what came of it."""
    try:
        outcomes.append(await journal.commit(batch))
    except MinutebookError as e:
        outcomes.append(e)


async def assert_no_trace(journal: Journal, batch: Batch) -> None:
    """A refused batch left neither its command nor its blobs."""
    assert await journal.command(batch.session_id, batch.command_id) is None
    for blob in batch.blobs:
        assert await journal.blob(blob.digest) is None


def malformed(name: str) -> Batch:
    """A batch with one thing wrong."""
    batch = dummy_batch(START, "c1", TWO, snapshot_state=b"state", blobs=[b"blob"])
    first, second = batch.events
    assert batch.snapshot is not None
    long = dummy_batch(START, "c1", [b"{}"] * (MAX_EVENTS_PER_COMMIT + 1))
    wrong = {
        "empty": replace(batch, events=(), snapshot=None),
        "long": long,
        "gap": replace(batch, events=(first, replace(second, sequence=3)), snapshot=None),
        "chain": replace(batch, events=(first, replace(second, head=genesis("x"))), snapshot=None),
        "foreign": replace(batch, events=(first, replace(second, session_id="session-2"))),
        "half": replace(batch, events=(first, replace(second, payload=None))),
        "big": dummy_batch(START, "c1", [b"x" * (MAX_PAYLOAD_BYTES + 1)]),
        "id": dummy_batch(Cursor.start("no/path"), "c1"),
        "command": replace(batch, command_id="no command"),
        "fingerprint": replace(batch, fingerprint=b"short"),
        "snapshot": replace(batch, snapshot=replace(batch.snapshot, sequence=9)),
        "blob": replace(batch, blobs=(Blob(hashlib.sha256(b"other").hexdigest(), b"blob"),)),
    }
    return wrong[name]

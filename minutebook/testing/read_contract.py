"""The part of the store contract about reading: pages, snapshots, owners, closed handles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain.cursor import Cursor
from domain.errors import SessionNotFound, StoreFailure
from domain.ports import CommitStatus, Holder
from minutebook.testing.batches import dummy_batch, end_of
from minutebook.testing.store_suite import SESSION, START, StoreSuite

TEN = [b'{"n":%d}' % n for n in range(10)]
#: after, upto, limit, and what they select of ten rows
PAGES: list[tuple[int, int | None, int, range]] = [
    (0, None, 256, range(1, 11)),
    (0, None, 3, range(1, 4)),
    (3, None, 3, range(4, 7)),
    (8, None, 256, range(9, 11)),
    (10, None, 256, range(0)),
    (99, None, 256, range(0)),
    (0, 4, 256, range(1, 5)),
    (2, 4, 256, range(3, 5)),
    (2, 8, 2, range(3, 5)),
    (4, 4, 256, range(0)),
    (6, 4, 256, range(0)),
    (0, 99, 256, range(1, 11)),
    (0, 0, 256, range(0)),
]


class ReadContract(StoreSuite):
    """`session`, `sessions`, `read`, `snapshot`, `blob`, `command`."""

    async def test_an_empty_store_has_nothing(self) -> None:
        async with self.opened() as journal:
            assert await journal.session(SESSION) is None
            assert await journal.sessions() == []
            assert list(await journal.read(SESSION)) == []
            assert await journal.snapshot(SESSION) is None
            assert await journal.blob("0" * 64) is None
            assert await journal.command(SESSION, "c1") is None
            assert journal.name

    async def test_pages(self) -> None:
        async with self.opened() as journal:
            await journal.commit(dummy_batch(START, "c1", TEN))
            for after, upto, limit, expected in PAGES:
                rows = await journal.read(SESSION, after=after, upto=upto, limit=limit)
                assert [row.sequence for row in rows] == list(expected), (after, upto, limit)

    async def test_sessions_come_by_id_and_in_pages(self) -> None:
        async with self.opened() as journal:
            for name in ("b", "a", "d", "c"):
                await journal.commit(dummy_batch(Cursor.start(name), "c1"))
            first = await journal.sessions(limit=3)
            rest = await journal.sessions(after=first[-1].session_id)
        assert [row.session_id for row in first] == ["a", "b", "c"]
        assert [row.session_id for row in rest] == ["d"]

    async def test_the_latest_snapshot_at_or_before_a_sequence(self) -> None:
        first = dummy_batch(START, "c1", TEN[:2], snapshot_state=b"at 2")
        second = dummy_batch(end_of(first), "c2", TEN[:2])
        third = dummy_batch(end_of(second), "c3", TEN[:2], snapshot_state=b"at 6")
        async with self.opened() as journal:
            for batch in (first, second, third):
                await journal.commit(batch)
            found = {upto: await journal.snapshot(SESSION, upto=upto) for upto in (1, 2, 5, 6, 99)}
            assert await journal.snapshot(SESSION) == third.snapshot
        assert found == {1: None, 2: first.snapshot, 5: first.snapshot, 6: third.snapshot, 99: third.snapshot}

    async def test_a_blob_is_kept_once_and_stays(self) -> None:
        first = dummy_batch(START, "c1", blobs=[b"shared", b"first"])
        second = dummy_batch(end_of(first), "c2", blobs=[b"shared", b"second", b""])
        async with self.opened() as journal:
            await journal.commit(first)
            await journal.commit(second)
            for blob in first.blobs + second.blobs:
                assert await journal.blob(blob.digest) == blob.data

    async def test_a_command_s_fingerprint_and_receipt(self) -> None:
        batch = dummy_batch(START, "c1", TEN)
        async with self.opened() as journal:
            receipt = await journal.commit(batch)
            assert await journal.command(SESSION, "c1") == (batch.fingerprint, receipt)
            assert receipt.status is CommitStatus.COMMITTED
            assert await journal.command(SESSION, "c2") is None

    async def test_many_commands_at_once(self) -> None:
        first = dummy_batch(START, "c1", TEN)
        second = dummy_batch(end_of(first), "c2", TEN)
        async with self.opened() as journal, self.opened("somebody") as theirs:
            one, two = await journal.commit(first), await journal.commit(second)
            found = await journal.commands(SESSION, ["c2", "c3", "c1"])
            assert found == {"c1": (first.fingerprint, one), "c2": (second.fingerprint, two)}
            assert await journal.commands(SESSION, []) == {}
            assert await journal.commands("s-none", ["c1"]) == {}
            assert await theirs.commands(SESSION, ["c1"]) == {}

    async def test_another_owner_sees_nothing_of_a_session(self) -> None:
        batch = dummy_batch(START, "c1", TEN, snapshot_state=b"state")
        async with self.opened() as ours, self.opened("somebody") as theirs:
            await ours.commit(batch)
            assert await theirs.session(SESSION) is None
            assert await theirs.sessions() == []
            assert list(await theirs.read(SESSION)) == []
            assert await theirs.snapshot(SESSION) is None
            assert await theirs.command(SESSION, "c1") is None

    async def test_another_owner_can_not_write_to_a_session(self) -> None:
        batch = dummy_batch(START, "c1", TEN)
        async with self.opened() as ours, self.opened("somebody") as theirs:
            await ours.commit(batch)
            for attempt in (batch, dummy_batch(end_of(batch), "c2")):
                with pytest.raises(SessionNotFound):
                    await theirs.commit(replace(attempt, owner_id="somebody"))
            with pytest.raises(SessionNotFound):
                await theirs.leases.acquire(SESSION, Holder("worker", "lease"), 1_000)
            assert len(await ours.read(SESSION)) == 10

    async def test_a_closed_handle_is_refused(self) -> None:
        async with self.opened() as journal:
            await journal.commit(dummy_batch(START, "c1"))
        with pytest.raises(StoreFailure):
            await journal.read(SESSION)
        with pytest.raises(StoreFailure):
            await journal.commit(dummy_batch(START, "c2"))

"""The part of the store contract about limits, and about ids and bytes that mean harm."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from domain.cursor import Cursor
from domain.envelope import Fence, Stored
from domain.errors import InvalidOptions, LeaseConflict, LeaseLost, MinutebookError, Rejected
from domain.limits import MAX_BLOB_BYTES, MAX_PAYLOAD_BYTES
from domain.ports import Blob, CommitStatus, Holder, Journal
from minutebook.testing.batches import dummy_batch, end_of
from minutebook.testing.store_suite import SESSION, START, StoreSuite

TWO = (b'{"n":1}', b'{"n":2}')
#: None of them is an id. Each has been somebody's undoing.
HOSTILE = {
    "empty": "",
    "nul": "session-1\0",
    "quote": "' OR 1=1 --",
    "wildcard": "%",
    "path": "../session-1",
    "newline": "session-1\n",
    "space": "session-1 ",
    "accent": "s\u00e9ssion",
    "fullwidth": "\uff53ession-1",
    "upper half": "\ud800",
    "long": "x" * 5000,
}
#: Two ids that a careless collation takes for one.
CASES = ("Session", "session")


class HostileContract(StoreSuite):
    """What does not fit is refused or finds nothing; what fits comes back as it was."""

    async def test_a_hostile_id_finds_nothing(self) -> None:
        batch = dummy_batch(START, "c1", TWO, snapshot_state=b"state", blobs=[b"blob"])
        async with self.opened() as journal:
            await journal.commit(batch)
            for name, hostile in HOSTILE.items():
                assert await found_by(journal, hostile) == [], name
            assert tuple(await journal.read(SESSION)) == batch.events

    async def test_nothing_is_written_under_a_hostile_id(self) -> None:
        batch = dummy_batch(START, "c1", TWO)
        async with self.opened() as journal:
            for hostile in HOSTILE.values():
                events = tuple(replace(event, session_id=hostile) for event in batch.events)
                with pytest.raises(Rejected):
                    await journal.commit(replace(batch, session_id=hostile, events=events))
                with pytest.raises(Rejected):
                    await journal.commit(replace(batch, command_id=hostile))
                with pytest.raises(Rejected):
                    await journal.leases.acquire(hostile, Holder("ours", "lease-1"), 1_000)
            assert list(await journal.sessions()) == []
            assert (await journal.commit(batch)).status is CommitStatus.COMMITTED

    async def test_a_hostile_fence_is_no_fence(self) -> None:
        async with self.opened() as journal:
            lease = await journal.leases.acquire(SESSION, Holder("ours", "lease-1"), 30_000)
            held = Fence("ours", "lease-1", lease.token)
            for hostile in HOSTILE.values():
                for fence in (replace(held, worker_id=hostile), replace(held, lease_id=hostile)):
                    with pytest.raises(LeaseLost):
                        await journal.leases.validate(SESSION, fence)
                    with pytest.raises(LeaseLost):
                        await journal.commit(replace(dummy_batch(START, "c1", TWO), fence=fence))
            assert await journal.leases.validate(SESSION, held) == lease

    async def test_owners_are_told_apart_to_the_letter(self) -> None:
        async with self.opened() as ours:
            for number, owner in enumerate(("o'wner", '"; DROP TABLE', "Local", "local ")):
                batch = dummy_batch(Cursor.start(f"session-{number}"), "c1", TWO, owner_id=owner)
                async with self.opened(owner) as theirs:
                    await theirs.commit(batch)
                    row = await theirs.session(batch.session_id)
                assert row is not None
                assert row.owner_id == owner
                assert await ours.session(batch.session_id) is None

    async def test_it_is_opened_for_one_owner_who_can_be_named(self) -> None:
        for nobody in ("", "no\0body", "\ud800", None, 7):
            with pytest.raises(InvalidOptions, match="owner_id"):
                await self.opened(nobody).__aenter__()  # type: ignore[arg-type]  # what a user may try

    async def test_ids_are_told_apart_to_the_letter(self) -> None:
        async with self.opened() as journal:
            for name in CASES:
                await journal.commit(dummy_batch(Cursor.start(name), "c1", TWO))
                place = end_of(dummy_batch(Cursor.start(name), "c1", TWO))
                await journal.commit(dummy_batch(place, "C1", TWO))
            # By code point, so that a page's end is the next one's beginning in every store.
            assert [row.session_id for row in await journal.sessions()] == sorted(CASES)
            assert set(await journal.commands(CASES[0], ["c1", "C1"])) == {"c1", "C1"}

    async def test_pages_of_sessions_join_without_a_hole(self) -> None:
        names = sorted(["a", "a-", "a.b", "a_", "A", "Z9", "0", "a" * 128, "b1", "b10", "b2", "B"])
        found: list[str] = []
        async with self.opened() as journal:
            for name in names:
                await journal.commit(dummy_batch(Cursor.start(name), "c1"))
            while page := await journal.sessions(after=found[-1] if found else "", limit=5):
                assert len(page) <= 5
                found += [row.session_id for row in page]
        assert found == names

    async def test_pages_of_rows_join_without_a_hole(self) -> None:
        batch = dummy_batch(START, "c1", [b'{"n":%d}' % n for n in range(100)])
        found: list[Stored] = []
        async with self.opened() as journal:
            await journal.commit(batch)
            while page := await journal.read(SESSION, after=len(found), limit=7):
                assert len(page) <= 7
                found += page
        assert tuple(found) == batch.events

    async def test_commands_may_be_asked_for_in_any_number(self) -> None:
        first = dummy_batch(START, "c1", TWO)
        asked = [f"other-{n}" for n in range(300)] + ["c1", "c1", "' OR 1=1 --", ""]
        async with self.opened() as journal:
            receipt = await journal.commit(first)
            assert await journal.commands(SESSION, asked) == {"c1": (first.fingerprint, receipt)}

    async def test_the_biggest_payload_is_taken_and_no_bigger_one(self) -> None:
        biggest = dummy_batch(START, "c1", [b"x" * MAX_PAYLOAD_BYTES])
        async with self.opened() as journal:
            await journal.commit(biggest)
            assert tuple(await journal.read(SESSION)) == biggest.events
            with pytest.raises(Rejected):
                await journal.commit(dummy_batch(end_of(biggest), "c2", [b"x" * (MAX_PAYLOAD_BYTES + 1)]))

    async def test_a_blob_of_some_megabytes_is_kept_and_one_beyond_the_limit_is_not(self) -> None:
        large = bytes(range(256)) * 16 * 1024
        batch = dummy_batch(START, "c1", TWO, blobs=[large, b"\0"])
        digest = hashlib.sha256(b"not looked at").hexdigest()
        async with self.opened() as journal:
            with pytest.raises(Rejected):
                await journal.commit(replace(batch, blobs=(Blob(digest, bytes(MAX_BLOB_BYTES + 1)),)))
            await journal.commit(batch)
            assert await journal.blob(batch.blobs[0].digest) == large
            assert await journal.blob(batch.blobs[1].digest) == b"\0"
            assert await journal.blob(batch.blobs[0].digest.upper()) is None

    async def test_a_holder_s_names_are_kept_or_refused(self) -> None:
        async with self.opened() as journal:
            for number, worker in enumerate(("o'wner", "\u00e9\u4e2d", "a\nb", "x" * 1000)):
                session_id = f"session-{number}"
                lease = await journal.leases.acquire(session_id, Holder(worker, "lease-1"), 30_000)
                assert lease.holder_id == worker
                with pytest.raises(LeaseConflict) as refusal:
                    await journal.leases.acquire(session_id, Holder("other", "lease-2"), 30_000)
                assert refusal.value.holder == worker


async def found_by(journal: Journal, hostile: str) -> list[object]:
    """What a hostile text brings out of a store. A refusal of ours counts as nothing."""
    found: list[object] = []
    for call in (
        lambda: journal.session(hostile),
        lambda: journal.read(hostile),
        lambda: journal.snapshot(hostile),
        lambda: journal.blob(hostile),
        lambda: journal.command(hostile, "c1"),
        lambda: journal.command(SESSION, hostile),
        lambda: journal.commands(hostile, ["c1"]),
        lambda: journal.commands(SESSION, [hostile]),
    ):
        try:
            answer = await call()
        except MinutebookError:
            continue
        if answer:
            found.append(answer)
    return found

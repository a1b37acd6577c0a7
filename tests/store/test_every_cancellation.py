"""A commit that is cancelled wherever it waits is there or not there, never half, on every engine.

The loop cancels at the n-th place at which a call lets go of the event loop, for n = 0, 1, ...
until a call is over before its place comes: so it covers every await there is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import minutebook as mb
from domain.cursor import Cursor
from domain.envelope import check_link, genesis
from domain.errors import OutcomeUnknown
from domain.ports import Batch, CommitStatus, Journal, Receipt, StoreDescription
from minutebook.testing.batches import dummy_batch, end_of
from tests.store.suspensions import Tried, cancelled_at

pytestmark = pytest.mark.anyio

TWO = (b'{"n":1}', b'{"n":2}')
MOST = 60


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StoreDescription:
    match request.param:
        case "memory":
            return mb.memory()
        case "sqlite":
            return mb.sqlite(tmp_path / "journal.db")
    return mb.postgres(request.getfixturevalue("postgres_url"))


async def standing(journal: Journal, session_id: str) -> int:
    """How many events a session has, after its chain was checked."""
    sequence, head = 0, genesis(session_id)
    for row in await journal.read(session_id):
        check_link(row, sequence, head)
        sequence, head = row.sequence, row.head
    found = await journal.session(session_id)
    assert found is not None
    assert (found.sequence, found.head) == (sequence, head)
    return sequence


async def goes_on(journal: Journal, place: Cursor) -> None:
    """The session takes events, and each once."""
    third = dummy_batch(place, "c3")
    assert (await journal.commit(third)).status is CommitStatus.COMMITTED
    assert (await journal.commit(third)).status is CommitStatus.REPLAYED
    assert await standing(journal, place.session_id) == place.sequence + 1


async def both(journal: Journal, session_id: str) -> tuple[Batch, Batch]:
    """A first batch, which is in the journal, and a second one that follows."""
    first = dummy_batch(Cursor.start(session_id), "c1")
    await journal.commit(first)
    return first, dummy_batch(end_of(first), "c2", TWO, blobs=[session_id.encode()], snapshot_state=b"s")


async def until_untouched(work: Callable[[int], Awaitable[int]]) -> int:
    """How many places there were. `work` gives the number of suspensions of its call."""
    for n in range(MOST):
        suspensions = await work(n)
        if suspensions < n:
            return n
    raise AssertionError("a call of the store never comes to its end")


async def test_a_commit_cancelled_anywhere_is_there_or_not(store: StoreDescription) -> None:
    async with store.open() as journal:

        async def once(n: int) -> int:
            first, second = await both(journal, f"session-{n}")
            tried = await cancelled_at(n, lambda: journal.commit(second))
            assert tried.error is None
            await assert_decided(journal, first, second, tried)
            return tried.suspensions

        assert await until_untouched(once) >= 1


async def assert_decided(journal: Journal, first: Batch, second: Batch, tried: Tried[Receipt]) -> None:
    """What was told is true; settling says which; nothing comes later; the session goes on."""
    session_id = first.session_id
    found = await journal.command(session_id, "c2")
    settled = await journal.settle(second)
    if found is not None or tried.value is not None:
        assert settled is not None
    assert await standing(journal, session_id) == (3 if settled else 1)
    there = await journal.command(session_id, "c2")
    if settled is None:
        assert there is None
        assert await journal.blob(second.blobs[0].digest) is None
        assert await journal.snapshot(session_id) is None
        await goes_on(journal, end_of(first))
    else:
        assert settled.status is CommitStatus.RECONCILED
        assert there == (second.fingerprint, there[1] if there else None)
        assert await journal.blob(second.blobs[0].digest) == session_id.encode()
        await goes_on(journal, end_of(second))


@pytest.mark.parametrize("is_there", [False, True])
async def test_settling_cancelled_anywhere_can_be_done_again(store: StoreDescription, is_there: bool) -> None:
    async with store.open() as journal:

        async def once(n: int) -> int:
            first, second = await both(journal, f"session-{n}")
            if is_there:
                await journal.commit(second)
            tried = await cancelled_at(n, lambda: journal.settle(second))
            assert tried.error is None
            again = await journal.settle(second)
            assert (again is not None) == is_there
            assert (await journal.settle(second)) == again
            await goes_on(journal, end_of(second if is_there else first))
            return tried.suspensions

        assert await until_untouched(once) >= 1


async def test_a_session_is_not_fenced_by_a_cancellation_that_was_settled(store: StoreDescription) -> None:
    """What the cancelled commit left behind ends with `settle`, whichever way it was decided."""
    async with store.open() as journal:

        async def once(n: int) -> int:
            _, second = await both(journal, f"session-{n}")
            tried = await cancelled_at(n, lambda: journal.commit(second))
            await journal.settle(second)
            try:
                again = await journal.commit(second)
            except OutcomeUnknown:
                pytest.fail(f"still fenced after a cancellation at {n}")
            assert await standing(journal, second.session_id) == 3
            assert again.head == second.events[-1].head
            return tried.suspensions

        await until_untouched(once)

"""A subscriber hears of a commit whatever it is doing at that moment."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from adapters.commit_signal import CommitSignal, Subscription
from adapters.memory_journal import MemoryStore
from domain.cursor import Cursor
from domain.envelope import Stored
from domain.errors import CursorMismatch
from minutebook.testing.batches import dummy_batch

pytestmark = pytest.mark.anyio

PATIENCE_S = 5
(ROW,) = dummy_batch(Cursor.start("session-1"), "c1").events


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_commit_between_a_look_and_the_wait_is_heard() -> None:
    """The store has nothing yet when it is asked, and has it before the subscriber sleeps."""
    signal = CommitSignal()
    looks: list[Sequence[Stored]] = [(), (ROW,)]

    async def look(after: int) -> Sequence[Stored]:
        found = looks.pop(0)
        signal.ring(["session-1"])
        return found

    rows = Subscription(look, signal.listen("session-1"), None)
    with anyio.fail_after(PATIENCE_S):
        assert await anext(rows) == ROW


@pytest.mark.parametrize("since", [0, 1, 5])
async def test_who_listens_notices_that_a_server_lost_its_end(since: int) -> None:
    """A standby took over without the last event, and took other ones since."""
    signal, start = CommitSignal(), Cursor.start("session-1")
    async with MemoryStore().open() as first, MemoryStore().open() as standby:
        await first.commit(dummy_batch(start, "c1", [b"1", b"2"]))
        await standby.commit(dummy_batch(start, "c1", [b"1"]))
        server = [first]
        rows = Subscription(lambda n: server[-1].read("session-1", after=n), signal.listen("session-1"), None)
        assert [(await anext(rows)).payload for _ in range(2)] == [b"1", b"2"]
        if since:
            there = Cursor.after(*await standby.read("session-1"))
            await standby.commit(dummy_batch(there, "c2", [b"other"] * since))
        server.append(standby)
        with anyio.fail_after(PATIENCE_S), pytest.raises(CursorMismatch):
            await anext(rows)


async def test_one_ring_wakes_once() -> None:
    signal = CommitSignal()
    listener = signal.listen("session-1")
    signal.ring(["session-2"])
    signal.ring(["session-1"])
    with anyio.fail_after(PATIENCE_S):
        await listener.wait()
    with anyio.move_on_after(0) as scope:
        await listener.wait()
    assert scope.cancelled_caught

"""A subscriber hears of a commit whatever it is doing at that moment."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from adapters.commit_signal import CommitSignal, Subscription
from domain.envelope import Stored
from minutebook.testing.batches import Place, dummy_batch

pytestmark = pytest.mark.anyio

PATIENCE_S = 5
(ROW,) = dummy_batch(Place.start("session-1"), "c1").events


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_commit_between_a_look_and_the_wait_is_heard() -> None:
    """The store has nothing yet when it is asked, and has it before the subscriber sleeps."""
    signal = CommitSignal()
    looks: list[Sequence[Stored]] = [(), (ROW,)]

    async def look(after: int) -> Sequence[Stored]:
        found = looks.pop(0)
        signal.ring(["session-1"])
        return found

    async def reached() -> int:
        return 0

    rows = Subscription(look, reached, signal.listen("session-1"), 0)
    with anyio.fail_after(PATIENCE_S):
        assert await anext(rows) == ROW


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

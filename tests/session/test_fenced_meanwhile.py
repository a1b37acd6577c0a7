"""The right to write is lost while a commit is under way that still comes through."""

from __future__ import annotations

import anyio
import pytest

from domain.errors import LeaseLost
from minutebook.testing.scripted import Gate, reply
from tests.session.harness import Place

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


async def test_a_commit_that_comes_through_late_wakes_nobody_to_wait_for_ever(place: Place) -> None:
    """Found by stopping a worker with SIGSTOP: whoever waited for the session to be idle waited on."""
    answering = Gate()
    async with place.create([[answering, *reply("never")], reply("never")]) as session:
        await session.send("one")
        await answering.reached()
        late = len(place.store.batches) + 1
        place.store.after[late] = gate = Gate()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.send, "two")
            await gate.reached()
            session._parts.book.fence_off(LeaseLost(session.id, "somebody else has it"))
            await session._parts.loop.ended()
            gate.open()
        with pytest.raises(LeaseLost):
            await session.wait_idle()
    assert (await place.types()).count("input_accepted") == 2

"""A store that writes and raises, or hangs and cannot be cancelled, at every commit of a session.

Whatever it answers, the command that is in the journal is found again, a late one changes
nothing, and the session goes on or takes no more events.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from adapters.memory_journal import MemoryStore
from adapters.sqlite_store import SqliteStore
from domain.envelope import Recorded
from domain.errors import MinutebookError
from domain.ports import Batch, CommitStatus
from minutebook import stream_events as se
from minutebook.testing.faulty_store import Fault, FaultyStore
from tests.chaos.errors import leaves
from tests.session.harness import Hands, Place
from tests.session.test_store_faults import COMMITS, check_ended, finish, play

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"]),
    pytest.mark.parametrize("number", range(1, COMMITS + 1)),
]


@pytest.fixture
async def place(anyio_backend: str, tmp_path: Path) -> AsyncIterator[Place]:
    """A store that may fail: over a file on asyncio, over memory on trio. What is left obeys the rules."""
    inner = SqliteStore(tmp_path / "journal.db") if anyio_backend == "asyncio" else MemoryStore()
    place = Place(FaultyStore(inner))
    yield place
    await place.check()


async def is_there(place: Place, batch: Batch) -> bool:
    """Whether a command is in the journal, as somebody else sees it."""
    async with place.reader() as reader:
        return await reader.command(batch.session_id, batch.command_id) is not None


async def again(place: Place) -> None:
    """Every batch that was ever asked for comes once more, late: nothing changes."""
    before = await place.events()
    async with place.reader() as reader:
        for batch in place.store.batches:
            try:
                receipt = await reader.commit(batch)
            except MinutebookError:
                continue
            assert receipt.status is CommitStatus.REPLAYED
    assert await place.events() == before


async def test_what_was_written_and_answered_with_nonsense_is_found_again(
    place: Place, hands: Hands, number: int
) -> None:
    place.store.faults, told = {number: Fault.RAISES}, list[Any]()
    with pytest.raises(MinutebookError) as failed:
        await play(place, hands, told)
    assert failed.value.code != "MINUTEBOOK_ERROR"
    assert len(place.store.batches) == number, "nothing is written by a session that does not know"
    assert await is_there(place, place.store.batches[-1])
    before = await place.events()
    check_told(told, before)
    await finish(place, hands)
    events = await place.events()
    assert events[: len(before)] == before
    check_ended(events, hands)
    await again(place)


@pytest.mark.parametrize("fault", [Fault.ABSENT, Fault.FOUND_LATE])
async def test_what_is_settled_stays_settled(place: Place, hands: Hands, number: int, fault: Fault) -> None:
    place.store.faults, told = {number: fault}, list[Any]()
    await play(place, hands, told)
    assert [type(event) for event in told].count(se.Result) == 2
    check_ended(await place.events(), hands)
    await again(place)


async def test_a_session_that_is_left_waits_for_a_store_that_cannot_be_cancelled(
    place: Place, hands: Hands, number: int
) -> None:
    place.store.faults, told = {number: Fault.HANGS}, list[Any]()
    left = False

    async def live() -> None:
        nonlocal left
        await play(place, hands, told)
        left = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(live)
        await place.store.hanging[number].reached()
        written = await place.events()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.lowlevel.checkpoint()
            check_told(told, written)
            assert await is_there(place, place.store.batches[number - 1])
            place.store.hanging[number].open()
    assert not left
    events = await place.events()
    assert events[: len(written)] == written
    check_told(told, events)
    await finish(place, hands)
    check_ended(await place.events(), hands)


async def test_a_commit_that_comes_after_another_worker_has_finished_changes_nothing(
    place: Place, hands: Hands, number: int
) -> None:
    place.store.faults, told = {number: Fault.HANGS_FIRST}, list[Any]()
    gate, errors = place.store.hanging[number], list[BaseException]()

    async def live() -> None:
        try:
            await play(place, hands, told)
        except BaseException as error:
            errors.extend(leaves(error))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(live)
        await gate.reached()
        await take_the_lease_away(place, place.store.batches[number - 1])
        await finish(place, hands)
        events = await place.events()
        check_ended(events, hands)
        gate.open()
    assert errors
    assert all(isinstance(error, MinutebookError) for error in errors), errors
    assert await place.events() == events
    check_told(told, events)
    await again(place)


async def take_the_lease_away(place: Place, batch: Batch) -> None:
    """Whoever hangs is taken for dead."""
    assert batch.fence is not None
    async with place.reader() as reader:
        await reader.leases.release(batch.session_id, batch.fence)


def check_told(told: list[Any], events: list[Recorded]) -> None:
    """Nobody was told of an end that is not durable."""
    ended = {e.request_id for e in events if e.type in ("request_completed", "request_failed")}
    assert {e.request_id for e in told if isinstance(e, se.Result | se.Error)} <= ended

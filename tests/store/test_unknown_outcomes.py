"""An unknown outcome is settled on every engine in the same way: fenced until then, decided for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from adapters.commit_signal import CommitSignal
from adapters.postgres_threads import Unsettled
from adapters.sqlite_connections import Opening
from adapters.sqlite_pool import SqliteConnectionPool
from adapters.sqlite_writer import SqliteWriter
from adapters.system import SystemClock, no_probe
from domain.cursor import Cursor
from domain.envelope import check_link, genesis
from domain.errors import HeadConflict, OutcomeUnknown, StoreTimeout
from domain.ports import Batch, CommitStatus, Journal, Receipt
from minutebook.testing.batches import dummy_batch, end_of
from minutebook.testing.postgres_cluster import Cluster
from tests.postgres.cutting import committed, settled_for_sure
from tests.postgres.proxy import Proxy
from tests.store.unknown import ENOUGH_S, OVER_S, TIMEOUT_S, Engine, PostgresEngine, SqliteEngine, healed
from tests.store.waiting import until

pytestmark = pytest.mark.anyio

FIRST = dummy_batch(Cursor.start("session-1"), "c1")
SECOND = dummy_batch(end_of(FIRST), "c2", [b'{"n":1}', b'{"n":2}'], blobs=[b"blob"], snapshot_state=b"state")
OTHER = dummy_batch(Cursor.start("session-2"), "c1")


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """A store that may fail and hang, and is soon given up."""
    with made(request, tmp_path, TIMEOUT_S) as engine:
        yield engine


@pytest.fixture(params=["sqlite", "postgres"])
def patient(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """A store of which one commit is lost; all else works, on a busy machine too."""
    with made(request, tmp_path, ENOUGH_S) as engine:
        yield engine


@contextmanager
def made(request: pytest.FixtureRequest, tmp_path: Path, timeout_s: float) -> Iterator[Engine]:
    """The engine that a fixture is asked for."""
    if request.param == "sqlite":
        with healed(SqliteEngine(tmp_path / "journal.db", timeout_s)) as engine:
            yield engine
        return
    cluster: Cluster = request.getfixturevalue("postgres_cluster")
    url = request.getfixturevalue("postgres_url")
    with Proxy(cluster, url) as proxy, healed(PostgresEngine(proxy, timeout_s)) as engine:
        yield engine


async def made_unknown(engine: Engine, journal: Journal, *, there: bool) -> None:
    """The first batch is in the journal, of the second nobody knows."""
    await committed(journal, FIRST)
    engine.lose_commit(there=there)
    with pytest.raises(OutcomeUnknown):
        await journal.commit(SECOND)


async def check(journal: Journal, *batches: Batch) -> None:
    """The session is these batches, once, in a chain."""
    rows = list(await journal.read("session-1"))
    assert rows == [event for batch in batches for event in batch.events]
    sequence, head = 0, genesis("session-1")
    for row in rows:
        check_link(row, sequence, head)
        sequence, head = row.sequence, row.head


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("there", [False, True])
async def test_settling_says_which_and_says_it_again(patient: Engine, there: bool) -> None:
    async with patient.store.open() as journal:
        await made_unknown(patient, journal, there=there)
        last = SECOND.events[-1]
        expected = Receipt(CommitStatus.RECONCILED, 2, last.sequence, last.head) if there else None
        for _ in range(3):
            assert await journal.settle(SECOND) == expected
        await check(journal, FIRST, *([SECOND] if there else []))
        again = await journal.commit(SECOND)
        assert again.status is (CommitStatus.REPLAYED if there else CommitStatus.COMMITTED)
        assert await journal.settle(SECOND) == Receipt(CommitStatus.RECONCILED, 2, last.sequence, last.head)
        await journal.commit(dummy_batch(end_of(SECOND), "c3"))


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("there", [False, True])
async def test_many_who_settle_at_once_hear_the_same(patient: Engine, there: bool) -> None:
    answers: list[Receipt | None] = []
    async with patient.store.open() as journal, patient.store.open() as another:
        await made_unknown(patient, journal, there=there)

        async def settle(handle: Journal) -> None:
            answers.append(await handle.settle(SECOND))

        async with anyio.create_task_group() as tasks:
            for handle in (journal, another, journal):
                tasks.start_soon(settle, handle)
        assert len(answers) == 3
        assert {answer is not None for answer in answers} == {there}
        assert {answer.head for answer in answers if answer} == ({SECOND.events[-1].head} if there else set())


@pytest.mark.parametrize("there", [False, True])
async def test_the_session_is_fenced_until_then_and_no_other(patient: Engine, there: bool) -> None:
    async with patient.store.open() as journal, patient.store.open() as another:
        await made_unknown(patient, journal, there=there)
        for handle in (journal, another):
            for batch in (SECOND, dummy_batch(end_of(FIRST), "c9"), dummy_batch(end_of(SECOND), "c9")):
                with pytest.raises(OutcomeUnknown, match="settled when the session is next opened"):
                    await handle.commit(batch)
        assert (await another.commit(OTHER)).status is CommitStatus.COMMITTED
        await journal.settle(SECOND)
        third = dummy_batch(end_of(SECOND if there else FIRST), "c3")
        assert (await another.commit(third)).status is CommitStatus.COMMITTED


async def test_what_was_settled_as_not_there_makes_room_for_another(patient: Engine) -> None:
    async with patient.store.open() as journal:
        await made_unknown(patient, journal, there=False)
        assert await journal.settle(SECOND) is None
        instead = dummy_batch(end_of(FIRST), "c3")
        await journal.commit(instead)
        with pytest.raises(HeadConflict):
            await journal.commit(SECOND)
        assert await journal.settle(SECOND) is None
        await check(journal, FIRST, instead)


@pytest.mark.parametrize("there", [False, True])
async def test_a_store_that_is_gone_leaves_it_unknown_until_it_is_back(engine: Engine, there: bool) -> None:
    async with engine.store.open() as journal:
        await made_unknown(engine, journal, there=there)
        engine.fail()
        for _ in range(2):
            with pytest.raises(OutcomeUnknown):
                await in_time(journal.settle, SECOND)
            with pytest.raises(OutcomeUnknown):
                await journal.commit(SECOND)
        engine.heal()
        assert (await settled_for_sure(journal, SECOND) is not None) is there
        await check(journal, FIRST, *([SECOND] if there else []))


@pytest.mark.parametrize("there", [False, True])
async def test_a_store_that_hangs_leaves_it_unknown_until_it_answers(engine: Engine, there: bool) -> None:
    async with engine.store.open() as journal:
        await made_unknown(engine, journal, there=there)
        engine.hang()
        with pytest.raises(OutcomeUnknown):
            await in_time(journal.settle, SECOND)
        with pytest.raises(OutcomeUnknown):
            await in_time(journal.commit, SECOND)
        engine.heal()
        assert (await settled_for_sure(journal, SECOND) is not None) is there
        await check(journal, FIRST, *([SECOND] if there else []))
        third = dummy_batch(end_of(SECOND if there else FIRST), "c3")
        assert (await journal.commit(third)).status is CommitStatus.COMMITTED


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("there", [False, True])
async def test_what_settling_finds_after_it_was_given_up_changes_nothing(engine: Engine, there: bool) -> None:
    """Nobody was told: the session stays fenced until somebody has been."""
    async with engine.store.open() as journal:
        await made_unknown(engine, journal, there=there)
        engine.hang()
        with pytest.raises(OutcomeUnknown):
            await in_time(journal.settle, SECOND)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(journal.settle, SECOND)
                await until(lambda: settling() == 2)
                scope.cancel()
        engine.heal()
        await until(lambda: settling() == 0)
        for batch in (SECOND, dummy_batch(end_of(SECOND if there else FIRST), "c3")):
            with pytest.raises(OutcomeUnknown):
                await journal.commit(batch)
        assert (await settled_for_sure(journal, SECOND) is not None) is there
        again = await journal.commit(SECOND)
        assert again.status is (CommitStatus.REPLAYED if there else CommitStatus.COMMITTED)
        await check(journal, FIRST, SECOND)


def settling() -> int:
    """How many threads are finding out what became of a commit."""
    return sum(thread.name.startswith("settles ") for thread in threading.enumerate())


async def test_a_commit_in_a_store_that_hangs_ends_in_time(engine: Engine) -> None:
    async with engine.store.open() as journal:
        await committed(journal, FIRST)
        engine.hang()
        with pytest.raises((OutcomeUnknown, StoreTimeout)) as told:
            await in_time(journal.commit, SECOND)
        engine.heal()
        there = await settled_for_sure(journal, SECOND) is not None
        assert not (there and told.errisinstance(StoreTimeout)), "told that nothing was written"
        await check(journal, FIRST, *([SECOND] if there else []))
        again = await journal.commit(SECOND)
        assert again.status is (CommitStatus.REPLAYED if there else CommitStatus.COMMITTED)


def test_whoever_settled_an_earlier_commit_does_not_free_a_session_from_a_later_one(tmp_path: Path) -> None:
    unsettled = Unsettled()
    opening = Opening(str(tmp_path / "journal.db"), "truncate", TIMEOUT_S)
    writer = SqliteWriter(SqliteConnectionPool(opening), opening, SystemClock(), no_probe, CommitSignal())
    earlier = []
    for number in range(2):
        unsettled.add("session-1", None)
        writer.unknown["session-1"] = object()
        if number == 0:
            earlier = [unsettled.of("session-1"), writer.unknown["session-1"]]
        unsettled.discard("session-1", earlier[0])
        writer.settled("session-1", earlier[1])
        freed = number == 0
        assert ("session-1" not in unsettled, "session-1" not in writer.unknown) == (freed, freed)


async def in_time(call: Callable[[Batch], Awaitable[object]], batch: Batch) -> None:
    """Make a call; whatever comes of it, it comes within the store's timeout and the grace."""
    began = time.monotonic()
    with anyio.fail_after(20):
        try:
            await call(batch)
        finally:
            assert time.monotonic() - began < TIMEOUT_S + OVER_S

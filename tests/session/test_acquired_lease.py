"""A lease by itself: workers are kept away, nothing is written, a loss is told."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import minutebook as mb
from adapters.sqlite_store import SqliteStore
from domain.envelope import Fence
from domain.errors import InvalidId, LeaseConflict, LeaseLost, SessionNotFound
from minutebook.testing.scripted import ScriptedProvider, reply

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


def config(*answers: str) -> mb.SessionConfig:
    return mb.SessionConfig(provider=ScriptedProvider([reply(each) for each in answers]), model="stand-in")


@pytest.fixture
async def store(tmp_path: Path) -> SqliteStore:
    """A journal with one session that nobody holds."""
    made = mb.sqlite(tmp_path / "journal.db")
    async with mb.create_session(config("hello"), store=made, session_id="s1") as session:
        await session.run("hi")
    return made


async def rows(store: SqliteStore) -> int:
    async with store.open() as journal:
        return len(await journal.read("s1"))


@BOTH
async def test_workers_are_kept_away_and_nothing_is_written(store: SqliteStore) -> None:
    before = await rows(store)
    async with mb.acquire_lease("s1", store=store, lease=mb.LeaseConfig(worker_id="repair")) as lease:
        lease.check()
        assert (lease.snapshot.worker_id, lease.snapshot.token) == ("repair", 2)
        assert lease.fence == Fence("repair", lease.snapshot.lease_id, 2)
        with pytest.raises(LeaseConflict, match="repair"):
            async with mb.resume_session("s1", config(), store=store):
                pass
        with pytest.raises(LeaseConflict, match="repair"):
            async with mb.acquire_lease("s1", store=store):
                pass
    assert await rows(store) == before
    async with mb.resume_session("s1", config("again"), store=store) as session:
        assert session.lease is not None
        assert session.lease.token == 3
        assert (await session.run("once more")).content == "again"


@BOTH
async def test_what_is_done_under_it_is_told_of_its_loss(store: SqliteStore) -> None:
    """Both ways: who waits is woken, and who asks is refused."""
    told: list[str] = []

    async with mb.acquire_lease("s1", store=store, lease=mb.LeaseConfig(ttl_s=1.0)) as lease:

        async def hear() -> None:
            told.append(str(await lease.lost()))

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hear)
                async with store.open() as journal:  # somebody gives it back behind our back
                    await journal.leases.release("s1", lease.fence)
        with pytest.raises(LeaseLost):
            lease.check()
    assert len(told) == 1


@BOTH
@pytest.mark.parametrize("how", ["returning", "raising", "cancelled"])
async def test_it_is_given_back_however_the_block_ends(store: SqliteStore, how: str) -> None:
    with anyio.CancelScope() as scope:
        try:
            async with mb.acquire_lease("s1", store=store):
                if how == "raising":
                    raise LookupError
                if how == "cancelled":
                    scope.cancel()
                    await anyio.lowlevel.checkpoint()
        except LookupError:
            pass
    async with mb.acquire_lease("s1", store=store) as lease:
        assert lease.snapshot.token == 3


async def test_only_a_session_that_is_there_can_be_held(store: SqliteStore) -> None:
    """A mistyped name would hold nobody away."""
    with pytest.raises(SessionNotFound):
        async with mb.acquire_lease("s2", store=store):
            pass
    with pytest.raises(InvalidId):
        async with mb.acquire_lease("../s1", store=store):
            pass
    async with store.open() as journal:
        assert [row.session_id for row in await journal.sessions()] == ["s1"]

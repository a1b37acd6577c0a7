"""A server that only follows another one: what it may be asked, and what a failover to it keeps and loses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import anyio
import anyio.to_thread
import pytest

import minutebook as mb
from adapters.postgres_store import PostgresStore
from domain.cursor import Cursor
from domain.errors import CursorMismatch, Fenced, HeadConflict, OutcomeUnknown, StoreUnsupported
from domain.ports import Batch, CommitStatus
from minutebook.testing.batches import dummy_batch, end_of
from minutebook.testing.looking import journal_of
from minutebook.testing.postgres_cluster import Cluster
from minutebook.testing.postgres_standby import Standby
from minutebook.testing.scripted import Gate, ScriptedProvider, call, reply
from recovery.cli import main
from recovery.exit_codes import BROKEN, UNPROVEN
from tests.postgres.cutting import settled_for_sure
from tests.postgres.waiting import wait_until
from tests.store.waiting import PATIENCE_S, until

pytestmark = pytest.mark.anyio

FIRST = dummy_batch(Cursor.start("session-1"), "c1")
SECOND = dummy_batch(end_of(FIRST), "c2")
THIRD = dummy_batch(end_of(SECOND), "c3")
#: By which name the primary knows the one that will take over.
HEIR = "heir"
EVENTS = "SELECT count(*) FROM minutebook.minutebook_events"
#: What somebody else writes who knows nothing of the second one.
ANOTHER = dummy_batch(end_of(FIRST), "c-another", [b"1", b"2"])


@pytest.fixture(scope="module")
def looked_at(own_cluster: Cluster) -> Iterator[Standby]:
    """What follows the file's own server, for tests that only look; soon again after a restart."""
    with Standby(primary=own_cluster, settings={"wal_retrieve_retry_interval": "50ms"}) as standby:
        yield standby


@pytest.fixture
def follower(looked_at: Standby, own_url: str) -> Iterator[Standby]:
    """The same; a test may hold up what it shows."""
    yield looked_at
    looked_at.execute("SELECT pg_wal_replay_resume()")


@pytest.fixture
def standby(own_cluster: Cluster, own_url: str) -> Iterator[Standby]:
    """What takes over from it in a test. That one is there again afterwards."""
    with Standby(primary=own_cluster, settings={"cluster_name": HEIR}) as standby:
        yield standby
        own_cluster.start()
        synchronous(own_cluster, "")


@pytest.fixture
def url(own_url: str, standby: Standby) -> str:
    """The test's database on both servers, the primary first."""
    return standby.url_of_both(own_url)


def synchronous(primary: Cluster, standbys: str) -> None:
    """For which standbys the primary waits before it acknowledges anything."""
    primary.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{standbys}'")
    primary.execute("SELECT pg_reload_conf()")
    state = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
    wait_until(lambda: bool(primary.execute(state)) is bool(standbys), "the primary knows")


def let_it_catch_up(standby: Standby) -> None:
    """Wait until it shows everything."""
    wait_until(standby.has_replayed_everything, "the standby shows everything")


def fail_over(standby: Standby) -> None:
    """The primary is gone for good, and the standby takes its place with what it has."""
    standby.primary.kill()
    standby.start()
    standby.promote()


async def commit(url: str, *batches: Batch) -> None:
    """Commit in a store of its own."""
    async with PostgresStore(url).open() as journal:
        for batch in batches:
            await journal.commit(batch)


# --- a standby -------------------------------------------------------------------------------


async def test_no_session_is_opened_on_a_standby(own_url: str, follower: Standby) -> None:
    let_it_catch_up(follower)
    there = mb.postgres(follower.url_of(own_url))
    config = mb.SessionConfig(provider=ScriptedProvider([]), model="scripted")
    with pytest.raises(StoreUnsupported, match="takes writes, found a standby"):
        async with mb.create_session(config, store=there):
            pytest.fail("it was opened")
    await commit(own_url, FIRST)
    let_it_catch_up(follower)
    with pytest.raises(StoreUnsupported, match="takes writes, found a standby"):
        async with mb.open_coordinator("session-1", store=there, actor_id="operator"):
            pytest.fail("it was opened")
    async with PostgresStore(own_url).open() as journal:
        assert await journal.read("session-1") == [*FIRST.events]


async def test_a_worker_reads_what_the_primary_shows_whichever_comes_first(
    own_url: str, follower: Standby
) -> None:
    await commit(own_url, FIRST)
    let_it_catch_up(follower)
    follower.execute("SELECT pg_wal_replay_pause()")
    await commit(own_url, SECOND)
    async with PostgresStore(follower.url_of_both(own_url, itself_first=True)).open() as journal:
        assert await journal.read("session-1") == [*FIRST.events, *SECOND.events]


def test_whoever_looks_at_a_standby_is_told_what_it_may_not_know(
    own_url: str, follower: Standby, capsys: pytest.CaptureFixture[str]
) -> None:
    anyio.run(commit, own_url, FIRST)
    let_it_catch_up(follower)
    follower.execute("SELECT pg_wal_replay_pause()")
    anyio.run(commit, own_url, SECOND)
    ((position,),) = follower.primary.execute("SELECT pg_current_wal_lsn()::text")
    received = "SELECT pg_last_wal_receive_lsn() >= %s::pg_lsn"
    wait_until(lambda: follower.execute(received, (position,)) == [(True,)], "it has received everything")
    there = follower.url_of(own_url)
    main(["inspect", there, "session-1", "--json"])
    said = capsys.readouterr()
    (note, *_) = json.loads(said.out)["notes"]
    assert said.err == f"note: {note}\n"
    assert "is a standby. The last commit that it shows is from 20" in note
    assert "bytes that it received are not shown yet" in note
    assert "not connected" not in note
    follower.primary.stop()
    no_longer = "SELECT 1 FROM pg_stat_wal_receiver"
    wait_until(lambda: not follower.execute(no_longer), "it is cut off")
    assert main(["verify", there, "--chain-only"]) == UNPROVEN
    said = capsys.readouterr()
    assert "it is not connected to its primary" in said.err
    assert "1 event" in said.out
    follower.primary.start()
    main(["inspect", own_url, "session-1"])
    assert "standby" not in "".join(capsys.readouterr())


# --- a failover ------------------------------------------------------------------------------


@dataclass(slots=True)
class Agent:
    """It thinks and pays once; each takes until its gate is opened."""

    thinks: Gate = field(default_factory=Gate)
    pays: Gate = field(default_factory=Gate)
    paid: int = 0

    def config(self) -> mb.SessionConfig:
        """How its session is opened."""

        @mb.tool
        async def pay() -> str:
            """Pay."""
            self.paid += 1
            await self.pays.pass_through()
            return "paid"

        answers = [[self.thinks, *reply("", call("pay", {}))], reply("done")]
        return mb.SessionConfig(
            provider=ScriptedProvider(answers),
            model="scripted",
            tools=[pay],
            permission_mode=mb.PermissionMode.YOLO,
            on_lost_attempt="retry",
        )


async def test_a_session_goes_on_where_a_synchronous_standby_took_over(
    url: str, own_cluster: Cluster, standby: Standby
) -> None:
    synchronous(own_cluster, HEIR)
    agent, outputs = Agent(), list[str]()
    async with mb.create_session(agent.config(), store=mb.postgres(url), session_id="s-1") as session:

        async def order() -> None:
            outputs.append((await session.run("order")).content)

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(order)
                agent.thinks.open()
                await agent.pays.reached()
                await anyio.to_thread.run_sync(fail_over, standby)
                agent.pays.open()
    assert (outputs, agent.paid) == (["done"], 1)
    events = await journal_of(mb.postgres(url), "s-1")
    assert [each.type for each in events].count("request_completed") == 1


async def test_a_commit_is_not_told_before_a_synchronous_standby_has_it(
    url: str, own_url: str, own_cluster: Cluster, standby: Standby
) -> None:
    """Ending the server process that waits for the standby makes its commit visible: that is no proof."""
    synchronous(own_cluster, HEIR)
    async with PostgresStore(url, store_timeout_s=0.5).open() as journal:
        await journal.commit(FIRST)
        standby.stop()
        for ask in (journal.commit, journal.settle):
            with pytest.raises(OutcomeUnknown):
                await ask(SECOND)
        assert own_cluster.execute(EVENTS, url=own_url) == [(2,)]
        standby.start()
        settled = await settled_for_sure(journal, SECOND)
        assert settled is not None
        assert settled.status is CommitStatus.RECONCILED
        await anyio.to_thread.run_sync(fail_over, standby)
        assert await journal.read("session-1") == [*FIRST.events, *SECOND.events]


async def test_what_a_failover_lost_is_told_to_whoever_knew_of_it(
    url: str, standby: Standby, capsys: pytest.CaptureFixture[str]
) -> None:
    heard, errors = list[int](), list[mb.MinutebookError]()
    async with PostgresStore(url).open() as journal:

        async def listen() -> None:
            try:
                async for row in journal.subscribe("session-1"):
                    heard.append(row.sequence)
            except mb.MinutebookError as error:
                errors.append(error)

        await commit(url, FIRST)
        let_it_catch_up(standby)
        standby.stop()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await journal.commit(SECOND)
            await until(lambda: heard == [1, 2])
            await anyio.to_thread.run_sync(fail_over, standby)
            with pytest.raises(HeadConflict, match="expected head 2, found 1; the journal has lost its end"):
                await journal.commit(THIRD)
            await commit(url, ANOTHER)  # two events: whoever only counted would go on with the second
            await until(lambda: bool(errors))
        assert isinstance(errors[0], CursorMismatch)
        assert heard == [1, 2]
    head = SECOND.events[-1].head.hex()
    there = standby.url_of(url)
    assert (
        await anyio.to_thread.run_sync(
            main, ["verify", there, "session-1", "--expect-head", head, "--chain-only"]
        )
        == BROKEN
    )


async def test_a_session_whose_end_was_lost_stops_and_what_is_left_is_gone_on_with(
    url: str, standby: Standby
) -> None:
    agent, store = Agent(), mb.postgres(url)
    with anyio.fail_after(PATIENCE_S):
        async with mb.create_session(agent.config(), store=store, session_id="s-1") as session:
            await session.send("order")
            await agent.thinks.reached()
            left = session.head_sequence
            let_it_catch_up(standby)
            standby.stop()
            agent.thinks.open()
            await agent.pays.reached()
            await anyio.to_thread.run_sync(fail_over, standby)
            agent.pays.open()
            for _ in range(2):
                with pytest.raises(mb.MinutebookError, match="the journal has lost its end"):
                    await session.wait_idle()
            with pytest.raises(Fenced, match="the journal has lost its end"):
                await session.send("more")
    assert len(await journal_of(store, "s-1")) == left
    successor = Agent()
    successor.thinks.open()
    successor.pays.open()
    async with mb.resume_session("s-1", successor.config(), store=store) as session:
        await session.wait_idle()
    assert [each.type for each in await journal_of(store, "s-1")].count("request_completed") == 1
    assert (agent.paid, successor.paid) == (1, 1)  # what the first one did is nowhere on record

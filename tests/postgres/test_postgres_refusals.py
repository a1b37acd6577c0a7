"""Servers that refuse us, servers that are full, and statements that fail half-way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import anyio
import anyio.to_thread
import psycopg
import pytest

from adapters.postgres_driver import Connection
from adapters.postgres_errors import was_turned_away
from adapters.postgres_reader import open_reader
from adapters.postgres_store import PostgresStore
from domain.cursor import Cursor
from domain.errors import OutcomeUnknown, StoreReadFailed, StoreUnsupported, StoreWriteFailed
from domain.ports import CommitStatus, Journal
from minutebook.testing.batches import dummy_batch, end_of
from minutebook.testing.postgres_cluster import Cluster
from tests.postgres.test_postgres_commit import name_of
from tests.postgres.waiting import end_connections, wait_until
from tests.store.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio

FIRST = dummy_batch(Cursor.start("session-1"), "c1", (b"{}", b"{}"))
SECOND = dummy_batch(end_of(FIRST), "c2", (b"{}", b"{}", b"{}"), blobs=[b"a", b"b"], snapshot_state=b"x")
COMMITTED = CommitStatus.COMMITTED
TABLES = ("sessions", "commands", "events", "snapshots", "blobs")


class Trying(Connection):
    """Counts how often somebody tried to connect."""

    tries: ClassVar[int] = 0

    @classmethod
    def connect(cls, *args: Any, **kwargs: Any) -> Any:
        cls.tries += 1
        return super().connect(*args, **kwargs)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Journal]:
    Trying.tries = 0
    async with PostgresStore(url, connections=1, connection_class=Trying).open() as journal:
        yield journal


@pytest.fixture
def role(postgres_url: str, postgres_cluster: Cluster) -> Iterator[str]:
    """A role that may do everything in the test's database and nothing else."""
    name = f"writer_{name_of(postgres_url)}"
    execute = postgres_cluster.execute
    execute(f"CREATE ROLE {name} LOGIN PASSWORD '{postgres_cluster.password}'")
    execute(f"GRANT CREATE ON DATABASE {name_of(postgres_url)} TO {name}")
    yield name
    execute(f"DROP OWNED BY {name} CASCADE", url=postgres_url)
    execute(f"DROP ROLE {name}")


# --- a server that refuses us -----------------------------------------------------------------


@pytest.mark.parametrize("what", ["password", "no password", "database", "user", "login", "connect"])
async def test_a_server_that_refuses_us_says_so_at_once(
    postgres_url: str, postgres_cluster: Cluster, role: str, what: str
) -> None:
    """Whoever opens, and without a second of waiting: it is asked twice, and that is it."""
    database = name_of(postgres_url)
    url = postgres_cluster.url(database, user=role)
    match what:
        case "password":
            url = postgres_cluster.url(database, user=role, password="wrong")
        case "no password":
            url = url.replace(f":{postgres_cluster.password}@", "@")
        case "database":
            url = postgres_cluster.url("no_such_database", user=role)
        case "user":
            url = postgres_cluster.url(database, user="nobody_of_this_name")
        case "login":
            postgres_cluster.execute(f"ALTER ROLE {role} NOLOGIN")
        case "connect":
            postgres_cluster.execute(f"REVOKE CONNECT ON DATABASE {database} FROM PUBLIC")
    with pytest.raises(StoreUnsupported, match="Check the user, the password, the database") as refusal:
        async with opened(url):
            pass
    assert Trying.tries == 2
    assert isinstance(refusal.value.__cause__, psycopg.OperationalError)
    with pytest.raises(StoreUnsupported, match="refuses the connection"):
        async with open_reader(url):
            pass


async def test_a_server_that_refuses_us_from_some_day_on_says_so_at_once(
    postgres_url: str, postgres_cluster: Cluster, role: str
) -> None:
    """In the middle of a session; nothing was written, and it goes on once the role is right again."""
    database = name_of(postgres_url)
    async with opened(postgres_cluster.url(database, user=role)) as journal:
        await journal.commit(FIRST)
        await journal.read("session-1")
        postgres_cluster.execute(f"ALTER ROLE {role} NOLOGIN")
        await anyio.to_thread.run_sync(end_connections, postgres_cluster, database)
        Trying.tries = 0
        for _ in range(2):
            with pytest.raises(StoreUnsupported, match="refuses the connection"):
                await journal.commit(SECOND)
        with pytest.raises(StoreUnsupported, match="refuses the connection"):
            await journal.read("session-1")
        with pytest.raises(OutcomeUnknown, match="refuses the connection"):
            await journal.settle(SECOND)
        assert Trying.tries <= 4 * 2 + 2, "two for each call, and two of who tells others"
        postgres_cluster.execute(f"ALTER ROLE {role} LOGIN")
        assert (await journal.commit(SECOND)).status is COMMITTED


async def test_a_server_that_has_too_many_clients_is_waited_for(
    postgres_url: str, postgres_cluster: Cluster, role: str
) -> None:
    database = name_of(postgres_url)
    statuses: list[CommitStatus] = []

    async def commit(journal: Journal) -> None:
        with anyio.fail_after(PATIENCE_S):
            statuses.append((await journal.commit(SECOND)).status)

    async with opened(postgres_cluster.url(database, user=role)) as journal:
        await journal.commit(FIRST)
        postgres_cluster.execute(f"ALTER ROLE {role} CONNECTION LIMIT 0")
        await anyio.to_thread.run_sync(end_connections, postgres_cluster, database)
        Trying.tries = 0
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commit, journal)
            await anyio.to_thread.run_sync(wait_until, lambda: Trying.tries > 6, "it tries on")
            postgres_cluster.execute(f"ALTER ROLE {role} CONNECTION LIMIT -1")
    assert statuses == [COMMITTED]


class Answering(Connection):
    """Is told a server's old answers first."""

    answers: ClassVar[list[str]] = []

    @classmethod
    def connect(cls, *args: Any, **kwargs: Any) -> Any:
        if cls.answers:
            raise psycopg.OperationalError(f"connection failed: {cls.answers.pop(0)}")
        return super().connect(*args, **kwargs)


STARTING, ENDED = "FATAL:  the database system is starting up", "FATAL:  terminating connection"


async def test_what_a_server_said_while_it_was_starting_is_no_refusal(postgres_url: str) -> None:
    """It takes connections by the time it is asked whether it does."""
    store = PostgresStore(postgres_url, connection_class=Answering)
    Answering.answers = [STARTING]
    async with store.open():
        assert Answering.answers == []
    Answering.answers = [STARTING, ENDED]
    with pytest.raises(StoreReadFailed, match="terminating"):
        async with store.open():
            pass


async def test_nor_is_it_while_nobody_answers() -> None:
    Answering.answers = [STARTING, STARTING]
    with pytest.raises(StoreReadFailed, match="starting up"):
        async with PostgresStore("postgresql://u@127.0.0.1:1/d", connection_class=Answering).open():
            pass
    assert Answering.answers == [STARTING]


@pytest.mark.parametrize(
    ("said", "is_no"),
    [
        ('FATAL:  password authentication failed for user "ann"', True),
        ("VERBINDUNGSFEHLER:  Passwort-Authentifizierung für Benutzer »ann« fehlgeschlagen", True),
        ('致命错误:  数据库 "books" 不存在', True),
        ('FATAL:  no pg_hba.conf entry for host "::1", user "ann", database "books", no encryption', True),
        ("FATAL:  sorry, too many clients already", False),
        ('FATAL:  too many connections for database "books"', False),
        ("FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute", False),
        ("server closed the connection unexpectedly\n\tThis probably means the server terminated", False),
        ("Connection refused\n\tIs the server running on that host and accepting connections?", False),
        ("could not receive data from server: Connection reset by peer", False),
        ("timeout expired", False),
        ("SSL error: unexpected eof while reading", False),
    ],
)
def test_a_no_of_the_server_is_told_from_a_broken_line_in_every_language(said: str, is_no: bool) -> None:
    text = f'connection failed: connection to server at "::1", port 5432 failed: {said}'
    assert was_turned_away(psycopg.OperationalError(text)) is is_no


# --- a statement that fails half-way ----------------------------------------------------------


def fail(url: str, table: str, code: str, on: str = "INSERT") -> None:
    """Let a table refuse its second row with an error that the server would raise itself."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            f"CREATE FUNCTION minutebook.fail() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$BEGIN RAISE EXCEPTION 'it fails' USING ERRCODE = '{code}'; END$$".encode()
        )
        connection.execute(
            f"CREATE TRIGGER fail AFTER {on} ON minutebook.minutebook_{table} "
            "FOR EACH ROW EXECUTE FUNCTION minutebook.fail()".encode()
        )


def mend(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP FUNCTION minutebook.fail() CASCADE")


def everything(url: str) -> list[list[tuple[Any, ...]]]:
    with psycopg.connect(url) as connection:
        return [
            connection.execute(
                f"SELECT * FROM minutebook.minutebook_{table} ORDER BY 1, 2".encode()
            ).fetchall()
            for table in TABLES
        ]


@pytest.mark.parametrize("table", TABLES)
async def test_a_statement_that_fails_half_way_wrote_nothing(postgres_url: str, table: str) -> None:
    """Whichever part of it fails."""
    async with opened(postgres_url) as journal:
        await journal.commit(FIRST)
        before = everything(postgres_url)
        fail(postgres_url, table, "P0001", on="UPDATE" if table == "sessions" else "INSERT")
        with pytest.raises(StoreWriteFailed, match=r"nothing was written: .*it fails"):
            await journal.commit(SECOND)
        assert everything(postgres_url) == before
        mend(postgres_url)
        assert (await journal.commit(SECOND)).status is COMMITTED


@pytest.mark.parametrize(("code", "told"), [("53100", "disk is full"), ("53200", "no memory left")])
async def test_a_server_without_room_says_what_it_lacks(postgres_url: str, code: str, told: str) -> None:
    async with opened(postgres_url) as journal:
        await journal.commit(FIRST)
        fail(postgres_url, "events", code)
        with pytest.raises(StoreWriteFailed, match=rf"nothing was written: the server.*{told}"):
            await journal.commit(SECOND)
        mend(postgres_url)
        assert (await journal.commit(SECOND)).status is COMMITTED


async def test_an_event_that_is_there_already_is_no_conflict_to_be_tried_again(postgres_url: str) -> None:
    """No commit of ours leaves one behind: the tables were changed by somebody."""
    async with opened(postgres_url) as journal:
        await journal.commit(FIRST)
        with psycopg.connect(postgres_url) as connection:
            connection.execute(
                "INSERT INTO minutebook.minutebook_events (originator_id, originator_version, topic, state) "
                "VALUES ('session-1', 4, 't@1', 'x')"
            )
        before = everything(postgres_url)
        with pytest.raises(StoreWriteFailed, match="minutebook_events_pkey"):
            await journal.commit(SECOND)
        assert everything(postgres_url) == before

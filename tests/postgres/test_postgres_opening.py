"""Opening a journal in PostgreSQL: addresses, tables, rights, and what is refused untouched."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import minutebook as mb
from adapters.postgres_address import address
from adapters.postgres_connections import Opening, connect
from adapters.postgres_reader import open_reader
from adapters.postgres_schema import _TABLES
from adapters.postgres_store import PostgresStore
from domain.cursor import Cursor
from domain.errors import (
    InvalidOptions,
    MinutebookError,
    NewerFormat,
    NotAJournal,
    StoreFailure,
    StoreReadFailed,
    StoreUnsupported,
    ValueRefused,
)
from domain.ports import CommitStatus, Holder, Journal
from minutebook.testing.batches import dummy_batch, end_of
from minutebook.testing.postgres_cluster import Cluster

pytestmark = pytest.mark.anyio

SECRET = "s3cr3t-w0rd"
FIRST = dummy_batch(Cursor.start("session-1"), "c1", (b"{}", b"{}"), blobs=[b"blob"], snapshot_state=b"x")


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[Journal]:
    async with PostgresStore(url, **options).open() as journal:
        yield journal


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def tables_of(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(
            "SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns "
            "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2, 3"
        ).fetchall()


# --- addresses and credentials ------------------------------------------------------------


def test_a_name_shows_where_it_is_and_nothing_else() -> None:
    for url, name in {
        f"postgresql://bob:{SECRET}@db.example:6000/books?sslmode=require": "postgresql://db.example:6000/books",
        f"postgres://bob:{SECRET}@db.example/books": "postgresql://db.example:5432/books",
        f"postgresql://bob:{SECRET}@[::1]:7/books": "postgresql://[::1]:7/books",
        f"postgresql://a:1,b:2/books?user=bob&password={SECRET}": "postgresql://a:1,b:2/books",
        "postgresql:///books?host=/run/postgresql": "postgresql:///run/postgresql/books",
        "postgresql:///books?host=/run/a@b": "postgresql:///run/a@b/books",
    }.items():
        found = address(url)
        assert found.name == name
        assert SECRET not in repr((found, mb.postgres(url), Opening(found, "minutebook", 1.0)))
        assert "bob" not in repr((found, mb.postgres(url)))


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://bob:{SECRET}@h/d",
        f"postgresql://bob:{SECRET}@h:port/d",
        f"postgresql://bob:{SECRET}%zz@h/d",
        f"postgresql://bob:{SECRET}@h/d?nonsense=1",
        f"postgresql://bob:{SECRET}@h",
        f"postgresql://bob:first@{SECRET}@h/d",
        f"postgresql://bob:first@@{SECRET}@h/d",
        f"postgresql://bob:first@/{SECRET}@h/d",
        f"postgresql://bob:12/{SECRET}@h/d",
        f"postgresql://bob:first@h/d?host=x@{SECRET}",
        f"postgresql://bob:{SECRET}@h/d\0",
        f"host=h password={SECRET}",
        None,
    ],
)
async def test_what_is_no_address_is_refused_and_not_repeated(url: Any) -> None:
    with pytest.raises(InvalidOptions) as refusal:
        async with PostgresStore(url).open():
            pass
    assert SECRET not in "".join(traceback.format_exception(refusal.value, chain=True)).replace(
        f"url = {url!r}", ""
    )
    assert SECRET not in f"{refusal.value} {refusal.value.details}"


@pytest.mark.parametrize(
    "schema", ['a"b', "A", "", "1a", "a b", "a;b", "pg_mine", "x" * 64, "a\0", "é", None]
)
async def test_a_schema_s_name_is_a_plain_identifier(schema: Any) -> None:
    with pytest.raises(InvalidOptions):
        async with opened("postgresql://nowhere.invalid/d", schema=schema):
            pass


@pytest.mark.parametrize("option", [{"store_timeout_s": 0}, {"store_timeout_s": 31}, {"connections": 0}])
async def test_options_that_cannot_work_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptions):
        async with opened("postgresql://h/d", **option):
            pass


async def test_a_wrong_password_is_refused_and_shown_nowhere(
    postgres_url: str, postgres_cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    database = postgres_url.rpartition("/")[2]
    wrong = postgres_cluster.url(database, password=SECRET)
    for attempt in (opened(wrong), open_reader(wrong)):
        with pytest.raises(StoreFailure) as refusal:
            async with attempt:
                pass
        shown = "".join(traceback.format_exception(refusal.value, chain=True))
        assert SECRET not in shown + caplog.text + repr(refusal.value.__cause__)
        assert f":{postgres_cluster.port}/{database}: " in str(refusal.value)


async def test_a_server_that_is_not_there_is_not_waited_for() -> None:
    with pytest.raises(StoreReadFailed, match=r"postgresql://127\.0\.0\.1:1/d: reading failed"):
        async with opened("postgresql://u@127.0.0.1:1/d"):
            pass


async def test_the_environment_is_not_looked_at(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PGHOST": "no.such.host.invalid",
        "PGHOSTADDR": "203.0.113.1",
        "PGPORT": "1",
        "PGUSER": "nobody",
        "PGPASSWORD": "wrong",
        "PGOPTIONS": "-c synchronous_commit=off",
        "PGSSLMODE": "verify-full",
        "PGSSLROOTCERT": "/no/such/file",
        "PGTARGETSESSIONATTRS": "read-only",
        "PGCONNECT_TIMEOUT": "nonsense",
        "PGAPPNAME": "theirs",
        "PGCLIENTENCODING": "LATIN1",
        "PGTZ": "Asia/Kolkata",
        "PGDATESTYLE": "SQL",
    }.items():
        monkeypatch.setenv(name, value)
    async with opened(postgres_url) as journal:
        await journal.commit(FIRST)
        lease = await journal.leases.acquire("session-1", Holder("w\u00f6rker", "lease-1"), 1000)
        assert lease.holder_id == "w\u00f6rker"
        assert lease.expires_at.utcoffset().total_seconds() == 0  # type: ignore[union-attr]  # aware


# --- tables -----------------------------------------------------------------------------------


async def test_many_processes_make_the_tables_at_once(postgres_url: str) -> None:
    script = (
        "import anyio, sys\n"
        "from adapters.postgres_store import PostgresStore\n"
        "from domain.cursor import Cursor\n"
        "from minutebook.testing.batches import dummy_batch\n"
        "async def main():\n"
        "    async with PostgresStore(sys.argv[1]).open() as journal:\n"
        "        print((await journal.commit(dummy_batch(Cursor.start(sys.argv[2]), 'c1'))).status)\n"
        "anyio.run(main)\n"
    )
    here = Path(__file__).parents[2]
    processes = [
        subprocess.Popen(  # noqa: ASYNC220  # nothing else runs on this loop
            [sys.executable, "-c", script, postgres_url, f"session-{number}"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=here,
        )
        for number in range(3)
    ]
    assert [process.communicate()[0] for process in processes] == ["committed\n"] * 3
    async with opened(postgres_url) as journal:
        assert len(await journal.sessions()) == 3


async def test_two_schemas_are_two_journals(postgres_url: str) -> None:
    async with opened(postgres_url, schema="one") as one, opened(postgres_url, schema="two") as two:
        await one.commit(FIRST)
        assert await two.session("session-1") is None
        assert (await two.commit(FIRST)).status is CommitStatus.COMMITTED


async def test_other_tables_beside_ours_are_nobody_s_business(postgres_url: str) -> None:
    run(postgres_url, "CREATE TABLE public.orders (id int)")
    async with opened(postgres_url, schema="public") as journal:
        await journal.commit(FIRST)


async def test_tables_of_a_newer_version_are_refused_and_not_touched(postgres_url: str) -> None:
    async with opened(postgres_url) as journal:
        await journal.commit(FIRST)
    run(
        postgres_url,
        "UPDATE minutebook.minutebook_format SET version = 2",
        "ALTER TABLE minutebook.minutebook_events ADD COLUMN more text",
    )
    before = tables_of(postgres_url)
    for attempt in (opened(postgres_url), open_reader(postgres_url)):
        with pytest.raises(NewerFormat, match="found 2"):
            async with attempt:
                pass
    assert tables_of(postgres_url) == before


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE minutebook.minutebook_events ADD COLUMN more text",
        "ALTER TABLE minutebook.minutebook_blobs RENAME TO other",
        "ALTER TABLE minutebook.minutebook_sessions ENABLE ROW LEVEL SECURITY",
        "CREATE RULE r AS ON DELETE TO minutebook.minutebook_commands DO INSTEAD NOTHING",
        "CREATE TRIGGER t BEFORE INSERT ON minutebook.minutebook_events "
        "EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "DELETE FROM minutebook.minutebook_format",
        "UPDATE minutebook.minutebook_format SET application = 'theirs'",
        "UPDATE minutebook.minutebook_format SET version = 0",
        "DROP TABLE minutebook.minutebook_format",
    ],
)
async def test_tables_that_are_not_ours_are_refused_and_not_touched(postgres_url: str, change: str) -> None:
    async with opened(postgres_url):
        pass
    run(postgres_url, change)
    before = tables_of(postgres_url)
    for attempt in (opened(postgres_url), open_reader(postgres_url)):
        with pytest.raises(NotAJournal):
            async with attempt:
                pass
    assert tables_of(postgres_url) == before


async def test_a_stranger_s_table_of_our_name_is_refused_and_not_touched(postgres_url: str) -> None:
    for table in sorted(_TABLES):
        run(postgres_url, f"CREATE SCHEMA a_{table} CREATE TABLE {table} (id int)")
    before = tables_of(postgres_url)
    for table in sorted(_TABLES):
        with pytest.raises(NotAJournal):
            async with opened(postgres_url, schema=f"a_{table}"):
                pass
    assert tables_of(postgres_url) == before


async def test_a_reader_makes_nothing(postgres_url: str) -> None:
    with pytest.raises(NotAJournal):
        async with open_reader(postgres_url):
            pass
    assert tables_of(postgres_url) == []


# --- rights, and servers that take no writes ------------------------------------------------------


async def test_a_role_without_rights_is_told_which(postgres_url: str, postgres_cluster: Cluster) -> None:
    database = postgres_url.rpartition("/")[2]
    role = f"reader_{database}"
    postgres_cluster.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{postgres_cluster.password}'")
    theirs = postgres_cluster.url(database, user=role)
    with pytest.raises(StoreUnsupported, match="lacks a right"):
        async with opened(theirs):
            pass
    async with opened(postgres_url) as journal:
        await journal.commit(FIRST)
    with pytest.raises(StoreUnsupported, match="lacks a right"):
        async with open_reader(theirs):
            pass
    run(
        postgres_url,
        f"GRANT USAGE ON SCHEMA minutebook TO {role}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA minutebook TO {role}",
    )
    async with open_reader(theirs) as reader:
        assert tuple(await reader.read("session-1")) == FIRST.events
    async with opened(theirs) as journal:
        with pytest.raises(StoreUnsupported, match="lacks a right"):
            await journal.commit(dummy_batch(end_of(FIRST), "c2"))
        with pytest.raises(StoreUnsupported, match="lacks a right"):
            await journal.leases.acquire("session-1", Holder("worker", "lease-1"), 1000)
    run(postgres_url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


async def test_a_read_only_database_is_refused_and_can_be_looked_at(postgres_url: str) -> None:
    async with opened(postgres_url) as journal:
        await journal.commit(FIRST)
        name = postgres_url.rpartition("/")[2]
        run(postgres_url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        with pytest.raises(StoreUnsupported, match="read-only"):
            async with opened(postgres_url, store_timeout_s=14.0):
                pass
        async with open_reader(postgres_url) as reader:
            assert len(await reader.sessions()) == 1


async def test_a_server_that_does_not_wait_for_its_disk_is_refused(postgres_url: str) -> None:
    run(postgres_url, f"ALTER DATABASE {postgres_url.rpartition('/')[2]} SET synchronous_commit = off")
    with pytest.raises(StoreUnsupported, match="synchronous_commit"):
        async with opened(postgres_url):
            pass
    assert tables_of(postgres_url) == []


def test_every_connection_has_its_limits(postgres_url: str) -> None:
    expected = {
        "statement_timeout": "3s",
        "lock_timeout": "3s",
        "idle_in_transaction_session_timeout": "5s",
        "TimeZone": "UTC",
        "client_encoding": "UTF8",
        "default_transaction_isolation": "read committed",
        "application_name": "minutebook",
        "default_transaction_read_only": "off",
    }
    for writes in (True, False):
        with closing(connect(Opening(address(postgres_url), "minutebook", 3.0, writes))) as connection:
            found = {
                name: connection.execute("SELECT current_setting(%s) AS x", (name,)).fetchone()["x"]  # type: ignore[index]  # there is one
                for name in expected
            }
            assert connection.info.get_parameters()["tcp_user_timeout"] == "3000"  # silence ends, too
        assert found == expected | {"default_transaction_read_only": "off" if writes else "on"}


# --- the reader, closed handles, forks --------------------------------------------------------------


async def test_a_reader_sees_what_is_there_and_every_owner(postgres_url: str) -> None:
    async with opened(postgres_url) as journal, open_reader(postgres_url) as reader:
        receipt = await journal.commit(FIRST)
        assert tuple(await reader.read("session-1")) == FIRST.events
        assert await reader.session("session-1") == await journal.session("session-1")
        assert await reader.snapshot("session-1") == FIRST.snapshot
        assert await reader.blobs() == [FIRST.blobs[0].digest]
        assert await reader.blob(FIRST.blobs[0].digest) == b"blob"
        assert await reader.command("session-1", "c1") == (FIRST.fingerprint, receipt)
        async with open_reader(postgres_url, owner_id="somebody") as theirs:
            assert await theirs.sessions() == []
        with pytest.raises(StoreFailure, match="read-only"):
            await reader.look(lambda c: c.execute("DELETE FROM minutebook.minutebook_events"))


async def test_a_session_row_that_contradicts_its_events_is_corrupt(postgres_url: str) -> None:
    async with opened(postgres_url) as journal:
        await journal.commit(FIRST)
        run(postgres_url, "DELETE FROM minutebook.minutebook_events WHERE originator_version = 2")
        with pytest.raises(MinutebookError) as refusal:
            await journal.session("session-1")
    assert refusal.value.code == "SESSION_STORE_CORRUPT"


async def test_a_text_that_postgresql_cannot_hold_is_refused(postgres_url: str) -> None:
    for text in ("a\0b", "\ud800"):
        with pytest.raises(InvalidOptions, match="owner_id"):
            async with PostgresStore(postgres_url).open(owner_id=text):
                pass
        async with opened(postgres_url) as journal:
            with pytest.raises(ValueRefused):
                await journal.leases.acquire("session-1", Holder(text, "lease-1"), 1000)


async def test_a_store_is_not_used_across_a_fork(postgres_url: str) -> None:
    async with opened(postgres_url) as journal:
        await journal.commit(FIRST)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                journal.check_usable()  # type: ignore[attr-defined]  # what every call asks first
            except StoreUnsupported:
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0  # noqa: ASYNC222  # nothing else runs on this loop
        assert len(await journal.read("session-1")) == 2

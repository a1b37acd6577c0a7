"""The command line on journals in PostgreSQL: what it says there is what it says of a file."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from adapters.postgres_store import PostgresStore
from minutebook.cli import main as minutebook
from minutebook.testing.keeping import keep
from minutebook.testing.postgres_cluster import Cluster
from minutebook.testing.scenario import Scenario
from tests.integration.command_line import Ran, actions, call, run, write
from tests.journals import asking, long, lost_payment, three_calls
from tests.postgres.waiting import until_alone


@pytest.fixture
def url(postgres_cluster: Cluster, postgres_url: str) -> str:
    """The address of a journal with three sessions."""
    fill(postgres_url, asking(), lost_payment(), three_calls())
    return postgres_url


def fill(url: str, *scenarios: Scenario, schema: str = "minutebook") -> None:
    """Put sessions into a journal."""

    async def do() -> None:
        async with PostgresStore(url, schema=schema).open() as journal:
            for scenario in scenarios:
                await keep(journal, scenario)

    anyio.run(do)


def said(postgres_cluster: Cluster, *arguments: str | Path, child: bool = False) -> Ran:
    """What a command does, looked through for the password."""
    found = (run if child else call)(*arguments)
    assert postgres_cluster.password not in found.out + found.err
    assert "Traceback" not in found.out + found.err
    return found


def shown(url: str) -> str:
    """The address as it is shown."""
    return f"postgresql://{url.rpartition('@')[2]}"


# --- looking ------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The same sessions in a file."""
    (tmp_path / "kept").mkdir(mode=0o700)
    return write(tmp_path / "kept" / "journal.db", asking(), lost_payment(), three_calls())


def same(found: Ran, place: str | Path) -> Any:
    """A document without the name of the place where the journal is."""
    return orjson.loads(found.out.replace(str(place), "JOURNAL"))


@pytest.mark.parametrize("command", ["inspect", "verify", "replay"])
def test_it_says_what_it_says_of_a_file(
    postgres_cluster: Cluster, url: str, file: Path, command: str
) -> None:
    for session in ("s-ask", "s-three"):
        ours = said(postgres_cluster, command, url, session, "--json")
        theirs = call(command, file, session, "--json")
        assert (ours.code, ours.err) == (theirs.code, theirs.err)
        assert same(ours, shown(url)) == same(theirs, file)


def test_a_timeline_is_the_same(postgres_cluster: Cluster, url: str, file: Path) -> None:
    assert said(postgres_cluster, "timeline", url, "s-three").out == call("timeline", file, "s-three").out


def test_inspecting_all_sessions_as_a_child(postgres_cluster: Cluster, url: str) -> None:
    found = said(postgres_cluster, "inspect", url, child=True)
    assert found.code == 1
    assert f"{shown(url)}: 3 sessions" in found.out
    assert f"python -m recovery reconcile {shown(url)} " in found.out


def test_a_role_that_may_only_read_is_enough_for_looking(postgres_cluster: Cluster, url: str) -> None:
    role = f"reader_{url.rpartition('/')[2]}"
    for statement in (
        f"CREATE ROLE {role} LOGIN PASSWORD 'only-looks'",
        f"GRANT USAGE ON SCHEMA minutebook TO {role}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA minutebook TO {role}",
    ):
        postgres_cluster.execute(statement, url=url)
    theirs = url.replace(f"minutebook:{postgres_cluster.password}@", f"{role}:only-looks@")
    assert said(postgres_cluster, "verify", theirs).code == 4
    assert said(postgres_cluster, "inspect", theirs, "--verify").code == 1
    refused = said(postgres_cluster, "reconcile", theirs, "s-three", "abandon", "--reason", "no")
    assert refused.code == 3
    assert "only-looks" not in refused.err
    postgres_cluster.execute(f"DROP OWNED BY {role}", url=url)
    postgres_cluster.execute(f"DROP ROLE {role}", url=url)


def test_looking_changes_nothing(postgres_cluster: Cluster, url: str) -> None:
    written = (
        "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del), pg_current_wal_insert_lsn() IS NOT NULL "
        "FROM pg_stat_user_tables"
    )
    until_alone(postgres_cluster, url)
    before = postgres_cluster.execute(written, url=url)
    for command in ("inspect", "verify", "export"):
        said(postgres_cluster, command, url)
    for command in ("replay", "timeline"):
        said(postgres_cluster, command, url, "s-three")
    until_alone(postgres_cluster, url)
    assert postgres_cluster.execute(written, url=url) == before


# --- moving and deciding --------------------------------------------------------------------


def told(export: Path) -> list[bytes]:
    """An export's lines, but for those that say when a journal got a session."""
    return [line for line in export.read_bytes().splitlines() if b'"created_at"' not in line[:200]]


def test_sessions_move_between_a_file_and_a_server_byte_for_byte(
    postgres_cluster: Cluster, postgres_url: str, file: Path, tmp_path: Path
) -> None:
    exports = [tmp_path / f"{n}.jsonl" for n in range(3)]
    assert call("export", file, "--output", exports[0]).code == 0
    found = said(postgres_cluster, "import", exports[0], postgres_url)
    assert (found.code, found.out) == (0, call("import", exports[0], tmp_path / "copy.db").out)
    assert said(postgres_cluster, "export", postgres_url, "--output", exports[1]).code == 0
    assert told(exports[1]) == told(exports[0])
    assert call("import", exports[1], tmp_path / "back.db").code == 0
    assert call("export", tmp_path / "back.db", "--output", exports[2]).code == 0
    assert told(exports[2]) == told(exports[0])
    again = said(postgres_cluster, "import", exports[0], postgres_url)
    assert (again.code, "were there already" in again.out) == (0, True)


def test_a_decision_is_on_record_and_counts_once(postgres_cluster: Cluster, url: str) -> None:
    before = said(postgres_cluster, "inspect", url, "s-ask", "--json").document
    assert actions(before)
    arguments = ("reconcile", url, "s-three", "abandon", "--reason", "the shop is closed")
    dry = said(postgres_cluster, *arguments, "--dry-run")
    assert dry.code in (0, 1)
    done = said(postgres_cluster, *arguments, "--command-id", "c-1")
    assert done.code in (0, 1)
    head = said(postgres_cluster, "inspect", url, "s-three", "--json").document["head"]
    assert said(postgres_cluster, *arguments, "--command-id", "c-1").code in (0, 1)
    assert said(postgres_cluster, "inspect", url, "s-three", "--json").document["head"] == head
    assert said(postgres_cluster, "verify", url).code == 4


def test_another_schema_stands_behind_the_address(postgres_cluster: Cluster, postgres_url: str) -> None:
    fill(postgres_url, long(40), schema="team")
    found = said(postgres_cluster, "inspect", f"{postgres_url}#team")
    assert f"{shown(postgres_url)}" in found.out
    assert "1 session" in found.out
    assert said(postgres_cluster, "inspect", postgres_url).code == 3
    assert said(postgres_cluster, "inspect", f"{postgres_url}#No Such").code == 2


def test_a_server_journal_is_not_copied_with_backup(
    postgres_cluster: Cluster, url: str, tmp_path: Path
) -> None:
    found = said(postgres_cluster, "backup", url, tmp_path / "copy.db")
    assert found.code == 2
    assert "pg_dump" in found.err
    assert "export" in found.err
    assert not (tmp_path / "copy.db").exists()


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize("child", [False, True])
def test_migrating_a_server_s_journal_says_that_there_is_nothing_to_do(
    postgres_cluster: Cluster, url: str, dry: bool, child: bool
) -> None:
    rows = "SELECT s.*, s.xmin::text FROM minutebook.minutebook_sessions s ORDER BY session_id"
    before = postgres_cluster.execute(rows, url=url)
    events = sum(len(scenario.rows()) for scenario in (asking(), lost_payment(), three_calls()))
    found = said(postgres_cluster, "migrate", url, *(["--dry-run"] if dry else []), child=child)
    told = f"{shown(url)}: format 1, up to date (3 sessions, {events} events); there is nothing to do\n"
    assert (found.code, found.out, found.err) == (0, told, "")
    assert postgres_cluster.execute(rows, url=url) == before


def test_a_server_s_journal_without_sessions_or_in_another_schema_is_migrated_as_well(
    postgres_cluster: Cluster, postgres_url: str
) -> None:
    fill(postgres_url)
    fill(postgres_url, asking(), schema="team")
    assert "(0 sessions, 0 events)" in said(postgres_cluster, "migrate", postgres_url).out
    assert "(1 sessions, " in said(postgres_cluster, "migrate", f"{postgres_url}#team").out


# --- what can be wrong ------------------------------------------------------------------------


#: The driver does not say why a server refused; its words do.
REFUSED = "SESSION_STORE_READ_FAILED"


def closed_port() -> int:
    """A port where nobody listens."""
    with closing(socket.socket()) as tried:
        tried.bind(("127.0.0.1", 0))
        port: int = tried.getsockname()[1]
        return port


BROKEN = {
    "wrong password": "STORE_UNSUPPORTED",
    "no server": REFUSED,
    "unknown host": REFUSED,
    "no such database": "STORE_UNSUPPORTED",
    "no tables": "NOT_A_JOURNAL",
    "newer tables": "JOURNAL_FORMAT_NEWER",
}


def broken(what: str, cluster: Cluster, url: str) -> str:
    """An address where no journal can be read."""
    base, database = url.rsplit("/", 1)
    match what:
        case "wrong password":
            return f"{base.replace(cluster.password, f'{cluster.password}-not')}/{database}"
        case "no server":
            return base.rpartition(":")[0] + f":{closed_port()}/{database}"
        case "unknown host":
            return f"{base.rpartition('@')[0]}@no-such-host.invalid:5432/{database}"
        case "no such database":
            return f"{base}/no_such_database"
        case "newer tables":
            fill(url, asking())
            cluster.execute("UPDATE minutebook.minutebook_format SET version = 99", url=url)
    return url


LOOKS = (
    ("inspect",),
    ("verify",),
    ("replay", "s-ask"),
    ("timeline", "s-ask"),
    ("export",),
    ("migrate",),
    ("reconcile", "s-ask", "automatic"),
)


@pytest.mark.parametrize("what", BROKEN)
def test_what_cannot_be_read_is_told_in_a_sentence(
    postgres_cluster: Cluster, postgres_url: str, what: str
) -> None:
    url = broken(what, postgres_cluster, postgres_url)
    for name, *more in LOOKS:
        found = said(postgres_cluster, name, url, *more)
        assert (found.code, found.out) == (3, ""), found
        assert found.err.startswith(f"{BROKEN[what]}: "), found.err
        assert found.err.count("\n") == 1, found.err


@pytest.mark.parametrize("what", ["wrong password", "no tables"])
def test_a_child_and_the_doctor_say_the_same(
    postgres_cluster: Cluster, postgres_url: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = broken(what, postgres_cluster, postgres_url)
    found = said(postgres_cluster, "inspect", url, child=True)
    assert (found.code, found.out) == (3, "")
    assert found.err.startswith(f"{BROKEN[what]}: ")
    assert minutebook(["doctor", url]) == 1
    printed = capsys.readouterr().out
    assert f"error journal     {BROKEN[what]}: " in printed
    assert postgres_cluster.password not in printed


def test_the_doctor_looks_at_a_server(
    postgres_cluster: Cluster, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert minutebook(["doctor", url]) == 1  # the server of the tests does not wait for its disk
    printed = capsys.readouterr().out
    assert f"ok    journal     {shown(url)}: journal format 1." in printed
    assert "error durability" in printed
    assert "fsync=off" in printed
    assert "ok    clock " in printed
    assert "ok    blobs " in printed


@pytest.mark.parametrize(
    "journal", ["mysql://ann:hunter2@host/db", "postgresql://", "postgresql://ann:hunter2@host:many/db"]
)
def test_what_is_no_address_is_wrong_usage(journal: str) -> None:
    found = call("inspect", journal)
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("INVALID_OPTIONS: ")
    assert "hunter2" not in found.err


@pytest.mark.parametrize("command", ["inspect", "verify", "export", "import", "reconcile"])
def test_the_help_names_the_address(command: str) -> None:
    assert "postgresql://USER@HOST/DATABASE" in call(command, "--help").out.replace("\n", " ")

"""The throw-away server itself: what it keeps, whom it lets in, and that nothing of it stays."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Literal

import psycopg
import pytest

from domain.errors import StoreFailure, StoreUnsupported
from minutebook.testing import postgres_cluster as module
from minutebook.testing import postgres_programs
from minutebook.testing.postgres_cluster import Cluster
from tests.postgres.waiting import wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def own(postgres_cluster: Cluster) -> Iterator[Cluster]:
    """A server that the tests of this file may stop; asks for the other one to be left out with it."""
    with Cluster() as cluster:
        yield cluster


def test_each_database_is_new_and_empty(postgres_cluster: Cluster, postgres_url: str) -> None:
    other = postgres_cluster.new_database()
    postgres_cluster.execute("CREATE TABLE here (number int)", url=postgres_url)
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
    assert postgres_cluster.execute(tables, url=postgres_url) == [(1,)]
    assert postgres_cluster.execute(tables, url=other) == [(0,)]
    postgres_cluster.drop_database(other)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        postgres_cluster.execute(tables, url=other)


def test_a_database_is_dropped_under_its_connections(postgres_cluster: Cluster) -> None:
    url = postgres_cluster.new_database()
    with closing(psycopg.connect(url)) as connection:
        postgres_cluster.drop_database(url)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


@pytest.mark.parametrize("way", ["fast", "immediate", "kill"])
def test_what_was_committed_is_there_after_a_restart(
    own: Cluster, way: Literal["fast", "immediate", "kill"]
) -> None:
    url, port = own.new_database(), own.port
    own.execute("CREATE TABLE kept AS SELECT 7 AS number", url=url)
    open_ = psycopg.connect(url)
    process = own.process_id
    assert process is not None
    if way == "kill":
        children = module._children(process)
        own.kill()
        assert children
        wait_until(lambda: not any(map(is_alive, children)), "every process of the server is gone")
    else:
        own.stop(way)
    assert (own.running, own.process_id) == (False, None)
    with pytest.raises(psycopg.OperationalError), closing(open_):
        open_.execute("SELECT 1")
    own.start()
    assert own.port == port
    assert own.execute("SELECT number FROM kept", url=url) == [(7,)]


def test_a_kill_ends_a_statement_that_would_not_notice(own: Cluster) -> None:
    counting = "DO $$ BEGIN LOOP END LOOP; END $$"

    def count() -> None:
        with pytest.raises(psycopg.OperationalError):
            own.execute(counting)

    busy = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'DO %' AND state = 'active'"
    asking = threading.Thread(target=count)
    asking.start()
    wait_until(lambda: bool(own.execute(busy)), "somebody counts")
    ((process,),) = own.execute(busy)
    own.kill()
    wait_until(lambda: not is_alive(process), "nobody counts any more")
    asking.join()
    own.start()


def test_stopping_and_starting_twice_is_harmless(own: Cluster) -> None:
    own.stop()
    own.stop()
    own.kill()
    own.start()
    first = own.process_id
    own.start()
    assert own.process_id == first
    own.restart()
    assert own.process_id != first


def test_it_listens_on_loopback_only_and_wants_the_password(own: Cluster) -> None:
    lines = [line for line in own.log.splitlines() if "listening on" in line]
    assert lines
    assert all("127.0.0.1" in line for line in lines)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        own.execute("SELECT 1", url=own.url(password="wrong"))
    assert own.password not in repr(own)
    assert own.execute("SHOW password_encryption") == [("scram-sha-256",)]


def test_it_never_runs_as_root(own: Cluster) -> None:
    assert own.process_id is not None
    owner = Path(f"/proc/{own.process_id}").stat().st_uid
    assert owner != 0
    assert os.geteuid() in (0, owner)


def test_settings_are_the_servers(postgres_cluster: Cluster) -> None:
    assert postgres_cluster.execute("SHOW fsync") == [("off",)]
    with Cluster(durable=True, settings={"max_connections": "17"}) as cluster:
        assert cluster.execute("SHOW fsync") == [("on",)]
        assert cluster.execute("SHOW max_connections") == [("17",)]


def test_a_server_that_does_not_start_says_why_and_leaves_nothing(postgres_cluster: Cluster) -> None:
    cluster = Cluster(settings={"max_connections": "many"})
    with pytest.raises(StoreFailure, match="max_connections"), cluster:
        pytest.fail("it started")
    assert not cluster._place.exists()


def test_a_port_that_is_taken_meanwhile_is_left_to_the_other(
    postgres_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        ports = chain([taken], repeat(module._free_port("another")))
        monkeypatch.setattr(module, "_free_port", lambda seed: next(ports))
        with Cluster() as cluster:
            assert cluster.port != taken
            assert cluster.execute("SELECT 1") == [(1,)]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C is heard, also where the tests run in the background."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_block_leaves_nothing(postgres_cluster: Cluster) -> None:
    cluster = Cluster()
    with pytest.raises(KeyboardInterrupt), cluster:
        signal.raise_signal(signal.SIGINT)
    assert not cluster.running
    assert not cluster._place.exists()


KILLED = """
import sys
from minutebook.testing.postgres_cluster import Cluster
from minutebook.testing.postgres_standby import Standby
with Cluster() as cluster, Standby(primary=cluster) as standby:
    print(cluster.process_id, cluster._place, standby.process_id, standby._place, flush=True)
    sys.stdin.read()
"""


def test_a_killed_test_process_leaves_nothing(postgres_cluster: Cluster) -> None:
    """Neither of a server nor of its standby, neither of which is root's."""
    command = [sys.executable, "-c", KILLED]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        server, place, standby, its_place = child.stdout.readline().split()
        for process in (server, standby):
            assert is_alive(int(process))
            assert Path(f"/proc/{process}").stat().st_uid != 0
        child.send_signal(signal.SIGKILL)
    for left in (place, its_place):
        wait_until(lambda left=left: not Path(left).exists(), "its directory is gone")  # type: ignore[misc]
    assert not is_alive(int(server))
    assert not is_alive(int(standby))


def is_alive(process_id: int) -> bool:
    """Whether a process runs; one that ended and was not asked for its end does not."""
    with suppress(FileNotFoundError):
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] not in "ZXx"
    return False


def test_without_programs_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(postgres_programs, "_PACKAGED", tmp_path)
    assert postgres_programs.server_programs() is None
    with pytest.raises(StoreUnsupported, match="apt-get install postgresql"), Cluster():
        pytest.fail("it started")


def test_programs_off_the_path_are_found_the_newest_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for version in ("9", "14", "x"):
        for name in ("initdb", "postgres"):
            program = tmp_path / version / "bin" / name
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text("")
            program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setattr(postgres_programs, "_PACKAGED", tmp_path)
    assert postgres_programs.server_programs() == tmp_path / "14" / "bin"


def test_the_aid_is_imported_without_a_driver() -> None:
    code = "import sys; sys.modules['psycopg'] = None; import minutebook.testing.postgres_cluster"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)

"""The proxy breaks where it says, so that what is tested with it is tested there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from minutebook.testing.postgres_cluster import Cluster
from tests.postgres.proxy import Place, Proxy
from tests.postgres.waiting import until_alone

INSERT = "INSERT INTO kept VALUES (%s)"
#: Whether the row is there afterwards; None: either.
LEAVES = {
    Place.BEFORE: False,
    Place.MIDDLE: False,
    Place.CARRIED_OUT: False,
    Place.SENT: None,
    Place.COMMITTED: True,
    Place.TERMINATED: False,
}


@pytest.fixture
def proxy(postgres_cluster: Cluster, postgres_url: str) -> Iterator[Proxy]:
    postgres_cluster.execute("CREATE TABLE kept (number int)", url=postgres_url)
    with Proxy(postgres_cluster, postgres_url) as running:
        yield running


def connect(proxy: Proxy) -> psycopg.Connection[tuple[int]]:
    """A connection through it; each statement is a transaction."""
    connection: psycopg.Connection[tuple[int]] = psycopg.connect(proxy.url, autocommit=True)
    return connection


def fails(connection: psycopg.Connection[tuple[int]]) -> None:
    """A statement that is never answered."""
    with pytest.raises(psycopg.OperationalError):
        connection.execute(INSERT, (1,))


def kept(cluster: Cluster, url: str) -> list[tuple[int]]:
    """What is in the table once nobody writes any more, asked without the proxy."""
    until_alone(cluster, url)
    return cluster.execute("SELECT number FROM kept", url=url)


def test_it_passes_everything_on(proxy: Proxy) -> None:
    with closing(connect(proxy)) as connection:
        for number in range(10):  # from the sixth on by a prepared statement's name
            connection.execute(INSERT, (number,))
        with connection.pipeline():
            connection.execute(INSERT, (10,))
            rows = connection.execute("SELECT number FROM kept").fetchall()
    assert rows == [(number,) for number in range(11)]
    assert sum("INSERT" in text for text in proxy.texts) == 11


@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize("place", LEAVES)
def test_it_breaks_there(
    postgres_cluster: Cluster, postgres_url: str, proxy: Proxy, place: Place, prepare: bool
) -> None:
    cut = proxy.arm(place, "INSERT", skip=1)
    with closing(connect(proxy)) as connection:
        connection.execute(INSERT, (1,), prepare=prepare)
        with pytest.raises(psycopg.OperationalError):
            connection.execute(INSERT, (2,), prepare=prepare)
    cut.wait()
    found = kept(postgres_cluster, postgres_url)
    assert found[:1] == [(1,)]
    assert LEAVES[place] in (None, found == [(1,), (2,)])
    with closing(connect(proxy)) as connection:
        connection.execute(INSERT, (3,))
    assert kept(postgres_cluster, postgres_url) == [*found, (3,)]


def test_a_late_answer_comes_when_nobody_waits(
    postgres_cluster: Cluster, postgres_url: str, proxy: Proxy
) -> None:
    cut = proxy.arm(Place.LATE, "INSERT")
    connection = connect(proxy)
    waiting = threading.Thread(target=fails, args=(connection,))
    waiting.start()
    cut.wait()
    assert waiting.is_alive()
    assert postgres_cluster.execute("SELECT number FROM kept", url=postgres_url) == [(1,)]
    proxy.lose()
    waiting.join()
    connection.close()


def test_what_is_held_arrives_after_its_sender_left(
    postgres_cluster: Cluster, postgres_url: str, proxy: Proxy
) -> None:
    cut = proxy.arm(Place.HELD, "INSERT")
    connection = connect(proxy)
    waiting = threading.Thread(target=fails, args=(connection,))
    waiting.start()
    assert cut.reached.wait(20)
    assert postgres_cluster.execute("SELECT number FROM kept", url=postgres_url) == []
    cut.go_on.set()
    cut.wait()
    waiting.join()
    connection.close()
    assert kept(postgres_cluster, postgres_url) == [(1,)]


def test_a_restart_breaks_it_and_the_server_is_back(postgres_cluster: Cluster) -> None:
    with Cluster() as own:
        url = own.new_database()
        own.execute("CREATE TABLE kept (number int)", url=url)
        with Proxy(own, url) as proxy:
            cut = proxy.arm(Place.RESTARTED, "INSERT")
            with closing(connect(proxy)) as connection, pytest.raises(psycopg.OperationalError):
                connection.execute(INSERT, (1,))
            cut.wait()
            with closing(connect(proxy)) as connection:
                assert connection.execute("SELECT number FROM kept").fetchall() in ([], [(1,)])


def test_a_lost_database_refuses_and_comes_back(proxy: Proxy) -> None:
    with closing(connect(proxy)) as connection:
        proxy.refuse()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError):
            connect(proxy)
        proxy.accept()
        with closing(connect(proxy)) as again:
            assert again.execute("SELECT 1").fetchall() == [(1,)]


def test_a_frozen_line_says_nothing_until_it_thaws(proxy: Proxy) -> None:
    with closing(connect(proxy)) as connection:
        proxy.freeze()
        answers: list[object] = []
        asking = threading.Thread(target=lambda: answers.extend(connection.execute("SELECT 1").fetchall()))
        asking.start()
        asking.join(0.1)
        assert asking.is_alive()
        proxy.thaw()
        asking.join()
        assert answers == [(1,)]

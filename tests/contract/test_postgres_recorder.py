"""The recorder passes the test cases that the eventsourcing library ships for recorders."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from eventsourcing.persistence import StoredEvent
from eventsourcing.postgres import PostgresDatastore
from eventsourcing.tests.persistence import ApplicationRecorderTestCase

from adapters.postgres_address import address
from adapters.postgres_connections import Opening
from adapters.postgres_recorder import JournalDatastore, JournalRecorder, PostgresApplication
from adapters.postgres_store import PostgresStore
from domain.cursor import Cursor
from domain.errors import StoreUnsupported
from minutebook.testing.batches import dummy_batch
from minutebook.testing.postgres_cluster import Cluster

_NUMBERS = itertools.count(1)


def opening(url: str, schema: str = "minutebook") -> Opening:
    return Opening(address(url), schema, 15.0)


@pytest.fixture(scope="module")
def database_url(postgres_cluster: Cluster) -> str:
    return postgres_cluster.new_database()


class TestJournalRecorder(ApplicationRecorderTestCase[JournalRecorder]):
    @pytest.fixture(autouse=True)
    def place(self, database_url: str) -> None:
        self.url = database_url

    def setUp(self) -> None:
        self.datastore = JournalDatastore(opening(self.url, f"recorder_{next(_NUMBERS)}"), pool_size=8)
        self.addCleanup(self.datastore.close)
        self.addCleanup(self.wait_for_threads, frozenset(threading.enumerate()))

    def wait_for_threads(self, before: frozenset[threading.Thread]) -> None:
        """The library's concurrent case tells its readers to stop and does not wait for them."""
        for thread in set(threading.enumerate()) - before:
            if not thread.name.startswith("pool-"):
                thread.join()

    def create_recorder(self) -> JournalRecorder:
        recorder = JournalRecorder(self.datastore)
        recorder.create_table()
        return recorder

    def new_originator_id(self) -> str:
        return str(uuid4())


# The library's abstract case would be collected here as well.
del ApplicationRecorderTestCase


@pytest.fixture
def recorder(postgres_url: str) -> Iterator[JournalRecorder]:
    with closing(JournalDatastore(opening(postgres_url), pool_size=4)) as datastore:
        made = JournalRecorder(datastore)
        made.create_table()
        yield made


def insert(connection: psycopg.Connection[Any], session_id: str) -> int:
    """Insert one row and leave the transaction open; its position."""
    row = connection.execute(
        "INSERT INTO minutebook.minutebook_events (originator_id, originator_version, topic, state) "
        "VALUES (%s, 1, 't@1', 'x') RETURNING notification_id",
        (session_id,),
    ).fetchone()
    assert row is not None
    return int(row[0])


def test_the_feed_skips_no_row_whose_lower_position_is_committed_later(
    recorder: JournalRecorder, postgres_url: str
) -> None:
    found: list[list[int]] = []

    def look() -> None:
        found.append([each.id for each in recorder.select_notifications(None, 10)])

    with psycopg.connect(postgres_url) as lower, psycopg.connect(postgres_url) as higher:
        assert (insert(lower, "a"), insert(higher, "b")) == (1, 2)
        higher.commit()
        looking = threading.Thread(target=look)
        looking.start()
        looking.join(0.2)
        assert looking.is_alive(), "position 2 is there and 1 may still come: it has to wait"
        lower.commit()
        looking.join()
    assert found == [[1, 2]]


def test_neither_does_the_feed_of_some_topics_nor_its_end(
    recorder: JournalRecorder, postgres_url: str
) -> None:
    found: list[object] = []
    with psycopg.connect(postgres_url) as lower, psycopg.connect(postgres_url) as higher:
        insert(lower, "a")
        insert(higher, "b")
        higher.commit()
        calls = (
            lambda: [each.id for each in recorder.select_notifications(None, 10, topics=["t@1"])],
            recorder.max_notification_id,
        )
        threads = [threading.Thread(target=lambda call=call: found.append(call())) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(0.1)
            assert thread.is_alive()
        lower.rollback()
        for thread in threads:
            thread.join()
    assert sorted(found, key=str) == [2, [2]]


def test_a_position_that_was_given_up_holds_nobody_up(recorder: JournalRecorder, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        insert(connection, "a")
        connection.rollback()
    recorder.insert_events([StoredEvent("b", 1, "t@1", b"x")])
    assert [each.id for each in recorder.select_notifications(1, 10)] == [2]
    assert recorder.max_notification_id() == 2


@pytest.mark.anyio
async def test_the_application_reads_the_feed_without_content_and_resolves_no_topic(
    postgres_url: str,
) -> None:
    batch = dummy_batch(Cursor.start("session-1"), "c1", [b'{"secret":1}'])
    async with PostgresStore(postgres_url).open() as journal:
        await journal.commit(batch)
    with closing(PostgresApplication(opening(postgres_url))) as application:
        (notification,) = application.notification_log.select(1, 10)
        assert notification.state == batch.events[0].envelope
        assert b"secret" not in notification.state
        (event,) = application.events.get("session-1")
        assert event.topic == "notice_recorded@1"  # type: ignore[attr-defined]  # what the mapper gives


@pytest.mark.anyio
async def test_a_library_s_subscription_hears_of_commits(postgres_url: str) -> None:
    batch = dummy_batch(Cursor.start("session-1"), "c1", [b"{}"] * 3)
    with closing(PostgresApplication(opening(postgres_url))) as application:
        async with PostgresStore(postgres_url).open() as journal:
            with application.recorder.subscribe() as subscription:
                await journal.commit(batch)
                assert [next(subscription).originator_version for _ in range(3)] == [1, 2, 3]


def test_the_application_can_not_write(postgres_url: str) -> None:
    with closing(PostgresApplication(opening(postgres_url))) as application:
        with pytest.raises(StoreUnsupported):
            application.save()
        with pytest.raises(StoreUnsupported):
            application.take_snapshot("session-1")
        with pytest.raises(StoreUnsupported):
            application.events.put([object()])  # type: ignore[list-item]  # whatever it is


def test_the_library_s_database_functions_are_refused_at_start(postgres_url: str) -> None:
    with pytest.raises(StoreUnsupported, match="enable_db_functions"):
        JournalDatastore(opening(postgres_url), enable_db_functions=True)
    theirs = PostgresDatastore("t", "h", 1, "u", "p", enable_db_functions=True)
    with pytest.raises(StoreUnsupported, match="enable_db_functions"):
        JournalRecorder(theirs)  # type: ignore[arg-type]  # the library's own


def test_the_process_s_environment_is_not_looked_at(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PERSISTENCE_MODULE", "MINUTEBOOK_PERSISTENCE_MODULE", "TRANSCODER_TOPIC", "CIPHER_TOPIC"):
        monkeypatch.setenv(name, "no.such.module:thing")
    monkeypatch.setenv("POSTGRES_ENABLE_DB_FUNCTIONS", "yes")
    with closing(PostgresApplication(opening(postgres_url))) as application:
        assert dict(application.env) == {}
        assert not application.recorder.datastore.enable_db_functions  # type: ignore[attr-defined]

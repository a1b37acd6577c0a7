"""The recorder passes the test cases that the eventsourcing library ships for recorders."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from uuid import uuid4

import pytest
from eventsourcing.persistence import OperationalError, StoredEvent
from eventsourcing.tests.persistence import ApplicationRecorderTestCase

from adapters.sqlite_connections import Opening
from adapters.sqlite_driver import sqlite
from adapters.sqlite_files import make_private, resolved
from adapters.sqlite_pool import SqliteDatastore
from adapters.sqlite_recorder import JournalRecorder, SqliteApplication
from domain.cursor import Cursor
from domain.errors import StoreUnsupported
from minutebook.testing.batches import dummy_batch


def opening(directory: Path, connection_class: type[sqlite.Connection] = sqlite.Connection) -> Opening:
    path = resolved(directory / "journal.db")
    make_private(path)
    return Opening(path, "wal", 15.0, connection_class)


class TestJournalRecorder(ApplicationRecorderTestCase[JournalRecorder]):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.datastore = SqliteDatastore(opening(Path(directory.name)))
        self.addCleanup(self.datastore.close)
        self.addCleanup(self.wait_for_threads, frozenset(threading.enumerate()))

    def wait_for_threads(self, before: frozenset[threading.Thread]) -> None:
        """The library's concurrent case tells its readers to stop and does not wait for them.
        A connection that is closed while another thread reads from it takes the process along."""
        for thread in set(threading.enumerate()) - before:
            thread.join()

    def create_recorder(self) -> JournalRecorder:
        recorder = JournalRecorder(self.datastore)
        recorder.create_table()
        return recorder

    def new_originator_id(self) -> str:
        return str(uuid4())


# The library's abstract case would be collected here as well.
del ApplicationRecorderTestCase


class FailingCommit(sqlite.Connection):
    """A connection whose transactions fail at their end."""

    failing = False

    def commit(self) -> None:
        if self.failing:
            raise sqlite.OperationalError("disk I/O error")
        super().commit()


def test_a_connection_that_failed_in_commit_is_closed_and_never_pooled(tmp_path: Path) -> None:
    datastore = SqliteDatastore(opening(tmp_path, FailingCommit))
    recorder = JournalRecorder(datastore)
    pool = datastore.journal_pool
    with datastore.get_connection(commit=False) as connection:
        failed = connection
    FailingCommit.failing = True
    try:
        with pytest.raises(OperationalError):
            recorder.insert_events([StoredEvent("session-1", 1, "t@1", b"envelope")])
    finally:
        FailingCommit.failing = False
    assert failed.closed
    assert (pool.num_in_pool, pool.num_in_use) == (0, 0)
    assert recorder.select_events("session-1") == []
    datastore.close()


def test_the_application_reads_the_feed_without_content_and_resolves_no_topic(tmp_path: Path) -> None:
    application = SqliteApplication(opening(tmp_path))
    batch = dummy_batch(Cursor.start("session-1"), "c1", [b'{"secret":1}'])
    connection = application.pool.get_connection()
    with connection.transaction(commit=True):
        JournalRecorder.append(connection.raw, batch.events)
    application.pool.put_connection(connection)
    (notification,) = application.notification_log.select(1, 10)
    assert notification.state == batch.events[0].envelope
    assert b"secret" not in notification.state
    (event,) = application.events.get("session-1")
    assert event.topic == "notice_recorded@1"  # type: ignore[attr-defined]  # what the mapper gives
    application.close()


def test_the_application_can_not_write(tmp_path: Path) -> None:
    application = SqliteApplication(opening(tmp_path))
    with pytest.raises(StoreUnsupported):
        application.save()
    with pytest.raises(StoreUnsupported):
        application.take_snapshot("session-1")
    with pytest.raises(StoreUnsupported):
        application.events.put([object()])  # type: ignore[list-item]  # whatever it is
    application.close()


def test_the_process_s_environment_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PERSISTENCE_MODULE", "MINUTEBOOK_PERSISTENCE_MODULE", "TRANSCODER_TOPIC", "CIPHER_TOPIC"):
        monkeypatch.setenv(name, "no.such.module:thing")
    application = SqliteApplication(opening(tmp_path))
    assert dict(application.env) == {}
    application.close()

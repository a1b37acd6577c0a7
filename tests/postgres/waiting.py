"""Waiting for a state in tests without a loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from minutebook.testing.postgres_cluster import Cluster
from tests.store.waiting import PATIENCE_S

_STEP_S = 0.005
KILL = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE application_name = 'minutebook' AND datname = %s"
)


def wait_until(state: Callable[[], bool], what: str) -> None:
    """Look again and again until a state is reached."""
    end, pause = time.monotonic() + PATIENCE_S, threading.Event()
    while not state():
        assert time.monotonic() < end, f"waited in vain: {what}"
        pause.wait(_STEP_S)


def until_alone(cluster: Cluster, url: str) -> None:
    """Return once nobody else is connected to a database, and the server has counted what they did."""
    others = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    wait_until(lambda: not cluster.execute(others, url=url), "nobody else is connected")


def end_connections(cluster: Cluster, database: str) -> None:
    """End every connection to a database, also those that were on their way at the first look.

    A commit is told to other processes by a thread that connects when it gets to it, so one look
    and then waiting for silence may wait for a connection that nobody ends.
    """
    wait_until(lambda: not cluster.execute(KILL, (database,)), f"nobody is connected to {database}")

"""What the command line says of a lease goes by the store's clock, whatever its own host's is set to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from adapters.postgres_store import PostgresStore
from adapters.sqlite_store import SqliteStore
from adapters.system import SystemClock, this_process
from domain.ports import Holder, LeaseRow
from minutebook.testing.keeping import keep
from tests.integration.command_line import call
from tests.journals import asking, lost_payment

MINUTE_MS = 60_000
ABANDON = ("abandon", "--reason", "the shop is closed", "--dry-run")


@pytest.fixture(params=["sqlite", "postgres"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A journal with two sessions: the lease of one is live, that of the other ran out."""
    if request.param == "sqlite":
        (tmp_path / "kept").mkdir(mode=0o700)
        address = str(tmp_path / "kept" / "journal.db")
        store: SqliteStore | PostgresStore = SqliteStore(address)
    else:
        address = request.getfixturevalue("postgres_url")
        store = PostgresStore(address)

    async def lease(session_id: str, ttl_ms: int) -> LeaseRow:
        holder = Holder("worker-7", "l-1", this_process().boot_id)  # of a process that nobody can look for
        async with store.open() as opened:
            row = await opened.leases.acquire(session_id, holder, ttl_ms)
            with anyio.fail_after(10):
                while ttl_ms < MINUTE_MS and await opened.lease_lives(row):
                    await anyio.lowlevel.checkpoint()
            return row

    async def fill() -> None:
        async with store.open() as opened:
            await keep(opened, lost_payment())
            await keep(opened, asking())
        await lease("s-pay", MINUTE_MS)
        await lease("s-ask", 1)

    anyio.run(fill)
    return address


@pytest.fixture(params=[-1, 0, 1])
def hours(request: pytest.FixtureRequest, journal: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """By how much this host's wall clock is off, once the journal is there."""
    found: int = request.param
    off = timedelta(hours=found)
    monkeypatch.setattr(SystemClock, "now", lambda clock: datetime.now(UTC) + off)
    return found


def test_a_lease_is_shown_as_the_store_would_judge_it(journal: str, hours: int) -> None:
    live = call("inspect", journal, "s-pay", "--json").document["lease"]
    over = call("inspect", journal, "s-ask", "--json").document["lease"]
    assert (live["holder"], live["lives"], over["lives"]) == ("worker-7", True, False), f"{hours} hours off"
    assert ": live" in lease_line(journal, "s-pay")
    assert "dead or run out" in lease_line(journal, "s-ask")


def lease_line(journal: str, session_id: str) -> str:
    """What a person is shown of it, in one line."""
    words = " ".join(call("inspect", journal, session_id).out.split())
    return words[words.index(" lease ") :][:200]


def test_a_dry_run_is_refused_where_the_real_one_would_be(journal: str, hours: int) -> None:
    refused = call("reconcile", journal, "s-pay", *ABANDON)
    assert (refused.code, "DURABLE_EXECUTION_LEASE_CONFLICT" in refused.err) == (3, True), f"{hours} hours"
    allowed = call("reconcile", journal, "s-ask", *ABANDON)
    assert (allowed.code, "would append" in allowed.out) == (0, True), allowed.err

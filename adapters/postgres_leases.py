"""The lease calls on PostgreSQL: one statement each, by the database's own clock.

Imported by the store. Every call may be repeated: the same holder gets the same
lease again, and what is given back stays given back.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from adapters import lease_rules, postgres_rows, postgres_statements
from adapters.lease_rules import Instant
from adapters.postgres_changes import check_text
from adapters.postgres_connections import Opening
from adapters.postgres_driver import Connection
from adapters.postgres_rows import MAX_NUMBER, keepable
from adapters.system import holder_is_dead
from domain.envelope import Fence, genesis
from domain.errors import LeaseLost, SessionNotFound, StoreTimeout
from domain.ports import Holder, LeaseRow

_ATTEMPTS: Final = 16


def acquire(
    connection: Connection,
    opening: Opening,
    owner_id: str,
    session_id: str,
    holder: Holder,
    ttl_ms: int,
    now: datetime | None,
) -> LeaseRow:
    """Take a session's lease; see `domain.ports.LeaseStore.acquire`."""
    lease_rules.checked_ttl(ttl_ms)
    for text in (holder.worker_id, holder.lease_id, holder.boot_id, holder.process_started):
        check_text(text)
    asked = _wanted(owner_id, session_id, holder, ttl_ms, now)
    for _ in range(_ATTEMPTS):
        lease = _one(connection, postgres_statements.acquire(opening.schema), asked)
        if lease is not None:
            return lease
        lease = _take_over(connection, opening, owner_id, session_id, holder, ttl_ms, asked)
        if lease is not None:
            return lease
    raise StoreTimeout(opening.name, "the lease kept changing hands; try again")


def renew(
    connection: Connection,
    opening: Opening,
    owner_id: str,
    session_id: str,
    fence: Fence,
    ttl_ms: int,
    now: datetime | None,
) -> LeaseRow:
    """Extend a live lease. Raises LeaseLost."""
    lease_rules.checked_ttl(ttl_ms)
    asked = _fenced(owner_id, session_id, fence, now) | {"ttl_ms": ttl_ms}
    for _ in range(_ATTEMPTS):
        lease = _one(connection, postgres_statements.renew(opening.schema), asked)
        if lease is not None:
            return lease
        validate(connection, opening, owner_id, session_id, fence, now)
    raise StoreTimeout(opening.name, "the lease kept changing; try again")


def validate(
    connection: Connection,
    opening: Opening,
    owner_id: str,
    session_id: str,
    fence: Fence,
    now: datetime | None,
) -> LeaseRow:
    """The lease row, if the fence is the live lease. Raises LeaseLost."""
    row = _held(connection, opening, session_id, now) if keepable(session_id) else None
    if row is None or row["owner_id"] != owner_id:
        raise LeaseLost(session_id, "the store has no lease for it")
    return lease_rules.live(session_id, postgres_rows.lease_row(row), fence, Instant(row["now"]))


def release(
    connection: Connection,
    opening: Opening,
    owner_id: str,
    session_id: str,
    fence: Fence,
    now: datetime | None,
) -> None:
    """Give a lease back; the token stays. Not ours any more: nothing happens."""
    asked = _fenced(owner_id, session_id, fence, now)
    if _askable(session_id, fence):
        connection.ask(postgres_statements.release(opening.schema), asked)


def _take_over(
    connection: Connection,
    opening: Opening,
    owner_id: str,
    session_id: str,
    holder: Holder,
    ttl_ms: int,
    asked: dict[str, Any],
) -> LeaseRow | None:
    """Take the lease of a dead holder; None if it is another's by now.

    Raises:
        LeaseConflict: the holder lives, for all we know.
    """
    row = _held(connection, opening, session_id, asked["now"])
    if row["owner_id"] != owner_id:
        raise SessionNotFound(session_id, opening.name)
    lease = postgres_rows.lease_row(row)
    lease_rules.granted(session_id, lease, holder, ttl_ms, Instant(row["now"]), holder_is_dead)
    if lease is None or lease.lease_id is None:
        return None
    dead = {
        "dead_token": lease.token,
        "dead_lease": lease.lease_id,
        "dead_holder": lease.holder_id,
        "dead_renewed": lease.renewed_at,
    }
    return _one(connection, postgres_statements.take_over(opening.schema), asked | dead)


def _held(connection: Connection, opening: Opening, session_id: str, now: datetime | None) -> dict[str, Any]:
    asked = {"session": session_id, "now": now}
    (row,) = connection.ask(postgres_statements.held(opening.schema), asked)
    return row


def _one(connection: Connection, statement: bytes, asked: dict[str, Any]) -> LeaseRow | None:
    if not all(_can_be_asked(value) for value in asked.values()):
        return None
    rows = connection.ask(statement, asked)
    return postgres_rows.lease_row(rows[0]) if rows else None


def _can_be_asked(value: Any) -> bool:
    if isinstance(value, str):
        return keepable(value)
    return not isinstance(value, int) or abs(value) <= MAX_NUMBER


def _askable(session_id: str, fence: Fence) -> bool:
    return all(_can_be_asked(x) for x in (session_id, fence.lease_id, fence.worker_id, fence.token))


def _fenced(owner_id: str, session_id: str, fence: Fence, now: datetime | None) -> dict[str, Any]:
    return {
        "now": now,
        "session": session_id,
        "owner": owner_id,
        "token": fence.token,
        "lease": fence.lease_id,
        "holder": fence.worker_id,
    }


def _wanted(
    owner_id: str, session_id: str, holder: Holder, ttl_ms: int, now: datetime | None
) -> dict[str, Any]:
    return {
        "now": now,
        "session": session_id,
        "owner": owner_id,
        "genesis": genesis(session_id),
        "lease": holder.lease_id,
        "holder": holder.worker_id,
        "boot": holder.boot_id,
        "process": holder.process_id,
        "process_started": holder.process_started,
        "ttl_ms": ttl_ms,
    }

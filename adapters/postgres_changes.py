"""Changing a journal's tables in PostgreSQL: a commit, and settling an unknown one.

Imported by the store. A commit is one statement and one trip to the server. Only
when it wrote nothing a second statement asks why, and the rules that every store
shares say which refusal it is.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any, Final

import psycopg

from adapters import commit_rules, postgres_rows, postgres_statements
from adapters.commit_rules import Standing
from adapters.lease_rules import Instant
from adapters.postgres_connections import Backend, Line, Opening
from adapters.postgres_driver import Connection, byteas, texts
from adapters.postgres_errors import is_conflict, read_error, write_error
from adapters.postgres_rows import MAX_NUMBER, keepable
from adapters.postgres_statements import Place
from domain.envelope import genesis
from domain.errors import OutcomeUnknown, StoreFailure, StoreTimeout, ValueRefused
from domain.ports import Batch, CommitStatus, Receipt

_ATTEMPTS: Final = 16


def commit(connection: Connection, batch: Batch, opening: Opening, now: datetime | None) -> Receipt:
    """Check and write one batch; see `domain.ports.Journal.commit`.

    Args:
        now: a test's clock; None: the database's own.

    Raises:
        MinutebookError: nothing was written.
        psycopg.Error: see `postgres_errors.was_refused`.
    """
    wanted = _parameters(batch, now)
    voided: int | None = None
    for _ in range(_ATTEMPTS):
        if _may_fit(batch) and _moved(connection, batch, opening, wanted, voided):
            return commit_rules.receipt(batch)
        found = _why(connection, opening, wanted)
        commit_rules.check_owner(batch, _standing(found), opening.name)
        if found["first_sequence"] is not None:
            kept = postgres_rows.command_of(found, "command_head")
            return commit_rules.found_again(batch, *kept, CommitStatus.REPLAYED)
        commit_rules.check_standing(batch, _standing(found), Instant(found["now"]))
        voided = found["voided"]
    raise StoreTimeout(opening.name, "the session kept changing; nothing was written. Try again.")


def check_texts(batch: Batch) -> None:
    """Refuse a text that PostgreSQL cannot hold.

    Raises:
        ValueRefused: it holds a NUL or half of a surrogate pair.
    """
    shown = (batch.listing.status, batch.listing.next_action)
    for text in (batch.owner_id, *shown, *(event.topic for event in batch.events)):
        check_text(text)


def check_text(text: str | None) -> None:
    """Refuse one text that PostgreSQL cannot hold."""
    if text is not None and not keepable(text):
        raise ValueRefused("$", "text without a NUL and without half of a surrogate pair", text)


def settle(opening: Opening, batch: Batch, backends: tuple[Backend, ...]) -> Receipt | None:
    """Contend for a batch's command on a new connection; its receipt if it is there, None if not.

    A server that is away is tried again until the store's timeout: it mostly went with the commit.
    A statement of that commit may still be on its way or under way. It waits, or finds
    the place of its command taken, and then it writes nothing.

    Args:
        backends: the server processes that were asked to commit it; ended first.

    Raises:
        OutcomeUnknown: still undecided.
        CommandConflict: the command is there with other content.
    """
    line = Line(opening)
    try:
        connection = line.opened(time.monotonic() + opening.timeout_s)
        for backend in backends:
            _end(connection, backend)
        found = _contend(connection, opening, batch)
    except (psycopg.Error, StoreFailure) as e:
        told = f"the database does not say ({read_error(opening.name, e)}); settle it later"
        raise OutcomeUnknown(batch.session_id, told) from e
    finally:
        line.drop()
    return commit_rules.found_again(batch, *found, CommitStatus.RECONCILED) if found else None


def _contend(connection: Connection, opening: Opening, batch: Batch) -> tuple[bytes, Receipt] | None:
    asked = {
        "session": batch.session_id,
        "command": batch.command_id,
        "fingerprint": batch.fingerprint,
        "owner": batch.owner_id,
    }
    statement = postgres_statements.void_command(opening.schema)
    if connection.execute(statement, asked).fetchone() is not None:
        return None
    found = postgres_rows.find_commands(
        connection, opening.schema, batch.owner_id, batch.session_id, [batch.command_id]
    )
    return found.get(batch.command_id)


def _end(connection: Connection, backend: Backend) -> None:
    """End a server process and wait a moment until it is gone. Without the right to, its locks decide."""
    asked = {"pid": backend.process_id, "started": backend.started}
    try:
        for _ in range(100):
            if connection.execute(postgres_statements.END_BACKEND, asked).fetchone() is None:
                return
            time.sleep(0.01)
    except psycopg.errors.InsufficientPrivilege:
        return


def _moved(
    connection: Connection, batch: Batch, opening: Opening, wanted: dict[str, Any], voided: int | None
) -> bool:
    """Whether the one statement wrote everything; otherwise it wrote nothing."""
    statement = postgres_statements.commit(
        opening.schema,
        _place(batch),
        over_void=voided is not None,
        snapshot=batch.snapshot is not None,
        blobs=bool(batch.blobs),
    )
    try:
        rows = connection.ask(statement, {**wanted, "voided": voided})
    except psycopg.Error as e:
        if is_conflict(e):
            return False
        raise
    return bool(rows[0]["moved"])


def _place(batch: Batch) -> Place:
    if batch.fence is not None:
        return Place.FENCED
    return Place.NEW if batch.expected_sequence == 0 else Place.UNLEASED


def _may_fit(batch: Batch) -> bool:
    fence = batch.fence
    if fence is not None:
        askable = abs(fence.token) <= MAX_NUMBER and keepable(fence.worker_id) and keepable(fence.lease_id)
        return askable and batch.expected_sequence <= MAX_NUMBER
    # The statement for a new session compares no head: there is only one to begin with.
    return batch.expected_sequence != 0 or batch.expected_head == genesis(batch.session_id)


def _why(connection: Connection, opening: Opening, wanted: dict[str, Any]) -> dict[str, Any]:
    """What is there instead. Nothing was written, so no failure in here is an unknown outcome."""
    statement = postgres_statements.standing_and_command(opening.schema)
    try:
        (row,) = connection.ask(statement, wanted)
    except psycopg.Error as e:
        raise write_error(opening.name, e) from e
    return row


def _standing(row: dict[str, Any]) -> Standing | None:
    if row["owner_id"] is None:
        return None
    return Standing(row["owner_id"], row["sequence"], row["head"], postgres_rows.lease_row(row))


def _parameters(batch: Batch, now: datetime | None) -> dict[str, Any]:
    events, last, snapshot, fence = batch.events, batch.events[-1], batch.snapshot, batch.fence
    blobs = sorted(batch.blobs, key=lambda blob: blob.digest)
    return {
        "now": now,
        "session": batch.session_id,
        "owner": batch.owner_id,
        "command": batch.command_id,
        "fingerprint": batch.fingerprint,
        "expected_sequence": batch.expected_sequence,
        "expected_head": batch.expected_head,
        "first_sequence": events[0].sequence,
        "last_sequence": last.sequence,
        "last_head": last.head,
        "status": batch.listing.status,
        "next_action": batch.listing.next_action,
        "token": fence.token if fence else None,
        "lease": fence.lease_id if fence else None,
        "holder": fence.worker_id if fence else None,
        "topics": texts([e.topic for e in events]),
        "envelopes": byteas([e.envelope for e in events]),
        "payloads": byteas([e.payload for e in events]),
        "salts": byteas([e.salt for e in events]),
        "heads": byteas([e.head for e in events]),
        "snapshot_sequence": snapshot and snapshot.sequence,
        "snapshot_version": snapshot and snapshot.version,
        "snapshot_head": snapshot and snapshot.head,
        "snapshot_state": snapshot and snapshot.state,
        "digests": texts([blob.digest for blob in blobs]),
        "blobs": byteas([blob.data for blob in blobs]),
    }

"""Sessions to an export and back: every row proved on the way out, everything checked before the way in.

The lines are `domain.export`'s; files are opened by `recovery.stores`. An import
writes the same bytes, command by command, so that heads stay what they were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from domain import catalogue, export, snapshot
from domain.entry import listing
from domain.envelope import Fence, Stored, genesis, open_envelope
from domain.errors import Corrupt, JournalBlocked, SessionExists, ValueRefused
from domain.ports import Batch, Blob, Holder, IdSource, Journal, JournalReader, SessionRow
from domain.references import blob_digests, may_refer
from domain.state import State
from recovery.blobs import MISSING_BLOB, read_blob
from recovery.pages import Pages
from recovery.problem import Blocked, fold_row
from recovery.reading import find_row
from recovery.verify import Result, verify

Write = Callable[[bytes], Any]

#: Leases are counted up one by one at an import; a journal with more takeovers is refused.
MAX_TOKEN: Final = 10_000
_LEASE_TTL_MS: Final = 1000


async def export_session(reader: JournalReader, session_id: str, write: Write) -> int:
    """Write one session's section.

    Args:
        write: takes bytes; called line by line.

    Returns:
        How many events were written.

    Raises:
        JournalBlocked: the journal cannot be followed; what was written has no trailer.
        SessionNotFound, StoreFailure.
    """
    row, _ = await find_row(reader, session_id)
    size = _count(write, export.header(row))
    pages = Pages(reader, session_id, upto=row.sequence or None, known_types=False)
    async for rows in pages:
        for stored in rows:
            for line in await _lines(reader, stored):
                size += _count(write, line)
    _check(pages.problem)
    write(export.trailer(session_id, pages.chain.sequence, size, pages.chain.head))
    return pages.chain.sequence


def _count(write: Write, line: bytes) -> int:
    write(line)
    return len(line)


async def _lines(reader: JournalReader, row: Stored) -> list[bytes]:
    """A row with the blobs it refers to before it and, at the end of a command, the command after it."""
    lines = []
    for digest in _blobs(row):
        data = await read_blob(reader, digest)
        lines.append(export.missing_blob(digest) if data is None else export.blob(digest, data))
    lines.append(export.event(row))
    event = open_envelope(row)
    if event.command_index == event.command_size - 1:
        found = await reader.command(row.session_id, event.command_id)
        if found is not None:
            lines.append(export.command(event.command_id, *found))
    return lines


def _blobs(row: Stored) -> tuple[str, ...]:
    return blob_digests(catalogue.open_stored(row).data) if may_refer(row.topic, row.payload) else ()


def _check(problem: Blocked | None) -> None:
    if problem is not None:
        raise JournalBlocked(problem.check, problem.expected, problem.found, problem.sequence)


# --- import -----------------------------------------------------------------------------


async def check_import(reader: JournalReader, session_id: str) -> SessionRow:
    """Verify a session before any of it is written.

    Raises:
        JournalBlocked: it is broken, or of a newer version.
        ValueRefused: it was taken over too often for its token to be counted up again.
    """
    found = await verify(reader, session_id)
    # A blob that the source had lost keeps nothing else from being copied; the copy has not got it either.
    telling = [problem for problem in found.problems if problem.check != MISSING_BLOB]
    if found.result in (Result.BROKEN, Result.UNREADABLE) and telling:
        _check(telling[0])
    if found.token > MAX_TOKEN:
        raise ValueRefused("$.token", f"at most {MAX_TOKEN} takeovers", found.token)
    row, _ = await find_row(reader, session_id)
    return row


@dataclass(slots=True)
class _Import:
    """One session on its way into a journal: the command that is being collected, the state before it."""

    row: SessionRow
    state: State
    before: State
    head: bytes
    rows: list[Stored]

    def add(self, row: Stored) -> bool:
        """Take one more row. True: its command is whole."""
        self.rows.append(row)
        self.state = fold_row(self.state, catalogue.open_stored(row))
        return self.state.command.is_whole

    def batch(self, fingerprint: bytes, blobs: tuple[Blob, ...]) -> Batch:
        """The collected command as it was committed first; the next one begins."""
        rows, last = tuple(self.rows), self.rows[-1]
        due = snapshot.is_due(self.before.sequence, self.state.sequence)
        made = Batch(
            session_id=self.row.session_id,
            command_id=self.state.command.command_id,
            fingerprint=fingerprint,
            events=rows,
            expected_sequence=self.before.sequence,
            expected_head=self.head,
            owner_id=self.row.owner_id,
            listing=listing(self.state),
            snapshot=snapshot.take(self.state, last.head) if due else None,
            blobs=blobs,
        )
        self.before, self.head, self.rows = self.state, last.head, []
        return made


async def import_session(reader: JournalReader, row: SessionRow, journal: Journal, ids: IdSource) -> int:
    """Write a session that `check_import` passed. Returns how many events were written.

    Raises:
        SessionExists: the journal has a session of that id.
        StoreFailure: some commands may have been written, each of them whole.
    """
    session_id = row.session_id
    if await journal.session(session_id) is not None:
        raise SessionExists(session_id)
    state = State(session_id)
    under_way = _Import(row, state, state, genesis(session_id), [])
    pages = Pages(reader, session_id)
    async for rows in pages:
        for stored in rows:
            if under_way.add(stored):
                await journal.commit(await _batch(reader, under_way))
    _check(pages.problem)
    await _raise_token(journal, under_way.state, ids)
    return under_way.state.sequence


async def _batch(reader: JournalReader, under_way: _Import) -> Batch:
    command_id = under_way.state.command.command_id
    found = await reader.command(under_way.row.session_id, command_id)
    if found is None:
        raise Corrupt("command", f"command {command_id} on record", "none", under_way.state.sequence)
    blobs: dict[str, Blob] = {}
    for digest in [digest for row in under_way.rows for digest in _blobs(row)]:
        data = await reader.blob(digest)
        if data is not None:
            blobs[digest] = Blob(digest, data)
    return under_way.batch(found[0], tuple(blobs.values()))


async def _raise_token(journal: Journal, state: State, ids: IdSource) -> None:
    """Count the new store's token up to the events' own: it never falls."""
    for _ in range(state.token):
        holder = Holder("import", ids.new("l"))
        lease = await journal.leases.acquire(state.session_id, holder, _LEASE_TTL_MS)
        fence = Fence(holder.worker_id, holder.lease_id, lease.token)
        await journal.leases.release(state.session_id, fence)

"""Sessions to an export and back: every row proved on the way out, everything checked before the way in.

The lines are `domain.export`'s; files are opened by `recovery.stores`. An import
writes the same bytes, command by command, so that heads stay what they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio

from domain import catalogue, export, snapshot
from domain.entry import listing
from domain.envelope import Fence, Stored, genesis, open_envelope
from domain.errors import Corrupt, JournalBlocked, SessionExists, ValueRefused
from domain.ports import Batch, Blob, Holder, IdSource, Journal, JournalReader, Receipt, SessionRow
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
#: Sessions that are written at a time: their commits share what the store waits for.
_AT_ONCE: Final = 16


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
        commands = await _commands(reader, session_id, rows)
        for stored in rows:
            for line in await _lines(reader, stored):
                size += _count(write, line)
            size += _count(write, commands.get(stored.sequence, b""))
    _check(pages.problem)
    write(export.trailer(session_id, pages.chain.sequence, size, pages.chain.head))
    return pages.chain.sequence


def _count(write: Write, line: bytes) -> int:
    write(line)
    return len(line)


async def _lines(reader: JournalReader, row: Stored) -> list[bytes]:
    """A row, with the blobs it refers to before it."""
    lines = []
    for digest in _blobs(row):
        data = await read_blob(reader, digest)
        lines.append(export.missing_blob(digest) if data is None else export.blob(digest, data))
    return [*lines, export.event(row)]


async def _commands(reader: JournalReader, session_id: str, rows: list[Stored]) -> dict[int, bytes]:
    """The lines of the commands that end in a page, each by the sequence it comes after."""
    ended = _ended(rows)
    found = await reader.commands(session_id, list(ended))
    return {ended[command_id]: export.command(command_id, *kept) for command_id, kept in found.items()}


def _ended(rows: list[Stored]) -> dict[str, int]:
    """The ids of the commands that end in a page, each with its last sequence."""
    events = map(open_envelope, rows)
    return {e.command_id: e.sequence for e in events if e.command_index == e.command_size - 1}


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
        """The collected command as it was committed first."""
        rows, last = tuple(self.rows), self.rows[-1]
        due = snapshot.is_due(self.before.sequence, self.state.sequence)
        return Batch(
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

    def go_on(self) -> None:
        """The collected command is there; the next one begins."""
        self.before, self.head, self.rows = self.state, self.rows[-1].head, []


async def import_sessions(
    reader: JournalReader, rows: Iterable[SessionRow], journal: Journal, ids: IdSource
) -> int:
    """Write sessions that `check_import` passed, several at a time. Returns how many events they have.

    Raises:
        As `import_session`: the first that failed. Those under way then come to their end.
    """
    left, written, failures = iter(rows), list[int](), list[Exception]()

    async def write() -> None:
        for row in left:  # each goes to whoever is free
            try:
                written.append(await import_session(reader, row, journal, ids))
            except Exception as e:  # raised below
                failures.append(e)
            if failures:
                return

    async with anyio.create_task_group() as tasks:
        for _ in range(_AT_ONCE):
            tasks.start_soon(write)
    if failures:
        raise failures[0]
    return sum(written)


async def import_session(reader: JournalReader, row: SessionRow, journal: Journal, ids: IdSource) -> int:
    """Write a session that `check_import` passed, or what is missing of it. Returns how many events that was.

    Raises:
        SessionExists: as `already_there`.
        StoreFailure: some commands may have been written, each of them whole; another call goes on.
    """
    session_id = row.session_id
    there = await already_there(reader, row, journal)
    state = State(session_id)
    under_way = _Import(row, state, state, genesis(session_id), [])
    pages = Pages(reader, session_id)
    async for rows in pages:
        commands = await reader.commands(session_id, list(_ended(rows)))
        for stored in rows:
            if not under_way.add(stored):
                continue
            if stored.sequence > there:
                await journal.commit(await _batch(reader, under_way, commands))
            under_way.go_on()
    _check(pages.problem)
    await _raise_token(journal, under_way.state, ids)
    return under_way.state.sequence - there


async def already_there(reader: JournalReader, row: SessionRow, target: JournalReader) -> int:
    """How many events of a session to be imported are in the target: an import that was broken off left them.

    Raises:
        SessionExists: the target has other events of that session, more of them, or another owner's session.
    """
    found = await target.session(row.session_id)
    if found is None:
        return 0
    at = found.sequence
    rows = await reader.read(row.session_id, after=at - 1, upto=at, limit=1)
    if found.owner_id != row.owner_id or [same.head for same in rows] != [found.head]:
        raise SessionExists(row.session_id)
    return at


async def _batch(
    reader: JournalReader, under_way: _Import, commands: Mapping[str, tuple[bytes, Receipt]]
) -> Batch:
    command_id = under_way.state.command.command_id
    if command_id not in commands:
        raise Corrupt("command", f"command {command_id} on record", "none", under_way.state.sequence)
    fingerprint, _ = commands[command_id]
    blobs: dict[str, Blob] = {}
    for digest in [digest for row in under_way.rows for digest in _blobs(row)]:
        data = await reader.blob(digest)
        if data is not None:
            blobs[digest] = Blob(digest, data)
    return under_way.batch(fingerprint, tuple(blobs.values()))


async def _raise_token(journal: Journal, state: State, ids: IdSource) -> None:
    """Count the new store's token up to the events' own: it never falls."""
    row = await journal.session(state.session_id)
    kept = row.lease.token if row is not None and row.lease is not None else 0
    for _ in range(state.token - kept):
        holder = Holder("import", ids.new("l"))
        lease = await journal.leases.acquire(state.session_id, holder, _LEASE_TTL_MS)
        fence = Fence(holder.worker_id, holder.lease_id, lease.token)
        await journal.leases.release(state.session_id, fence)

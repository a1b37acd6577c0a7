"""Reading a session up to a point: latest snapshot, then the rows after it, each link proved.

Imported by the plan's callers, the coordinator and whoever opens a session.
What is wrong with a journal comes back as `Loaded.problem`; only a store that
cannot be read at all raises. Nothing here writes, and no clock is asked but the store's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from domain import catalogue, ids, snapshot
from domain.envelope import Recorded, Stored, check_link, genesis
from domain.errors import Corrupt, InvalidOptions, SessionNotFound
from domain.limits import MAX_TAIL_EVENTS
from domain.ports import JournalReader, LeaseRow, SessionRow
from domain.state import State
from recovery.problem import BAD_ROW, Blocked, fold_row, problem_of


@dataclass(frozen=True, slots=True)
class Loaded:
    """Where a session stands.

    Args:
        row: the session's row as the store keeps it.
        state: after the last whole command before `problem`, or before the asked sequence.
        head: 32 bytes, the head at `state.sequence`.
        verified: first and last sequence whose links were proved; (1, 0) if none.
        rows_read: rows fetched from the store for this.
        snapshot_sequence: where folding began; 0 if at the beginning.
        tail: the latest of the folded events, at most `MAX_TAIL_EVENTS`, decoded.
        problem: what stands in the way; None if the journal is whole.
        notes: sentences about what is worth knowing and is no problem.
    """

    row: SessionRow
    state: State
    head: bytes
    verified: tuple[int, int]
    rows_read: int
    snapshot_sequence: int
    tail: tuple[Recorded, ...]
    problem: Blocked | None = None
    notes: tuple[str, ...] = ()


async def lease_lives(reader: JournalReader, lease: LeaseRow | None) -> bool | None:
    """Whether a session's lease holds now, by the store's clock; None where it was never leased."""
    return None if lease is None else await reader.lease_lives(lease)


@dataclass(slots=True)
class _Fold:
    """A fold under way. `whole` is the state after the last whole command, `head` the latest link's."""

    state: State
    head: bytes
    whole: State
    whole_head: bytes
    first: int
    rows_read: int = 0
    problem: Blocked | None = None
    notes: list[str] = field(default_factory=list)
    tail: deque[Recorded] = field(default_factory=lambda: deque(maxlen=MAX_TAIL_EVENTS))

    def add(self, rows: Sequence[Stored]) -> None:
        """Prove and fold rows until one does not fit."""
        for row in rows:
            try:
                check_link(row, self.state.sequence, self.head)
                event = catalogue.open_stored(row)
                self.state = fold_row(self.state, event)
            except BAD_ROW as e:
                self.problem = problem_of(e, row, self.state.sequence + 1)
                return
            self.head = row.head
            self.tail.append(event)
            if self.state.command.is_whole:
                self.whole, self.whole_head = self.state, self.head


def _from(state: State, head: bytes) -> _Fold:
    return _Fold(state, head, state, head, state.sequence + 1)


async def load(
    reader: JournalReader, session_id: str, *, upto: int | None = None, use_snapshot: bool = True
) -> Loaded:
    """Fold a session from its latest snapshot at or before `upto`.

    Args:
        upto: a sequence of the session; None for all of it.
        use_snapshot: False to fold from the first event.

    Returns:
        The state, and the problem if there is one.

    Raises:
        SessionNotFound: no such session for this reader.
        InvalidOptions: `upto` is not a sequence of the session.
        StoreFailure: the store cannot be read.

    Guarantees: reads one snapshot and at most `MAX_TAIL_EVENTS` rows where the
    snapshots are those that commits write; every row read is proved to follow
    from the one before it; holds no more than that in memory.
    """
    row, problem = await find_row(reader, session_id)
    if upto is not None and not 1 <= upto <= row.sequence:
        raise InvalidOptions("a sequence", f"1 to {row.sequence}", upto)
    last = row.sequence if upto is None else upto
    fold = await _start(reader, session_id, last, use_snapshot)
    await _read_on(reader, session_id, last, fold)
    if fold.problem is None:
        fold.problem = problem
    await _check_end(reader, row, upto, fold)
    return _loaded(row, fold)


async def find_row(reader: JournalReader, session_id: str) -> tuple[SessionRow, Blocked | None]:
    """A session's row, also where the store says that it contradicts the events.

    Raises:
        SessionNotFound, StoreFailure.
    """
    ids.session_id(session_id)
    problem = None
    try:
        row = await reader.session(session_id)
    except Corrupt as e:
        row = await _listed(reader, session_id)
        check = "head" if e.where.startswith("session ") else e.where
        problem = Blocked(check, e.sequence or 0, e.expected, e.actual)
    if row is None:
        raise SessionNotFound(session_id, reader.name)
    return row, problem


async def _listed(reader: JournalReader, session_id: str) -> SessionRow | None:
    # Listings do not compare a row with its events. "~" comes after every character of an id.
    before = session_id[:-1] + chr(ord(session_id[-1]) - 1) + "~"
    rows = await reader.sessions(after=before, limit=1)
    return rows[0] if rows and rows[0].session_id == session_id else None


async def _start(reader: JournalReader, session_id: str, last: int, use_snapshot: bool) -> _Fold:
    beginning = _from(State(session_id), genesis(session_id))
    kept = await reader.snapshot(session_id, upto=last) if use_snapshot else None
    if kept is None:
        return beginning
    try:
        state = snapshot.restore(kept)
        if state is None:
            beginning.notes.append(
                f"The snapshot at {kept.sequence} has an unknown version and was not used."
            )
            return beginning
        rows = await reader.read(session_id, after=kept.sequence - 1, upto=kept.sequence, limit=1)
    except Corrupt as e:
        beginning.notes.append(f"The snapshot at {kept.sequence} cannot be read and was not used: {e}.")
        return beginning
    if [row.head for row in rows] != [kept.head]:
        beginning.notes.append(f"The snapshot at {kept.sequence} was made at another head and was not used.")
        return beginning
    fold = _from(state, kept.head)
    fold.rows_read = 1
    return fold


async def _read_on(reader: JournalReader, session_id: str, last: int, fold: _Fold) -> None:
    upto = last
    unreadable: Blocked | None = None
    while fold.problem is None and fold.state.sequence < upto:
        at = fold.state.sequence
        try:
            rows = await reader.read(session_id, after=at, upto=upto, limit=MAX_TAIL_EVENTS)
        except Corrupt as e:  # one row of the page is no row: read those before it
            unreadable = problem_of(e, None, at + 1)
            upto = max(unreadable.sequence - 1, at)
            continue
        fold.rows_read += len(rows)
        if not rows:
            fold.problem = Blocked("sequence", at + 1, f"events up to {upto}", "none")
            return
        fold.add(rows)
    fold.problem = fold.problem or unreadable


async def _check_end(reader: JournalReader, row: SessionRow, upto: int | None, fold: _Fold) -> None:
    if fold.problem is not None:
        return
    place = fold.state.command
    if upto is None and fold.head != row.head:
        found = fold.head.hex()
        fold.problem = Blocked("head", row.sequence, f"the session row's head {row.head.hex()}", found)
    elif not place.is_whole and upto is not None and upto < row.sequence:
        fold.notes.append(
            f"Sequence {upto} is inside command {place.command_id}; shown as of {fold.whole.sequence}."
        )
    elif not place.is_whole:
        expected = f"{place.size} events of command {place.command_id}"
        fold.problem = Blocked("cut", fold.state.sequence + 1, expected, f"{place.index + 1} of them")
    elif upto is None:
        await _check_nothing_follows(reader, row, fold)


async def _check_nothing_follows(reader: JournalReader, row: SessionRow, fold: _Fold) -> None:
    rows = await reader.read(row.session_id, after=row.sequence, limit=1)
    if not rows:
        return
    fold.rows_read += 1
    again, _ = await find_row(reader, row.session_id)
    if again.sequence == row.sequence:  # otherwise another process is writing
        expected = f"the session row's last sequence {row.sequence}"
        fold.problem = Blocked("head", row.sequence + 1, expected, f"an event at {row.sequence + 1}")


def _loaded(row: SessionRow, fold: _Fold) -> Loaded:
    last = fold.state.sequence
    verified = (fold.first, last) if last >= fold.first else (1, 0)
    return Loaded(
        row,
        fold.whole,
        fold.whole_head,
        verified,
        fold.rows_read,
        fold.first - 1,
        tuple(fold.tail),
        fold.problem,
        tuple(fold.notes),
    )

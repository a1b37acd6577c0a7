"""Reading all of a session and proving what can be proved, in bounded memory.

The chain first (`recovery.chain`), then the rules: every event is folded again,
commands and snapshots are compared with what the store keeps beside the events.
Nothing here writes, and nothing here trusts a snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from domain import catalogue, snapshot
from domain.envelope import Stored
from domain.errors import Corrupt
from domain.ports import JournalReader, Receipt, SessionRow, Snapshot
from domain.references import blob_digests, may_refer
from domain.state import State
from recovery.blobs import check_blob
from recovery.chain import ChainCheck
from recovery.pages import KNOWN_TOPICS, PAGE, unknown_type
from recovery.problem import BAD_ROW, Blocked, fold_row, problem_of
from recovery.reading import find_row

FORMAT: Final = "minutebook.verification/1"


class Result(StrEnum):
    """What reading everything showed."""

    PROVEN = "proven"  # up to a head that the caller knew from elsewhere
    CONSISTENT = "consistent"  # whole in itself; nobody from outside says that it is the true one
    BROKEN = "broken"
    UNREADABLE = "unreadable"  # written by a newer version: the rules cannot be checked


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome for one session.

    Args:
        events: rows that fit, from the first on.
        head: 32 bytes, after them.
        proven_to: the sequence at which the outside head was found; 0 if none was given or found.
        rules_to: the last sequence whose event was folded by the rules; 0 if they were not asked for.
        snapshots: how many were folded again and found equal.
        redacted: events whose content was removed.
        token: the last fencing token in the events; 0 if none was ever needed.
        problems: what is wrong, by sequence; the first is the first bad one.
        notes: what is worth knowing and breaks nothing.
    """

    session_id: str
    result: Result
    events: int
    head: bytes
    proven_to: int
    rules_to: int
    snapshots: int
    redacted: int
    token: int
    problems: tuple[Blocked, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As a document of plain values; `format` names its version."""
        return {
            "format": FORMAT,
            "session_id": self.session_id,
            "result": self.result.value,
            "events": self.events,
            "head": self.head.hex(),
            "proven_to": self.proven_to,
            "rules_to": self.rules_to,
            "snapshots": self.snapshots,
            "redacted": self.redacted,
            "token": self.token,
            "problems": [problem.to_plain() for problem in self.problems],
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class _Ended:
    """A command as the events have it."""

    command_id: str
    first: int
    last: int
    head: bytes


@dataclass(slots=True)
class _Run:
    """One verification under way."""

    chain: ChainCheck
    state: State | None
    expected_head: bytes | None
    snapshots: set[int] = field(default_factory=set)
    compared: int = 0
    proven_to: int = 0
    unknown_topics: bool = False
    problems: list[Blocked] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ended: list[_Ended] = field(default_factory=list)  # commands whose record is still to be looked at
    broken: bool = False  # the chain ends before its end
    unfoldable: Blocked | None = None

    def follow(self, row: Stored) -> bool:
        """Check one row. False: the chain ends here."""
        try:
            self.chain.follow(row)
        except Corrupt as e:
            self.problems.append(problem_of(e, row, self.chain.sequence + 1))
            self.broken = True
            return False
        if row.head == self.expected_head:
            self.proven_to = row.sequence
        if row.topic not in KNOWN_TOPICS:
            self._unknown(row)
        elif self.state is not None:
            self._fold(row)
        return True

    def _unknown(self, row: Stored) -> None:
        if not self.unknown_topics:
            self.problems.append(unknown_type(row))
        self.unknown_topics, self.state = True, None

    def _fold(self, row: Stored) -> None:
        assert self.state is not None
        try:
            self.state = fold_row(self.state, catalogue.open_stored(row))
        except BAD_ROW as e:
            self.unfoldable, self.state = problem_of(e, row, row.sequence), None


async def verify(
    reader: JournalReader, session_id: str, *, expected_head: bytes | None = None, rules: bool = True
) -> Verification:
    """Read a session from its first event to its last and check everything.

    Args:
        expected_head: a head of this session that the caller knows from elsewhere (32
            bytes); it may be an earlier one than the last.
        rules: False to check the chain alone, which is many times quicker.

    Raises:
        SessionNotFound: no such session for this reader.
        StoreFailure: the store cannot be read.

    Guarantees: never writes; memory does not grow with the journal, apart from one
    number for each snapshot.
    """
    row, problem = await find_row(reader, session_id)
    run = _Run(ChainCheck(session_id), State(session_id) if rules else None, expected_head)
    if rules:
        run.snapshots = await _snapshot_sequences(reader, row)
    rules_to = await _read_all(reader, row, run, rules)
    if problem is not None:
        run.problems.append(problem)
    _check_end(row, run)
    return _verification(run, rules_to)


async def _read_all(reader: JournalReader, row: SessionRow, run: _Run, rules: bool) -> int:
    rules_to, upto = 0, row.sequence
    while run.chain.sequence < upto and not run.broken:
        after = run.chain.sequence
        try:
            rows = await reader.read(row.session_id, after=after, upto=upto, limit=PAGE)
        except Corrupt as e:  # one row of the page is no row: check those before it
            bad = problem_of(e, None, after + 1)
            run.problems.append(bad)
            upto = max(min(bad.sequence - 1, upto - 1), after)
            run.broken = upto == after
            continue
        if not rows:
            run.problems.append(Blocked("sequence", after + 1, f"events up to {upto}", "none"))
            run.broken = True
        for stored in rows:
            if not run.follow(stored):
                break
            if run.state is not None:
                rules_to = stored.sequence
            if rules and may_refer(stored.topic, stored.payload):
                await _check_blobs(reader, stored, run)
            if rules and run.chain.is_whole:
                run.ended.append(_Ended(run.chain.command_id, run.chain.first, stored.sequence, stored.head))
                await _check_snapshot(reader, stored, run)
        await _check_commands(reader, row.session_id, run)
    return rules_to


async def _check_blobs(reader: JournalReader, row: Stored, run: _Run) -> None:
    """Compare the bytes that an event only names with their digests."""
    try:
        digests = blob_digests(catalogue.open_stored(row).data)
    except BAD_ROW:
        return  # folding it has said so
    for digest in digests:
        problem = await check_blob(reader, digest, row.sequence)
        if problem is not None:
            run.problems.append(problem)


async def _check_commands(reader: JournalReader, session_id: str, run: _Run) -> None:
    """Compare the commands that ended in a page with what the store keeps of them.

    One row for each command id, and each command at its own row's place: so no
    command id is there twice, and no list of them has to be kept.
    """
    ended, run.ended = run.ended, []
    if not ended or any(p.check == "command" for p in run.problems):
        return
    found = await reader.commands(session_id, [each.command_id for each in ended])
    for each in ended:
        kept = found.get(each.command_id)
        if kept is None or not _is_of(kept[1], each):
            wanted = f"command {each.command_id} on record once, for {each.first} to {each.last}"
            where = f"for {kept[1].first_sequence} to {kept[1].last_sequence}" if kept else "no record"
            run.problems.append(Blocked("command", each.last, wanted, where))
            return


def _is_of(receipt: Receipt, ended: _Ended) -> bool:
    return (receipt.first_sequence, receipt.last_sequence, receipt.head) == (
        ended.first,
        ended.last,
        ended.head,
    )


async def _check_snapshot(reader: JournalReader, row: Stored, run: _Run) -> None:
    if row.sequence in run.snapshots:
        run.snapshots.discard(row.sequence)
        if run.state is not None:
            _compare(await reader.snapshot(row.session_id, upto=row.sequence), run.state, row, run)


def _compare(kept: Snapshot | None, state: State, row: Stored, run: _Run) -> None:
    try:
        if kept is None or kept.sequence != row.sequence:
            raise Corrupt("snapshot", f"the snapshot at {row.sequence}", "none", row.sequence)
        restored = snapshot.restore(kept)
        if restored is None:
            run.notes.append(f"The snapshot at {row.sequence} has an unknown version; it was not compared.")
            return
        if (restored, kept.head) != (state, row.head):
            raise Corrupt("snapshot", "the state that the events give", "another one", row.sequence)
    except BAD_ROW as e:
        if not any(p.check == "snapshot" for p in run.problems):
            run.problems.append(problem_of(e, None, row.sequence))
        return
    run.compared += 1


async def _snapshot_sequences(reader: JournalReader, row: SessionRow) -> set[int]:
    found: set[int] = set()
    upto = row.sequence
    while upto > 0:
        kept = await reader.snapshot(row.session_id, upto=upto)
        if kept is None:
            break
        found.add(kept.sequence)
        upto = min(kept.sequence, upto) - 1
    return found


def _check_end(row: SessionRow, run: _Run) -> None:
    chain = run.chain
    if run.broken:
        return
    if chain.head != row.head and chain.sequence == row.sequence:
        run.problems.append(
            Blocked("head", row.sequence, f"the session row's {row.head.hex()}", chain.head.hex())
        )
    if not chain.is_whole:
        expected = f"{chain.size} events of command {chain.command_id}"
        run.problems.append(Blocked("cut", chain.sequence + 1, expected, f"{chain.index + 1} of them"))
    if run.snapshots and run.state is not None:
        places = ", ".join(map(str, sorted(run.snapshots)[:3]))
        run.problems.append(Blocked("snapshot", min(run.snapshots), "snapshots at ends of commands", places))
    _check_row(row, run)
    if run.expected_head is not None and not run.proven_to:
        expected = f"the head {run.expected_head.hex()} somewhere"
        run.problems.append(
            Blocked("outside head", chain.sequence, expected, f"the last head {chain.head.hex()}")
        )


def _check_row(row: SessionRow, run: _Run) -> None:
    if row.lease is not None and row.lease.token < run.chain.token:
        expected = f"a lease token of at least {run.chain.token}"
        run.problems.append(Blocked("lease", run.chain.sequence, expected, str(row.lease.token)))
    session = run.state.session if run.state is not None else None
    if session is not None and session.owner_id != row.owner_id:
        run.problems.append(Blocked("owner", 1, f"the row's owner {row.owner_id}", session.owner_id))


def _verification(run: _Run, rules_to: int) -> Verification:
    result = _result(run)
    if run.unfoldable is not None:
        run.problems.append(run.unfoldable)
    return Verification(
        run.chain.session_id,
        result,
        run.chain.sequence,
        run.chain.head,
        run.proven_to,
        rules_to,
        run.compared,
        run.chain.redacted,
        run.chain.token,
        tuple(sorted(run.problems, key=lambda problem: problem.sequence)),
        tuple(run.notes),
    )


def _result(run: _Run) -> Result:
    if any(not problem.newer for problem in run.problems):
        return Result.BROKEN
    if run.unknown_topics:  # what cannot be folded may be meant by what is not known
        return Result.UNREADABLE
    if run.unfoldable is not None:
        return Result.BROKEN
    return Result.PROVEN if run.proven_to else Result.CONSISTENT

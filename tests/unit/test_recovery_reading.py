"""Loading a session: snapshot and tail, every link proved, every problem a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from domain import events as ev
from domain import session, snapshot
from domain.entry import Entry
from domain.envelope import Recorded, Stored, genesis, open_envelope, seal
from domain.errors import Corrupt, InvalidOptions, SessionNotFound
from domain.limits import MAX_TAIL_EVENTS
from domain.ports import JournalReader, LeaseRow, Listing, Receipt, SessionRow, Snapshot
from domain.state import State
from minutebook.testing.scenario import EPOCH, Scenario, accepted, created, given, salt, started
from recovery.reading import Loaded, load
from tests.journals import Altered, at, flipped, kept, long, lost_payment, session_of

pytestmark = pytest.mark.anyio


async def loaded(scenario: Scenario, **options: object) -> Loaded:
    async with kept(scenario) as journal:
        return await load(journal, scenario.state.session_id, **options)  # type: ignore[arg-type]  # its own options


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_whole_journal_gives_its_state_and_head() -> None:
    scenario = lost_payment()
    found = await loaded(scenario)
    assert found.state == scenario.state
    assert found.head == scenario.rows()[-1].head
    assert found.verified == (1, 12)
    assert found.problem is None
    assert [event.type for event in found.tail] == [event.type for event in scenario.events]


async def test_a_session_that_is_not_there_is_not_found() -> None:
    async with kept(session_of(created())) as journal:
        with pytest.raises(SessionNotFound):
            await load(journal, "s-other")


# --- how much is read (G-D3) --------------------------------------------------------------


async def test_of_a_thousand_events_one_snapshot_and_a_tail_are_read() -> None:
    scenario = long(1000)
    async with kept(scenario) as journal:
        reader = Altered(journal)
        found = await load(reader, "s-long")
    assert found.state == scenario.state
    assert reader.snapshots_read == 1
    assert reader.rows_read <= MAX_TAIL_EVENTS
    assert found.rows_read <= MAX_TAIL_EVENTS


@pytest.mark.parametrize("per_commit", [1, 7, 128])
async def test_no_place_in_a_journal_needs_more(per_commit: int) -> None:
    async with kept(long(600, per_commit=per_commit)) as journal:
        for upto in (1, 127, 128, 129, 255, 256, 257, 383, 500, 599):
            reader = Altered(journal)
            found = await load(reader, "s-long", upto=upto)
            assert found.problem is None
            assert found.state.sequence <= upto
            assert reader.rows_read <= MAX_TAIL_EVENTS, upto


class EndOfLong:
    """The end of a journal of `events` events, without the events before its last snapshot.

    It holds no rows but those of the tail: whoever asks for others gets none.
    """

    def __init__(self, events: int) -> None:
        base = given(created()).state
        at_ = events - events % 128
        self.base = replace(base, sequence=at_, command=replace(base.command, command_id="before"))
        self.head = genesis(base.session_id)
        self.rows = [_placeholder(base.session_id, at_, self.head)]
        entry = Entry(self.base, "tail", EPOCH)
        while entry.state.sequence < events:
            entry.add(session.Note("filler", "x"))
        self.state = entry.finish() if entry.events else self.base
        salts = (salt(e.session_id, e.sequence) for e in entry.events)
        self.rows += entry.sealed(self.head, salts.__next__) if entry.events else ()

    name = "the end of a long journal"

    async def session(self, session_id: str) -> SessionRow | None:
        last = self.rows[-1]
        row = SessionRow(session_id, "local", last.sequence, last.head, EPOCH, EPOCH, Listing("open", "none"))
        return row if session_id == self.base.session_id else None

    async def sessions(self, *, after: str = "", limit: int = 100) -> Sequence[SessionRow]:
        return []

    async def read(
        self, session_id: str, *, after: int = 0, upto: int | None = None, limit: int = 256
    ) -> Sequence[Stored]:
        wanted = [row for row in self.rows if after < row.sequence <= (upto or row.sequence)]
        return wanted[:limit]

    async def snapshot(self, session_id: str, *, upto: int | None = None) -> Snapshot | None:
        return snapshot.take(self.base, self.head)

    async def blob(self, digest: str) -> bytes | None:
        return None

    async def command(self, session_id: str, command_id: str) -> tuple[bytes, Receipt] | None:
        return None

    async def commands(
        self, session_id: str, command_ids: Sequence[str]
    ) -> Mapping[str, tuple[bytes, Receipt]]:
        return {}

    async def lease_lives(self, lease: LeaseRow) -> bool:
        return False


def _placeholder(session_id: str, sequence: int, head: bytes) -> Stored:
    return Stored(session_id, sequence, "notice_recorded@1", b"", None, None, head)


@pytest.mark.parametrize("events", [1000, 100_000, 1_000_000])
async def test_a_longer_journal_needs_no_more(events: int) -> None:
    end = EndOfLong(events)
    reader: JournalReader = end
    counted = Altered(reader)
    found = await load(counted, end.base.session_id)
    assert (found.state, found.problem) == (end.state, None)
    assert found.snapshot_sequence == events - events % 128
    assert counted.rows_read <= MAX_TAIL_EVENTS


async def test_without_the_snapshot_the_state_is_the_same() -> None:
    async with kept(long(300)) as journal:
        with_snapshot = await load(journal, "s-long")
        reader = Altered(journal)
        without = await load(reader, "s-long", use_snapshot=False)
    assert reader.largest_page <= MAX_TAIL_EVENTS
    assert with_snapshot.state == without.state
    assert (with_snapshot.snapshot_sequence, without.snapshot_sequence) == (261, 0)
    assert without.verified == (1, 301)
    assert len(without.tail) == MAX_TAIL_EVENTS


# --- an earlier moment --------------------------------------------------------------------


async def test_as_it_was_at_a_sequence() -> None:
    scenario = lost_payment()
    found = await loaded(scenario, upto=3)
    assert (found.state.sequence, found.problem, found.notes) == (3, None, ())


async def test_a_sequence_inside_a_command_shows_the_command_before() -> None:
    found = await loaded(lost_payment(), upto=5)
    assert (found.state.sequence, found.problem) == (3, None)
    assert found.notes == ("Sequence 5 is inside command cmd-3; shown as of 3.",)


@pytest.mark.parametrize("upto", [0, -1, 13])
async def test_a_sequence_outside_the_session_is_refused(upto: int) -> None:
    with pytest.raises(InvalidOptions, match="1 to 12"):
        await loaded(lost_payment(), upto=upto)


# --- what is wrong ------------------------------------------------------------------------


async def _problem(scenario: Scenario, **how: object) -> Loaded:
    async with kept(scenario) as journal:
        reader = Altered(journal, **how)  # type: ignore[arg-type]  # its own fields
        return await load(reader, scenario.state.session_id)


async def test_a_changed_payload_blocks_where_it_is() -> None:
    found = await _problem(
        lost_payment(), alter=at(9, lambda r: replace(r, payload=flipped(r.payload or b"")))
    )
    assert found.problem is not None
    assert (found.problem.check, found.problem.sequence) == ("payload", 9)
    assert found.state.sequence == 8
    assert found.verified == (1, 8)


async def test_a_changed_envelope_breaks_the_chain_where_it_is() -> None:
    found = await _problem(lost_payment(), alter=at(5, lambda r: replace(r, envelope=flipped(r.envelope))))
    assert found.problem is not None
    assert (found.problem.check, found.problem.sequence) == ("chain", 5)
    assert found.state.sequence == 3  # event 4 is inside the same command


async def test_a_missing_event_is_a_gap() -> None:
    found = await _problem(lost_payment(), alter=at(7, lambda row: None))
    assert found.problem is not None
    assert (found.problem.check, found.problem.sequence, found.problem.expected) == ("sequence", 7, "7")


async def test_events_missing_at_the_end_are_missed() -> None:
    found = await _problem(lost_payment(), alter=lambda r: r if r.sequence <= 9 else None)
    assert found.problem is not None
    assert (found.problem.check, found.problem.sequence) == ("sequence", 10)
    assert found.state.sequence == 9


async def test_a_journal_cut_inside_a_command_shows_the_last_whole_one() -> None:
    rows = lost_payment().rows()

    def cut(row: SessionRow) -> SessionRow:
        return replace(row, sequence=5, head=rows[4].head)

    found = await _problem(lost_payment(), row=cut, alter=lambda r: r if r.sequence <= 5 else None)
    assert found.problem is not None
    assert (found.problem.check, found.problem.sequence) == ("cut", 6)
    assert found.problem.expected == "5 events of command cmd-3"
    assert found.problem.found == "2 of them"
    assert found.state.sequence == 3


async def test_a_row_that_contradicts_the_last_event_is_found() -> None:
    found = await _problem(lost_payment(), row=lambda row: replace(row, head=b"\x01" * 32))
    assert found.problem is not None
    assert (found.problem.check, found.problem.sequence) == ("head", 12)


async def test_a_row_that_stops_before_the_last_event_is_found() -> None:
    rows = lost_payment().rows()
    found = await _problem(lost_payment(), row=lambda row: replace(row, sequence=9, head=rows[8].head))
    assert found.problem is not None
    assert (found.problem.check, found.problem.sequence) == ("head", 10)
    assert found.state.sequence == 9


def _row(scenario: Scenario) -> SessionRow:
    last = scenario.rows()[-1]
    listing = Listing("open", "none")
    return SessionRow(last.session_id, "local", last.sequence, last.head, EPOCH, EPOCH, listing)


async def test_a_session_that_grows_while_it_is_read_is_whole() -> None:
    scenario = lost_payment()
    rows = scenario.rows()
    first = iter([replace(_row(scenario), sequence=9, head=rows[8].head)])

    def grows(row: SessionRow) -> SessionRow:
        return next(first, row)

    found = await _problem(scenario, row=grows)
    assert (found.problem, found.state.sequence) == (None, 9)


async def test_a_row_that_the_store_itself_refuses_is_a_problem() -> None:
    class Refuses(Altered):
        async def session(self, session_id: str) -> SessionRow | None:
            raise Corrupt(f"session {session_id!r}", "its row to stand at event 12", "9", 12)

    async with kept(lost_payment()) as journal:
        found = await load(Refuses(journal), "s-pay")
    assert found.problem is not None
    assert (found.problem.check, found.problem.sequence) == ("head", 12)
    assert found.state.sequence == 12


async def test_a_row_that_is_no_row_stops_before_it() -> None:
    class Refuses(Altered):
        async def read(
            self, session_id: str, *, after: int = 0, upto: int | None = None, limit: int = 256
        ) -> Sequence[Stored]:
            if after < 10 and (upto or 99) >= 10:
                raise Corrupt("event", "an envelope", "NULL", 10)
            return await super().read(session_id, after=after, upto=upto, limit=limit)

    async with kept(lost_payment()) as journal:
        found = await load(Refuses(journal), "s-pay")
    assert found.problem is not None
    assert (found.problem.check, found.problem.sequence, found.state.sequence) == ("event", 10, 9)


# --- what these rules do not know ------------------------------------------------------------


def forge(scenario: Scenario, sequence: int, **changes: object) -> Scenario:
    """The scenario with one event falsified before it is sealed."""
    for entry in scenario.entries:
        entry.events = [
            replace(event, **changes) if event.sequence == sequence else event  # type: ignore[arg-type]  # fields of an event
            for event in entry.events
        ]
    return scenario


def sealed(scenario: Scenario) -> list[Stored]:
    rows, head = [], genesis(scenario.state.session_id)
    for event in (event for entry in scenario.entries for event in entry.events):
        row = _seal(event, head)
        rows.append(row)
        head = row.head
    return rows


def _seal(event: Recorded, head: bytes) -> Stored:
    from domain import catalogue

    return seal(event, catalogue.encode(event.data), salt(event.session_id, event.sequence), head)


async def _blocked(rows: list[Stored]) -> Loaded:
    async with kept(session_of(*[created(), accepted(), started()])) as journal:
        by_sequence = {row.sequence: row for row in rows}
        reader = Altered(
            journal,
            alter=lambda row: by_sequence[row.sequence],
            row=lambda row: replace(row, head=rows[-1].head),
        )
        return await load(reader, "s-test")


@pytest.mark.parametrize(
    ("changes", "check", "found", "newer"),
    [
        ({"type": "telepathy_used"}, "event type", "telepathy_used (unknown)", True),
        ({"type": "seal_recorded"}, "event type", "seal_recorded (reserved for a later version)", True),
        ({"version": 99}, "event version", "input_accepted@99", True),
    ],
)
async def test_an_unknown_or_newer_event_blocks_and_is_shown(
    changes: dict[str, object], check: str, found: str, newer: bool
) -> None:
    scenario = forge(given(created(), accepted(), started()), 2, **changes)
    blocked = await _blocked(sealed(scenario))
    assert blocked.problem is not None
    assert (blocked.problem.check, blocked.problem.sequence, blocked.problem.newer) == (check, 2, newer)
    assert found in blocked.problem.found
    assert blocked.state.sequence == 1


async def test_an_event_that_breaks_a_rule_blocks_with_the_rule() -> None:
    scenario = forge(
        given(created(), accepted(), started()), 2, data=ev.InputCancelled(input_id="i-9", reason="x")
    )
    scenario = forge(scenario, 2, type="input_cancelled")
    blocked = await _blocked(sealed(scenario))
    assert blocked.problem is not None
    assert (blocked.problem.check, blocked.problem.sequence) == ("rule", 2)
    assert blocked.problem.expected == "the input is pending"


async def test_content_that_makes_the_fold_stumble_blocks_too() -> None:
    first = given(created(), accepted(), started()).events[0]
    nonsense = first.data.model_copy(update={"settings": {"model": 7}})
    scenario = forge(given(created(), accepted(), started()), 1, data=nonsense)
    blocked = await _blocked(sealed(scenario))
    assert blocked.problem is not None
    assert (blocked.problem.check, blocked.problem.sequence) == ("rule", 1)
    assert blocked.state == State("s-test")


# --- snapshots that cannot be used -----------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (lambda kept: replace(kept, version=99), "has an unknown version"),
        (lambda kept: replace(kept, state=b"{}"), "cannot be read"),
        (lambda kept: replace(kept, head=b"\x02" * 32), "was made at another head"),
    ],
)
async def test_a_snapshot_that_cannot_be_used_is_named_and_everything_is_folded(
    change: object, note: str
) -> None:
    scenario = long(200)
    found = await _problem(scenario, snapshots=change)
    assert (found.state, found.problem, found.snapshot_sequence) == (scenario.state, None, 0)
    assert len(found.notes) == 1
    assert note in found.notes[0]


async def test_rows_before_the_snapshot_are_not_proved_and_it_says_so() -> None:
    scenario = long(200)
    found = await _problem(scenario, alter=at(5, lambda r: replace(r, payload=b"{}")))
    assert found.problem is None
    assert found.verified == (142, 201)
    assert found.snapshot_sequence == 141
    assert open_envelope(scenario.rows()[4]).sequence == 5

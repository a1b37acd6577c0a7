"""Journals that somebody tampered with: reading refuses, and names the first bad sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from domain import catalogue
from domain.envelope import Stored, check_link, genesis, seal
from domain.errors import Corrupt
from domain.lifecycle import advance
from domain.state import State
from minutebook.testing.histories import Walk, histories
from minutebook.testing.scenario import salt
from recovery.chain import ChainCheck
from tests.property.examples import share

SESSION = "s-walk"


def first_bad(rows: Sequence[Stored], expected_head: bytes | None = None) -> int:
    """The first sequence that cannot be trusted, 0 where there is none.

    The chain, the content, the envelope and the rules; in the end, the head that was expected.
    """
    state, head = State(SESSION), genesis(SESSION)
    for row in rows:
        try:
            check_link(row, state.sequence, head)
            state = advance(state, catalogue.open_stored(row))
        except Corrupt as corrupt:
            return corrupt.sequence or -1
        head = row.head
    return 0 if expected_head in (None, head) else state.sequence + 1


def first_bad_of_the_chain(rows: Sequence[Stored]) -> int:
    """The same by the chain alone, as `verify` follows it."""
    check = ChainCheck(SESSION)
    for row in rows:
        try:
            check.follow(row)
        except Corrupt as corrupt:
            return corrupt.sequence or 0
    return 0


def refused_at(rows: Sequence[Stored], sequence: int) -> None:
    """Both readers stop there, and not before."""
    assert first_bad(rows) == sequence
    assert first_bad_of_the_chain(rows) == sequence


#: A session, and the index of one of its rows.
short = histories(max_moves=24)
rows_and_place = short.flatmap(
    lambda walk: st.tuples(st.just(walk.rows()), st.integers(0, len(walk.events) - 1))
)
Place = tuple[list[Stored], int]


@share(30)
@given(histories())
def test_an_untouched_journal_is_read_to_its_end(walk: Walk) -> None:
    rows = walk.rows()
    assert first_bad(rows, rows[-1].head) == 0
    assert first_bad_of_the_chain(rows) == 0


@share(25)
@given(rows_and_place)
def test_a_row_left_out(place: Place) -> None:
    rows, at = place
    assume(at < len(rows) - 1)
    refused_at([*rows[:at], *rows[at + 1 :]], at + 1)


@share(25)
@given(rows_and_place)
def test_a_row_twice(place: Place) -> None:
    rows, at = place
    refused_at([*rows[: at + 1], *rows[at:]], at + 2)


@share(25)
@given(rows_and_place, st.data())
def test_two_rows_swapped(place: Place, data: st.DataObject) -> None:
    rows, at = place
    other = data.draw(st.integers(0, len(rows) - 1))
    assume(at != other)
    swapped = list(rows)
    swapped[at], swapped[other] = rows[other], rows[at]
    refused_at(swapped, min(at, other) + 1)


@share(25)
@given(rows_and_place, st.data())
def test_two_rows_swapped_and_renumbered(place: Place, data: st.DataObject) -> None:
    """Their columns say the right sequences; their envelopes do not."""
    rows, at = place
    other = data.draw(st.integers(0, len(rows) - 1))
    assume(at != other)
    swapped = list(rows)
    swapped[at] = replace(rows[other], sequence=rows[at].sequence)
    swapped[other] = replace(rows[at], sequence=rows[other].sequence)
    refused_at(swapped, min(at, other) + 1)


@share(100)
@given(rows_and_place, st.sampled_from(("envelope", "payload", "salt", "head")), st.data())
def test_one_bit_altered(place: Place, column: str, data: st.DataObject) -> None:
    rows, at = place
    stored: bytes = getattr(rows[at], column)
    bit = data.draw(st.integers(0, 8 * len(stored) - 1))
    flipped = bytearray(stored)
    flipped[bit // 8] ^= 1 << bit % 8
    altered = _with_column(rows[at], column, bytes(flipped))
    refused_at([*rows[:at], altered, *rows[at + 1 :]], at + 1)


def _with_column(row: Stored, column: str, value: bytes) -> Stored:
    fields = {name: getattr(row, name) for name in row.__slots__}
    return Stored(**{**fields, column: value})


@share(25)
@given(rows_and_place, st.sampled_from(("session_id", "topic")))
def test_a_column_that_contradicts_the_envelope(place: Place, column: str) -> None:
    rows, at = place
    other = {"session_id": "s-other", "topic": "session_closed@1"}[column]
    assume(getattr(rows[at], column) != other)
    altered = replace(rows[at], **{column: other})  # type: ignore[arg-type]  # both are text
    assert first_bad([*rows[:at], altered, *rows[at + 1 :]]) == at + 1


@share(25)
@given(rows_and_place, short)
def test_a_row_of_another_session(place: Place, other: Walk) -> None:
    rows, at = place
    theirs = _renamed(other, "s-other")
    assume(at < len(theirs))
    refused_at([*rows[:at], theirs[at], *rows[at + 1 :]], at + 1)


@share(25)
@given(rows_and_place, short)
def test_the_tail_of_another_session_of_the_same_name(place: Place, other: Walk) -> None:
    rows, at = place
    theirs = other.rows()
    assume(at < len(theirs))
    assume(theirs[:at] != rows[:at])
    refused_at([*rows[:at], *theirs[at:]], at + 1)


def _renamed(walk: Walk, name: str) -> list[Stored]:
    head, rows = genesis(name), []
    for event in walk.events:
        renamed = replace(event, session_id=name)
        rows.append(seal(renamed, catalogue.encode(event.data), salt(name, event.sequence), head))
        head = rows[-1].head
    return rows


@share(25)
@given(rows_and_place)
def test_a_tail_cut_off_is_seen_by_who_knows_the_head(place: Place) -> None:
    """And by nobody else: a shorter journal is a journal."""
    rows, at = place
    assume(at > 0)
    cut = rows[:at]
    assert first_bad(cut) == 0
    assert first_bad(cut, rows[-1].head) == at + 1


@share(25)
@given(short, st.data())
def test_a_cut_inside_a_command_is_seen_by_everybody(walk: Walk, data: st.DataObject) -> None:
    long = [at for at, commit in enumerate(walk.commits) if len(commit) > 1]
    assume(long)
    at = data.draw(st.sampled_from(long))
    whole = sum(len(commit) for commit in walk.commits[:at])
    cut = whole + data.draw(st.integers(1, len(walk.commits[at]) - 1))
    check = ChainCheck(SESSION)
    state = State(SESSION)
    for row in walk.rows()[:cut]:
        check.follow(row)
        state = advance(state, catalogue.open_stored(row))
    assert not check.is_whole
    assert not state.command.is_whole
    assert check.first == whole + 1


@share(25)
@given(rows_and_place, st.binary(min_size=1, max_size=8))
def test_content_that_was_replaced_and_sealed_again_needs_a_head_from_outside(
    place: Place, mark: bytes
) -> None:
    """Whoever can write the whole file can make a chain: an older head is what gives him away."""
    rows, at = place
    head, forged = rows[at - 1].head if at else genesis(SESSION), list(rows[:at])
    for row in rows[at:]:
        event = catalogue.open_stored(row)
        new_salt = mark.ljust(32, b"\0") if row is rows[at] else row.salt or b""
        forged.append(seal(event, row.payload or b"", new_salt, head))
        head = forged[-1].head
    assert first_bad(forged) == 0
    assert first_bad(forged, rows[-1].head) == len(rows) + 1
    assert [f.head for f in forged[:at]] == [r.head for r in rows[:at]]
    assert all(f.head != r.head for f, r in zip(forged[at:], rows[at:], strict=True))


@share(60)
@given(histories())
def test_what_was_written_is_what_is_read(walk: Walk) -> None:
    """The writer's preview and the reader's fold are one: event by event and in the end."""
    state = State(SESSION)
    rows = iter(walk.rows())
    for entry in walk.entries:
        for written in entry.events:
            read = catalogue.open_stored(next(rows))
            assert read == written
            state = advance(state, read)
        assert state == entry.state

"""A journal of 200 events, changed in one place and in two: found at the first bad one, by every reader."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import anyio
import pytest

from domain.envelope import Stored
from domain.errors import Corrupt
from recovery.chain import ChainCheck
from recovery.reading import load
from recovery.replaying import replay
from recovery.verify import Result, Verification, verify
from tests.corpus.damage import RowDamage, Rows, chained, forgeries, plain_damages
from tests.corpus.journals import RowsReader, busy

JOURNAL, OTHER = anyio.run(busy, 200), anyio.run(busy, 170)
ROWS = JOURNAL.rows
SESSION = JOURNAL.row.session_id
PLAIN, FORGED = plain_damages(OTHER.rows), forgeries()
#: The first, some in the middle, those around which the worker changes, the last.
PLACES = (0, 1, 37, 100, 101, 102, 103, 150, len(ROWS) - 2, len(ROWS) - 1)
PAIRS = list(itertools.product(PLAIN + FORGED, PLAIN))


def first_bad(rows: Sequence[Stored]) -> int:
    """The first row (from 1) that the chain does not take; 0: it takes all of them."""
    check = ChainCheck(SESSION)
    for number, row in enumerate(rows, 1):
        found = _problem(check, row)
        if found is not None:
            assert found.sequence in (number, row.sequence)
            return number
    return 0


def _problem(check: ChainCheck, row: Stored) -> Corrupt | None:
    try:
        check.follow(row)
    except Corrupt as e:
        return e
    return None


async def read(rows: Rows) -> tuple[Verification, bool]:
    """What `verify` says, and whether the readers that go on from a journal stop too."""
    reader = RowsReader(rows, JOURNAL)
    found = await verify(reader, SESSION)
    loaded = await load(reader, SESSION, use_snapshot=False)
    shown = await replay(reader, SESSION)
    assert (loaded.problem is None) == (shown.problem is None) or found.result is Result.BROKEN
    return found, loaded.problem is not None


def test_the_journal_is_as_long_as_it_says_and_whole() -> None:
    assert len(ROWS) >= 200
    assert first_bad(ROWS) == 0
    found, stopped = anyio.run(read, ROWS)
    assert (found.result, found.token, stopped) == (Result.CONSISTENT, 2, False)


@pytest.mark.anyio
@pytest.mark.parametrize("damage", PLAIN, ids=lambda damage: damage.name)
async def test_an_accident_is_found_where_it_is(damage: RowDamage) -> None:
    tried = 0
    for at in PLACES:
        changed = damage.apply(ROWS, at)
        if changed is not None:
            tried += 1
            assert first_bad(changed) in (at + 1, at + 2), f"at {at}"
            found, stopped = await read(changed)
            assert (found.result, stopped) == (Result.BROKEN, True)
            assert found.events in (at, at + 1), "nothing after the first bad row is used"
    assert tried >= 4


@pytest.mark.anyio
@pytest.mark.parametrize("damage", FORGED, ids=lambda damage: damage.name)
async def test_a_forgery_is_found_by_the_rules_or_called_unreadable(damage: RowDamage) -> None:
    tried = 0
    for at in PLACES:
        changed = damage.apply(ROWS, at)
        if changed is not None:
            tried += 1
            found, stopped = await read(changed)
            assert found.result in (Result.BROKEN, Result.UNREADABLE), f"at {at}"
            assert found.problems[0].sequence in (at + 1, at + 2), f"at {at}: {found.problems[0]}"
            assert stopped
    assert tried >= 1


@pytest.mark.anyio
@pytest.mark.parametrize("damage", FORGED, ids=lambda damage: damage.name)
async def test_a_head_from_outside_gives_a_forger_away(damage: RowDamage) -> None:
    changed = next(rows for rows in (damage.apply(ROWS, at) for at in PLACES[1:]) if rows is not None)
    found = await verify(RowsReader(changed, JOURNAL), SESSION, expected_head=ROWS[-1].head)
    assert found.proven_to == 0
    assert found.result is not Result.PROVEN


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=[f"{a.name}, then {b.name}" for a, b in PAIRS])
def test_of_two_changes_neither_hides_the_other(one: RowDamage, other: RowDamage) -> None:
    """The second one comes behind the first, then before it: the earlier of the two is named."""
    for first, second in ((37, 150), (150, 37), (101, 103)):
        changed = one.apply(ROWS, first)
        both = other.apply(changed, second) if changed is not None else None
        if both is None or both == ROWS:
            continue
        where = first_bad(both)
        if one.resealed:  # a chain that was made again is whole up to the accident
            assert where
            assert where <= max(first, second) + 2
        else:
            assert where in range(min(first, second) + 1, min(first, second) + 3)


def test_a_chain_made_again_over_any_rows_hides_nothing_of_their_order() -> None:
    """Heads that follow are not enough: the envelopes say their sequence, session and command."""
    for damage in PLAIN[:6]:
        changed = damage.apply(ROWS, 37)
        assert changed is not None
        assert first_bad(chained(changed)) in (38, 39), damage.name

"""Snapshots of control state: taken at any commit, bounded, checked when read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain import snapshot
from domain.canonical import decode, encode
from domain.errors import Corrupt
from domain.inputs import AcceptInput
from domain.lifecycle import fold
from domain.limits import MAX_PENDING_INPUTS, SNAPSHOT_INTERVAL
from domain.next_steps import next_steps
from domain.ports import Snapshot
from domain.session import Note
from domain.state import State
from domain.values import Priority
from minutebook.testing.scenario import LOOK, PAY, SETTINGS, created, given
from tests.unit.domain_cases import FINAL, START, TURN, answered, asked, begun, compaction_begun

HEAD = b"h" * 32
STATES = {
    "nothing": (),
    "created": (created(),),
    "accepted": START,
    "attempt": TURN,
    "calls": answered(LOOK, PAY),
    "asked": asked(PAY),
    "started": begun(PAY),
    "final": FINAL,
    "compaction": (*FINAL, compaction_begun()),
}


@pytest.mark.parametrize("before", STATES.values(), ids=STATES)
def test_what_is_taken_is_restored(before: tuple[object, ...]) -> None:
    state = given(*before).state  # type: ignore[arg-type]  # commits of every kind
    taken = snapshot.take(state, HEAD)
    assert (taken.session_id, taken.sequence, taken.head) == (state.session_id, state.sequence, HEAD)
    restored = snapshot.restore(taken)
    assert restored == state
    assert restored is not None
    assert next_steps(restored) == next_steps(state)


def test_a_restored_state_goes_on_where_it_was() -> None:
    scenario = given(*begun(PAY))
    restored = snapshot.restore(snapshot.take(given(*START).state, HEAD))
    assert restored is not None
    rest = scenario.events[restored.sequence :]
    assert fold(restored, rest) == scenario.state


def test_another_version_is_ignored() -> None:
    taken = snapshot.take(given(*START).state, HEAD)
    assert snapshot.restore(replace(taken, version=snapshot.VERSION + 1)) is None
    assert snapshot.restore(replace(taken, version=0, state=b"\xff")) is None


@pytest.mark.parametrize("change", [{"session_id": "s-2"}, {"sequence": 1}])
def test_one_that_contradicts_its_row_is_corrupt(change: dict[str, object]) -> None:
    taken = snapshot.take(given(*START).state, HEAD)
    with pytest.raises(Corrupt):
        snapshot.restore(Snapshot(**{**_fields(taken), **change}))  # type: ignore[arg-type]  # one field changed


def _fields(taken: Snapshot) -> dict[str, object]:
    return {name: getattr(taken, name) for name in taken.__slots__}


@pytest.mark.parametrize(
    "state",
    [b"", b"{", b"null", b"[]", b"{}", b'{"session_id":"s-test","sequence":"many"}', b"\xff", b'{"$mb":"x"}'],
)
def test_bytes_that_are_no_state_are_corrupt(state: bytes) -> None:
    taken = snapshot.take(given(*START).state, HEAD)
    with pytest.raises(Corrupt):
        snapshot.restore(replace(taken, state=state))


def test_settings_in_it_are_checked_again() -> None:
    taken = snapshot.take(given(*START).state, HEAD)
    plain = decode(taken.state)
    plain["session"]["settings"]["model"] = 5
    with pytest.raises(Corrupt, match="a control state"):
        snapshot.restore(replace(taken, state=encode(plain)))


@pytest.mark.parametrize(
    ("before", "after", "due"),
    [
        (0, 127, False),
        (0, 128, True),
        (127, 128, True),
        (128, 129, False),
        (128, 256, True),
        (250, 260, True),
    ],
)
def test_one_is_due_where_a_commit_crosses_the_interval(before: int, after: int, due: bool) -> None:
    assert SNAPSHOT_INTERVAL == 128
    assert snapshot.is_due(before, after) is due


def test_it_does_not_grow_with_the_conversation() -> None:
    short, long = given(created()), given(created())
    short.given(Note("remark", "x"))
    long.given(*[Note("remark", "x" * 1000, {"n": i}) for i in range(500)])
    sizes = [len(snapshot.take(s.state, HEAD).state) for s in (short, long)]
    assert abs(sizes[1] - sizes[0]) < 20


def test_it_holds_references_to_inputs_and_not_their_content() -> None:
    queued = [
        AcceptInput(f"i-{n}", "x" * 10_000, Priority.LATER, n) for n in range(1, MAX_PENDING_INPUTS + 1)
    ]
    scenario = given(created(), *queued)
    taken = snapshot.take(scenario.state, HEAD)
    assert len(taken.state) < 10_000
    assert b"xxxx" not in taken.state


def test_odd_settings_are_restored_exactly() -> None:
    odd = SETTINGS.changed({"context": {"a": b"\xff", "\ud800": [2**70, 1.0, -0.0]}, "temperature": 1.0})
    state = given(created(odd)).state
    restored = snapshot.restore(snapshot.take(state, HEAD))
    assert repr(restored) == repr(state)


def test_an_empty_state_is_one_too() -> None:
    assert snapshot.restore(snapshot.take(State("s-1"), HEAD)) == State("s-1")

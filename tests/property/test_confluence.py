"""A run that was cut off anywhere and recovered with the truth ends like the run that was not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from domain.envelope import Recorded
from domain.lifecycle import advance
from domain.model_attempt import response_of
from domain.state import State
from minutebook.testing.histories import Walk
from tests.property.examples import share
from tests.property.ledger import REQUEST_ENDS
from tests.property.scripts import Script, play, resumed, scripts


@dataclass(frozen=True)
class Results:
    """What became of the calls of a turn; whether one of them was reconciled."""

    ends: tuple[str, ...]
    reconciled: bool


Line = tuple[object, ...] | Results


def told(events: Sequence[Recorded]) -> Iterator[Line]:
    """What people see: inputs as they are applied, answers, results by call, ends of requests."""
    state, reconciled = State(events[0].session_id), False
    for event in events:
        reconciled = event.type != "turn_started" and (reconciled or event.type == "tool_outcome_reconciled")
        if event.type == "input_applied":
            yield "input", event.data.input_id, event.request_id
        elif event.aggregate_kind == "model_attempt" and (answer := response_of(event)):
            yield "answer", event.turn_id, answer
        elif event.type in ("turn_completed", "turn_aborted") and state.calls:
            yield Results(tuple(c.tool.status.value for c in state.calls if c.tool), reconciled)
        elif event.type in REQUEST_ENDS:
            yield event.type, event.request_id
        state = advance(state, event)


def same(wanted: Line, found: Line) -> bool:
    """Equal, but for one race: which sibling had ended when a `now` came in.

    A reconcile takes its own time. Where an outcome of the turn was reconciled and a
    call was cancelled, each call has its result, and which one is not compared.
    """
    if isinstance(wanted, Results) and isinstance(found, Results) and wanted.ends != found.ends:
        paired = len(wanted.ends) == len(found.ends)
        return found.reconciled and paired and "cancelled" in wanted.ends + found.ends
    if isinstance(wanted, Results) and isinstance(found, Results):
        return True
    return wanted == found


def ends_the_same(wanted: Walk, found: Walk) -> None:
    lines, others = list(told(wanted.events)), list(told(found.events))
    assert len(lines) == len(others), f"{wanted}\n{found}"
    for line, other in zip(lines, others, strict=True):
        assert same(line, other), f"{line} is not {other}\n{wanted}\n{found}"
    assert found.state.request is None
    assert [i.input_id for i in found.state.queue.pending] == [i.input_id for i in wanted.state.queue.pending]


@share(15)
@given(scripts())
def test_a_crash_after_any_commit(script: Script) -> None:
    whole = play(script, resumed(script, []))
    for cut in range(1, len(whole.entries)):
        ends_the_same(whole, play(script, resumed(script, whole.entries[:cut])))


@share(30)
@given(scripts(), st.data())
def test_a_crash_and_another_one_in_its_recovery(script: Script, data: st.DataObject) -> None:
    whole = play(script, resumed(script, []))
    once = data.draw(st.integers(1, len(whole.entries) - 1))
    recovered = play(script, resumed(script, whole.entries[:once]))
    twice = data.draw(st.integers(once, len(recovered.entries)))
    ends_the_same(whole, play(script, resumed(script, recovered.entries[:twice])))


@share(30)
@given(scripts())
def test_every_run_comes_to_an_end_and_keeps_every_input(script: Script) -> None:
    whole = play(script, resumed(script, []))
    assert whole.state.request is None
    assert whole.state.queue.pending == ()
    counts = whole.state.queue
    assert counts.accepted == counts.applied + counts.cancelled

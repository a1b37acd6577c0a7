"""The laws of the plan, after every commit of generated histories."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain import ids, request, rollover, snapshot, tool
from domain.decider import EndRequest
from domain.entry import Entry
from domain.errors import RuleViolated
from domain.inputs import AcceptInput
from domain.lifecycle import fold
from domain.next_steps import NOTHING, Action, Step, Who, next_steps
from domain.state import State
from domain.values import RERUNNABLE, Priority
from minutebook.testing.histories import Walk, histories
from minutebook.testing.moves import carry
from minutebook.testing.scenario import Writing, write
from minutebook.testing.world import Move, World
from tests.property.examples import share
from tests.property.ledger import Ledger, prefixes
from tests.property.measure import measure

NOW = datetime(2026, 1, 2, tzinfo=UTC)
LIVE_ONLY = {Action.AWAIT, Action.INTERRUPT}


def carried(state: State, *writings: Writing) -> State:
    """The state after one more commit."""
    entry = Entry(state, f"next-{state.sequence}", NOW)
    for writing in writings:
        write(entry, writing)
    return entry.finish() if entry.events else state


def states(walk: Walk) -> list[State]:
    """The state after each commit, folded from the journal."""
    folded = [State(walk.state.session_id)]
    for commit in walk.commits:
        folded.append(fold(folded[-1], commit))
    return folded


@share(60)
@given(histories())
def test_a_plan_is_total_deterministic_and_read_only(walk: Walk) -> None:
    for state, in_flight in walk.moments:
        for flight in (in_flight, NOTHING):
            before = snapshot.take(state, b"")
            steps = next_steps(state, flight)
            assert steps
            assert steps == next_steps(state, flight)
            assert snapshot.take(state, b"") == before
            for step in steps:
                _is_complete(state, step)
                assert flight or step.action not in LIVE_ONLY


def _is_complete(state: State, step: Step) -> None:
    assert step.subject
    assert all(0 < sequence <= state.sequence for sequence in step.evidence)
    assert step.evidence or step.action is Action.NONE


@share(60)
@given(histories())
def test_nothing_of_unknown_outcome_is_started(walk: Walk) -> None:
    state = State(walk.state.session_id)
    for ledger, commit in prefixes(walk.commits):
        state = fold(state, commit)
        for step in next_steps(state):
            if step.action is Action.NEXT_ATTEMPT:
                assert not [a for a in ledger.attempts if a.startswith(f"{step.subject}.")]
            if step.action is Action.START_TOOL and step.subject in ledger.runs:
                _may_start_again(state, step, ledger, walk.world)
            assert step.subject not in ledger.ended or step.action is Action.FINALIZE_REQUEST


def _may_start_again(state: State, step: Step, ledger: Ledger, world: World) -> None:
    run = ledger.runs[step.subject]
    assert run.side_effect in RERUNNABLE
    for move in carry(state, step, NOTHING, world):
        (again,) = (c.command for c in move.writings)  # type: ignore[union-attr]  # `carry` makes one OnCall
        assert isinstance(again, tool.Start)
        assert again.idempotency_key == run.key


@share(60)
@given(histories())
def test_what_is_open_and_nobody_runs_is_asked_about(walk: Walk) -> None:
    state = State(walk.state.session_id)
    for ledger, commit in prefixes(walk.commits):
        state = fold(state, commit)
        if state.request is None or state.request.aborting or state.compaction is not None:
            continue
        steps = {step.subject: step.action for step in next_steps(state)}
        for attempt_id in ledger.attempts:
            assert steps[attempt_id] is Action.RECONCILE_MODEL_OUTCOME
        unsettled = {effect.tool_id for effect in state.unsettled}
        for tool_id, run in ledger.runs.items():
            if tool_id not in unsettled and run.side_effect not in RERUNNABLE:
                assert steps[tool_id] is Action.RECONCILE_TOOL_OUTCOMES


@share(100)
@given(histories())
def test_the_rules_allow_every_step_and_it_lowers_the_measure(walk: Walk) -> None:
    segments = walk.world.segments
    for state, in_flight in walk.moments:
        before = measure(state, in_flight, segments)
        for step in next_steps(state, in_flight):
            moves = list(carry(state, step, in_flight, walk.world))
            assert bool(moves) is (step.action is not Action.NONE)
            for move in moves:
                after = carried(state, *move.writings)
                assert measure(after, move.in_flight, segments) < before, (step, move)


@share(40)
@given(histories(), st.data())
def test_recovery_comes_to_an_end_from_everywhere(walk: Walk, data: st.DataObject) -> None:
    """Automatic steps and hosts' decisions alone: at the end nothing is left, or a person is waited for."""
    state = data.draw(st.sampled_from(states(walk)))
    turns = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=5))
    in_flight = NOTHING
    for taken in range(1000):
        moves = _by_machines(state, in_flight, walk.world)
        if not moves:
            break
        move = moves[turns[taken % len(turns)] % len(moves)]
        state, in_flight = carried(state, *move.writings), move.in_flight
    else:
        raise AssertionError("no end after 1000 steps")
    left = {step.who for step in next_steps(state)}
    assert left <= {Who.NOBODY, Who.PERSON}
    assert not state.request or left == {Who.PERSON}


def _by_machines(state: State, in_flight: frozenset[str], world: World) -> list[Move]:
    steps = [s for s in next_steps(state, in_flight) if s.who is not Who.PERSON]
    return [move for step in steps for move in carry(state, step, in_flight, world)]


@share(60)
@given(histories())
def test_a_crash_changes_the_plan_of_nobody(walk: Walk) -> None:
    """What the journal says is all there is: a fresh fold plans what the live state does."""
    folded = dict(zip([s.sequence for s in states(walk)], states(walk), strict=True))
    for live, _ in walk.moments:
        assert folded[live.sequence] == live
        assert next_steps(folded[live.sequence]) == next_steps(live)


@share(60)
@given(histories())
def test_a_request_can_be_ended_from_every_state(walk: Walk) -> None:
    for state in states(walk):
        if state.request is None:
            continue
        abort = EndRequest("abort", request.Interrupt("abort"))
        sealed = state if state.request.aborting else carried(state, request.RequestAbort("user"))
        assert [step.action for step in next_steps(sealed)] == [Action.FINISH_ABORT]
        _has_ended(state, carried(sealed, abort))
        _has_ended(state, carried(state, EndRequest("abandoned", request.Interrupt("abandoned"))))
        _has_ended(state, carried(state, EndRequest("error", request.Fail("code", "text"))))
        if rollover.crossed(state):
            with pytest.raises(RuleViolated, match="must not run twice"):
                _is_rolled_over(state)
        else:
            _is_rolled_over(state)


def _has_ended(before: State, after: State) -> None:
    assert after.request is None and after.active_turn is None and after.calls == ()
    unknown = {
        c.call_id
        for c in before.calls
        if c.tool and c.tool.status in (tool.Status.STARTED, tool.Status.UNKNOWN)
    }
    pure = {
        c.call_id
        for c in before.calls
        if c.tool and c.tool.side_effect == "pure" and c.tool.status is tool.Status.STARTED
    }
    new = {e.tool_id for e in after.unsettled} - {e.tool_id for e in before.unsettled}
    assert new == unknown - pure
    assert before.request is not None
    assert after.queue.find(before.request.input_id) is None


def _is_rolled_over(state: State) -> None:
    assert state.session is not None
    ordinal = state.queue.accepted + 1
    after = carried(
        state,
        EndRequest("superseded", request.Supersede("host")),
        AcceptInput("i-new", "go on", Priority.NEXT, ordinal),
        request.AcceptRequest("i-new", state.session.settings, {}, 3),
    )
    assert after.request is not None
    assert after.request.request_id == ids.request(state.requests + 1)
    assert [step.action for step in next_steps(after)][-1] in (Action.RESUME_REQUEST, Action.FAIL_COMPACTION)
    assert {e.tool_id for e in state.unsettled} <= {e.tool_id for e in after.unsettled}


@share(60)
@given(histories())
def test_no_input_is_lost(walk: Walk) -> None:
    state = State(walk.state.session_id)
    for ledger, commit in prefixes(walk.commits):
        state = fold(state, commit)
        assert [i.input_id for i in state.queue.pending] == ledger.pending
        counts = (state.queue.accepted, state.queue.applied, state.queue.cancelled)
        assert counts == (len(ledger.accepted), len(ledger.applied), len(ledger.cancelled))
        assert len(set(ledger.applied) | set(ledger.cancelled)) == counts[1] + counts[2]


@share(60)
@given(histories())
def test_what_has_ended_ends_once_and_runs_once(walk: Walk) -> None:
    ledger = Ledger().read(walk.events)
    assert len(ledger.ended) == len(set(ledger.ended))
    for classes in ledger.starts.values():
        assert len(classes) == 1 or set(classes) <= RERUNNABLE


@share(40)
@given(histories())
def test_a_snapshot_and_the_rest_are_the_whole(walk: Walk) -> None:
    for at, state in enumerate(states(walk)):
        taken = snapshot.take(state, b"h" * 32)
        restored = snapshot.restore(taken)
        assert restored is not None
        assert restored == state
        rest = [event for commit in walk.commits[at:] for event in commit]
        whole = fold(restored, rest)
        assert whole == walk.state
        assert next_steps(whole) == next_steps(walk.state)
        assert snapshot.take(restored, b"h" * 32) == taken


@share(40)
@given(histories(), st.data())
def test_folding_in_two_parts_is_folding_once(walk: Walk, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(walk.events)))
    start = State(walk.state.session_id)
    halves = fold(fold(start, walk.events[:cut]), walk.events[cut:])
    assert halves == fold(start, walk.events) == walk.state

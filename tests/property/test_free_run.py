"""Everything the rules admit, whoever writes it: the contract holds and the plan has a way on."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from domain import request
from domain.decider import EndRequest
from domain.entry import Entry
from domain.envelope import Recorded
from domain.errors import Rejected, RuleViolated
from domain.lifecycle import advance
from domain.next_steps import NOTHING, Action, next_steps
from domain.state import State
from minutebook.testing.histories import Walk, histories, worlds
from minutebook.testing.moves import carry
from minutebook.testing.scenario import Commit, Scenario
from minutebook.testing.world import World
from tests.property.attempts import attempts
from tests.property.contract import Contract
from tests.property.examples import share
from tests.property.measure import measure
from tests.property.test_laws import carried

#: The contract's bookkeeping follows no changes of rules, grants and tools.
one_policy = worlds().map(lambda world: replace(world, changes=0))


@st.composite
def free_runs(draw: st.DrawFn) -> Walk:
    """Sessions of a writer that obeys the rules and nothing else, helped along by the plan."""
    walk = Walk(draw(one_policy))
    walk.go_on(walk.wished()[0])
    for chance in draw(st.lists(st.integers(0, 9), max_size=60)):
        if chance < 5:
            choices = walk.planned() or [m for m in walk.wished() if m.label == "send"]
            if choices:
                walk.go_on(draw(st.sampled_from(choices)))
        else:
            _freely(draw, walk)
    return walk


def _freely(draw: st.DrawFn, walk: Walk) -> None:
    tried = list(attempts(walk.state, walk.world))
    entry = _admitted(walk, draw(st.sampled_from(tried))) if tried else None
    if entry is not None:
        walk.crash()  # somebody else wrote: what was in flight is nobody's any more
        walk.record(entry)


def _admitted(scenario: Scenario, commit: Commit) -> Entry | None:
    try:
        return scenario.compose(commit)
    except Rejected:
        return None


@share(100)
@given(free_runs())
def test_what_the_rules_admit_keeps_the_contract(walk: Walk) -> None:
    contract = Contract()
    for commit in walk.commits:
        contract.read(commit)


@share(40)
@given(histories(one_policy, max_moves=40))
def test_so_does_everything_that_they_admit_after_each_commit_of_a_plan(walk: Walk) -> None:
    contract, scenario = Contract(), Scenario(walk.state.session_id)
    for entry in walk.entries:
        scenario.record(entry)
        contract.read(entry.events)
        for commit in attempts(scenario.state, walk.world):
            admitted = _admitted(scenario, commit)
            if admitted is not None:
                deepcopy(contract).read(admitted.events)


@share(60)
@given(free_runs())
def test_whatever_was_written_there_is_a_way_on(walk: Walk) -> None:
    state = State(walk.state.session_id)
    for commit in walk.commits:
        for event in commit:
            state = advance(state, event)
        _can_go_on(state, walk.world)
        if state.request is not None:
            ended = carried(state, EndRequest("abandoned", request.Interrupt("abandoned")))
            assert ended.request is None


def _can_go_on(state: State, world: World) -> None:
    before = measure(state, NOTHING, world.segments + 3)  # a free writer suspends as often as it likes
    for step in next_steps(state):
        moves = list(carry(state, step, NOTHING, world))
        assert moves or step.action is Action.NONE
        for move in moves:
            after = carried(state, *move.writings)
            assert measure(after, move.in_flight, world.segments + 3) < before, (step, move)


@share(40)
@given(histories(), histories(), st.data())
def test_any_event_anywhere_is_allowed_or_refused_by_a_rule(
    walk: Walk, other: Walk, data: st.DataObject
) -> None:
    """Events of one session after those of another: nothing but a rule may stop them."""
    state = State(walk.state.session_id)
    cut = data.draw(st.integers(0, len(walk.events)))
    for event in walk.events[:cut]:
        state = advance(state, event)
    for event in other.events:
        _tried(state, event, cut)


def _tried(state: State, event: Recorded, cut: int) -> None:
    fits: dict[str, Any] = {"sequence": cut + 1, "command_id": "cmd-x", "causation": None}
    for index in (0, state.command.index + 1):
        command = state.command.command_id if index else "cmd-x"
        stamped = replace(
            event, **{**fits, "command_index": index, "command_size": index + 1, "command_id": command}
        )
        after = _advanced(state, stamped)
        if isinstance(after, RuleViolated):
            assert after.sequence == cut + 1
        else:
            assert next_steps(after)


def _advanced(state: State, event: Recorded) -> State | RuleViolated:
    try:
        return advance(state, event)
    except RuleViolated as refusal:
        return refusal

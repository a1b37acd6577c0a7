"""The executable model and we say the same: of what follows, and of what may not."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given

from domain import decider
from domain.envelope import Draft
from domain.errors import Rejected, RuleViolated
from domain.inputs import FinishPreparation
from domain.next_steps import NOTHING, next_steps
from domain.state import State
from minutebook.testing.histories import Walk, histories
from minutebook.testing.scenario import Commit, Scenario, Writing
from tests.property.attempts import attempts
from tests.property.examples import share
from tests.property.twin import Model, Twin

#: Rules of ours that the model does not know, and why we have them.
STRICTER = {
    "the input is aimed at this request": "an input of priority `later` is a request of its own",
    "closed only with no open compaction": "it would stay open in a closed session for ever",
    "at most 3 runs": "the model caps runs in its plan, not in its rules",
    "a compaction ends after its attempt": "the model's compaction has no attempt",
    "the same commit goes on with input_accepted": "to the model a rollover is an end and a beginning",
    "the same commit goes on with request_accepted": "to the model a rollover is an end and a beginning",
    "must not run twice": "the model does not tell a rollover from an abort and a new request",
    "a successor is about the input accepted with it": "the model does not know successors",
}


def lives(model: Model, walk: Walk) -> Iterator[Twin]:
    """A twin of a session, after each of its commits."""
    twin = Twin(model, walk.world)
    for commit in walk.commits:
        twin.follow(commit)
        yield twin


@share(100)
@given(histories())
def test_the_model_allows_what_we_allow(model: Model, walk: Walk) -> None:
    for twin in lives(model, walk):
        assert twin.ours.sequence


@share(100)
@given(histories())
def test_the_model_plans_what_we_plan(model: Model, walk: Walk) -> None:
    moments = iter(walk.moments)
    state, in_flight = next(moments)
    for twin in lives(model, walk):
        while state.sequence < twin.ours.sequence:
            state, in_flight = next(moments)
        while state.sequence == twin.ours.sequence:
            _same_plan(twin, state, in_flight)
            _same_plan(twin, state, NOTHING)
            state, in_flight = next(moments, (State("the end"), NOTHING))


def _same_plan(twin: Twin, state: State, in_flight: frozenset[str]) -> None:
    ours = [twin.item(step, in_flight) for step in next_steps(state, in_flight)]
    theirs = [(action, argument, who) for action, who, argument in twin.steps(in_flight)]
    assert ours == theirs


@share(60)
@given(histories())
def test_the_model_refuses_what_we_refuse(model: Model, walk: Walk) -> None:
    scenario = Scenario(walk.state.session_id)
    for entry, twin in zip(walk.entries, lives(model, walk), strict=True):
        scenario.record(entry)
        for attempt in attempts(scenario.state, walk.world):
            if not _beyond_the_model(scenario.state, attempt):
                _same_verdict(scenario, twin, attempt)


def _beyond_the_model(state: State, attempt: list[Writing]) -> bool:
    """The model prepares inputs in two events always, so it cannot finish what an abort found due."""
    aborting = state.request is not None and state.request.aborting
    return aborting and isinstance(attempt[0], FinishPreparation)


def _same_verdict(scenario: Scenario, twin: Twin, attempt: list[Writing]) -> None:
    try:
        drafts = list(_drafts(scenario.state, attempt))
    except RuleViolated:
        return  # it is about something that is not there: there is nothing to translate
    ours = _rule(scenario, attempt)
    theirs = twin.verdict(drafts)
    if ours is None:
        assert theirs is None, f"we allow {attempt}; the model does not: {theirs}"
    elif theirs is None:
        assert any(rule in ours for rule in STRICTER), f"the model allows {attempt}; we do not: {ours}"


def _drafts(state: State, attempt: list[Writing]) -> Iterator[Draft]:
    for writing in attempt:
        yield from writing(state) if callable(writing) else decider.handle(state, writing)


def _rule(scenario: Scenario, commit: Commit) -> str | None:
    try:
        scenario.compose(commit)
    except Rejected as refusal:
        return str(refusal)
    return None

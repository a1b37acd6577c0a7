"""Rules about envelopes: order, commands, fences, causes and the ids that a type carries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain import events as ev
from domain import inputs, request, session
from domain.decider import EndRequest
from domain.entry import Entry
from domain.envelope import Fence, Recorded
from domain.errors import RuleViolated
from domain.lifecycle import advance, fold
from domain.limits import MAX_EVENTS_PER_COMMIT
from domain.state import State
from domain.values import AggregateKind, Priority
from minutebook.testing.scenario import (
    EPOCH,
    LOOK,
    SETTINGS,
    Commit,
    accepted,
    created,
    evaluated,
    forged,
    given,
    recorded,
    responded,
    scheduled,
    started,
)
from tests.unit.domain_cases import FINAL, START, Case, Tampered, altered, answered, changed, table

NOTE = session.Note("remark", "hello")
LEASE = Fence("worker", "lease", 3)


def fenced(token: int) -> Tampered:
    fence = None if token == 0 else replace(LEASE, token=token)

    def alter(events: list[Recorded]) -> list[Recorded]:
        return [replace(events[0], recorded_by=LEASE), replace(events[1], recorded_by=fence)]

    return Tampered([NOTE, NOTE], alter)


def swapped(events: list[Recorded]) -> list[Recorded]:
    first, second = events
    return [replace(first, command_index=1), replace(second, command_index=0)]


CASES = [
    Case("every event is of this session", (created(),), altered(NOTE, session_id="s-other"), NOTE),
    Case(
        "sequences are contiguous from 1", (), altered(created(), sequence=2), altered(created(), sequence=1)
    ),
    Case("causes come before", (created(),), altered(NOTE, causation=2), altered(NOTE, causation=1)),
    Case("the fencing token never falls", (created(),), fenced(2), fenced(4)),
    Case(
        "a command's events are contiguous",
        (created(),),
        Tampered(
            [NOTE, NOTE], lambda events: [events[0], replace(events[1], command_index=0, command_id="x")]
        ),
        [NOTE, NOTE],
    ),
    Case("a command's events are contiguous", (created(),), Tampered([NOTE, NOTE], swapped), [NOTE, NOTE]),
    Case(
        "a command is recorded once",
        (created(),),
        altered(NOTE, command_id="cmd-1"),
        altered(NOTE, command_id="cmd-3"),
    ),
    Case(
        "a command's events agree on its size",
        (created(),),
        altered([NOTE, NOTE], at=1, command_size=3),
        altered([NOTE, NOTE], at=1, command_size=2),
    ),
    Case(
        "an event is within its command",
        (created(),),
        altered(NOTE, command_size=0),
        altered(NOTE, command_size=2),
    ),
    Case(
        "an end on its own is caused by the request's last event",
        FINAL,
        forged(request.Complete("done", {}), causation=3),
        request.Complete("done", {}),
    ),
    Case(  # also where the commit begins with something that is not of the request
        "an end on its own is caused by the request's last event",
        FINAL,
        [NOTE, forged(request.Complete("done", {}), causation=3)],
        [NOTE, request.Complete("done", {})],
    ),
    Case(
        "request_started names its request",
        START,
        [inputs.ApplyInput("i-1", Priority.NEXT, 1), forged(request.StartRequest(), request_id=None)],
        [inputs.ApplyInput("i-1", Priority.NEXT, 1), request.StartRequest()],
    ),
    Case(
        "session_closed names no request",
        (created(),),
        recorded(ev.SessionClosed(), request_id="r1"),
        recorded(ev.SessionClosed()),
    ),
    Case(
        "at most 128 events in a commit",
        (created(),),
        [NOTE] * (MAX_EVENTS_PER_COMMIT + 1),
        [NOTE] * MAX_EVENTS_PER_COMMIT,
    ),
    Case(
        "the same commit goes on with request_started",
        START,
        inputs.ApplyInput("i-1", Priority.NEXT, 1),
        [inputs.ApplyInput("i-1", Priority.NEXT, 1), request.StartRequest()],
    ),
    Case(
        "the same commit goes on with request_started",
        START,
        [inputs.ApplyInput("i-1", Priority.NEXT, 1), NOTE],
        [inputs.ApplyInput("i-1", Priority.NEXT, 1), request.StartRequest(), NOTE],
    ),
    Case(
        "the same commit goes on with request_started",
        START,
        Tampered(
            [inputs.ApplyInput("i-1", Priority.NEXT, 1), request.StartRequest()],
            lambda events: [replace(events[0], command_size=1)],
        ),
        [inputs.ApplyInput("i-1", Priority.NEXT, 1), request.StartRequest()],
    ),
]


@table(CASES)
def test_it_refuses_and_allows(case: Case) -> None:
    case.refuse()
    case.allow()


@pytest.mark.parametrize("cut", range(1, 5))
def test_a_journal_cut_inside_a_command_is_told_from_a_whole_one(cut: int) -> None:
    scenario = given(*START)
    events = scenario.compose(started()).events
    state = fold(scenario.state, events[:cut])
    assert not state.command.is_whole
    assert (state.command.index, state.command.size) == (cut - 1, 5)
    assert fold(state, events[cut:]).command.is_whole


@pytest.mark.parametrize("cut", range(1, 5))
def test_nothing_else_follows_a_cut(cut: int) -> None:
    scenario = given(*START)
    events = scenario.compose(started()).events
    state = fold(scenario.state, events[:cut])
    after = replace(events[cut], command_id="cmd-9", command_index=0, command_size=1)
    with pytest.raises(RuleViolated, match=r"contiguous|goes on with"):
        advance(state, after)


def test_without_a_fence_the_token_counts_as_0() -> None:
    state = fold(State("s-test"), given(created()).events)
    scenario = given(created())
    (note,) = scenario.compose(NOTE).events
    leased = advance(state, replace(note, recorded_by=LEASE))
    assert leased.token == 3
    later = replace(note, sequence=3, command_id="cmd-3")
    with pytest.raises(RuleViolated, match="fencing token"):
        advance(leased, later)
    assert advance(leased, replace(later, recorded_by=LEASE)).token == 3


def test_an_entry_stamps_the_fence_on_every_event() -> None:
    scenario = given(created())
    entry = Entry(scenario.state, "cmd-2", EPOCH, LEASE)
    entry.add(NOTE)
    entry.add(NOTE)
    assert entry.finish().token == 3
    assert [event.recorded_by for event in entry.events] == [LEASE, LEASE]


def test_an_entry_is_as_before_when_a_command_is_refused() -> None:
    scenario = given(*answered())
    entry = scenario.begin()
    entry.add(NOTE)
    before = entry.state, list(entry.events)
    with pytest.raises(RuleViolated, match="active"):
        entry.add(request.AcceptRequest("i-9", SETTINGS, {}, 1))
    with pytest.raises(RuleViolated):
        entry.add(EndRequest("error", request.Complete("half of it is legal", {})))
    assert (entry.state, entry.events) == before


IDS = dict(zip("RTAC", ("request_id", "turn_id", "model_attempt_id", "tool_id"), strict=True))
SCOPED = (ev.TurnStarted, ev.ModelRequestCompleted, ev.ToolScheduled, ev.PermissionEvaluated)


@pytest.mark.parametrize(
    ("type_", "name"),
    [(cls.type, name) for cls in SCOPED for letter, name in IDS.items() if letter in cls.scope],
)
def test_each_id_of_a_scope_is_required(type_: str, name: str) -> None:
    events = _one_of_each()
    at = next(i for i, event in enumerate(events) if event.type == type_)
    state = fold(State("s-test"), events[:at])
    with pytest.raises(RuleViolated, match="names its"):
        advance(state, changed(events[at], **{name: None}))


@pytest.mark.parametrize("name", IDS.values())
def test_an_id_outside_the_scope_is_refused(name: str) -> None:
    scenario = given(created())
    (event,) = scenario.compose(session.Change({"temperature": 0.5})).events
    with pytest.raises(RuleViolated, match="names no"):
        advance(scenario.state, changed(event, **{name: "r1"}))


def _one_of_each() -> list[Recorded]:
    return given(*answered(LOOK), scheduled(0, LOOK), evaluated(0)).events


def test_the_aggregate_of_an_event_is_that_of_its_type() -> None:
    kinds = {event.type: event.aggregate_kind for event in _one_of_each()}
    assert kinds["session_created"] is AggregateKind.SESSION
    assert kinds["permission_evaluated"] is AggregateKind.PERMISSION


def test_the_cause_of_every_event_that_has_one_comes_before_it() -> None:
    commits: tuple[Commit, ...] = (created(), accepted(), started(), responded())
    events = given(*commits).events
    assert [(e.type, e.causation) for e in events if e.causation] == [
        ("input_applied", 2),
        ("request_started", 4),
        ("input_prepared", 5),
        ("turn_started", 6),
        ("model_request_started", 7),
        ("model_request_completed", 8),
    ]

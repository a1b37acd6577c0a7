"""Rollovers as rules of the journal: both halves or neither, true about each other, nothing forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from domain import tool
from domain.decider import EndRequest
from domain.inputs import AcceptInput, ApplyInput, BeginPreparation
from domain.request import AcceptRequest, Interrupt, StartRequest, Supersede
from domain.rollover import crossed, turns_left
from domain.values import Priority
from minutebook.testing.scenario import (
    LOOK,
    PAY,
    PUT,
    SETTINGS,
    Called,
    Commit,
    Writing,
    evaluated,
    given,
    in_call,
    responded,
    running,
    scheduled,
)
from tests.unit.domain_cases import FINAL, START, TURN, Case, sent, table

#: The request has its input, and hooks had begun with it.
BEGUN: tuple[Commit, ...] = (
    *START,
    [ApplyInput("i-1", Priority.NEXT, 1), StartRequest(), BeginPreparation(("i-1",), ("hook",))],
)


def rolled_over(**changes: Any) -> list[Writing]:
    """A whole rollover, or one that says something else of its halves."""
    told = {"by": "r2", "replaced": ("i-1",), "supersedes": "r1", "input_id": "i-2", **changes}
    return [
        EndRequest("superseded", Supersede("host", "why", told["by"], told["replaced"])),
        AcceptInput("i-2", "go on", Priority.NEXT, 2),
        AcceptRequest(told["input_id"], SETTINGS, {}, 2, told["supersedes"]),
    ]


def called(tool_: Called, *ends: tool.Command) -> tuple[Commit, ...]:
    """A call was started, and this became of it."""
    began: list[Writing] = [scheduled(0, tool_), evaluated(0), running(0)]
    return (*TURN, responded(tool_), began, *(in_call(0, end) for end in ends))


WHOLE = rolled_over()
IN_TURN = rolled_over(replaced=())
NEXT: list[Writing] = [AcceptInput("i-2", "go on", Priority.NEXT, 2), AcceptRequest("i-2", SETTINGS, {}, 2)]
ABANDON = EndRequest("abandoned", Interrupt("abandoned"))
CASES = [
    Case("the successor is the next request", BEGUN, rolled_over(by="r3"), WHOLE),
    Case("it replaces what no turn has seen", BEGUN, rolled_over(replaced=("i-7",)), WHOLE),
    Case("it supersedes the request that just ended", BEGUN, rolled_over(supersedes="r2"), WHOLE),
    Case(
        "it supersedes the request that just ended",
        (*START, ABANDON),
        [NEXT[0], AcceptRequest("i-2", SETTINGS, {}, 2, "r1")],
        NEXT,
    ),
    Case(
        "a successor is about the input accepted with it",
        (*START, AcceptInput("i-2", "later", Priority.LATER, 2)),
        [
            EndRequest("superseded", Supersede("host")),
            AcceptInput("i-3", "go on", Priority.NEXT, 3),
            AcceptRequest("i-2", SETTINGS, {}, 2),
        ],
        [
            EndRequest("superseded", Supersede("host")),
            AcceptInput("i-3", "go on", Priority.NEXT, 3),
            AcceptRequest("i-3", SETTINGS, {}, 2),
        ],
    ),
    *(
        Case(
            "no rollover over a started call that must not run twice",
            called(PAY, *ends),
            IN_TURN,
            IN_TURN,
            called(PUT, *ends),
        )
        for ends in (
            (),
            (tool.LoseSight("cut"),),
            (tool.Suspend(None, {}),),
            (tool.Complete({"output": "ok"}),),
            (tool.Fail("ValueError", "no"),),
            (tool.Cancel("stopped"),),
            (tool.Reconcile("cancelled", "it did nothing"),),
        )
    ),
]


@table(CASES)
def test_it_refuses_and_allows(case: Case) -> None:
    case.refuse()
    case.allow()


def test_what_was_never_started_is_not_crossed() -> None:
    before = given(*TURN, responded(PAY, LOOK), [scheduled(0, PAY), evaluated(0), scheduled(1, LOOK)])
    assert crossed(before.state) == ()
    before.given([running(0)])
    assert [call.name for call in crossed(before.state)] == ["pay"]


@pytest.mark.parametrize(
    ("commits", "left"),
    [(START, 0), (TURN, 0), (FINAL, -1)],
    ids=["accepted", "in the first turn", "after it"],
)
def test_a_turn_that_is_given_up_counts_as_not_taken(commits: tuple[Commit, ...], left: int) -> None:
    state = given(*commits).state
    assert state.request is not None
    assert turns_left(state) - state.request.max_turns == left


def test_without_a_request_there_is_none() -> None:
    assert turns_left(given(*START, ABANDON, sent(2)).state) == 0

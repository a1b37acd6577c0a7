"""What changed between two points: in words of the conversation, and in little memory."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest

from domain import inputs, request, tool, turn
from domain.decider import CloseSession, EndRequest, SettleEffect
from domain.errors import InvalidOptions, SessionNotFound
from domain.values import Priority
from minutebook.testing.scenario import SETTINGS, Scenario, Writing, accepted, attempt, created, responded
from recovery import differing
from recovery.differing import CallChange, difference
from tests.journals import Altered, at, flipped, kept, lost_hooks, lost_payment, session_of, unsettled

pytestmark = pytest.mark.anyio

CALL = "r1.t1.a1.c0"


async def test_a_call_that_was_settled_later_changed_its_exchange() -> None:
    left = unsettled().given(SettleEffect(CALL, tool.Reconcile("completed", "the bank", "paid")))
    async with kept(left) as journal:
        found = await difference(journal, "s-left", 12, len(left.events))
    (item,) = found.items
    assert (item.change, item.kind, item.name) == ("changed", "exchange", "r1.t1.a1")
    assert item.calls == (CallChange(CALL, "pay", "open", "completed"),)
    assert found.facts["ended"] == ([], [["interrupted", 1]])
    assert found.events["tool_outcome_reconciled"] == 1
    assert found.before.plan is not None
    assert found.before.plan.items[0].action == "reconcile_tool_outcomes"
    assert found.after.plan is not None
    assert found.after.plan.items[0].action == "none"


async def test_a_rollover_took_an_input_out_of_the_conversation() -> None:
    rolled: list[Writing] = [
        EndRequest("superseded", request.Supersede("x", "y", "r2", ("i-1",))),
        inputs.AcceptInput("i-2", "hello, prepared", Priority.NEXT, 2),
        request.AcceptRequest("i-2", SETTINGS, {}, 2, "r1"),
    ]
    scenario = lost_hooks().given(rolled)
    async with kept(scenario) as journal:
        found = await difference(journal, "s-hooks", 6, 9)
        document = found.to_json()
    assert [(i.change, i.kind, i.name, i.text) for i in found.items] == [("removed", "user", "i-1", "hello")]
    assert document["pending_inputs"] == {"came": ["i-2"], "went": []}
    assert document["session"]["request_id"] == {"before": "r1", "after": "r2"}
    assert document["format"] == "minutebook.difference/1"


async def test_what_takes_the_place_of_a_removed_input_was_added() -> None:
    rolled: list[Writing] = [
        EndRequest("superseded", request.Supersede("x", "y", "r2", ("i-1",))),
        inputs.AcceptInput("i-2", "hello, prepared", Priority.NEXT, 2),
        request.AcceptRequest("i-2", SETTINGS, {}, 2, "r1"),
    ]
    begun: list[Writing] = [
        inputs.ApplyInput("i-2", Priority.NEXT, 1),
        request.StartRequest(),
        inputs.FinishPreparation(("i-2",)),
    ]
    scenario = lost_hooks().given(rolled, begun)
    async with kept(scenario) as journal:
        found = await difference(journal, "s-hooks", 6, len(scenario.events))
    assert [(i.change, i.name) for i in found.items] == [("removed", "i-1"), ("added", "i-2")]
    assert found.left_out == 0


async def test_what_came_and_went_within_is_no_change() -> None:
    """The input was applied and replaced after the first point."""
    rolled: list[Writing] = [
        EndRequest("superseded", request.Supersede("x", "y", "r2", ("i-1",))),
        inputs.AcceptInput("i-2", "hello, prepared", Priority.NEXT, 2),
        request.AcceptRequest("i-2", SETTINGS, {}, 2, "r1"),
    ]
    async with kept(lost_hooks().given(rolled)) as journal:
        found = await difference(journal, "s-hooks", 3, 9, page=1)
    assert (found.items, found.left_out) == ((), 0)


async def test_nothing_changes_between_a_point_and_itself() -> None:
    async with kept(lost_payment()) as journal:
        found = await difference(journal, "s-pay", 9, 9)
    assert (found.items, found.events, found.facts, found.left_out) == ((), {}, {}, 0)


@pytest.mark.parametrize(("first", "last"), [(9, 8), (1, 13), (13, 13)])
async def test_points_that_are_not_there_are_refused(first: int, last: int) -> None:
    async with kept(lost_payment()) as journal:
        with pytest.raises(InvalidOptions):
            await difference(journal, "s-pay", first, last)
        with pytest.raises(SessionNotFound):
            await difference(journal, "s-none", 1, 2)


async def test_a_journal_that_cannot_be_followed_says_where() -> None:
    async with kept(lost_payment()) as journal:
        broken = Altered(journal, at(8, lambda row: replace(row, envelope=flipped(row.envelope))))
        found = await difference(broken, "s-pay", 2, 12)
    assert found.problem is not None
    assert found.problem.sequence == 8
    assert (found.before.sequence, found.after.sequence, found.after.plan) == (2, 7, None)


def talked(requests: int, text: str) -> Scenario:
    """A session of many requests, each with its answer."""
    scenario = session_of(created())
    for number in range(1, requests + 1):
        input_id = f"i-{number}"
        scenario.given(
            accepted(text, ordinal=number),
            [
                inputs.ApplyInput(input_id, Priority.NEXT, 1),
                request.StartRequest(),
                inputs.FinishPreparation((input_id,)),
                turn.StartTurn(1, SETTINGS.digest()),
                attempt(),
            ],
            [responded(text=text), turn.CompleteTurn(0, "end"), request.Complete(text, {})],
        )
    return scenario.given(CloseSession("user"))


async def test_the_words_of_a_long_session_are_not_kept() -> None:
    scenario = talked(150, "word " * 4000)  # 9 MB of them
    async with kept(scenario) as journal:
        tracemalloc.start()
        found = await difference(journal, "s-test", 1, len(scenario.events), page=32)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert len(found.items) == 300
    assert found.facts["status"] == ("open", "closed")
    assert found.after.usage.attempts == 150
    assert peak < 3_000_000


async def test_more_changes_than_are_told_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differing, "MAX_LISTED", 5)
    scenario = talked(4, "hello")
    async with kept(scenario) as journal:
        found = await difference(journal, "s-test", 1, len(scenario.events), page=1)
    assert (len(found.items), found.left_out) == (5, 3)

"""Budgets of running sessions: warned, enforced, recorded; and the same after a kill."""

from __future__ import annotations

from contextlib import nullcontext
from decimal import Decimal
from typing import Any

import pytest

import minutebook as mb
from domain.cursor import Cursor
from domain.errors import InvalidOptions, SendRejected
from domain.model_ports import Response
from domain.values import BudgetLevel, Stop
from minutebook.testing.scripted import Attempt, Gate, ScriptedProvider, call, fail, reply
from projections.usage import Sum
from tests.session.harness import Hands, Place, data, drained

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

RATES = {"input": 1, "output": 10}
TEN = {"input_tokens": 6, "output_tokens": 4}
ROUNDS: list[Attempt] = [
    reply("", call("look", {"what": "x"}), usage=TEN),
    reply("", call("look", {"what": "y"}), usage=TEN),
    reply("done", usage=TEN),
]


async def test_nothing_changes_for_a_session_that_stays_below(any_place: Place, hands: Hands) -> None:
    budget = mb.Budget(max_tokens=1000, max_cost=5, rates=RATES)
    async with any_place.create(ROUNDS, tools=hands.tools(), budget=budget) as session:
        assert (await session.run("hello")).content == "done"
        assert session.usage.session() == Sum(3, {"input_tokens": 18, "output_tokens": 12}, 0)
        assert session.usage.request("r1") == session.usage.session()
        assert session.usage.cost == Decimal("0.000138")
        assert not session.usage.is_spent
    events = await any_place.events()
    (set_,) = data(events, "budget_set")
    assert (set_.max_tokens, set_.max_cost, set_.warn_at) == (1000, 5_000_000, 800)
    assert set_.rates == {"input": 1_000_000, "output": 10_000_000}
    assert data(events, "budget_exceeded") == []


async def test_the_request_fails_after_its_calls_and_before_another_turn(
    any_place: Place, hands: Hands
) -> None:
    async with any_place.create(ROUNDS, tools=hands.tools(), budget=mb.Budget(max_tokens=11)) as session:
        result = await session.run("hello")
        assert (result.status, result.error_code) == ("failed", "BUDGET_SPENT")
        assert result.message == "the session has used 20 of 11 tokens"
        assert session.usage.is_spent
    assert hands.done == ["x", "y"]
    types = await any_place.types()
    at = types.index("budget_exceeded", types.index("turn_completed"))
    assert types[at - 1 :] == [
        "model_request_completed",
        "budget_exceeded",
        *("tool_scheduled", "permission_evaluated", "tool_started", "tool_completed"),
        *("turn_completed", "request_failed"),
    ]
    assert types.count("model_request_started") == 2
    assert [item.output for item in session.messages[-1].calls] == ["did y"]  # type: ignore[union-attr]  # an exchange


async def test_coming_near_is_told_once_and_so_is_the_limit(any_place: Place, hands: Hands) -> None:
    budget = mb.Budget(max_tokens=25, warn_at=0.4)
    async with any_place.create(ROUNDS, tools=hands.tools(), budget=budget) as session:
        assert (await session.run("hello")).content == "done"
        feed: list[Any] = []
        seen = session.events(after=Cursor.start(session.id))
        async for event in seen:
            feed.append(event)
            if event.type == "request_completed":
                break
    told = [event.data for event in feed if event.type == "budget_exceeded"]
    assert [(each.level, each.tokens) for each in told] == [
        (BudgetLevel.WARNING, 10),
        (BudgetLevel.LIMIT, 30),
    ]


async def test_a_limit_of_cost_counts_as_one_of_tokens(place: Place, hands: Hands) -> None:
    budget = mb.Budget(max_cost="0.00005", rates=RATES)
    async with place.create(ROUNDS, tools=hands.tools(), budget=budget) as session:
        result = await session.run("hello")
        assert result.message == "the session has used 0.000092 of 0.00005"
        assert session.usage.cost == Decimal("0.000092")


async def test_nothing_is_sent_any_more_until_the_budget_is_raised(any_place: Place, hands: Hands) -> None:
    budget = mb.Budget(max_tokens=5)
    async with any_place.create([*ROUNDS[:1], reply("more")], tools=hands.tools(), budget=budget) as session:
        await session.run("hello")
        before = session.head_sequence
        with pytest.raises(SendRejected) as refused:
            await session.send("again")
        assert refused.value.reason == "BUDGET_SPENT"
        with pytest.raises(InvalidOptions, match="budget"):
            await session.set_budget(mb.Budget(max_tokens=10))
        with pytest.raises(InvalidOptions, match="budget"):
            await session.set_budget(100)  # type: ignore[arg-type]  # what somebody may try
        assert session.head_sequence == before
        await session.set_budget(mb.Budget(max_tokens=11))
        await session.set_budget(mb.Budget(max_tokens=11))
        assert (await session.run("again")).content == "more"
        await session.set_budget(None)
    assert len(data(await any_place.events(), "budget_set")) == 3


async def test_queued_inputs_stay_and_go_on_once_there_is_a_budget(any_place: Place, hands: Hands) -> None:
    gate = Gate()
    script = [[gate, *reply("first", usage=TEN)], reply("second")]
    async with any_place.create(script, budget=mb.Budget(max_tokens=10)) as session:
        await session.send("one")
        await gate.reached()
        queued = await session.send("two")
        gate.open()
        await session.wait_idle()
        assert [item.input_id for item in session.pending_inputs] == [queued.input_id]
        assert (
            session.recovery_plan().items[0].reason
            == "1 inputs wait; no request starts with the budget spent."
        )
        await session.set_budget(mb.Budget(max_tokens=100))
        await session.wait_idle()
        assert session.pending_inputs == ()
    assert [c.output for c in data(await any_place.events(), "request_completed")] == ["first", "second"]


async def test_raising_it_in_time_lets_the_request_go_on(any_place: Place, hands: Hands) -> None:
    hands.gates["x"] = Gate()
    async with any_place.create(ROUNDS, tools=hands.tools(), budget=mb.Budget(max_tokens=10)) as session:
        await session.send("hello")
        await hands.gates["x"].reached()
        assert session.usage.is_spent
        await session.set_budget(mb.Budget(max_tokens=100))
        hands.gates["x"].open()
        await session.wait_idle()
    assert len(data(await any_place.events(), "request_completed")) == 1


async def test_what_may_have_been_billed_unseen_is_counted_beside(any_place: Place) -> None:
    async with any_place.create([fail(), reply("done")], budget=mb.Budget(max_tokens=10)) as session:
        await session.run("hello")
        assert session.usage.session() == Sum(2, {}, 2)
        assert not session.usage.is_spent


async def test_an_operator_comes_to_the_same_end(any_place: Place, hands: Hands) -> None:
    """What the plan says of a spent session needs no application; and what is reconciled counts too."""
    gate = Gate()
    async with any_place.create([[gate, *reply("never")]], budget=mb.Budget(max_tokens=5)) as session:
        await session.send("hello")
        await gate.reached()
        lost = await any_place.killed_after(len(any_place.store.batches))
    async with lost.coordinator() as coordinator:
        response = Response((), (), Stop.PAUSE, TEN)
        await coordinator.reconcile_model_outcome(
            "r1.t1.a1", outcome="completed", response=response, evidence="the provider's log"
        )
        await coordinator.apply_automatic()
    assert (await lost.types())[-4:] == [
        "model_outcome_reconciled",
        "budget_exceeded",
        "turn_completed",
        "request_failed",
    ]
    assert data(await lost.events(), "request_failed")[0].error_code == "BUDGET_SPENT"
    await lost.check()


# --- at a resume -------------------------------------------------------------------------------


async def test_a_budget_that_is_spent_opens_nothing(any_place: Place, hands: Hands) -> None:
    budget = mb.Budget(max_tokens=5)
    async with any_place.create(ROUNDS[:1], tools=hands.tools(), budget=budget) as session:
        await session.run("hello")
    written = len(any_place.store.batches)
    given: list[dict[str, Any]] = [{}, {"budget": budget}, {"budget": mb.Budget(max_tokens=10)}]
    for options in given:
        with pytest.raises(InvalidOptions, match=r"budget.*10 of (5|10) tokens"):
            async with any_place.resume([reply("more")], tools=hands.tools(), **options):
                pytest.fail("it was opened")
    assert len(any_place.store.batches) == written
    async with any_place.resume(
        [reply("more")], tools=hands.tools(), budget=mb.Budget(max_tokens=11)
    ) as session:
        assert (await session.run("again")).content == "more"


async def test_a_resume_without_a_budget_keeps_the_one_of_the_journal(any_place: Place) -> None:
    async with any_place.create([], budget=mb.Budget(max_tokens=15)):
        pass
    async with any_place.resume([reply("a", usage=TEN), reply("b", usage=TEN)]) as session:
        await session.run("one")
        await session.run("two")
        with pytest.raises(SendRejected, match="20 of 15 tokens"):
            await session.send("three")
    assert len(data(await any_place.events(), "budget_set")) == 1


async def killed(place: Place, hands: Hands, budget: mb.Budget) -> list[Place]:
    """The store as a worker leaves it that dies after each of the commits of a session."""
    async with place.create(ROUNDS, tools=hands.tools(), budget=budget, on_lost_attempt="retry") as session:
        await session.send("hello")
        await drained(session.stream())
    return [await place.killed_after(n) for n in range(1, len(place.store.batches) + 1)]


@pytest.mark.parametrize("limit", [10, 11, 20, 21, 30], ids=str)
async def test_a_session_killed_near_its_limit_ends_as_it_would_have(
    place: Place, hands: Hands, limit: int
) -> None:
    """Whatever commit the worker died after: attempts that were recorded count, and no turn is added."""
    budget = mb.Budget(max_tokens=limit)
    by_id = {f"r1.t{n + 1}.a{a}": attempt for n, attempt in enumerate(ROUNDS) for a in (1, 2)}
    ended = "request_completed" if limit > 20 else "request_failed"
    options: dict[str, Any] = {"tools": hands.tools(), "budget": budget, "on_lost_attempt": "retry"}
    for left in await killed(place, hands, budget):
        over = (await left.types())[-1] in ("request_completed", "request_failed")
        refuses = pytest.raises(InvalidOptions, match="budget") if over else nullcontext()
        with refuses:
            async with left.resume(ScriptedProvider(by_id), **options) as session:
                await session.wait_idle()
        events = await left.events()
        started = any(event.type == "request_accepted" for event in events)
        ends = [e.type for e in events if e.type in ("request_completed", "request_failed")]
        assert ends == ([ended] if started else [])
        reported = sum(
            sum(event.data.response.usage.values())
            for event in events
            if event.type == "model_request_completed"
        )
        assert reported == (min(-(-limit // 10), 3) * 10 if started else 0)
        await left.check()

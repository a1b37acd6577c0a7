"""What happens while a lost attempt is looked up; and operators who ask themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from adapters.system import SystemClock, SystemIds
from domain.cursor import Cursor
from domain.errors import InvalidOptions, RecoveryRejected
from domain.model_ports import AttemptLookup, DeclaredCall, Found, Identified, LostAttempt, Response, Text
from minutebook.testing.fake_server import serve
from minutebook.testing.scripted import Gate, ScriptedProvider, reply
from recovery.coordinator import RecoveryCoordinator
from recovery.plan import Kind, RecoveryRequired
from tests.session.harness import Place, data
from tests.session.storing_server import Storing, chat, lost, responses, stall_after

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


# --- while it is looked up ------------------------------------------------------------------------------


class Slow(ScriptedProvider):
    """A scripted provider that can be asked, and takes its time."""

    sends_attempt_key = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.gate, self.asked = Gate(), list[LostAttempt]()
        self.says: Any = Found("unknown", "nobody knows")

    def finds(self, lost: LostAttempt) -> bool:
        return lost.response_id is not None

    async def look_up(self, lost: LostAttempt) -> Found:
        self.asked.append(lost)
        await self.gate.pass_through()
        if isinstance(self.says, Exception):
            raise self.says
        found: Found = self.says
        return found


class Deaf(Slow):
    """One that has nothing to ask by."""

    def finds(self, lost: LostAttempt) -> bool:
        return False


@asynccontextmanager
async def slowly(place: Place) -> AsyncIterator[tuple[Place, Slow]]:
    """A killed session, and a provider that can be asked about its attempt."""
    gate = Gate()
    async with place.create(Slow([[Identified("resp-1"), Text("a"), gate, *reply("a")]])) as session:
        await session.send("hello")
        async for event in session.events(after=Cursor.start(session.id)):
            if event.type == "model_response_identified":
                break
        yield await place.killed_after(len(place.store.batches)), Slow([reply("asked again"), reply("next")])


FOUND = Found("completed", "it was there", next(p for p in reply("found") if isinstance(p, Response)))


async def killed_again(first: Place, second: Place) -> Place:
    """What is left where the worker dies too that goes on after a kill."""
    at = second.store.batches[0].expected_sequence
    both = Place()
    both.store.batches = [b for b in first.store.batches if b.expected_sequence < at] + second.store.batches
    return await both.killed_after(len(both.store.batches))


async def test_dying_while_it_is_looked_up_leaves_it_as_it_was(place: Place) -> None:
    async with slowly(place) as (killed, provider):
        pass
    async with killed.resume(provider) as session:
        await session.send("later")
        await provider.gate.reached()
        again = await killed_again(place, killed)
    for place_left in (again, killed):  # killed, and left in an orderly way
        assert (await place_left.plan()).items[0].word == "findable"
        assert "model_outcome_reconciled" not in await place_left.types()
    second = Slow([reply("next")])
    second.says = FOUND
    second.gate.open()
    async with killed.resume(second) as session:
        assert (await killed.told(session.stream()))[-1].content == "found"
    assert second.asked == [LostAttempt("scripted", "openai-chat", "resp-1")]


async def test_an_abort_does_not_wait_for_it(place: Place) -> None:
    async with slowly(place) as (killed, provider):
        pass
    async with killed.resume(provider) as session:
        await session.send("later")
        await provider.gate.reached()
        await session.abort()
    types = await killed.types()
    assert "request_interrupted" in types
    assert "model_outcome_reconciled" not in types


async def test_a_provider_that_breaks_its_promise_is_unknown(place: Place) -> None:
    async with slowly(place) as (killed, provider):
        pass
    provider.says = RuntimeError("a defect")
    provider.gate.open()
    async with killed.resume(provider) as session:
        with pytest.raises(RecoveryRequired):
            await killed.told(session.stream())


async def test_more_than_an_event_may_hold_is_a_failure(place: Place) -> None:
    calls = tuple(DeclaredCall(str(n), "look", "{}") for n in range(61))
    async with slowly(place) as (killed, provider):
        pass
    provider.says = Found("completed", "it was there", Response((), calls, "tool_calls"))
    provider.gate.open()
    async with killed.resume(provider) as session:
        told = await killed.told(session.stream())
    assert told[-1].type == "error"
    assert [e.outcome for e in data(await killed.events(), "model_outcome_reconciled")] == ["failed"]


# --- by an operator ------------------------------------------------------------------------


async def test_an_operator_asks(place: Place) -> None:
    storing = stall_after(Storing(), 1)
    async with serve(storing) as server:
        async with lost(place, server, responses, identified=True) as killed:
            pass
        provider = responses(server.url)
        async with killed.coordinator() as coordinator:
            (item,) = coordinator.plan.items
            assert item.python == "await coordinator.look_up_model_outcome('r1.t1.a1', provider)"
            assert "can be asked for it by the response's id resp_0" in item.reason
            found, receipt = await coordinator.look_up_model_outcome("r1.t1.a1", provider, command_id="c-1")
            assert found.outcome == "completed"
            assert receipt is not None
            assert coordinator.plan.kind is Kind.AUTOMATIC
            with pytest.raises(RecoveryRejected):
                await coordinator.look_up_model_outcome("r1.t1.a1", provider)
        await provider.aclose()
        assert len(storing.posts) == 1
    (event,) = [e for e in await killed.events() if e.type == "model_outcome_reconciled"]
    assert event.actor.kind == "operator"
    assert event.data.evidence == found.evidence


async def test_an_operator_who_learns_nothing_writes_nothing(place: Place) -> None:
    async with slowly(place) as (killed, provider):
        pass
    provider.gate.open()
    before = await killed.types()
    async with killed.coordinator() as coordinator:
        found, receipt = await coordinator.look_up_model_outcome("r1.t1.a1", provider)
        assert (found.outcome, receipt) == ("unknown", None)
        for refused in (ScriptedProvider([]), Deaf([])):
            with pytest.raises(InvalidOptions, match="provider"):
                await coordinator.look_up_model_outcome("r1.t1.a1", refused)
        with pytest.raises(RecoveryRejected):
            await coordinator.look_up_model_outcome("r9.t1.a1", provider)
    assert await killed.types() == before


async def test_an_operator_does_not_wait_longer_than_the_lease(place: Place) -> None:
    async with slowly(place) as (killed, provider):
        pass
    async with (
        killed.store.inner.open() as journal,
        RecoveryCoordinator.open(
            journal, "s1", clock=SystemClock(), ids=SystemIds(), ttl_ms=200
        ) as coordinator,
    ):
        found, receipt = await coordinator.look_up_model_outcome("r1.t1.a1", provider)
    assert (found.outcome, receipt) == ("unknown", None)
    assert "no answer within 0.1 s" in found.evidence


async def test_of_two_that_ask_one_decides(place: Place) -> None:
    async with slowly(place) as (killed, provider):
        pass
    provider.says = FOUND
    outcomes: list[Any] = []
    async with killed.coordinator() as coordinator:

        async def ask() -> None:
            try:
                outcomes.append((await coordinator.look_up_model_outcome("r1.t1.a1", provider))[1])
            except RecoveryRejected as error:
                outcomes.append(error)

        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            provider.gate.open()
    assert len(provider.asked) == 2
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Receipt", "RecoveryRejected"]
    assert (await killed.types()).count("model_outcome_reconciled") == 1


async def test_adapters_are_what_the_port_says(place: Place) -> None:
    for provider in (responses("http://127.0.0.1:1/v1"), chat("http://127.0.0.1:1/v1")):
        assert isinstance(provider, AttemptLookup)
        found = await provider.look_up(LostAttempt("openai", provider.api))
        assert found.outcome == "unknown"
        found = await provider.look_up(LostAttempt("openai", provider.api, "../../secret?x=1"))
        assert found.outcome == "unknown"
        assert "that failed" in found.evidence
        await provider.aclose()
    assert not isinstance(ScriptedProvider([]), AttemptLookup)

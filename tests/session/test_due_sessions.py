"""Which sessions a worker is told to go on with: their plan goes on by itself, and nobody holds them."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

import minutebook as mb
from domain.envelope import Fence
from domain.errors import StoreReadFailed
from domain.model_ports import Identified
from domain.ports import Holder
from minutebook.interactions import Deny
from minutebook.testing.scripted import Attempt, Gate, ScriptedProvider, call, reply
from recovery.plan import Kind
from tests.session.harness import Hands, Place, asked

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

OURS = Holder("w9", "l-9")


async def due(place: Place, *, look_up: bool = False, owner_id: str = "local") -> list[str]:
    """What a worker would be told."""
    return await mb.due_sessions(place.store.inner, look_up=look_up, owner_id=owner_id)


async def lived(place: Place, hands: Hands, policy: str) -> None:
    """A session with every kind of call, a question that stays open beside one that goes on, and a queue."""
    script = [
        reply("", call("look", {"what": "x"}), call("pay", {"what": "y"}), call("put", {"what": "z"})),
        reply("done"),
        reply("again"),
    ]
    options = {"permission_mode": "autoEdit", "on_lost_attempt": policy}
    async with place.create(script, tools=hands.tools(), **options) as session:
        await session.send("hello")
        await session.send("and then")
        question = await asked(session)
        while (await place.types()).count("tool_completed") < 2:
            await anyio.lowlevel.checkpoint()
        await session.respond(question.id, Deny("no"), digest=question.digest)
        await session.wait_idle()
        await session.close(final=True)


@pytest.mark.parametrize("policy", ["ask", "retry"])
async def test_wherever_a_worker_died_its_session_is_due_if_its_plan_goes_on(
    place: Place, hands: Hands, policy: str
) -> None:
    await lived(place, hands, policy)
    kinds: list[Kind] = []
    for commits in range(1, len(place.store.batches) + 1):
        left = await place.killed_after(commits)
        plan = await left.plan()
        kinds.append(plan.kind)
        assert await due(left) == (["s1"] if plan.kind is Kind.AUTOMATIC else []), plan.items
    wanted = {Kind.NOTHING, Kind.AUTOMATIC, Kind.WAITING}
    assert set(kinds) == (wanted | {Kind.DECISION} if policy == "ask" else wanted)


async def test_a_question_beside_something_that_goes_on_hides_nothing(place: Place, hands: Hands) -> None:
    """The first item of the plan waits for a person; the second one does not."""
    gate = Gate()
    hands.gates = {"x": gate}
    script = [reply("", call("pay", {"what": "y"}), call("look", {"what": "x"}))]
    async with place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        await gate.reached()
        commits = len(place.store.batches)
    left = await place.killed_after(commits)
    plan = await left.plan()
    assert [item.who for item in plan.items] == ["person", "automatic"]
    assert await due(left) == ["s1"]


async def test_a_question_alone_is_nothing_for_a_worker(place: Place, hands: Hands) -> None:
    async with place.create([reply("", call("pay", {"what": "y"}))], tools=hands.tools()) as session:
        await session.send("hello")
        await asked(session)
    assert (await place.plan()).kind is Kind.WAITING
    assert await due(place) == []


async def test_a_held_session_is_nobody_else_s(place: Place) -> None:
    async with place.create([reply("one"), reply("two")]) as session:
        await session.send("hello")
        await session.wait_idle()
    left = await place.killed_after(2)
    assert await due(left) == ["s1"]
    async with left.reader() as journal:
        lease = await journal.leases.acquire("s1", OURS, 30_000)
        assert await due(left) == []
        await journal.leases.release("s1", Fence(OURS.worker_id, OURS.lease_id, lease.token))
    assert await due(left) == ["s1"]


async def test_a_lost_attempt_that_can_be_looked_up_is_due_for_those_who_look_up(place: Place) -> None:
    gate = Gate()
    attempt: Attempt = [Identified("resp-1"), gate]
    provider = ScriptedProvider([attempt])
    async with place.create(provider) as session:
        await session.send("hello")
        while "model_response_identified" not in await place.types():
            await anyio.lowlevel.checkpoint()
        commits = len(place.store.batches)
    left = await place.killed_after(commits)
    assert [item.word for item in (await left.plan()).items] == ["findable"]
    assert (await due(left), await due(left, look_up=True)) == ([], ["s1"])


async def test_sessions_come_in_order_page_after_page_and_of_one_owner(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minutebook.due.PAGE", 2)
    names = [f"s-{n}" for n in range(5)]
    for name in names:
        async with place.create([[Gate(), *reply("never")]], session_id=name) as session:
            await session.send("hello")
    assert await due(place) == names
    assert await due(place, owner_id="somebody") == []


async def test_a_store_that_cannot_be_asked_says_that_it_could_not_be_read() -> None:
    """Nobody wanted to write."""
    with pytest.raises(StoreReadFailed):
        await mb.due_sessions(mb.postgres("postgresql://u@127.0.0.1:1/d"))

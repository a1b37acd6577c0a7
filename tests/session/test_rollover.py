"""A session whose request was rolled over: the next worker goes on in the new one."""

from __future__ import annotations

from typing import Any

import pytest

import minutebook as mb
from domain.errors import UnsafeRollover
from minutebook import stream_events as se
from minutebook.streaming import RequestStream
from minutebook.testing.scripted import Gate, ScriptedProvider, call, reply
from recovery import rollover
from tests.media import PNG
from tests.session.harness import Hands, Place, data

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

WHY = "ticket 4"
#: Commits of a session: made, input accepted, model asked, tools started.
ACCEPTED, ASKED, STARTED = 2, 3, 4


async def killed(place: Place, hands: Hands, name: str, commits: int, content: Any = "hello") -> Place:
    """What is left of a session that called a tool, of a worker that died after so many commits."""
    hands.gates["x"] = gate = Gate()
    script = [reply("let me see", call(name, {"what": "x"})), reply("done")]
    options: dict[str, Any] = {"tools": hands.tools(), "permission_mode": mb.PermissionMode.YOLO}
    async with place.create(script, **options) as session:
        await session.send(content)
        await gate.reached()
        left = await place.killed_after(commits)
        gate.open()
        await session.wait_idle()
    return left


async def test_a_turn_that_was_rolled_over_reads_on_and_comes_to_its_end(place: Place, hands: Hands) -> None:
    left = await killed(place, hands, "look", STARTED)
    async with left.coordinator() as coordinator:
        await coordinator.prepare_turn_recovery(evidence=WHY)
        assert coordinator.plan.items[0].subject == "r2"
    provider = ScriptedProvider([reply("here I am")])
    async with left.resume(provider, tools=hands.tools()) as session:
        told = await left.told(session.stream())
        # Nobody streams a request that another worker had; this is what such a view would be told.
        old = await left.told(RequestStream(session._parts.feed, "r1", 2, include_thinking=False))
    assert (told[0].type, told[-1].type, told[-1].content) == ("input_applied", "result", "here I am")
    assert isinstance(old[-1], se.Error)
    assert (old[-1].code, old[-1].message) == ("REQUEST_SUPERSEDED", "turn_recovery by r2")
    roles = [message["role"] for message in provider.sent[0].messages]
    assert roles == ["user", "assistant", "tool", "user"]
    assert "superseded" in provider.sent[0].messages[2]["content"]
    assert provider.sent[0].messages[3]["content"] == rollover.CONTINUE
    await left.check()


async def test_a_started_idempotent_call_stays_unsettled_and_is_told_so(place: Place, hands: Hands) -> None:
    left = await killed(place, hands, "put", STARTED)
    async with left.coordinator() as coordinator:
        await coordinator.prepare_turn_recovery(evidence=WHY)
        (effect,) = coordinator.plan.unsettled_effects
    async with left.resume([reply("done")], tools=hands.tools()) as session:
        await session.wait_idle()
        assert [e.tool_id for e in session.recovery_plan().unsettled_effects] == [effect.tool_id]
    assert hands.done == ["x"]  # by the worker that died; nobody ran it again
    assert "Outcome unknown" in left.providers[-1].sent[0].messages[2]["content"]
    await left.check()


async def test_a_payment_is_settled_and_the_request_goes_on_by_itself(place: Place, hands: Hands) -> None:
    """What must not run twice is never rolled over; the way that is named is one."""
    left = await killed(place, hands, "pay", STARTED)
    async with left.coordinator() as coordinator:
        with pytest.raises(UnsafeRollover, match=r"settle r1\.t1\.a1\.c0"):
            await coordinator.prepare_turn_recovery(evidence=WHY)
        await coordinator.reconcile_tool_outcome("r1.t1.a1.c0", outcome="completed", evidence="the bank")
    async with left.resume([reply("paid")], tools=hands.tools()) as session:
        assert (await left.told(session.stream()))[-1].content == "paid"
    await left.check()


async def test_an_accepted_request_is_rolled_over_with_its_picture(place: Place, hands: Hands) -> None:
    content = ["what is this?", mb.ImagePart(PNG, "image/png")]
    left = await killed(place, hands, "look", ACCEPTED, content)
    async with left.coordinator() as coordinator:
        await coordinator.prepare_request_recovery([], evidence=WHY)
    async with left.resume([reply("a dot")], tools=hands.tools()) as session:
        assert (await left.told(session.stream()))[-1].content == "a dot"
        assert len(session.messages) == 2
    (message,) = left.providers[-1].sent[0].messages
    assert [part["type"] for part in message["content"]] == ["text", "image_url"]
    events = await left.events()
    first, second = data(events, "input_accepted")
    assert first.content == second.content
    assert [e.reason for e in data(events, "input_cancelled")] == ["superseded"]
    await left.check()


async def test_the_next_send_and_the_next_rollover_find_their_place(place: Place, hands: Hands) -> None:
    """Twice in a row: the chain of requests names each by the one before."""
    left = await killed(place, hands, "look", ACCEPTED)
    for content in ("hello again", "hello, once more"):
        async with left.coordinator() as coordinator:
            await coordinator.prepare_request_recovery([], evidence=WHY, content=content)
    async with left.resume([reply("hello"), reply("bye")], tools=hands.tools()) as session:
        assert (await left.told(session.stream()))[-1].content == "hello"
        assert (await session.run("so long")).content == "bye"
    events = await left.events()
    assert [e.supersedes for e in data(events, "request_accepted")] == [None, "r1", "r2", None]
    assert [e.by_request_id for e in data(events, "request_superseded")] == ["r2", "r3"]
    assert [m["content"] for m in left.providers[-1].sent[1].messages] == [
        "hello, once more", "hello", "so long",
    ]  # fmt: skip
    await left.check()

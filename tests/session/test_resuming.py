"""Going on where another worker stopped: same request, same answers, other tools and settings."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from domain.errors import MinutebookError
from domain.values import PermissionMode, SideEffect, ToolKind, Verdict
from minutebook import stream_events as se
from minutebook.interactions import Approve
from minutebook.testing.scripted import Gate, ScriptedProvider, call, reply
from minutebook.tool_definition import ToolDefinition, tool
from projections.transcript import Transcript
from recovery.plan import Kind, RecoveryRequired
from tests.session.harness import Hands, Place, approving, asked, data

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


async def test_a_resumed_request_is_streamed_from_its_beginning(any_place: Place, hands: Hands) -> None:
    gate = Gate()
    script = [reply("let me see", call("look", {"what": "x"})), [gate, *reply("never")]]
    async with any_place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        await gate.reached()
    async with any_place.resume([reply("done")], tools=hands.tools()) as session:
        told = await any_place.told(session.stream())
    assert [event.type for event in told] == [
        "input_applied",
        "turn_start",
        "content",
        "tool_use",
        "tool_result",
        "turn_end",
        "turn_start",
        "attempt_discarded",
        "content",
        "turn_end",
        "result",
    ]
    assert hands.done == ["x"]


async def test_pending_inputs_come_back_as_they_were(place: Place) -> None:
    gate = Gate()
    async with place.create([[gate, *reply("never")]]) as session:
        await session.send("one")
        await gate.reached()
        queued = [await session.send(word, max_turns=7) for word in ("two", "three")]
        before = session.pending_inputs
    async with place.resume([reply("a"), reply("b"), reply("c")]) as session:
        assert session.pending_inputs == before
        assert [item.input_id for item in before] == [receipt.input_id for receipt in queued]
        contents = [(await place.told(session.stream()))[-1].content for _ in range(3)]
    assert contents == ["a", "b", "c"]
    assert [e.max_turns for e in data(await place.events(), "request_accepted")] == [200, 7, 7]


async def test_the_conversation_is_the_same_after_any_number_of_restarts(
    any_place: Place, hands: Hands
) -> None:
    bodies: list[Any] = []

    def answer(sent: Any) -> Any:
        bodies.append(sent.messages)
        last = sent.messages[-1]
        return (
            reply("ok", call("look", {"what": last["content"]})) if last["role"] == "user" else reply("done")
        )

    async with any_place.create(ScriptedProvider(answer), tools=hands.tools()) as session:
        await session.run("0")
    for number in range(1, 4):
        async with any_place.resume(ScriptedProvider(answer), tools=hands.tools()) as session:
            await session.run(str(number))
            messages = session.messages
    for shorter, longer in pairwise(bodies):
        assert longer[: len(shorter)] == shorter
    transcript = Transcript()
    for event in await any_place.events():
        transcript.apply(event)
    assert tuple(transcript.items) == messages


async def test_a_long_session_is_resumed_from_its_snapshot(place: Place) -> None:
    async with place.create(ScriptedProvider(lambda sent: reply(str(sent.number)))) as session:
        for number in range(40):
            await session.run(str(number))
    loaded = await place.plan()
    assert loaded.snapshot_sequence > 128
    async with place.resume([reply("done")]) as session:
        assert len(session.messages) == 80
        assert (await session.run("again")).content == "done"


async def test_settings_that_differ_are_recorded_and_count_from_the_next_request_on(place: Place) -> None:
    gate = Gate()
    async with place.create([[gate, *reply("never")]], system_prompt="old") as session:
        await session.send("hello")
        await gate.reached()
    provider = ScriptedProvider([reply("a"), reply("b")])
    changed = {"model": "other-model", "system_prompt": "new", "permission_mode": PermissionMode.PLAN}
    async with place.resume(provider, **changed) as session:
        await place.told(session.stream())
        await session.run("again")
    assert [(s.parsed["model"], s.messages[0]["content"]) for s in provider.sent] == [
        ("test-model", "old"),
        ("other-model", "new"),
    ]
    types = await place.types()
    at = types.index("session_resumed")
    assert types[at : at + 4] == [
        "session_resumed",
        "model_changed",
        "permission_mode_changed",
        "settings_changed",
    ]


@pytest.mark.parametrize(("type_", "version"), [("never_heard_of", 1), ("notice_recorded", 99)])
async def test_a_journal_that_cannot_be_followed_is_not_resumed_and_not_touched(
    type_: str, version: int
) -> None:
    place = Place()
    async with place.create([reply("done")]) as session:
        await session.run("hello")
    await place.append_raw(type_, version, b'{"kind":"a","message":"b"}')
    async with place.reader() as reader:
        before = await reader.read("s1")
        with pytest.raises(RecoveryRequired) as required:
            await place.resume([]).__aenter__()
        assert await reader.read("s1") == before
    assert required.value.plan.kind is Kind.BLOCKED
    assert required.value.plan.problem is not None
    assert type_ in required.value.plan.problem.found


# --- another set of tools -----------------------------------------------------------------------


def _other(hands: Hands) -> list[ToolDefinition]:
    """The same names; `pay` and `put` take something else now."""

    @tool(category="money")
    async def pay(whom: str) -> str:
        """Pay somebody."""
        hands.done.append(f"paid {whom}")
        return "paid"

    @tool(kind=ToolKind.WRITE, side_effect=SideEffect.IDEMPOTENT, version="2", category="files")
    async def put(what: str) -> str:
        """Put something somewhere."""
        hands.done.append(f"put {what}")
        return "put"

    return [pay, put]


def _none(_: Hands) -> list[ToolDefinition]:
    return []


TOOL_SETS = pytest.mark.parametrize("tools", [_none, _other], ids=["gone", "changed"])


async def _approved(place: Place, hands: Hands) -> Place:
    async with place.create([reply("", call("pay", {"what": "rent"}))], tools=hands.tools()) as session:
        await session.send("hello")
        await asked(session)
        commits = len(place.store.batches)
    left = await place.killed_after(commits)
    async with left.coordinator() as coordinator:
        await coordinator.resolve_permission("r1.t1.a1.c0", "allow")
    return left


async def _asking(place: Place, hands: Hands) -> Place:
    async with place.create([reply("", call("pay", {"what": "rent"}))], tools=hands.tools()) as session:
        await session.send("hello")
        await asked(session)
    return place


async def _scheduled(place: Place, hands: Hands) -> Place:
    gate = Gate()

    async def think(_: Any) -> Verdict:
        await gate.pass_through()
        return Verdict.ALLOW

    options: dict[str, Any] = {"tools": hands.tools(), "permission_handler": think}
    async with place.create([reply("", call("pay", {"what": "rent"}))], **options) as session:
        await session.send("hello")
        await gate.reached()
    return place


@TOOL_SETS
@pytest.mark.parametrize("before", [_scheduled, _asking, _approved])
async def test_a_call_that_has_not_started_ends_where_its_tool_is_gone(
    place: Place, hands: Hands, before: Any, tools: Any
) -> None:
    left = await before(place, hands)
    provider = ScriptedProvider([reply("I see")])
    async with left.resume(provider, tools=tools(hands)) as session:
        told = await left.told(session.stream())
        assert session.interactions == ()
    assert told[-1].content == "I see"
    results = [event for event in told if isinstance(event, se.ToolResult)]
    assert [event.outcome for event in results] == ["cancelled"]
    assert "tool_unavailable" in provider.sent[0].messages[-1]["content"]
    assert hands.done == []
    types = await left.types()
    assert types.count("permission_cancelled") == (1 if before is _asking else 0)
    await left.check()


async def test_a_declared_call_whose_tool_is_gone_is_refused(place: Place, hands: Hands) -> None:
    gate = Gate()
    script = [[gate, *reply("", call("pay", {"what": "rent"}))]]
    async with place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        await gate.reached()
        left = await place.killed_after(len(place.store.batches))
    async with left.coordinator() as coordinator:
        answered: Any = reply("", call("pay", {"what": "rent"}))[-1]
        await coordinator.reconcile_model_outcome(
            "r1.t1.a1", outcome="completed", evidence="log", response=answered
        )
    async with left.resume([reply("I see")]) as session:
        told = await left.told(session.stream())
    assert [event.outcome for event in told if isinstance(event, se.ToolResult)] == ["rejected"]
    await left.check()


async def _killed_while_running(place: Place, hands: Hands, name: str) -> Place:
    hands.gates["x"] = Gate()
    options: dict[str, Any] = {"tools": hands.tools(), "permission_mode": PermissionMode.YOLO}
    async with place.create([reply("", call(name, {"what": "x"}))], **options) as session:
        await session.send("hello")
        await hands.gates["x"].reached()
        left = await place.killed_after(len(place.store.batches))
        await session.abort()
    hands.gates.clear()
    hands.begun.clear()
    return left


async def test_a_harmless_call_that_was_running_is_run_again_with_its_key(place: Place, hands: Hands) -> None:
    for name in ("look", "put"):
        left = await _killed_while_running(Place(), hands, name)
        options: dict[str, Any] = {"tools": hands.tools(), "permission_mode": PermissionMode.YOLO}
        async with left.resume([reply("done")], **options) as session:
            assert (await left.told(session.stream()))[-1].content == "done"
        started = data(await left.events(), "tool_started")
        assert [event.run for event in started] == [1, 2]
        assert len({event.idempotency_key for event in started}) == 1
        assert hands.begun == ["x"]
        hands.begun.clear()
        await left.check()


async def test_a_pure_call_that_was_running_and_whose_tool_is_gone_ends(place: Place, hands: Hands) -> None:
    left = await _killed_while_running(place, hands, "look")
    async with left.resume([reply("I see")], permission_mode=PermissionMode.YOLO) as session:
        told = await left.told(session.stream())
    assert [event.outcome for event in told if isinstance(event, se.ToolResult)] == ["cancelled"]
    await left.check()


@TOOL_SETS
async def test_an_idempotent_call_that_was_running_and_whose_tool_is_gone_is_somebody_s_decision(
    place: Place, hands: Hands, tools: Any
) -> None:
    left = await _killed_while_running(place, hands, "put")
    options: dict[str, Any] = {"tools": tools(hands), "permission_mode": PermissionMode.YOLO}
    async with left.resume([], **options) as session:
        with pytest.raises(RecoveryRequired):
            await session.wait_idle()
        with pytest.raises(MinutebookError):
            await session.send("more")
    async with left.coordinator() as coordinator:
        await coordinator.reconcile_tool_outcome(
            "r1.t1.a1.c0", outcome="completed", evidence="it is there", output="it was put"
        )
    async with left.resume([reply("done")], **options) as session:
        assert (await left.told(session.stream()))[-1].content == "done"
    assert hands.begun == []
    await left.check()


async def test_a_risky_call_that_was_running_is_somebody_s_decision(any_place: Place, hands: Hands) -> None:
    hands.gates["rent"] = Gate()
    script = [reply("", call("pay", {"what": "rent"}), call("look", {"what": "x"}))]
    async with any_place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        question = await asked(session)
        await session.respond(question.id, Approve(), digest=question.digest)
        await hands.gates["rent"].reached()
        left = await any_place.killed_after(len(any_place.store.batches))
        await session.abort()
    provider = ScriptedProvider([reply("done")])
    with pytest.raises(RecoveryRequired) as required:
        await left.resume(provider, tools=hands.tools()).__aenter__()
    assert [(i.action, i.subject) for i in required.value.plan.items] == [
        ("reconcile_tool_outcomes", "r1.t1.a1.c0")
    ]
    async with left.coordinator() as coordinator:
        await coordinator.reconcile_tool_outcome(
            "r1.t1.a1.c0", outcome="failed", evidence="the bank refused", output="refused"
        )
    async with left.resume(provider, tools=hands.tools()) as session:
        assert (await left.told(session.stream()))[-1].content == "done"
    assert hands.done.count("rent") == 0
    assert "refused" in provider.sent[0].messages[2]["content"]
    await left.check()


async def test_history_that_names_tools_of_the_past_is_still_told(place: Place, hands: Hands) -> None:
    async with place.create(
        [reply("", call("look", {"what": "x"})), reply("done")], tools=hands.tools()
    ) as s:
        await s.run("hello")
    provider = ScriptedProvider([reply("", call("look", {"what": "y"})), reply("I see")])
    async with place.resume(provider) as session:
        await session.send("again")
        told = await place.told(approving(session))
    assert [event.outcome for event in told if isinstance(event, se.ToolResult)] == ["rejected"]
    assert [m["role"] for m in provider.sent[0].messages][:3] == ["user", "assistant", "tool"]
    digests = [event.tools_digest for event in data(await place.events(), "model_request_started")]
    assert digests[1] == digests[0] != digests[2]


async def test_an_abandoned_request_leaves_its_effects_and_the_session_goes_on(
    place: Place, hands: Hands
) -> None:
    left = await _killed_while_running(place, hands, "pay")
    async with left.coordinator() as coordinator:
        await coordinator.abandon_request(reason="nobody can tell", evidence="ticket 12")
    async with left.resume([reply("hi")], tools=hands.tools()) as session:
        assert [effect.name for effect in session.unsettled_effects] == ["pay"]
        assert (await session.run("hi")).content == "hi"
    await left.check()

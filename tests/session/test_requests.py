"""Requests from `send` to their end: who runs them, what is told, what is recorded."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import minutebook as mb
from domain.errors import InvalidOptions, SendRejected, SessionClosed, StreamError, ValueRefused
from domain.lifecycle import fold
from domain.state import State
from domain.values import Priority
from minutebook import stream_events as se
from minutebook.session import Session
from minutebook.testing.scripted import Gate, ScriptedProvider, call, reply
from projections.transcript import Exchange, Transcript, UserItem
from tests.session import order
from tests.session.harness import Hands, Place, approving, data, drained

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

ONE_ROUND = [reply("let me see", call("look", {"what": "x"}), usage={"output_tokens": 3}), reply("done")]


async def test_a_request_with_a_tool_round(any_place: Place, hands: Hands) -> None:
    async with any_place.create(ONE_ROUND, tools=hands.tools()) as session:
        receipt = await session.send("hello")
        told = await any_place.told(session.stream())
    assert (receipt.status, receipt.request_id, receipt.sequence) == ("started", "r1", 3)
    assert [event.type for event in told] == [
        "input_applied",
        "turn_start",
        "content",
        "usage",
        "tool_use",
        "tool_result",
        "turn_end",
        "turn_start",
        "content",
        "turn_end",
        "result",
    ]
    assert told[-1] == se.Result("s1", "r1", "done", {"output_tokens": 3})
    assert hands.done == ["x"]
    made = order.commits(await any_place.events())
    assert [order.types(commit) for commit in made] == [
        ["session_created", "lease_acquired"],
        ["input_accepted", "request_accepted"],
        ["input_applied", "request_started", "input_prepared", "turn_started", "model_request_started"],
        ["model_request_completed", "tool_scheduled", "permission_evaluated", "tool_started"],
        ["tool_completed", "turn_completed", "turn_started", "model_request_started"],
        ["model_request_completed", "turn_completed", "request_completed"],
    ]


async def test_sending_starts_the_request_and_nobody_has_to_listen(place: Place, hands: Hands) -> None:
    async with place.create(ONE_ROUND, tools=hands.tools()) as session:
        await session.send("hello")
        await session.wait_idle()
        assert not session.is_running
    assert (await place.types())[-1] == "request_completed"


async def test_the_receipt_is_given_after_the_commit_and_before_the_model_answers(place: Place) -> None:
    gate = Gate()
    async with place.create([[gate, *reply("done")]]) as session:
        receipt = await session.send("hello")
        assert (await place.types())[2:4] == ["input_accepted", "request_accepted"]
        await gate.reached()
        assert session.is_running
        assert session.current_request_id == receipt.request_id
        gate.open()
        await session.wait_idle()


async def test_running_returns_how_the_request_ended(any_place: Place, hands: Hands) -> None:
    async with any_place.create(ONE_ROUND, tools=hands.tools()) as session:
        result = await session.run("hello")
    assert (result.status, result.content, result.usage) == ("completed", "done", {"output_tokens": 3})


# --- what is sent while a request runs ---------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "downgraded"),
    [(Priority.NOW, Priority.NOW), (Priority.NEXT, Priority.NEXT), (Priority.LATER, None)],
)
async def test_what_is_sent_while_a_request_runs_waits_and_says_so(
    place: Place, wanted: Priority, downgraded: Priority | None
) -> None:
    gate = Gate()
    async with place.create([[gate, *reply("first")], reply("second")]) as session:
        await session.send("one")
        await gate.reached()
        receipt = await session.send("two", priority=wanted)
        assert (receipt.status, receipt.priority, receipt.request_id) == ("queued", Priority.LATER, None)
        assert receipt.downgraded_from is downgraded
        assert [item.input_id for item in session.pending_inputs] == [receipt.input_id]
        gate.open()
        await session.wait_idle()
        assert session.pending_inputs == ()
    accepted = data(await place.events(), "input_accepted")[1]
    assert (accepted.priority, accepted.downgraded_from) == (Priority.LATER, downgraded)


async def test_queued_inputs_are_requests_of_their_own_in_order(any_place: Place) -> None:
    gate = Gate()
    provider = ScriptedProvider([[gate, *reply("a")], reply("b"), reply("c")])
    async with any_place.create(provider) as session:
        for word in ("one", "two", "three"):
            await session.send(word)
        gate.open()
        results = [(await any_place.told(session.stream()))[-1] for _ in range(3)]
        with pytest.raises(StreamError, match="NO_PENDING_REQUEST"):
            session.stream()
    assert [(told.request_id, told.content) for told in results] == [("r1", "a"), ("r2", "b"), ("r3", "c")]
    texts = [[m["content"] for m in sent.messages if m["role"] == "user"] for sent in provider.sent]
    assert texts == [["one"], ["one", "two"], ["one", "two", "three"]]


async def test_running_while_another_request_runs_waits_for_its_own(place: Place) -> None:
    gate = Gate()
    results = []
    async with place.create([[gate, *reply("first")], reply("second")]) as session:
        await session.send("one")
        await gate.reached()

        async def run() -> None:
            results.append((await session.run("two")).content)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            gate.open()
    assert results == ["second"]


async def test_a_queued_input_can_be_taken_back_until_it_is_applied(place: Place) -> None:
    gate = Gate()
    async with place.create([[gate, *reply("first")]]) as session:
        own = await session.send("one")
        await gate.reached()
        queued = await session.send("two")
        assert await session.cancel_input(queued.input_id)
        assert not await session.cancel_input(queued.input_id)
        assert not await session.cancel_input(own.input_id)
        assert not await session.cancel_input("nobody")
        gate.open()
        await session.wait_idle()
    assert (await place.types()).count("request_accepted") == 1


# --- what is refused ------------------------------------------------------------------------


async def test_the_queue_is_bounded_by_count(place: Place) -> None:
    gate = Gate()
    async with place.create([[gate, *reply("first")]]) as session:
        await session.send("one")
        await gate.reached()
        for _ in range(32):
            await session.send("more")
        with pytest.raises(SendRejected, match="QUEUE_FULL"):
            await session.send("one too many")
        await session.close(final=True)
    assert (await place.types()).count("input_accepted") == 33


async def test_the_queue_is_bounded_by_size(place: Place) -> None:
    gate = Gate()
    async with place.create([[gate, *reply("first")]]) as session:
        await session.send("one")
        await gate.reached()
        await session.send("x" * 600_000)
        with pytest.raises(SendRejected, match="QUEUE_FULL"):
            await session.send("x" * 600_000)
        await session.close(final=True)


REFUSED = [
    ("", SendRejected),
    ([], SendRejected),
    ("x" * (1024 * 1024 - 2), ValueRefused),
    ([{"type": "text", "text": "in an API's own form"}], SendRejected),
    ([{"type": "image_url", "image_url": {"url": "data:,x"}}], SendRejected),
    ([mb.TextPart(float("nan"))], SendRejected),  # type: ignore[arg-type]
    (b"bytes", SendRejected),
]


@pytest.mark.parametrize(("content", "error"), REFUSED, ids=range(len(REFUSED)))
async def test_what_cannot_be_kept_or_sent_is_refused_and_leaves_no_trace(
    place: Place, content: object, error: type[Exception]
) -> None:
    async with place.create([reply("done")]) as session:
        with pytest.raises(error):
            await session.send(content)  # type: ignore[arg-type]
        assert await place.types() == ["session_created", "lease_acquired"]
        assert (await session.run("hello")).content == "done"


async def test_numbers_out_of_range_are_refused(place: Place) -> None:
    async with place.create([]) as session:
        with pytest.raises(InvalidOptions, match="max_turns"):
            await session.send("hello", max_turns=0)
        with pytest.raises(InvalidOptions, match="offset"):
            session.history(-1)


# --- the same input twice -----------------------------------------------------------------------


async def test_an_input_id_makes_sending_idempotent(any_place: Place) -> None:
    gate = Gate()
    async with any_place.create([[gate, *reply("a")], reply("b")]) as session:
        first = await session.send("one", input_id="mine")
        queued = await session.send("two", input_id="other")
        assert await session.send("one", input_id="mine") == first
        assert await session.send("two", input_id="other") == queued
        gate.open()
        await session.wait_idle()
        assert await session.send("one", input_id="mine") == first
    assert (await any_place.types()).count("input_accepted") == 2
    async with any_place.resume([]) as session:
        assert await session.send("two", input_id="other") == queued


async def test_the_same_input_at_the_same_time_is_accepted_once(place: Place) -> None:
    receipts = []
    async with place.create([reply("done")]) as session:

        async def send() -> None:
            receipts.append(await session.send("one", input_id="mine"))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(send)
        await session.wait_idle()
    assert len(set(receipts)) == 1
    assert (await place.types()).count("input_accepted") == 1


async def test_an_input_id_is_good_for_one_content(place: Place) -> None:
    async with place.create([reply("done")]) as session:
        await session.run("one", input_id="mine")
        with pytest.raises(Exception, match="used before"):
            await session.send("two", input_id="mine")
        with pytest.raises(ValueError, match="expected a input id"):
            await session.send("two", input_id="../up")


# --- limits and settings ----------------------------------------------------------------------


async def test_a_request_ends_when_its_turns_are_used_up(place: Place, hands: Hands) -> None:
    again = [reply("", call("look", {"what": str(n)})) for n in range(5)]
    async with place.create(again, tools=hands.tools()) as session:
        result = await session.run("hello", max_turns=2)
    assert (result.status, result.error_code) == ("failed", "MAX_TURNS")
    assert hands.done == ["0", "1"]


async def test_the_queue_survives_a_hard_limit(place: Place, hands: Hands) -> None:
    gate = Gate()
    script = [[gate, *reply("", call("look", {"what": "x"}))], reply("done")]
    async with place.create(script, tools=hands.tools()) as session:
        await session.send("one", max_turns=1)
        await gate.reached()
        await session.send("two", max_turns=5)
        gate.open()
        assert (await place.told(session.stream()))[-1].code == "MAX_TURNS"
        assert (await place.told(session.stream()))[-1].content == "done"


async def test_changed_settings_count_from_the_next_request_on(place: Place) -> None:
    gate = Gate()
    provider = ScriptedProvider([[gate, *reply("a")], reply("b")])
    async with place.create(provider, system_prompt="be short") as session:
        await session.send("one")
        await session.send("two")
        await gate.reached()
        await session.change(model="other-model", temperature=0.5, system_prompt=None)
        gate.open()
        await session.wait_idle()
        refused: list[dict[str, Any]] = [
            {"nonsense": 1},
            {"provider": {}},
            {"max_turns": 0},
            {"context": {"a": object()}},
            {},
        ]
        for values in refused:
            with pytest.raises(InvalidOptions):
                await session.change(**values)
    bodies = [sent.parsed for sent in provider.sent]
    assert [(body["model"], body.get("temperature")) for body in bodies] == [
        ("test-model", None),
        ("other-model", 0.5),
    ]
    assert [body["messages"][0]["role"] for body in bodies] == ["system", "user"]


async def test_metadata_of_an_input_reaches_the_tools_of_its_request(place: Place, hands: Hands) -> None:
    gate = Gate()
    look = reply("", call("look", {"what": "x"}))
    script = [[gate, *look], reply("a"), look, reply("b"), look, reply("c")]
    context = {"metadata": {"tenant": 1, "ticket": 0}}
    async with place.create(script, tools=hands.tools(), context=context) as session:
        await session.send("one", metadata={"ticket": 7})
        await session.send("two", metadata={"ticket": 8})
        await session.send("three")
        gate.open()
        await session.wait_idle()
    tickets = [ctx.metadata for ctx in hands.contexts]
    assert tickets == [{"tenant": 1, "ticket": n} for n in (7, 8, 0)]


# --- reading ------------------------------------------------------------------------------------


async def test_history_pages_tile_the_conversation(place: Place, hands: Hands) -> None:
    async with place.create([*ONE_ROUND, reply("again")], tools=hands.tools()) as session:
        await session.run("one")
        await session.run("two")
        whole = session.messages
        assert [type(item) for item in whole] == [UserItem, Exchange, Exchange, UserItem, Exchange]
        assert session.history().items == whole
        for size in range(1, 6):
            page = session.history(0, size)
            tiled = list(page.items)
            while page.next_offset is not None:
                page = session.history(page.next_offset, size)
                tiled += page.items
            assert tuple(tiled) == whole
        total = session.history(0, 0)
        assert (total.items, total.total, total.position) == ((), 5, session.head_sequence)
        assert session.history(99).items == ()
        calls = [c for item in whole if isinstance(item, Exchange) for c in item.calls]
        assert [(c.outcome, c.output) for c in calls] == [("completed", "did x")]


@pytest.mark.parametrize("number", range(2, 9))
async def test_reads_show_nothing_that_is_not_durable(place: Place, hands: Hands, number: int) -> None:
    place.store.before[number] = gate = Gate()
    script = [reply("hm", call("look", {"what": "x"}), call("pay", {"what": "rent"})), reply("done")]
    async with place.create(script, tools=hands.tools()) as session, anyio.create_task_group() as tasks:

        async def play() -> None:
            await session.send("hello")
            await session.send("more")
            await drained(approving(session))

        tasks.start_soon(play)
        await gate.reached()
        await anyio.wait_all_tasks_blocked()
        try:
            await _compare(session, place)
        finally:
            gate.open()
            tasks.cancel_scope.cancel()


async def _compare(session: Session, place: Place) -> None:
    events = await place.events()
    state, transcript = fold(State("s1"), events), Transcript()
    for event in events:
        transcript.apply(event)
    assert session.head_sequence == len(events)
    assert session.messages == tuple(transcript.items)
    assert session.history().position == len(events)
    assert session.is_running == (state.request is not None)
    assert session.pending_inputs == state.queue.pending
    asked_at = {event.sequence for event in events if event.type == "permission_requested"}
    assert {question.sequence for question in session.interactions} <= asked_at
    actions = [(item.action, item.subject) for item in (await place.plan()).items]
    assert [(item.action, item.subject) for item in session.recovery_plan().items] == actions


async def test_reads_stay_allowed_after_closing_and_nothing_else(place: Place) -> None:
    async with place.create([reply("done")]) as session:
        await session.run("hello")
        await session.close(final=True)
        assert session.is_closed
        assert len(session.messages) == 2
        for refused in (
            session.send("more"),
            session.abort(),
            session.wait_idle(),
            session.change(model="m"),
        ):
            with pytest.raises(SessionClosed):
                await refused
        with pytest.raises(SessionClosed):
            session.stream()

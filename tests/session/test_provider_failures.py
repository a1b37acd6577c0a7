"""A model that fails, in every way: what is tried again, when, and what is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from domain.errors import ModelFailed
from domain.limits import MAX_ATTEMPTS_PER_TURN
from domain.model_ports import CallInput, Signal, Text
from domain.values import OnLostAttempt
from minutebook import stream_events as se
from minutebook.testing.clock import ManualClock
from minutebook.testing.scripted import Attempt, Gate, ScriptedProvider, call, fail, reply
from recovery.plan import RecoveryRequired
from tests.session.harness import Hands, Place, data

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

KINDS = [
    ("rate_limited", True),
    ("overloaded", True),
    ("stream_cut", True),
    ("connection_failed", True),
    ("bad_request", False),
    ("authentication", False),
    ("content_filter", False),
    ("something_new", False),
]


@pytest.mark.parametrize(("kind", "retryable"), KINDS)
async def test_only_what_may_succeed_is_tried_again(place: Place, kind: str, retryable: bool) -> None:
    place.timer = clock = ManualClock()
    provider = ScriptedProvider([fail(kind, retryable=retryable), reply("done")])
    async with place.create(provider) as session:
        await session.send("hello")
        if retryable:
            await clock.awaited(0.5)
            assert len(provider.sent) == 1
            clock.advance(0.5)
        told = await place.told(session.stream())
    discarded = [event for event in told if isinstance(event, se.AttemptDiscarded)]
    assert [(e.attempt_id, e.reason, e.retrying) for e in discarded] == [("r1.t1.a1", kind, retryable)]
    assert len(provider.sent) == 1 + retryable
    if retryable:
        assert told[-1].content == "done"
        assert provider.sent[0].body == provider.sent[1].body
    else:
        assert (told[-1].code, told[-1].message) == (kind, "scripted failure")


async def test_the_time_between_tries_grows_and_tries_are_bounded(place: Place) -> None:
    place.timer = clock = ManualClock()
    provider = ScriptedProvider([fail()] * MAX_ATTEMPTS_PER_TURN)
    async with place.create(provider) as session:
        await session.send("hello")
        for wait in (0.5, 1.0, 2.0):
            await clock.awaited(wait)
            clock.advance(wait)
        told = await place.told(session.stream())
    discarded = [event.retrying for event in told if isinstance(event, se.AttemptDiscarded)]
    assert discarded == [True, True, True, False]
    assert told[-1].code == "overloaded"
    started = data(await place.events(), "model_request_started")
    assert [event.number for event in started] == [1, 2, 3, 4]


async def test_a_provider_says_how_long_to_wait(place: Place) -> None:
    place.timer = clock = ManualClock()
    limited = ModelFailed("rate_limited", "later", retryable=True, retry_after_s=42.0)
    provider = ScriptedProvider([[limited], reply("done")])
    async with place.create(provider) as session:
        await session.send("hello")
        await clock.awaited(42)
        clock.advance(41)
        await clock.awaited(1)
        assert len(provider.sent) == 1
        clock.advance(1)
        assert (await place.told(session.stream()))[-1].content == "done"
    assert data(await place.events(), "model_request_failed")[0].retry_after_s == 42


async def test_nothing_is_tried_again_after_something_was_shown(place: Place) -> None:
    pieces = [Text("half "), Text("a "), Text("sentence")]
    provider = ScriptedProvider([fail("stream_cut", after=pieces), reply("whole")])
    async with place.create(provider) as session:
        await session.send("hello")
        told = await place.told(session.stream())
        assert (await session.run("again")).content == "whole"
    assert [event.type for event in told[-6:]] == [
        "content",
        "content",
        "content",
        "attempt_discarded",
        "turn_interrupted",
        "error",
    ]
    assert not data(await place.events(), "model_request_failed")[0].retryable
    assert [message["role"] for message in provider.sent[1].messages] == ["user", "user"]


async def test_arguments_that_arrived_are_not_something_shown(place: Place) -> None:
    place.timer = clock = ManualClock()
    provider = ScriptedProvider([fail("stream_cut", after=[CallInput(0, '{"a')]), reply("done")])
    async with place.create(provider) as session:
        await session.send("hello")
        await clock.awaited(0.5)
        clock.advance(0.5)
        assert (await place.told(session.stream()))[-1].content == "done"


class _Custom(ScriptedProvider):
    """A provider of an application, with a defect of its own."""

    def __init__(self, defect: Any) -> None:
        super().__init__([])
        self._defect = defect

    async def send(self, body: bytes, *, attempt_id: str) -> AsyncIterator[Signal]:
        self._defect()
        if False:
            yield Text("")


def _raise() -> None:
    raise KeyError("choices")


@pytest.mark.parametrize(
    ("defect", "code"), [(_raise, "provider_error"), (lambda: None, "no_response")], ids=["raises", "ends"]
)
async def test_a_provider_with_a_defect_fails_the_request_and_no_more(
    place: Place, defect: Any, code: str
) -> None:
    place.timer = clock = ManualClock()
    async with place.create(_Custom(defect)) as session:
        await session.send("hello")
        if code == "no_response":
            for wait in (0.5, 1.0, 2.0):
                await clock.awaited(wait)
                clock.advance(wait)
        assert (await place.told(session.stream()))[-1].code == code
        assert not session.is_running


@pytest.mark.parametrize("size", [1_046_000, 1_100_000])
async def test_a_response_larger_than_an_event_fails_the_request(place: Place, size: int) -> None:
    async with place.create([reply("x" * size), reply("short")]) as session:
        result = await session.run("hello")
        if size > 1_047_000:
            assert (result.status, result.error_code) == ("failed", "response_too_large")
        assert (await session.run("again")).content == "short"


async def test_finished_calls_are_kept_when_the_next_model_request_fails(
    any_place: Place, hands: Hands
) -> None:
    script: list[Attempt] = [reply("", call("look", {"what": "x"})), fail("bad_request", retryable=False)]
    async with any_place.create(script, tools=hands.tools()) as session:
        assert (await session.run("hello")).error_code == "bad_request"
    provider = ScriptedProvider([reply("done")])
    async with any_place.resume(provider, tools=hands.tools()) as session:
        assert (await session.run("go on")).content == "done"
    assert [m["role"] for m in provider.sent[0].messages] == ["user", "assistant", "tool", "user"]
    assert hands.done == ["x"]


# --- an attempt whose end nobody recorded ---------------------------------------------------------


async def _lost(place: Place, policy: OnLostAttempt) -> Place:
    """A worker died while the model was speaking."""
    gate = Gate()
    async with place.create([[gate, *reply("never")]], on_lost_attempt=policy) as session:
        await session.send("hello")
        await gate.reached()
        return await place.killed_after(len(place.store.batches))


async def test_a_lost_attempt_is_somebody_s_decision(place: Place) -> None:
    left = await _lost(place, OnLostAttempt.ASK)
    provider = ScriptedProvider([reply("done")])
    with pytest.raises(RecoveryRequired) as required:
        await left.resume(provider).__aenter__()
    assert [item.action for item in required.value.plan.items] == ["reconcile_model_outcome"]
    assert provider.sent == []
    async with left.coordinator() as coordinator:
        await coordinator.reconcile_model_outcome("r1.t1.a1", outcome="lost", evidence="the bill says so")
    async with left.resume(provider) as session:
        told = await left.told(session.stream())
    assert [(e.attempt_id, e.retrying) for e in told if isinstance(e, se.AttemptDiscarded)] == [
        ("r1.t1.a1", True)
    ]
    assert told[-1].content == "done"
    await left.check()


async def test_a_lost_attempt_is_tried_again_where_the_journal_says_so(place: Place) -> None:
    left = await _lost(place, OnLostAttempt.RETRY)
    provider = ScriptedProvider({"r1.t1.a2": reply("done")})
    async with left.resume(provider, on_lost_attempt=OnLostAttempt.RETRY) as session:
        assert (await left.told(session.stream()))[-1].content == "done"
    reconciled = data(await left.events(), "model_outcome_reconciled")
    assert [(event.outcome, event.evidence) for event in reconciled] == [
        ("lost", 'recorded policy on_lost_attempt="retry"')
    ]
    await left.check()


async def test_what_became_of_a_lost_attempt_may_be_known(place: Place) -> None:
    left = await _lost(place, OnLostAttempt.ASK)
    async with left.coordinator() as coordinator:
        answered: Any = reply("found")[-1]
        await coordinator.reconcile_model_outcome(
            "r1.t1.a1", outcome="completed", evidence="from the provider's log", response=answered
        )
    async with left.resume([]) as session:
        assert (await left.told(session.stream()))[-1].content == "found"
    await left.check()


async def test_a_lost_attempt_that_is_called_failed_fails_the_request(place: Place) -> None:
    left = await _lost(place, OnLostAttempt.ASK)
    async with left.coordinator() as coordinator:
        await coordinator.reconcile_model_outcome(
            "r1.t1.a1", outcome="failed", evidence="refused", message="no money left"
        )
    async with left.resume([]) as session:
        told = await left.told(session.stream())
    assert [e.retrying for e in told if isinstance(e, se.AttemptDiscarded)] == [False]
    assert (told[-1].code, told[-1].message) == ("reconciled_failed", "no money left")
    await left.check()

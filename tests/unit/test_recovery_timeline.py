"""The minutes, event by event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from domain import model_attempt, tool
from domain.envelope import Stored
from domain.errors import ModelFailed
from minutebook.testing.scenario import PAY, Scenario, evaluated, in_call, responded, running, scheduled
from recovery.report_history import duration
from recovery.timeline import Moment, Timeline
from tests.journals import BEGUN, lost_payment, session_of


def moments(scenario: Scenario) -> list[Moment]:
    timeline = Timeline()
    return [timeline.moment(row) for row in scenario.rows()]


def paid() -> Scenario:
    return session_of(
        *BEGUN,
        responded(PAY, text="on it"),
        [scheduled(0, PAY), evaluated(0), running(0)],
        in_call(0, tool.Complete({"output": "paid 5 cents"})),
    )


def test_each_event_says_what_who_and_why() -> None:
    found = moments(paid())
    assert [m.sequence for m in found] == list(range(1, 14))
    by_type = {m.type: m for m in found}
    assert by_type["session_created"].what == "model test-model"
    assert by_type["input_accepted"].what == "next: hello"
    assert by_type["input_accepted"].subject == "i-1"
    assert by_type["model_request_completed"].what == "tool_calls: calls pay"
    assert by_type["tool_scheduled"].what == "pay (non_idempotent)"
    assert by_type["permission_evaluated"].what == "allow by rule"
    assert by_type["tool_completed"].what == "paid 5 cents"
    assert by_type["tool_completed"].cause == by_type["tool_started"].sequence
    assert {m.who for m in found} == {"host"}


def test_what_ends_says_how_long_it_took() -> None:
    by_type = {m.type: m for m in moments(paid())}
    assert by_type["model_request_completed"].took == timedelta(seconds=1)
    assert by_type["tool_completed"].took == timedelta(seconds=1)
    assert by_type["input_applied"].took == timedelta(seconds=1)
    assert by_type["tool_started"].took is None


def test_a_failure_says_what_failed() -> None:
    failed = model_attempt.Fail(ModelFailed("overloaded", "busy", retryable=True))
    assert moments(session_of(*BEGUN, failed))[-1].what == "overloaded; busy"


def unknown(row: Stored) -> Stored:
    envelope = row.envelope.replace(b'"type":"turn_started"', b'"type":"telepathy_used"')
    return replace(row, topic="telepathy_used@1", envelope=envelope)


def removed(row: Stored) -> Stored:
    return replace(row, payload=None, salt=None)


@pytest.mark.parametrize("change", [unknown, removed])
def test_what_cannot_be_decoded_is_shown_by_its_envelope(change: Callable[[Stored], Stored]) -> None:
    moment = Timeline().moment(change(lost_payment().rows()[6]))
    assert moment.sequence == 7
    assert moment.what.startswith("(cannot be decoded:")


@pytest.mark.parametrize(
    ("took", "shown"),
    [
        (timedelta(milliseconds=3), "3 ms"),
        (timedelta(seconds=2.25), "2.2 s"),
        (timedelta(minutes=16), "16 min"),
        (timedelta(hours=30), "30 h"),
    ],
)
def test_a_length_of_time_is_short(took: timedelta, shown: str) -> None:
    assert duration(took) == shown

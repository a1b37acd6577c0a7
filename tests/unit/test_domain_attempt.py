"""ModelAttempt: one at a time, ended once, tried again only where that may help."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain import events as ev
from domain import model_attempt
from domain.decider import EndRequest, StartAttempt
from domain.errors import ModelFailed
from domain.inputs import ApplyInput, FinishPreparation
from domain.limits import MAX_ATTEMPTS_PER_TURN, MAX_CALLS_PER_RESPONSE
from domain.model_attempt import Abandon, AttemptState, Fail, Identify, Reconcile
from domain.model_ports import Found
from domain.request import Interrupt, StartRequest
from domain.tool import Cancel
from domain.turn import CompleteTurn, StartTurn
from domain.values import OnLostAttempt, Priority, Stop
from minutebook.testing.scenario import (
    LOOK,
    PAY,
    SETTINGS,
    Called,
    Commit,
    accepted,
    attempt,
    created,
    forged,
    given,
    in_call,
    recorded,
    responded,
    response,
    scheduled,
    started,
)
from tests.unit.domain_cases import DIGEST, FINAL, START, TURN, Case, Direct, answered, table

TRY_LATER = Fail(ModelFailed("overloaded", "try later", retryable=True))
NEVER = Fail(ModelFailed("bad_request", "no", retryable=False))
LOST = Reconcile("lost", "nobody answered")
AGAIN = attempt()
NO_ATTEMPT: tuple[Commit, ...] = (
    *START,
    [
        ApplyInput("i-1", Priority.NEXT, 1),
        StartRequest(),
        FinishPreparation(("i-1",)),
        StartTurn(1, DIGEST),
    ],
)
RETRY = (*TURN, TRY_LATER)
#: Every attempt that a turn may have, each of them failed.
USED_UP = (*TURN, *(TRY_LATER, AGAIN) * (MAX_ATTEMPTS_PER_TURN - 1), TRY_LATER)
RUNNING = AttemptState("r1.t1.a2", 2, model_attempt.Status.STARTED, 8, 8)
END_OF_NONE = recorded(
    ev.ModelRequestAborted(reason="abort"), request_id="r1", turn_id="r1.t1", model_attempt_id="r1.t1.a1"
)

CASES = [
    Case("attempts are numbered", RETRY, forged(AGAIN, data={"number": 3}), AGAIN),
    Case("attempt ids are derived", RETRY, forged(AGAIN, model_attempt_id="r1.t1.a9"), AGAIN),
    Case("an attempt ends once", RETRY, TRY_LATER, TRY_LATER, TURN),
    Case("an attempt ends once", answered(), Abandon("abort"), Abandon("abort"), TURN),
    Case("an attempt ends once", answered(), Identify("resp-1"), Identify("resp-1"), TURN),
    Case("a response is identified once", (*TURN, Identify("resp-1")), Identify("resp-2"), LOST),
    Case("the end names the active attempt", TURN, forged(TRY_LATER, model_attempt_id="r1.t1.a9"), TRY_LATER),
    Case(
        "only a completed outcome brings a response",
        TURN,
        Reconcile("lost", "asked", response()),
        Reconcile("completed", "asked", response()),
    ),
    Case("only a completed outcome brings a response", TURN, Reconcile("completed", "asked"), LOST),
    Case(
        "an attempt within a turn is for the turn",
        RETRY,
        forged(AGAIN, data={"purpose": "compaction"}),
        AGAIN,
    ),
    Case("a further attempt only after one that failed, was aborted or lost", TURN, AGAIN, AGAIN, RETRY),
    Case(
        "a further attempt only after one that failed, was aborted or lost", answered(), AGAIN, AGAIN, RETRY
    ),
    Case("the last attempt's failure may be retried", (*TURN, NEVER), AGAIN, AGAIN, RETRY),
    Case(
        "the last attempt's failure may be retried",
        (*TURN, Reconcile("failed", "asked")),
        AGAIN,
        AGAIN,
        (*TURN, LOST),
    ),
    Case("at most 4 attempts in a turn", USED_UP, AGAIN, AGAIN, USED_UP[:-2]),
    Case(
        "at most 60 calls in a response",
        TURN,
        responded(*[LOOK] * (MAX_CALLS_PER_RESPONSE + 1)),
        responded(*[LOOK] * MAX_CALLS_PER_RESPONSE),
    ),
    Case("the turn is active", FINAL, AGAIN, AGAIN, RETRY),
    Case("the turn is active", TURN, forged(TRY_LATER, turn_id="r1.t2"), TRY_LATER),
    Case("an attempt is active", NO_ATTEMPT, END_OF_NONE, AGAIN),
    Case(
        "no attempt is active",
        TURN,
        Direct(TRY_LATER, lambda event: model_attempt.first(event, "r1.t1", 1)),
        Direct(AGAIN, lambda event: model_attempt.first(event, "r1.t1", 2)),
        RETRY,
    ),
    Case(
        "one attempt at a time",
        RETRY,
        Direct(AGAIN, lambda event: model_attempt.evolve(RUNNING, event)),
        Direct(TRY_LATER, lambda event: model_attempt.evolve(replace(RUNNING, attempt_id="r1.t1.a1"), event)),
        TURN,
    ),
]


@table(CASES)
def test_it_refuses_and_allows(case: Case) -> None:
    case.refuse()
    case.allow()


def test_a_response_declares_its_calls() -> None:
    broken = Called("look", '{"at":')
    scenario = given(*TURN).when(responded(LOOK, broken, PAY)).then(ev.ModelRequestCompleted)
    calls = scenario.state.calls
    assert [call.call_id for call in calls] == [f"r1.t1.a1.c{i}" for i in range(3)]
    assert [call.input_digest is None for call in calls] == [False, True, False]
    assert scenario.actions() == ["schedule_call", "reject_call", "schedule_call"]


def test_calls_are_known_by_attempt_and_index_whatever_the_provider_calls_them() -> None:
    same = response(LOOK, PAY)
    calls = tuple(replace(call, provider_call_id="call_0") for call in same.calls)
    twice = model_attempt.Finish(replace(same, calls=calls))
    scenario = given(*TURN, twice, scheduled(0, LOOK), scheduled(1, PAY))
    assert [call.call_id for call in scenario.state.calls] == ["r1.t1.a1.c0", "r1.t1.a1.c1"]
    given_up = [*in_call(0, Cancel("x")), *in_call(1, Cancel("x")), CompleteTurn(2, "tool_calls")]
    scenario.given(given_up, [StartTurn(2, DIGEST), AGAIN], twice)
    assert [call.call_id for call in scenario.state.calls] == ["r1.t2.a1.c0", "r1.t2.a1.c1"]


@pytest.mark.parametrize(
    ("end", "goes_on"),
    [
        (TRY_LATER, True),
        (NEVER, False),
        (Abandon("handoff"), True),
        (LOST, True),
        (Reconcile("failed", "asked"), False),
    ],
    ids=["retryable", "not retryable", "abandoned", "lost", "reconciled as failed"],
)
def test_which_ends_lead_to_another_attempt(end: model_attempt.Command, goes_on: bool) -> None:
    scenario = given(*TURN, end)
    assert scenario.state.attempts_left is goes_on
    assert scenario.actions() == ["next_attempt" if goes_on else "fail_request"]


def test_lost_attempts_count_like_any() -> None:
    scenario = given(*TURN, *(LOST, AGAIN) * (MAX_ATTEMPTS_PER_TURN - 1))
    assert scenario.state.attempt is not None
    assert scenario.state.attempt.number == MAX_ATTEMPTS_PER_TURN
    assert scenario.given(LOST).actions() == ["fail_request"]


def test_a_reconciled_response_counts_like_one_that_arrived() -> None:
    scenario = given(*TURN, Reconcile("completed", "asked", response(LOOK)))
    assert scenario.actions() == ["schedule_call"]
    assert scenario.state.request is not None
    assert dict(scenario.state.request.usage) == {"input_tokens": 3, "output_tokens": 2}


def test_what_failed_is_kept_for_the_message() -> None:
    error = ModelFailed("rate_limited", "too many", retryable=True, retry_after_s=1.5)
    scenario = given(*TURN, Fail(error))
    attempt_state = scenario.state.attempt
    assert attempt_state is not None
    assert (attempt_state.error_code, attempt_state.error_message) == ("rate_limited", "too many")
    assert attempt_state.retry_after_s == 1.5


@pytest.mark.parametrize("stop", Stop)
def test_a_response_keeps_its_stop(stop: Stop) -> None:
    scenario = given(*TURN, responded(stop=stop))
    assert scenario.state.attempt is not None
    assert scenario.state.attempt.stop == stop


@pytest.mark.parametrize("provider_run", [False, True])
def test_retry_is_refused_where_the_provider_ran_tools(provider_run: bool) -> None:
    settings = SETTINGS.changed({"on_lost_attempt": OnLostAttempt.RETRY})
    begin = started(settings=settings)
    assert isinstance(begin, list)
    sent = StartAttempt("s", "openai-chat", "m", "0" * 64, 2, provider_run_tools=provider_run)
    scenario = given(created(settings), accepted(settings=settings), [*begin[:-1], sent])
    assert [(s.action, s.who) for s in scenario.plan()] == [
        ("reconcile_model_outcome", "host" if provider_run else "automatic")
    ]


def test_ending_the_request_stops_the_attempt() -> None:
    scenario = given(*TURN).when(EndRequest("abort", Interrupt("abort")))
    scenario.then("model_request_aborted", "turn_aborted", "request_interrupted")


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (Found("completed", "asked", response()), "completed"),
        (Found("completed", "asked"), None),
        (Found("failed", "asked", message="why"), "failed"),
        (Found("cancelled", "asked"), "lost"),
        (Found("running", "asked"), None),
        (Found("unknown", "asked"), None),
        (Found("something_new", "asked"), None),
    ],
)
def test_what_a_provider_says_of_a_lost_attempt(found: Found, outcome: str | None) -> None:
    settled = model_attempt.settled_by(RUNNING, found)
    assert (settled.outcome if settled else None) == outcome
    assert settled is None or settled.evidence == "asked"
    # Tools that the provider ran may have acted, whatever became of the response.
    acted = model_attempt.settled_by(replace(RUNNING, provider_run_tools=True), found)
    assert acted == (None if outcome == "lost" else settled)

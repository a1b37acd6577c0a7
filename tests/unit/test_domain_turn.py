"""Turn: numbered, one at a time, begun when there is something to tell the model."""

from __future__ import annotations

import pytest

from domain import turn
from domain.compaction import FailCompaction
from domain.decider import EndRequest, Reject
from domain.errors import ModelFailed
from domain.inputs import ApplyInput, FinishPreparation
from domain.model_attempt import Fail as AttemptFailed
from domain.permission import Withdraw
from domain.request import Complete, Fail, Interrupt, StartRequest
from domain.session import Note
from domain.tool import Cancel, LoseSight, Reconcile
from domain.tool import Complete as ToolDone
from domain.turn import AbortTurn, CompleteTurn, StartTurn, TurnState
from domain.values import Priority, Stop, Verdict
from minutebook.testing.scenario import (
    LOOK,
    PAY,
    PUT,
    SETTINGS,
    Writing,
    accepted,
    attempt,
    created,
    evaluated,
    forged,
    given,
    in_call,
    responded,
    running,
    scheduled,
    started,
)
from tests.unit.domain_cases import (
    DIGEST,
    FINAL,
    OTHER,
    START,
    TURN,
    Case,
    Direct,
    answered,
    asked,
    begun,
    compaction_begun,
    decided,
    ready,
    sent,
    table,
)

BEGIN: list[Writing] = [ApplyInput("i-1", Priority.NEXT, 1), StartRequest()]
UNPREPARED = (*START, BEGIN)
PREPARED = (*UNPREPARED, FinishPreparation(("i-1",)))
FIRST = StartTurn(1, DIGEST)
SECOND = StartTurn(2, DIGEST)
REJECT = Reject(0, "policy", "no")
DUE = (*answered(LOOK), REJECT, CompleteTurn(1, "tool_calls"))
FAILED = AttemptFailed(ModelFailed("overloaded", "no", retryable=True))
NO_RESPONSE = (*TURN, FAILED)
WITH_CALL = CompleteTurn(1, "tool_calls")
ERROR: list[Writing] = [AbortTurn("error"), Fail("code", "text")]
ONE_TURN = (
    created(SETTINGS.changed({"max_turns": 1})),
    accepted(settings=SETTINGS.changed({"max_turns": 1})),
    started(settings=SETTINGS.changed({"max_turns": 1})),
    responded(LOOK),
    REJECT,
    WITH_CALL,
)
ACTIVE = TurnState("r1.t1", 1, turn.Status.ACTIVE, 7)

CASES = [
    Case("turns are numbered", PREPARED, StartTurn(2, DIGEST), FIRST),
    Case("turn ids are derived", PREPARED, forged(FIRST, turn_id="r1.t9"), FIRST),
    Case("it states the settings it runs under", PREPARED, StartTurn(1, OTHER), FIRST),
    Case(
        "no turn while a compaction is open",
        (*PREPARED, compaction_begun()),
        FIRST,
        [FailCompaction("c-1", "x"), FIRST],
    ),
    Case(
        "at most 1 turns",
        ONE_TURN,
        StartTurn(2, SETTINGS.changed({"max_turns": 1}).digest()),
        EndRequest("error", Fail("MAX_TURNS", "")),
    ),
    Case("a turn has something to tell the model", UNPREPARED, FIRST, FIRST, PREPARED),
    Case("a turn has something to tell the model", FINAL, SECOND, SECOND, DUE),
    Case("a turn has something to tell the model", TURN, SECOND, SECOND, DUE),
    Case(
        "a turn has something to tell the model",
        (*DUE, sent(2), ApplyInput("i-2", Priority.NEXT, 2)),
        SECOND,
        [FinishPreparation(("i-2",)), SECOND],
    ),
    Case("a turn does not end over a running attempt", TURN, ERROR, ERROR, NO_RESPONSE),
    Case("a turn completes only with a response", NO_RESPONSE, CompleteTurn(0, "end"), AbortTurn("steering")),
    Case(
        "its flags follow from the response",
        (*answered(LOOK), REJECT),
        forged(WITH_CALL, data={"has_tool_calls": False}),
        WITH_CALL,
    ),
    Case(
        "its flags follow from the response",
        (*answered(LOOK), REJECT),
        forged(WITH_CALL, data={"continues": True}),
        WITH_CALL,
    ),
    Case("call 0 has an end", answered(LOOK), WITH_CALL, [REJECT, WITH_CALL]),
    Case("call 0 has ended", ready(LOOK), WITH_CALL, [*in_call(0, Cancel("x")), WITH_CALL]),
    Case("call 0 has ended", begun(LOOK), WITH_CALL, [*in_call(0, ToolDone({"output": "1"})), WITH_CALL]),
    Case(
        "the question about call 0 is closed",
        asked(PAY),
        WITH_CALL,
        [*in_call(0, Withdraw("x"), Cancel("x")), WITH_CALL],
    ),
    Case(
        "the outcome of call 0 is known",
        (*begun(PUT), in_call(0, LoseSight("x"))),
        WITH_CALL,
        [*in_call(0, Reconcile("completed", "asked")), WITH_CALL],
    ),
    Case(
        "the turn is active",
        FINAL,
        forged(CompleteTurn(0, "end")),
        CompleteTurn(0, "end"),
        (*TURN, responded()),
    ),
    Case(
        "the turn is active",
        NO_RESPONSE,
        forged(AbortTurn("steering"), turn_id="r1.t9"),
        AbortTurn("steering"),
    ),
    Case(
        "one active turn",
        PREPARED,
        Direct(FIRST, lambda event: turn.evolve(ACTIVE, event)),
        Direct(FIRST, lambda event: turn.evolve(None, event)),
    ),
    Case(
        "an event of a turn",
        TURN,
        Direct(responded(), lambda event: turn.evolve(ACTIVE, event)),
        Direct([FAILED, AbortTurn("steering")], lambda event: turn.evolve(ACTIVE, event)),
    ),
]


@table(CASES)
def test_it_refuses_and_allows(case: Case) -> None:
    case.refuse()
    case.allow()


@pytest.mark.parametrize(
    ("calls", "stop", "expected"),
    [
        (0, Stop.END, (False, False)),
        (0, Stop.LENGTH, (False, False)),
        (0, Stop.REFUSAL, (False, False)),
        (0, Stop.UNKNOWN, (False, False)),
        (0, Stop.PAUSE, (False, True)),
        (2, Stop.TOOL_CALLS, (True, False)),
        (2, Stop.END, (True, False)),
        (1, Stop.PAUSE, (True, True)),
    ],
    ids=str,
)
def test_one_function_decides_what_a_response_asks_for(
    calls: int, stop: Stop, expected: tuple[bool, bool]
) -> None:
    assert turn.outcome(calls, stop) == expected


@pytest.mark.parametrize("stop", Stop)
def test_the_flags_of_a_completed_turn_are_those(stop: Stop) -> None:
    scenario = given(*TURN, responded(stop=stop), CompleteTurn(0, stop))
    assert scenario.state.turn is not None
    assert scenario.state.turn.is_final is (stop is not Stop.PAUSE)
    assert scenario.state.turn_due is (stop is Stop.PAUSE)


@pytest.mark.parametrize("reason", ["error", "abort", "abandoned", "superseded"])
def test_only_steering_aborts_a_turn_without_the_request(reason: str) -> None:
    scenario = given(*NO_RESPONSE)
    scenario.when(AbortTurn(reason)).refused("the same commit goes on with the request's end")
    scenario.when([AbortTurn(reason), Note("remark", "")]).refused("goes on with the request's end")
    scenario.when([AbortTurn(reason), Interrupt("x")]).then("turn_aborted", "request_interrupted")


def test_a_turn_aborted_by_steering_asks_for_another() -> None:
    scenario = given(*NO_RESPONSE, sent(2, Priority.NOW), AbortTurn("steering", "i-2"))
    assert scenario.actions() == ["apply_input"]
    scenario.given(ApplyInput("i-2", Priority.NOW, 2), FinishPreparation(("i-2",)))
    scenario.when([SECOND, attempt()]).then("turn_started", "model_request_started")


def test_aborting_a_turn_keeps_what_is_unknown() -> None:
    scenario = given(*begun(PAY), in_call(0, LoseSight("x")), ERROR)
    (effect,) = scenario.state.unsettled
    assert (effect.tool_id, effect.name, effect.request_id) == ("r1.t1.a1.c0", "pay", "r1")
    assert effect.idempotency_key == "key-r1.t1.a1.c0"
    assert scenario.state.request is None


def test_completing_a_turn_forgets_its_calls() -> None:
    scenario = given(*DUE)
    assert scenario.state.calls == ()
    assert scenario.state.turn is not None
    assert scenario.state.turn.has_tool_calls
    scenario.when(scheduled(0, LOOK)).refused("there is a declared call 0")


def test_a_request_ends_after_its_last_turn() -> None:
    given(*ONE_TURN).when(Fail("MAX_TURNS", "")).then("request_failed")
    given(*FINAL).when(Complete("done", {})).then("request_completed")


def test_the_second_turn_follows_calls() -> None:
    scenario = given(*decided(LOOK), running(0), in_call(0, ToolDone({"output": "1"})), WITH_CALL)
    scenario.when([SECOND, attempt()]).then("turn_started", "model_request_started")
    assert scenario.state.turn is not None
    assert (scenario.state.turn.turn_id, scenario.state.turn.number) == ("r1.t2", 2)


def test_a_verdict_of_the_first_turn_says_nothing_about_the_second() -> None:
    scenario = given(*decided(LOOK), running(0), in_call(0, ToolDone({"output": "1"})), WITH_CALL)
    scenario.given([SECOND, attempt()], responded(LOOK), scheduled(0, LOOK))
    assert scenario.actions() == ["evaluate"]
    scenario.when(running(0)).refused("started only when the latest decision is allow")
    scenario.given(evaluated(0, Verdict.ALLOW)).when(running(0)).then("tool_started")

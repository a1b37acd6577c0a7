"""Request: accepted from a pending input, running, one end; sealed by an abort."""

from __future__ import annotations

import pytest

from domain import events as ev
from domain import request, tool, turn
from domain.decider import CloseSession, EndRequest, Reject, SettleEffect
from domain.inputs import AcceptInput, ApplyInput, BeginPreparation, CancelInput, FinishPreparation
from domain.limits import MAX_UNSETTLED_EFFECTS
from domain.request import (
    AcceptRequest,
    Complete,
    Fail,
    Interrupt,
    RequestAbort,
    RequestState,
    StartRequest,
    Supersede,
)
from domain.session import Change, Note
from domain.values import Effective, Priority
from minutebook.testing.scenario import (
    LOOK,
    PAY,
    PUT,
    SETTINGS,
    Commit,
    Writing,
    accepted,
    attempt,
    created,
    evaluated,
    forged,
    given,
    recorded,
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
    compaction_attempt,
    compaction_begun,
    ready,
    sent,
    table,
)

SEND = AcceptInput("i-1", "hello", Priority.NEXT, 1)
ACCEPT = AcceptRequest("i-1", SETTINGS, {}, 5)
ACCEPT_2 = AcceptRequest("i-2", SETTINGS, {}, 5)
BEGIN: list[Writing] = [ApplyInput("i-1", Priority.NEXT, 1), StartRequest()]
STEER = ApplyInput("i-2", Priority.NEXT, 2)
ABANDON = EndRequest("abandoned", Interrupt("abandoned"))
FAIL = Fail("code", "text")
DONE = Complete("done", {})
#: The last turn had a call, so another one is due.
DUE = (*answered(LOOK), Reject(0, "policy", "no"), turn.CompleteTurn(1, "tool_calls"))
HALF = MAX_UNSETTLED_EFFECTS // 2


def paid(ordinal: int) -> list[Commit]:
    """A request that ends over 32 started payments."""
    ran: list[Writing] = []
    for index in range(HALF):
        ran += [scheduled(index, PAY), evaluated(index), running(index)]
    return [accepted(ordinal=ordinal), started(ordinal), responded(*[PAY] * HALF), ran, ABANDON]


FULL = (created(), *paid(1), *paid(2), AcceptInput("i-3", "x", Priority.NEXT, 3))
ACCEPT_3 = AcceptRequest("i-3", SETTINGS, {}, 5)
SETTLE = SettleEffect("r2.t1.a1.c7", tool.Reconcile("failed", "asked"))
ACTIVE = RequestState("r1", "i-1", request.Status.RUNNING, 3, 3, 5, DIGEST, SETTINGS, {})

CASES = [
    Case("one active request", (*START, sent(2)), ACCEPT_2, ACCEPT_2, (*START, sent(2), ABANDON)),
    Case("a request is about a pending input", (created(),), ACCEPT, [SEND, ACCEPT]),
    Case(
        "request ids are derived and never used twice",
        (created(), SEND),
        forged(ACCEPT, request_id="r2"),
        ACCEPT,
    ),
    Case("started directly after its own input was applied", START, StartRequest(), BEGIN),
    Case("started directly after its own input was applied", FINAL, StartRequest(), Note("remark", "")),
    Case(
        "started directly after its own input was applied",
        START,
        [Note("remark", ""), StartRequest()],
        [Note("remark", ""), *BEGIN],
    ),
    Case("started only from accepted", (*FINAL, sent(2)), [STEER, StartRequest()], STEER),
    Case("an abort is requested once", (*START, RequestAbort("user")), RequestAbort("user"), ABANDON),
    Case("the request is active", START, forged(RequestAbort("user"), request_id="r2"), RequestAbort("user")),
    Case("the request is running", START, FinishPreparation(()), [*BEGIN, FinishPreparation(("i-1",))]),
    Case("nothing of an aborted request goes on", (*START, RequestAbort("user")), BEGIN, ABANDON),
    Case("a request does not end inside a turn", TURN, FAIL, EndRequest("error", FAIL)),
    Case(
        "completed only from running", START, [CancelInput("i-1", "x"), DONE], [CancelInput("i-1", "x"), FAIL]
    ),
    Case("its own input is cancelled with it, in the same commit", START, Interrupt("user"), ABANDON),
    Case("completed only after a final turn", DUE, DONE, DONE, FINAL),
    Case("completed only after a final turn", (*START, BEGIN), DONE, DONE, FINAL),
    Case("no input was applied since the last turn", (*FINAL, sent(2), STEER), DONE, DONE, FINAL),
    Case("no input aimed at it is pending", (*FINAL, sent(2)), DONE, DONE, (*FINAL, sent(2, Priority.LATER))),
    Case("at most 64 unsettled effects", FULL, ACCEPT_3, [SETTLE, ACCEPT_3]),
    Case(
        "an event of the active request",
        START,
        Direct(Note("remark", ""), lambda event: request.evolve(ACTIVE, event)),
        Direct(RequestAbort("user"), lambda event: request.evolve(ACTIVE, event)),
    ),
]


@table(CASES)
def test_it_refuses_and_allows(case: Case) -> None:
    case.refuse()
    case.allow()


def test_an_idle_send_is_one_commit() -> None:
    scenario = given(created()).when([SEND, ACCEPT]).then("input_accepted", ev.RequestAccepted)
    active = scenario.state.request
    assert active is not None
    assert (active.request_id, active.input_id, active.max_turns) == ("r1", "i-1", 5)
    assert (active.settings, active.settings_digest) == (SETTINGS, DIGEST)
    assert active.status is request.Status.ACCEPTED


def test_a_request_keeps_the_settings_it_was_accepted_with() -> None:
    scenario = given(*START, Change({"model": "m2"}))
    assert scenario.state.request is not None
    assert scenario.state.request.settings == SETTINGS


def test_settings_that_the_journal_does_not_hold_are_not_made_up() -> None:
    foreign: list[Writing] = [SEND, forged(ACCEPT, data={"settings_digest": OTHER})]
    scenario = given(created()).given(foreign)
    assert scenario.state.request is not None
    assert scenario.state.request.settings is None
    assert scenario.actions() == ["reconcile_request_outcome"]
    scenario.when(EndRequest("error", Fail("unknown", "", evidence="asked"))).then(
        "input_cancelled", "request_failed"
    )


def test_a_foreign_request_that_went_on_has_a_plan_too() -> None:
    """Accepted under settings nobody knows, then started: a lost attempt is asked about."""
    foreign: list[Writing] = [SEND, forged(ACCEPT, data={"settings_digest": OTHER})]
    went_on: Commit = [*BEGIN, FinishPreparation(("i-1",)), turn.StartTurn(1, OTHER), attempt()]
    scenario = given(created()).given(foreign, went_on)
    assert [(step.action, step.who) for step in scenario.plan()] == [("reconcile_model_outcome", "host")]


def test_a_change_leaves_settings_that_nobody_knows_unknown() -> None:
    foreign: list[Writing] = [SEND, forged(ACCEPT, data={"settings_digest": OTHER})]
    scenario = given(created()).given(foreign, Change({"model": "m2"}, Effective.NEXT_TURN))
    assert scenario.state.request is not None
    assert scenario.state.request.settings is None
    assert scenario.state.request.settings_digest == OTHER


def test_a_session_that_ended_over_its_limit_starts_nothing() -> None:
    scenario = given(*FULL)
    assert scenario.actions() == ["none"]
    assert len(scenario.plan()[0].evidence) == MAX_UNSETTLED_EFFECTS
    scenario.given(SETTLE)
    assert scenario.actions() == ["start_next_request"]


def test_usage_is_summed_over_attempts() -> None:
    again: Commit = [
        turn.StartTurn(2, DIGEST),
        attempt(),
    ]
    scenario = given(*DUE, again, responded())
    assert scenario.state.request is not None
    assert dict(scenario.state.request.usage) == {"input_tokens": 6, "output_tokens": 4}


def test_the_next_request_starts_clean() -> None:
    scenario = given(*FINAL, DONE, accepted(ordinal=2))
    state = scenario.state
    assert state.request is not None
    assert (state.request.request_id, state.request.usage, state.turn, state.attempt) == (
        "r2",
        (),
        None,
        None,
    )


@pytest.mark.parametrize(
    ("trial", "type_"),
    [
        (FinishPreparation(("i-1",)), "input_prepared"),
        (RequestAbort("user"), "abort_requested"),
        (BeginPreparation(("i-1",)), "input_preparation_started"),
    ],
    ids=str,
)
def test_what_a_running_request_does_between_turns(trial: Writing, type_: str) -> None:
    given(*START, BEGIN).when(trial).then(type_)


SEALED: list[tuple[tuple[Commit, ...], Commit]] = [
    ((*FINAL, sent(2)), STEER),
    (START, BEGIN),
    ((*START, BEGIN), BeginPreparation(("i-1",))),
    (DUE, turn.StartTurn(2, DIGEST)),
    ((*DUE, turn.StartTurn(2, DIGEST)), attempt()),
    (answered(LOOK), scheduled(0, LOOK)),
    ((*ready(LOOK), evaluated(0)), running(0)),
    (FINAL, DONE),
]


@pytest.mark.parametrize(
    ("before", "commit"),
    SEALED,
    ids="apply start prepare turn attempt schedule run complete".split(),
)
def test_an_abort_seals_the_request(before: tuple[Commit, ...], commit: Commit) -> None:
    given(*before).when(commit)  # it would be legal
    sealed = given(*before, RequestAbort("user"))
    assert sealed.actions() == ["finish_abort"]
    sealed.when(commit).refused("nothing of an aborted request goes on")


@pytest.mark.parametrize(
    ("before", "commit", "type_"),
    [
        ((*TURN,), responded(PUT), "model_request_completed"),
        ((*START, BEGIN), FinishPreparation(("i-1",)), "input_prepared"),
        ((*ready(LOOK),), evaluated(0), "permission_evaluated"),
    ],
    ids=["response", "preparation", "evaluation"],
)
def test_what_was_under_way_may_still_land_after_an_abort(
    before: tuple[Commit, ...], commit: Commit, type_: str
) -> None:
    given(*before, RequestAbort("user")).when(commit).then(type_)


def test_other_inputs_outlive_an_abort() -> None:
    scenario = given(*TURN, sent(2), sent(3, Priority.NOW), RequestAbort("user"))
    scenario.given(EndRequest("abort", Interrupt("abort")))
    assert [item.input_id for item in scenario.state.queue.pending] == ["i-2", "i-3"]
    assert scenario.actions() == ["start_next_request"]
    assert scenario.plan()[0].subject == "i-2"


ROLL_OVER = EndRequest("superseded", Supersede("host"))


@pytest.mark.parametrize("before", [START, TURN, FINAL], ids=["accepted", "in a turn", "between turns"])
def test_a_rollover_is_the_closing_commit_and_a_new_request(before: tuple[Commit, ...]) -> None:
    scenario = given(*before)
    scenario.when(ROLL_OVER).refused("the same commit goes on with input_accepted")
    scenario.when([ROLL_OVER, sent(2)]).refused("the same commit goes on with request_accepted")
    scenario.when([ROLL_OVER, sent(2), Note("remark", "")]).refused("goes on with request_accepted")
    events = scenario.when([ROLL_OVER, AcceptInput("i-2", "go on", Priority.NEXT, 2), ACCEPT_2]).events
    assert [e.type for e in events][-3:] == ["request_superseded", "input_accepted", "request_accepted"]
    assert scenario.state.request is not None
    assert scenario.state.request.request_id == "r2"


def test_an_operator_may_end_what_cannot_be_told_otherwise() -> None:
    """With evidence, and between turns: the rules about a final turn do not stand in the way."""
    witnessed = Complete("done by hand", {}, evidence="the ticket says so")
    given(*DUE).when(witnessed).then("request_completed")
    given(*TURN).when(witnessed).refused("a request does not end inside a turn")
    given(*DUE, RequestAbort("user")).when(witnessed).refused("nothing of an aborted request goes on")


def test_a_compaction_does_not_stop_a_request_from_ending() -> None:
    scenario = given(*FINAL, [compaction_begun(), compaction_attempt()], RequestAbort("user"))
    assert scenario.actions() == ["finish_abort"]
    scenario.given(EndRequest("abort", Interrupt("abort")))
    assert scenario.actions() == ["fail_compaction"]


def test_the_end_of_another_request_is_refused() -> None:
    forgery = recorded(ev.RequestFailed(error_code="c", message="m"), request_id="r7")
    given(*DUE, turn.StartTurn(2, DIGEST)).when([Note("remark", ""), forgery]).refused(
        "the request is active"
    )
    given(created(), CloseSession("user")).when(forgery).refused("the session is open")

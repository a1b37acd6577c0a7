"""The small read models: queue, interactions, usage, session at a glance; and how they are fed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain import inputs, model_attempt, permission, request, session, tool, turn
from domain.decider import EndRequest
from domain.errors import JournalBlocked, ModelFailed
from domain.values import Priority, SideEffect, Verdict
from minutebook.testing.scenario import (
    PAY,
    PUT,
    Scenario,
    accepted,
    attempt,
    created,
    evaluated,
    given,
    in_call,
    responded,
    running,
    scheduled,
    started,
)
from projections import interactions, pending_inputs, session_view, usage
from projections.interactions import Interactions, OpenPermission, OpenSuspension
from projections.pending_inputs import PendingInputs
from projections.projector import Folding, Projection, project
from projections.session_view import SessionView
from projections.usage import Usage

ASKED = [*in_call(0, permission.Ask("pay 5 cents?", "2026-01-02T00:00:00+00:00"))]


def asking() -> Scenario:
    return given(
        created(),
        accepted(),
        started(),
        responded(PAY),
        [scheduled(0, PAY), evaluated(0, Verdict.ASK), *ASKED],
    )


def fold_inputs(scenario: Scenario) -> PendingInputs:
    made = PendingInputs()
    project([Folding(pending_inputs.TYPES, made)], scenario.rows())
    return made


def fold_interactions(scenario: Scenario) -> Interactions:
    made = Interactions()
    project([Folding(interactions.TYPES, made)], scenario.rows())
    return made


def fold_usage(scenario: Scenario) -> Usage:
    made = Usage()
    project([Folding(usage.TYPES, made)], scenario.rows())
    return made


def fold_session(scenario: Scenario) -> SessionView:
    made = SessionView()
    project([Folding(session_view.TYPES, made)], scenario.rows())
    return made


# --- the queue --------------------------------------------------------------------------


def test_an_accepted_input_is_pending_with_its_content() -> None:
    (item,) = fold_inputs(given(created(), accepted("hello there"))).items
    assert (item.input_id, item.content, item.ordinal, item.sequence) == ("i-1", "hello there", 1, 2)
    assert item.priority is Priority.NEXT


def test_an_applied_and_a_cancelled_input_leave_the_queue() -> None:
    later = inputs.AcceptInput("i-2", "later", Priority.LATER, 2)
    queue = fold_inputs(given(created(), accepted(), started(), later, inputs.CancelInput("i-2", "user")))
    assert queue.items == ()
    assert (queue.accepted, queue.applied, queue.cancelled) == (2, 1, 1)


def test_the_queue_keeps_the_order_of_acceptance() -> None:
    more = [inputs.AcceptInput(f"i-{n}", f"input {n}", Priority.LATER, n) for n in (2, 3, 4)]
    queue = fold_inputs(given(created(), accepted(), started(), *more, inputs.CancelInput("i-3", "user")))
    assert [item.input_id for item in queue.items] == ["i-2", "i-4"]


# --- interactions -----------------------------------------------------------------------


def test_an_open_question_has_everything_that_a_person_needs() -> None:
    (question,) = fold_interactions(asking()).permissions
    assert question.permission_id == "r1.t1.a1.c0.p1"
    assert (question.name, question.side_effect) == ("pay", SideEffect.NON_IDEMPOTENT)
    assert (question.summary, question.input) == ("pay 5 cents?", {"cents": 5})
    assert question.evidence == (10, 12)
    assert question.expires_at == "2026-01-02T00:00:00+00:00"


@pytest.mark.parametrize("name", ["r1.t1.a1.c0.p1", "r1.t1.a1.c0"])
def test_a_question_is_found_by_its_own_id_and_by_its_call(name: str) -> None:
    assert isinstance(fold_interactions(asking()).find(name), OpenPermission)


@pytest.mark.parametrize(
    "answer",
    [permission.Resolve(Verdict.ALLOW), permission.Withdraw("aborted")],
    ids=["resolved", "withdrawn"],
)
def test_an_answered_or_withdrawn_question_is_closed(answer: permission.Command) -> None:
    closed = fold_interactions(asking().given(in_call(0, answer)))
    assert closed.permissions == ()
    assert closed.find("r1.t1.a1.c0.p1") is None


def test_two_questions_are_open_at_once_and_answered_in_any_order() -> None:
    scenario = given(
        created(),
        accepted(),
        started(),
        responded(PAY, PUT),
        [scheduled(0, PAY), scheduled(1, PUT)],
        [evaluated(0, Verdict.ASK), *in_call(0, permission.Ask("first?"))],
        [evaluated(1, Verdict.ASK), *in_call(1, permission.Ask("second?"))],
    )
    assert [q.summary for q in fold_interactions(scenario).permissions] == ["first?", "second?"]
    scenario.given(in_call(1, permission.Resolve(Verdict.ALLOW)))
    assert [q.summary for q in fold_interactions(scenario).permissions] == ["first?"]


def suspended() -> Scenario:
    return given(
        created(),
        accepted(),
        started(),
        responded(PUT),
        [scheduled(0, PUT), evaluated(0), running(0)],
        in_call(0, tool.Suspend({"need": "a code"}, {"type": "string"})),
    )


def test_a_suspended_call_waits_until_it_is_answered() -> None:
    scenario = suspended()
    (waiting,) = fold_interactions(scenario).suspensions
    assert (waiting.name, waiting.payload, waiting.resume_schema) == (
        "put",
        {"need": "a code"},
        {"type": "string"},
    )
    assert isinstance(fold_interactions(scenario).find("r1.t1.a1.c0"), OpenSuspension)
    assert fold_interactions(scenario.given(in_call(0, tool.Answer("1234")))).suspensions == ()


def test_a_call_that_somebody_says_is_suspended_waits_too() -> None:
    scenario = given(
        created(),
        accepted(),
        started(),
        responded(PAY),
        [scheduled(0, PAY), evaluated(0), running(0)],
        in_call(0, tool.Reconcile("suspended", "the bank says so")),
    )
    assert [w.tool_id for w in fold_interactions(scenario).suspensions] == ["r1.t1.a1.c0"]


def test_a_call_that_ends_takes_its_interactions_with_it() -> None:
    ended = [EndRequest("abandoned", request.Interrupt("abandoned"))]
    made = fold_interactions(suspended().given(ended))
    assert (made.permissions, made.suspensions) == ((), ())


# --- usage ------------------------------------------------------------------------------


def two_attempts() -> Scenario:
    failed = model_attempt.Fail(ModelFailed("overloaded", "try again", retryable=True, bytes_sent=False))
    return given(created(), accepted(), started(), failed, attempt(), responded(text="done"))


def test_usage_is_told_per_attempt_per_request_and_for_the_session() -> None:
    made = fold_usage(two_attempts())
    assert [(a.attempt_id, a.outcome, dict(a.tokens)) for a in made.attempts] == [
        ("r1.t1.a1", "failed", {}),
        ("r1.t1.a2", "completed", {"input_tokens": 3, "output_tokens": 2}),
    ]
    assert made.requests == {"r1": made.session}
    assert (made.session.attempts, dict(made.session.tokens)) == (2, {"input_tokens": 3, "output_tokens": 2})


def test_an_attempt_without_a_report_may_have_been_billed() -> None:
    open_ = fold_usage(given(created(), accepted(), started()))
    assert (open_.attempts[0].outcome, open_.session.maybe_billed) == ("open", 1)
    lost = given(created(), accepted(), started(), model_attempt.Reconcile("lost", "nobody knows"))
    assert (fold_usage(lost).attempts[0].outcome, fold_usage(lost).session.maybe_billed) == ("lost", 1)
    assert fold_usage(two_attempts()).session.maybe_billed == 0


def test_an_aborted_attempt_is_counted_as_such() -> None:
    made = fold_usage(given(created(), accepted(), started(), model_attempt.Abandon("steering")))
    assert (made.attempts[0].outcome, made.attempts[0].maybe_billed) == ("aborted", True)


# --- the session ------------------------------------------------------------------------


def test_the_facts_of_a_session_follow_its_events() -> None:
    scenario = given(
        created(),
        accepted(),
        started(),
        responded(text="hi"),
        [turn.CompleteTurn(0, "end"), request.Complete("hi", {})],
        session.Change({"model": "another", "permission_mode": "plan"}),
        accepted("more", ordinal=2),
    )
    facts = fold_session(scenario).facts
    assert (facts.owner_id, facts.model, facts.permission_mode) == ("local", "another", "plan")
    assert (facts.status, facts.request_id) == ("open", "r2")
    assert (facts.inputs, facts.requests, facts.turns, facts.tool_runs) == (2, 2, 1, 0)
    assert facts.ended == (("completed", 1),)
    assert facts.created_at is not None
    assert facts.updated_at is not None
    assert facts.updated_at > facts.created_at


# --- feeding ----------------------------------------------------------------------------


def test_payloads_that_nobody_folds_are_not_decoded() -> None:
    rows = [
        replace(row, payload=b"not JSON") if row.topic.startswith("session_") else row
        for row in given(created(), accepted()).rows()
    ]
    made = PendingInputs()
    project([Folding(pending_inputs.TYPES, made)], rows)
    assert len(made.items) == 1


def test_a_payload_that_somebody_folds_has_to_be_readable() -> None:
    row = replace(given(created(), accepted()).rows()[1], payload=b'{"input_id":7}')
    with pytest.raises(JournalBlocked, match="payload"):
        project([Folding(pending_inputs.TYPES, PendingInputs())], [row])


def test_rebuilding_gives_what_feeding_one_by_one_gives() -> None:
    rows = asking().rows()
    whole, single = Interactions(), Interactions()
    project([Folding(interactions.TYPES, whole)], rows)
    projection = Projection([Folding(interactions.TYPES, single)])
    for row in rows:
        projection.apply(row)
    assert single.permissions == whole.permissions


@pytest.mark.parametrize("module", [pending_inputs, interactions, usage, session_view])
def test_each_names_only_types_of_the_catalogue(module: object) -> None:
    from domain.catalogue import CATALOGUE

    assert getattr(module, "TYPES") <= set(CATALOGUE)  # noqa: B009  # four modules, one name

"""The plan: what it says for each place a session can stand at, and its document."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta

import pytest

from domain import inputs, permission, request, tool, turn
from domain.compaction import CompactionState
from domain.decider import CloseSession
from domain.events import CompactionStarted
from domain.limits import MAX_UNSETTLED_EFFECTS
from domain.next_steps import Action, Who
from domain.ports import LeaseRow
from domain.state import State
from domain.values import OnLostAttempt, Priority, Stop, Verdict
from minutebook.testing.scenario import (
    PAY,
    PUT,
    SETTINGS,
    Called,
    Scenario,
    accepted,
    created,
    evaluated,
    in_call,
    recorded,
    responded,
    running,
    scheduled,
    started,
)
from recovery import wording
from recovery.arguments import parser
from recovery.escape import json_text
from recovery.facts import Facts
from recovery.plan import FORMAT, Kind, RecoveryPlan, RecoveryRequired, make_plan
from recovery.problem import Blocked
from tests.journals import (
    BEGUN,
    asking,
    failed_attempt,
    lost_attempt,
    lost_payment,
    session_of,
    suspended,
    three_calls,
    unsettled,
)

RETRY = SETTINGS.changed({"on_lost_attempt": OnLostAttempt.RETRY.value})
NOW = inputs.AcceptInput("i-2", "stop that", Priority.NOW, 2, target_request_id="r1")
HEAD = bytes(range(32))


def plan(scenario: Scenario) -> RecoveryPlan:
    return make_plan(scenario.state, Facts(head=HEAD, verified=(1, scenario.state.sequence), journal="j.db"))


def places() -> dict[str, tuple[Scenario, Kind, str, list[tuple[str, str]]]]:
    """By name: a session, and what its plan says."""
    called = responded(PAY)
    return {
        "nothing yet": (Scenario(), Kind.NOTHING, "none", [("none", "nobody")]),
        "idle": (session_of(created()), Kind.NOTHING, "none", [("none", "nobody")]),
        "closed": (
            session_of(created(), CloseSession("done")), Kind.NOTHING, "none", [("none", "nobody")]
        ),
        "queued": (
            session_of(created(), inputs.AcceptInput("i-1", "hi", Priority.LATER, 1)),
            Kind.AUTOMATIC, "start_next_request", [("start_next_request", "automatic")],
        ),
        "accepted": (
            session_of(created(), accepted()),
            Kind.AUTOMATIC, "resume_request", [("resume_request", "automatic")],
        ),
        "aborted": (
            session_of(created(), accepted(), request.RequestAbort("user")),
            Kind.AUTOMATIC, "finish_abort", [("finish_abort", "automatic")],
        ),
        "lost attempt": (
            lost_attempt(), Kind.DECISION, "reconcile_model_outcome", [("reconcile_model_outcome", "host")]
        ),
        "lost attempt, retry recorded": (
            session_of(created(RETRY), accepted(settings=RETRY), started(settings=RETRY)),
            Kind.AUTOMATIC, "reconcile_model_outcome", [("reconcile_model_outcome", "automatic")],
        ),
        "failed for good": (
            failed_attempt(), Kind.AUTOMATIC, "resume_turn", [("fail_request", "automatic")]
        ),
        "steered": (
            session_of(*BEGUN, NOW, responded(PAY)),
            Kind.AUTOMATIC, "resume_turn", [("reject_call", "automatic")],
        ),
        "declared": (
            session_of(*BEGUN, called), Kind.AUTOMATIC, "resume_turn", [("schedule_call", "automatic")]
        ),
        "malformed": (
            session_of(*BEGUN, responded(Called("pay", "{"))),
            Kind.AUTOMATIC, "resume_turn", [("reject_call", "automatic")],
        ),
        "cut": (
            session_of(*BEGUN, responded(PAY, stop=Stop.LENGTH)),
            Kind.AUTOMATIC, "resume_turn", [("reject_call", "automatic")],
        ),
        "scheduled": (
            session_of(*BEGUN, called, scheduled(0, PAY)),
            Kind.AUTOMATIC, "resume_turn", [("evaluate", "automatic")],
        ),
        "to be asked": (
            session_of(*BEGUN, called, scheduled(0, PAY), evaluated(0, Verdict.ASK)),
            Kind.AUTOMATIC, "resume_turn", [("ask", "automatic")],
        ),
        "asked": (asking(), Kind.WAITING, "resume_turn", [("resolve_permissions", "person")]),
        "allowed": (
            session_of(*BEGUN, called, scheduled(0, PAY), evaluated(0)),
            Kind.AUTOMATIC, "resume_turn", [("start_tool", "automatic")],
        ),
        "denied": (
            session_of(*BEGUN, called, scheduled(0, PAY), evaluated(0, Verdict.DENY)),
            Kind.AUTOMATIC, "resume_turn", [("cancel_tool", "automatic")],
        ),
        "suspended": (suspended(), Kind.WAITING, "resume_turn", [("answer_suspensions", "person")]),
        "payment lost": (
            lost_payment(), Kind.DECISION, "resume_turn", [("reconcile_tool_outcomes", "host")]
        ),
        "put lost": (
            session_of(*BEGUN, responded(PUT), [scheduled(0, PUT), evaluated(0), running(0)]),
            Kind.AUTOMATIC, "resume_turn", [("start_tool", "automatic")],
        ),
        "three calls": (
            three_calls(), Kind.AUTOMATIC, "resume_turn",
            [("start_tool", "automatic"), ("resolve_permissions", "person"), ("evaluate", "automatic")],
        ),
        "asked beside a lost payment": (
            session_of(
                *BEGUN, responded(PAY, PAY),
                [scheduled(0, PAY), scheduled(1, PAY), evaluated(0), running(0)],
                [evaluated(1, Verdict.ASK), *in_call(1, permission.Ask("?"))],
            ),
            Kind.DECISION, "resume_turn",
            [("reconcile_tool_outcomes", "host"), ("resolve_permissions", "person")],
        ),
        "calls ended": (
            session_of(
                *BEGUN, called, [scheduled(0, PAY), evaluated(0), running(0)],
                in_call(0, tool.Complete({"output": "paid"})),
            ),
            Kind.AUTOMATIC, "resume_turn", [("complete_turn", "automatic")],
        ),
        "final": (
            session_of(*BEGUN, responded(text="bye"), turn.CompleteTurn(0, "end")),
            Kind.AUTOMATIC, "finalize_request", [("finalize_request", "automatic")],
        ),
        "hooks lost": (
            session_of(
                created(), accepted(),
                [inputs.ApplyInput("i-1", Priority.NEXT, 1), request.StartRequest(),
                 inputs.BeginPreparation(("i-1",), ("hook",))],
            ),
            Kind.DECISION, "reconcile_request_inputs", [("reconcile_request_inputs", "host")],
        ),
        "not prepared": (
            session_of(
                created(), accepted(), [inputs.ApplyInput("i-1", Priority.NEXT, 1), request.StartRequest()]
            ),
            Kind.AUTOMATIC, "prepare_input", [("prepare_input", "automatic")],
        ),
        "prepared": (
            session_of(
                created(), accepted(),
                [inputs.ApplyInput("i-1", Priority.NEXT, 1), request.StartRequest(),
                 inputs.FinishPreparation(("i-1",))],
            ),
            Kind.AUTOMATIC, "continue_request", [("continue_request", "automatic")],
        ),
        "left unsettled": (unsettled(), Kind.NOTHING, "none", [("none", "nobody")]),
    }  # fmt: skip


PLACES = places()


@pytest.mark.parametrize("name", PLACES)
def test_the_plan_of_a_place(name: str) -> None:
    scenario, kind, heading, items = PLACES[name]
    found = plan(scenario)
    assert (found.kind, found.heading) == (kind, heading)
    assert [(item.action, item.who) for item in found.items] == items


@pytest.mark.parametrize("name", PLACES)
def test_every_item_is_complete(name: str) -> None:
    scenario = PLACES[name][0]
    for item in plan(scenario).items:
        assert item.reason.endswith(".")
        assert "{" not in item.reason + item.python + item.risk
        assert set(item.evidence) <= {event.sequence for event in scenario.events}
        assert item.appends or item.action == "none"
        assert item.python or item.action == "none"
        if item.who not in ("nobody", "automatic"):
            assert item.shell
        assert set(item.appends) <= _types()


def _types() -> set[str]:
    from domain.catalogue import CATALOGUE

    return set(CATALOGUE)


@pytest.mark.parametrize("name", PLACES)
def test_every_shell_command_is_one_that_the_command_line_takes(name: str) -> None:
    found = plan(PLACES[name][0])
    for item in (*found.items, *found.alternatives):
        if item.shell:
            program, *words = shlex.split(item.shell)[2:]
            assert program == "recovery"
            assert parser("recovery").parse_args(words).journal == "j.db"


@pytest.mark.parametrize("action", [a for a in Action if a not in (Action.INTERRUPT, Action.AWAIT)])
def test_every_action_has_its_words(action: Action) -> None:
    assert wording._BY_ACTION[action].why


# --- items in detail ----------------------------------------------------------------------


def test_a_lost_attempt_says_that_it_may_have_been_billed() -> None:
    (item,) = plan(lost_attempt()).items
    assert item.ids == {"request_id": "r1", "turn_id": "r1.t1", "model_attempt_id": "r1.t1.a1"}
    assert item.evidence == (8,)
    assert item.appends == ("model_outcome_reconciled",)
    assert item.risk.startswith("The provider may have billed this attempt.")
    assert "'r1.t1.a1', outcome=\"lost\"" in item.python
    assert item.shell == (
        "python -m recovery reconcile j.db s-lost model r1.t1.a1 --outcome lost --evidence '...'"
    )


def test_a_lost_payment_names_the_tool_its_class_and_its_run() -> None:
    (item,) = plan(lost_payment()).items
    assert "pay, non_idempotent" in item.reason
    assert "run 1" in item.reason
    assert item.ids["tool_id"] == item.subject == "r1.t1.a1.c0"
    assert item.ids["provider_call_id"] == "call_0"
    assert item.evidence == (12,)


def test_a_question_is_answered_by_its_id_and_digest() -> None:
    found = plan(asking())
    (item,) = found.items
    (question,) = found.permissions
    assert item.ids["permission_id"] == question.permission_id == "r1.t1.a1.c0.p1"
    assert question.input_digest in item.shell
    assert question.evidence == (10, 12)
    assert (question.summary, question.input) == (None, None)  # nobody read them


def test_an_automatic_item_without_code_can_be_carried_out_from_the_shell() -> None:
    (item,) = plan(failed_attempt()).items
    assert item.shell == "python -m recovery reconcile j.db s-failed automatic"
    assert item.appends == ("turn_aborted", "request_failed")


def test_a_request_that_fails_between_turns_aborts_none() -> None:
    scenario = session_of(
        created(), accepted(max_turns=1), started(), responded(PAY),
        [scheduled(0, PAY), evaluated(0, Verdict.DENY), *in_call(0, tool.Cancel("permission_denied"))],
        turn.CompleteTurn(1, "tool_calls"),
    )  # fmt: skip
    (item,) = plan(scenario).items
    assert (item.word, item.appends) == ("max_turns", ("request_failed",))
    assert "1 turns" in item.reason


def test_an_open_request_can_always_be_abandoned() -> None:
    (way,) = plan(lost_payment()).alternatives
    assert (way.action, way.subject, way.who) == ("abandon_request", "r1", "operator")
    assert plan(session_of(created())).alternatives == ()


def test_a_foreign_request_without_its_settings_is_the_operators() -> None:
    from dataclasses import replace

    state = session_of(created(), accepted()).state
    assert state.request is not None
    found = make_plan(replace(state, request=replace(state.request, settings=None)))
    assert found.kind is Kind.DECISION
    assert (found.items[0].action, found.items[0].who) == ("reconcile_request_outcome", "operator")


def test_a_lost_compaction_fails() -> None:
    begun = recorded(_compaction(), aggregate_id="s-test")
    found = plan(session_of(created(), begun))
    assert isinstance(session_of(created(), begun).state.compaction, CompactionState)
    assert [(i.action, i.who, i.ids) for i in found.items] == [
        ("fail_compaction", "automatic", {"compaction_id": "k-1"})
    ]


def _compaction() -> CompactionStarted:
    return CompactionStarted(compaction_id="k-1", trigger="manual")


# --- the rest of the plan -----------------------------------------------------------------


def test_the_queue_is_shown_with_the_priority_that_counts_now() -> None:
    found = plan(session_of(*BEGUN, NOW))
    assert [(p.input_id, p.priority, p.target_request_id) for p in found.pending_inputs] == [
        ("i-2", "now", "r1")
    ]
    aborted = plan(session_of(*BEGUN, NOW, request.RequestAbort("user")))
    assert [p.priority for p in aborted.pending_inputs] == ["later"]


def test_unsettled_effects_are_listed_and_block_nothing() -> None:
    found = plan(unsettled())
    (effect,) = found.unsettled_effects
    assert (effect.tool_id, effect.name, effect.request_id) == ("r1.t1.a1.c0", "pay", "r1")
    assert effect.evidence == (12, 13)
    assert "1 effect is unsettled" in found.items[0].reason
    assert effect.shell.startswith("python -m recovery reconcile j.db s-left tool r1.t1.a1.c0 --outcome")


def test_a_full_list_of_unsettled_effects_says_what_it_holds_up() -> None:
    from dataclasses import replace

    state = unsettled().given(inputs.AcceptInput("i-9", "more", Priority.LATER, 2)).state
    (effect,) = state.unsettled
    full = tuple(replace(effect, tool_id=f"r1.t1.a1.c{n}") for n in range(MAX_UNSETTLED_EFFECTS))
    found = make_plan(replace(state, unsettled=full))
    assert found.items[0].reason == "1 inputs wait; no request starts while 64 effects are unsettled."


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LEASE = LeaseRow(3, "l-1", "worker-7", NOON, NOON, NOON + timedelta(seconds=30), process_id=42)


def test_the_lease_is_stated() -> None:
    held = make_plan(State("s-1"), Facts(lease=LEASE, lease_lives=True)).lease
    assert held is not None
    assert (held.holder, held.token, held.lives, held.process_id) == ("worker-7", 3, True, 42)
    assert held.expires_at == "2026-01-01T12:00:30.000+00:00"


def test_a_lease_that_was_given_back_has_no_holder() -> None:
    from dataclasses import replace

    free = make_plan(State("s-1"), Facts(lease=replace(LEASE, lease_id=None))).lease
    assert free is not None
    assert (free.holder, free.token, free.lives) == (None, 3, False)


def test_a_problem_comes_first_and_blocks() -> None:
    problem = Blocked("chain", 13, "the head that follows", "another")
    found = make_plan(lost_payment().state, Facts(problem=problem, journal="j.db"))
    assert (found.kind, found.heading) == (Kind.BLOCKED, "blocked")
    assert [item.action for item in found.items] == ["blocked", "reconcile_tool_outcomes"]
    first = found.items[0]
    assert (first.who, first.word, first.evidence) == (Who.OPERATOR, "chain", (13,))
    assert "expected the head that follows, found another" in first.reason
    assert first.shell == "python -m recovery verify j.db s-pay"
    assert found.alternatives == ()


def test_what_a_journal_holds_stays_one_word_of_a_command() -> None:
    evil = Facts(journal="a b; rm -rf /.db")
    for item in make_plan(asking().state, evil).items:
        assert shlex.split(item.shell)[:5] == ["python", "-m", "recovery", "reconcile", "a b; rm -rf /.db"]


def test_a_tool_name_with_braces_is_only_text() -> None:
    scenario = session_of(*BEGUN, responded(Called("{subject}{0}", '{"a":1}')))
    assert "({subject}{0})" in plan(scenario).items[0].reason


# --- the document -------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLACES)
def test_the_document_has_its_format_and_its_fields(name: str) -> None:
    document = plan(PLACES[name][0]).to_json()
    assert document["format"] == FORMAT == "minutebook.recovery-plan/1"
    assert set(document) == {
        "format", "session_id", "journal", "owner_id", "status", "kind", "heading", "head", "verified",
        "items", "alternatives", "pending_inputs", "permissions", "suspensions", "unsettled_effects",
        "lease", "problem", "notes",
    }  # fmt: skip
    assert set(document["head"]) == {"sequence", "hash"}
    assert set(document["verified"]) == {"first", "last", "from_snapshot"}
    for item in document["items"]:
        assert set(item) == {
            "action", "who", "subject", "ids", "evidence", "word", "reason", "appends", "python", "shell",
            "risk",
        }  # fmt: skip
    assert json_text(document).isascii()


def test_the_plan_is_a_function_of_the_state() -> None:
    assert plan(three_calls()) == plan(three_calls())


# --- the error ----------------------------------------------------------------------------


def test_recovery_required_carries_the_plan_and_says_how_to_decide() -> None:
    found = plan(lost_payment())
    error = RecoveryRequired(found)
    assert error.code == "DURABLE_SESSION_RECOVERY_REQUIRED"
    assert error.plan is found
    assert "reconcile_tool_outcomes is due" in str(error)
    assert found.items[0].shell in str(error)
    assert error.details == {"plan": found.to_json()}


def test_recovery_required_counts_the_other_decisions() -> None:
    scenario = session_of(
        *BEGUN, responded(PAY, PAY),
        [scheduled(0, PAY), scheduled(1, PAY), evaluated(0), evaluated(1), running(0), running(1)],
    )  # fmt: skip
    assert "(1 more)" in str(RecoveryRequired(plan(scenario)))


def test_closing_a_session_leaves_its_effects_to_be_settled() -> None:
    scenario = unsettled().given(CloseSession("done"))
    assert plan(scenario).status == "closed"
    assert "1 effect is unsettled" in plan(scenario).items[0].reason

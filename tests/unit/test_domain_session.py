"""Session: created once, changed by events, closed for good."""

from __future__ import annotations

from typing import Any

import pytest

from domain import events as ev
from domain import inputs, request, session, tool
from domain.compaction import FailCompaction
from domain.decider import CloseSession, EndRequest, SettleEffect
from domain.session import Change, Grant, Note, Resume, Revoke, SetRule
from domain.settings import Settings
from domain.values import Effective, PermissionMode, Priority, Verdict
from minutebook.testing.scenario import PAY, SETTINGS, Scenario, created, forged, given, in_call, recorded
from tests.unit.domain_cases import (
    DIGEST,
    OTHER,
    START,
    TURN,
    Case,
    begun,
    compaction_begun,
    table,
)

CREATE = session.Create("local", SETTINGS, {"look": "d1"})
WAITING = (created(), inputs.AcceptInput("i-1", "hello", Priority.NEXT, 1))
ABANDON = EndRequest("abandoned", request.Interrupt("abandoned"))
#: A started call whose request was ended: its effect is unsettled.
UNSETTLED = (*begun(PAY), ABANDON)
SETTLE = SettleEffect("r1.t1.a1.c0", tool.Reconcile("completed", "the bank says so"))

CASES = [
    Case("a journal begins with session_created", (), Note("remark", ""), CREATE),
    Case("a session is created once", (CREATE,), CREATE, Note("remark", "")),
    Case("the settings have the stated digest", (), forged(CREATE, data={"settings_digest": OTHER}), CREATE),
    Case("the settings are settings", (), forged(CREATE, data={"settings": {"model": 5}}), CREATE),
    Case(
        "the settings are settings",
        (CREATE,),
        recorded(ev.SettingsChanged(values={"unheard_of": 1})),
        recorded(ev.SettingsChanged(values={"temperature": 1})),
    ),
    Case("the settings are those of the journal", (CREATE,), Resume(OTHER, {}), Resume(DIGEST, {})),
    Case(
        "grant ids are never used twice",
        (CREATE, Grant("g1", "tool", "look")),
        Grant("g1", "tool", "put"),
        Grant("g2", "tool", "put"),
    ),
    Case("the grant is standing", (CREATE, Grant("g1", "tool", "look")), Revoke("g2"), Revoke("g1")),
    Case(
        "the session is open",
        (CREATE, CloseSession("user")),
        Note("remark", ""),
        SETTLE,
        (*UNSETTLED, CloseSession("user")),
    ),
    Case(
        "closed only with no active request",
        START,
        recorded(ev.SessionClosed()),
        [ABANDON, CloseSession("user")],
    ),
    Case(
        "every pending input is cancelled before closing",
        WAITING,
        recorded(ev.SessionClosed()),
        CloseSession("user"),
    ),
    Case(
        "closed only with no open compaction",
        (CREATE, compaction_begun()),
        CloseSession("user"),
        [FailCompaction("c-1", "closing"), CloseSession("user")],
    ),
]


@table(CASES)
def test_it_refuses_and_allows(case: Case) -> None:
    case.refuse()
    case.allow()


def test_creating_states_owner_settings_and_tools() -> None:
    scenario = given().when(CREATE).then(ev.SessionCreated)
    state = scenario.state.session
    assert state is not None
    assert (state.owner_id, state.settings, state.settings_digest) == ("local", SETTINGS, DIGEST)
    assert state.status is session.Status.OPEN


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"model": "m2"}, [ev.ModelChanged]),
        ({"permission_mode": "plan"}, [ev.PermissionModeChanged]),
        ({"max_turns": 7}, [ev.MaxTurnsChanged]),
        ({"context": {"a": 1}}, [ev.DefaultContextChanged]),
        ({"temperature": 0.5}, [ev.SettingsChanged]),
        ({"temperature": 0.5, "system_prompt": "Be brief."}, [ev.SettingsChanged]),
        (
            {"model": "m2", "max_turns": 7, "temperature": 0.5},
            [ev.ModelChanged, ev.MaxTurnsChanged, ev.SettingsChanged],
        ),
    ],
    ids=["model", "mode", "turns", "context", "one other", "two others", "three"],
)
def test_each_setting_is_changed_by_its_own_event(values: dict[str, Any], expected: list[Any]) -> None:
    scenario = given(CREATE).when(Change(values)).then(*expected)
    assert scenario.state.session is not None
    assert scenario.state.session.settings == SETTINGS.changed(values)
    assert scenario.state.session.settings_digest == SETTINGS.changed(values).digest()


@pytest.mark.parametrize("effective", Effective)
def test_a_change_reaches_the_active_request_only_if_it_says_so(effective: Effective) -> None:
    scenario = given(*TURN).given(Change({"model": "m2"}, effective))
    assert scenario.state.request is not None
    assert scenario.state.request.settings is not None
    reached = effective is Effective.NEXT_TURN
    assert scenario.state.request.settings.model == ("m2" if reached else "test-model")
    assert scenario.state.request.settings_digest == scenario.state.request.settings.digest()


def test_a_new_mode_counts_at_once_for_the_session_not_for_the_request() -> None:
    scenario = given(*TURN).given(Change({"permission_mode": PermissionMode.PLAN}))
    assert scenario.state.session is not None
    assert scenario.state.request is not None
    assert scenario.state.session.settings.permission_mode is PermissionMode.PLAN
    assert scenario.state.request.settings == SETTINGS


def policy(scenario: Scenario) -> str:
    assert scenario.state.session is not None
    return scenario.state.session.policy_digest


GRANTED = (CREATE, Grant("g1", "tool", "look", "process"), SetRule("u1", "tool", "put", Verdict.DENY))


@pytest.mark.parametrize(
    ("command", "moves"),
    [
        (Change({"permission_mode": "plan"}), True),
        (SetRule("u2", "tool", "look", Verdict.ALLOW), True),
        (SetRule("u1", "tool", "put", None), True),
        (SetRule("u1", "tool", "put", Verdict.DENY), False),
        (Revoke("g1"), True),
        (Grant("g2", "category", "files"), False),
        (Resume(DIGEST, {"look": "d2"}), True),
        (Note("remark", ""), False),
        (Change({"model": "m2"}), False),
    ],
    ids="mode rule unrule same-rule revoke grant tools note model".split(),
)
def test_what_decisions_depend_on(command: session.Command, moves: bool) -> None:
    scenario = given(*GRANTED)
    before = policy(scenario)
    scenario.given(command)
    assert (policy(scenario) != before) is moves


def test_grants_of_a_process_end_with_it() -> None:
    scenario = given(*GRANTED, Grant("g2", "tool", "put", "session"))
    scenario.given(Resume(DIGEST, {"look": "d1"}))
    assert scenario.state.session is not None
    assert [grant.grant_id for grant in scenario.state.session.grants] == ["g2"]
    assert scenario.state.session.revocations == 1


def test_a_rule_replaces_the_one_of_its_id() -> None:
    scenario = given(*GRANTED, SetRule("u1", "category", "files", Verdict.ASK))
    assert scenario.state.session is not None
    assert [(r.rule_id, r.scope_of, r.verdict) for r in scenario.state.session.rules] == [
        ("u1", "category", Verdict.ASK)
    ]


def test_a_note_changes_nothing_but_its_place() -> None:
    before = given(CREATE)
    after = given(CREATE, Note("remark", "hello", {"a": [1]}))
    assert after.state.session == before.state.session
    assert after.actions() == before.actions() == ["none"]


def test_a_note_may_be_about_anything() -> None:
    note = ev.NoticeRecorded(kind="late_result", message="it came too late")
    about = {"request_id": "r1", "turn_id": "r1.t1", "model_attempt_id": "r1.t1.a1", "tool_id": "r1.t1.a1.c0"}
    given(*UNSETTLED).when(recorded(note, **about)).then("notice_recorded")


def test_closing_cancels_what_is_pending_in_one_commit() -> None:
    scenario = given(*WAITING).when(CloseSession("user")).then("input_cancelled", "session_closed")
    assert scenario.state.queue.pending == ()
    assert scenario.actions() == ["none"]


def test_an_unsettled_effect_can_be_settled_after_closing() -> None:
    scenario = given(*UNSETTLED, CloseSession("user"))
    assert [step.evidence for step in scenario.plan()] == [(scenario.state.unsettled[0].sequence,)]
    scenario.when(SETTLE).then("tool_outcome_reconciled")
    assert scenario.state.unsettled == ()


def test_the_settings_digest_knows_every_value() -> None:
    digests = {
        SETTINGS.digest(),
        SETTINGS.changed({"model": "m2"}).digest(),
        SETTINGS.changed({"temperature": 0.5}).digest(),
        SETTINGS.changed({"on_lost_attempt": "retry"}).digest(),
        SETTINGS.changed({"context": {"a": 1}}).digest(),
    }
    assert len(digests) == 5
    assert Settings.model_validate(SETTINGS.to_plain()) == SETTINGS


def test_a_call_is_about_the_active_turn_only() -> None:
    given(CREATE).when(in_call(0, tool.Fail("E", "x"))).refused("there is a declared call 0")

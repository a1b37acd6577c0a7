"""Rollovers: a request ends as superseded and its successor is accepted, or nothing happens."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from adapters.memory_journal import MemoryStore
from adapters.system import SystemClock, SystemIds
from domain import catalogue, inputs, model_attempt, request, session, tool, turn
from domain import events as ev
from domain.budget import Limits, SetBudget
from domain.decider import EndRequest
from domain.envelope import Recorded
from domain.errors import (
    InvalidOptions,
    ModelFailed,
    RecoveryRejected,
    UnsafeRollover,
    UnsettledEffectsFull,
)
from domain.limits import MAX_UNSETTLED_EFFECTS
from domain.ports import Journal, Receipt
from domain.state import UnsettledEffect
from domain.values import ActorKind, Effective, Priority, SideEffect, Verdict
from minutebook.testing.keeping import keep
from minutebook.testing.scenario import (
    LOOK,
    PAY,
    PUT,
    SETTINGS,
    Scenario,
    Writing,
    accepted,
    attempt,
    created,
    evaluated,
    in_call,
    responded,
    running,
    scheduled,
)
from projections.transcript import UserItem
from recovery import rollover
from recovery.coordinator import RecoveryCoordinator
from recovery.plan import make_plan
from recovery.replaying import replay
from tests.journals import BEGUN, asking, lost_attempt, lost_payment, session_of, suspended
from tests.unit.domain_cases import compaction_begun

pytestmark = pytest.mark.anyio

SESSION = "s-test"
WHY: dict[str, Any] = {"evidence": "ticket 4"}
STARTED: list[Writing] = [inputs.ApplyInput("i-1", Priority.NEXT, 1), request.StartRequest()]
HOOKS = inputs.BeginPreparation(("i-1",), ("hook",))
ROLLED = ["request_superseded", "input_accepted", "request_accepted"]


@asynccontextmanager
async def deciding(scenario: Scenario) -> AsyncIterator[tuple[RecoveryCoordinator, Journal]]:
    async with MemoryStore().open() as journal:
        await keep(journal, scenario)
        async with RecoveryCoordinator.open(
            journal, scenario.state.session_id, clock=SystemClock(), ids=SystemIds(), actor_id="ann"
        ) as coordinator:
            yield coordinator, journal


async def appended(journal: Journal, receipt: Receipt, session_id: str = SESSION) -> list[Recorded]:
    rows = await journal.read(session_id, after=receipt.first_sequence - 1, upto=receipt.last_sequence)
    first, *rest = map(catalogue.open_stored, rows)
    assert first.type == "lease_acquired"
    return rest


def types(events: Sequence[Recorded]) -> list[str]:
    return [event.type for event in events]


def waiting(content: Any = "hello", **accept: Any) -> Scenario:
    """A request that was accepted and has not started."""
    accept = {"max_turns": 3, "context": {"user": "ann"}, **accept}
    return session_of(
        created(),
        [
            inputs.AcceptInput("i-1", content, Priority.NEXT, 1, metadata={"page": 7}),
            request.AcceptRequest("i-1", SETTINGS, accept["context"], accept["max_turns"]),
        ],
    )


def steered() -> Scenario:
    """After a first turn two more inputs were applied, and their hooks had begun."""
    return session_of(
        *BEGUN,
        [
            inputs.AcceptInput("i-2", "and this", Priority.NEXT, 2, "r1"),
            inputs.AcceptInput("i-3", [{"type": "text", "text": "and that"}], Priority.NEXT, 3, "r1"),
        ],
        responded(LOOK),
        [scheduled(0, LOOK), evaluated(0, Verdict.DENY), *in_call(0, tool.Cancel("permission_denied"))],
        turn.CompleteTurn(1, "tool_calls"),
        inputs.ApplyInput("i-2", Priority.NEXT, 2),
        inputs.ApplyInput("i-3", Priority.NEXT, 2),
        inputs.BeginPreparation(("i-2", "i-3"), ("hook",)),
    )


# --- a request ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "applied", "cancelled"),
    [
        (waiting(), (), ["input_cancelled"]),
        (waiting().given(STARTED), ("i-1",), []),
        (waiting().given(STARTED, HOOKS), ("i-1",), []),
    ],
    ids=["accepted", "applied", "hooks had begun"],
)
async def test_a_request_is_rolled_over_in_one_commit(
    scenario: Scenario, applied: tuple[str, ...], cancelled: list[str]
) -> None:
    async with deciding(scenario) as (coordinator, journal):
        receipt = await coordinator.prepare_request_recovery(applied, **WHY)
        events = await appended(journal, receipt)
        assert types(events) == [*cancelled, *ROLLED]
        assert {(e.actor.kind, e.actor.id) for e in events} == {(ActorKind.OPERATOR, "ann")}
        ended, sent, begun = events[-3:]
        assert ended.data == ev.RequestSuperseded(
            reason="request_recovery", evidence="ticket 4", by_request_id="r2",
            replaced_input_ids=list(applied),
        )  # fmt: skip
        assert (sent.data.content, sent.data.priority, sent.data.metadata) == (
            "hello", Priority.NEXT, {"page": 7},
        )  # fmt: skip
        assert begun.data == ev.RequestAccepted(
            input_id=sent.data.input_id, max_turns=3, model="test-model",
            settings_digest=SETTINGS.digest(), context={"user": "ann"}, supersedes="r1",
        )  # fmt: skip
        (item,) = coordinator.plan.items
        assert (item.action, item.subject, item.who) == ("resume_request", "r2", "automatic")


async def test_the_successor_goes_on_and_the_conversation_holds_one_input() -> None:
    """What no turn has seen is replaced; what the model has seen stays."""
    async with deciding(steered()) as (coordinator, journal):
        await coordinator.prepare_request_recovery(["i-2", "i-3"], **WHY)
        found = await replay(journal, SESSION)
        assert [getattr(item, "input_id", "exchange") for item in found.transcript.items] == [
            "i-1", "exchange",
        ]  # fmt: skip
        (queued,) = found.pending_inputs.items
        parts = [{"type": "text", "text": text} for text in ("and this", "and that")]
        assert queued.content == parts
    scenario = steered().given(
        [
            EndRequest("superseded", request.Supersede("x", "y", "r2", ("i-2", "i-3"))),
            inputs.AcceptInput("i-4", "both", Priority.NEXT, 4),
            request.AcceptRequest("i-4", SETTINGS, {}, 2, "r1"),
        ],
        [
            inputs.ApplyInput("i-4", Priority.NEXT, 1),
            request.StartRequest(),
            inputs.FinishPreparation(("i-4",)),
        ],
    )
    async with MemoryStore().open() as journal:
        await keep(journal, scenario)
        found = await replay(journal, SESSION)
        last = found.transcript.items[-1]
        assert isinstance(last, UserItem)
        assert (len(found.transcript.items), last.input_id, last.content) == (3, "i-4", "both")
        assert found.session.facts.ended == (("superseded", 1),)
        assert found.session.facts.request_id == "r2"


async def test_the_final_content_and_the_turns_may_be_given() -> None:
    async with deciding(waiting().given(STARTED, HOOKS)) as (coordinator, journal):
        receipt = await coordinator.prepare_request_recovery(
            ["i-1"], content="hello, prepared", max_turns=9, **WHY
        )
        _, sent, begun = await appended(journal, receipt)
        assert (sent.data.content, begun.data.max_turns) == ("hello, prepared", 9)


async def test_a_successor_runs_under_the_settings_of_now() -> None:
    """It is a new request: what was to count from the next one on counts."""
    changed = session.Change({"model": "another"}, Effective.NEXT_REQUEST)
    async with deciding(waiting().given(STARTED, changed)) as (coordinator, journal):
        receipt = await coordinator.prepare_request_recovery(["i-1"], **WHY)
        assert (await appended(journal, receipt))[-1].data.model == "another"
        assert coordinator.plan.items[0].action == "resume_request"


async def test_inputs_that_were_aimed_at_the_old_request_wait_for_their_turn() -> None:
    aimed = inputs.AcceptInput("i-2", "quick", Priority.NOW, 2, "r1")
    async with deciding(waiting().given(STARTED, HOOKS, aimed)) as (coordinator, _):
        await coordinator.prepare_request_recovery(["i-1"], **WHY)
        first, own = coordinator.plan.pending_inputs
        assert (first.input_id, first.priority, own.content) == ("i-2", "later", None)
        assert coordinator.plan.items[0].action == "resume_request"


async def test_blobs_are_taken_over_and_unknown_ones_refused() -> None:
    data = b"a picture"
    part = {"type": "image", "media_type": "image/png", "blob": hashlib.sha256(data).hexdigest()}
    scenario = waiting([part]).given(STARTED)
    async with deciding(scenario) as (coordinator, _):
        with pytest.raises(InvalidOptions, match="blobs are in the store"):
            await coordinator.prepare_request_recovery(["i-1"], **WHY)


REQUEST_REFUSALS: dict[str, tuple[Scenario, str]] = {
    "another input": (waiting().given(STARTED), r"expected the applied inputs \['i-1'\], got \['i-9'\]"),
    "nothing open": (session_of(created()), "the plan does not call for it; it says: none"),
    "in a turn": (lost_attempt(SESSION), "reconcile_model_outcome"),
    "a turn is due": (
        session_of(
            *BEGUN,
            responded(LOOK),
            [scheduled(0, LOOK), evaluated(0, Verdict.DENY), *in_call(0, tool.Cancel("permission_denied"))],
            turn.CompleteTurn(1, "tool_calls"),
        ),
        "continue_request",
    ),
    "being aborted": (waiting().given(request.RequestAbort("user")), "finish_abort"),
    "a compaction is open": (waiting().given(STARTED, [compaction_begun()]), "fail_compaction"),
    "prepared": (waiting().given(STARTED, inputs.FinishPreparation(("i-1",))), "continue_request"),
    "foreign": (
        session_of(created(), accepted(settings=SETTINGS.changed({"model": "x"}))),
        "reconcile_request_outcome",
    ),
}


@pytest.mark.parametrize("name", REQUEST_REFUSALS)
async def test_a_request_is_not_rolled_over_where_the_plan_goes_on_otherwise(name: str) -> None:
    scenario, told = REQUEST_REFUSALS[name]
    async with deciding(scenario) as (coordinator, journal):
        with pytest.raises(RecoveryRejected, match=told):
            await coordinator.prepare_request_recovery(["i-9"] if name == "another input" else [], **WHY)
        await _nothing_was_written(journal, scenario)


async def _nothing_was_written(journal: Journal, scenario: Scenario) -> None:
    row = await journal.session(scenario.state.session_id)
    assert row is not None
    assert row.sequence == scenario.state.sequence


@pytest.mark.parametrize(
    "options",
    [{"evidence": " "}, {"content": ""}, {"content": []}, {"max_turns": 0}, {"max_turns": 201}],
    ids=str,
)
async def test_a_rollover_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    scenario = waiting().given(STARTED)
    async with deciding(scenario) as (coordinator, journal):
        with pytest.raises(InvalidOptions):
            await coordinator.prepare_request_recovery(["i-1"], **{**WHY, **options})
        await _nothing_was_written(journal, scenario)


async def test_a_request_without_turns_is_told_how_many() -> None:
    """An input came after the last turn that was allowed."""
    last = session_of(
        created(),
        accepted(max_turns=1),
        [*STARTED, inputs.FinishPreparation(("i-1",)), turn.StartTurn(1, SETTINGS.digest()), attempt()],
        responded(text="done"),
        [turn.CompleteTurn(0, "end"), inputs.AcceptInput("i-2", "more", Priority.NEXT, 2, "r1")],
        inputs.ApplyInput("i-2", Priority.NEXT, 2),
    )
    async with deciding(last) as (coordinator, journal):
        with pytest.raises(InvalidOptions, match="of the request 0 are left"):
            await coordinator.prepare_request_recovery(["i-2"], **WHY)
        await _nothing_was_written(journal, last)
        await coordinator.prepare_request_recovery(["i-2"], max_turns=2, **WHY)
        assert coordinator.plan.items[0].action == "resume_request"


# --- a turn -------------------------------------------------------------------------------


def in_turn(*commits: Any, calls: tuple[Any, ...] = (LOOK, PUT)) -> Scenario:
    """A turn whose response declared these calls."""
    return session_of(*BEGUN, responded(*calls), *commits)


FAILED = model_attempt.Fail(ModelFailed("overloaded", "try later", retryable=True))
TURNS: dict[str, tuple[Scenario, list[str], list[str]]] = {
    "the attempt failed": (session_of(*BEGUN, FAILED), [], []),
    "called nothing": (session_of(*BEGUN, responded(text="hello")), [], []),
    "only declared": (in_turn(), ["tool_rejected", "tool_rejected"], []),
    "scheduled": (
        in_turn([scheduled(0, LOOK), scheduled(1, PUT)], [evaluated(0), evaluated(1)]),
        ["tool_cancelled", "tool_cancelled"],
        [],
    ),
    "pure and idempotent ones started": (
        in_turn([scheduled(0, LOOK), scheduled(1, PUT), evaluated(0), evaluated(1), running(0), running(1)]),
        ["tool_cancelled", "tool_outcome_unknown"],
        ["r1.t1.a1.c1"],
    ),
    "all done": (
        in_turn(
            [scheduled(0, LOOK), evaluated(0), running(0)],
            in_call(0, tool.Complete({"output": "there"})),
            calls=(LOOK,),
        ),
        [],
        [],
    ),
    "a payment that never started": (
        in_turn([scheduled(0, PAY), evaluated(0)], calls=(PAY,)),
        ["tool_cancelled"],
        [],
    ),
}


@pytest.mark.parametrize("name", TURNS)
async def test_a_turn_is_rolled_over_in_one_commit(name: str) -> None:
    scenario, calls, unsettled = TURNS[name]
    async with deciding(scenario) as (coordinator, journal):
        receipt = await coordinator.prepare_turn_recovery(**WHY)
        events = await appended(journal, receipt)
        assert types(events) == [*calls, "turn_aborted", *ROLLED]
        assert {e.data.reason for e in events if e.type in ("turn_aborted", "tool_cancelled")} == {
            "superseded"
        }
        ended, sent, begun = events[-3:]
        assert (ended.data.reason, ended.data.by_request_id) == ("turn_recovery", "r2")
        assert ended.data.replaced_input_ids == []
        assert sent.data.content == rollover.CONTINUE
        assert (begun.data.supersedes, begun.data.max_turns) == ("r1", SETTINGS.max_turns)
        assert [e.tool_id for e in coordinator.plan.unsettled_effects] == unsettled
        assert coordinator.plan.items[0].action == "resume_request"
        await _reads_on(journal, scenario)


async def _reads_on(journal: Journal, scenario: Scenario) -> None:
    """What was said stays, and every call has its result."""
    found = await replay(journal, scenario.state.session_id)
    first, *exchanges = found.transcript.items
    assert isinstance(first, UserItem)
    assert [call.outcome for e in exchanges for call in e.calls if call.outcome == "open"] == []  # type: ignore[union-attr]  # exchanges


def paid(*ends: tool.Command, calls: tuple[Any, ...] = (PAY,)) -> Scenario:
    """A payment was started, and ended like this."""
    return in_turn([scheduled(0, PAY), evaluated(0), running(0)], *(in_call(0, e) for e in ends), calls=calls)


CROSSED: dict[str, tuple[Scenario, str]] = {
    "started": (paid(), "settle r1.t1.a1.c0 with reconcile_tool_outcome; then complete_turn r1.t1"),
    "unknown": (paid(tool.LoseSight("cut")), "settle r1.t1.a1.c0"),
    "suspended": (paid(tool.Suspend(None, {})), "settle r1.t1.a1.c0"),
    "completed": (paid(tool.Complete({"output": "paid"})), "way on: complete_turn r1.t1"),
    "failed": (paid(tool.Fail("ValueError", "no")), "way on: complete_turn r1.t1"),
    "cancelled after its start": (paid(tool.Cancel("stopped")), "way on: complete_turn r1.t1"),
    "reconciled as never done": (
        paid(tool.Reconcile("cancelled", "the bank knows nothing")),
        "way on: complete_turn r1.t1",
    ),
    "one of several": (paid(tool.Complete({"output": "paid"}), calls=(PAY, LOOK)), r"c0 \(pay, completed\)"),
}


@pytest.mark.parametrize("name", CROSSED)
async def test_r335_no_rollover_over_a_started_call_that_must_not_run_twice(name: str) -> None:
    scenario, told = CROSSED[name]
    async with deciding(scenario) as (coordinator, journal):
        with pytest.raises(UnsafeRollover, match=told) as refused:
            await coordinator.prepare_turn_recovery(**WHY)
        assert refused.value.code == "UNSAFE_ROLLOVER"
        await _nothing_was_written(journal, scenario)
        assert [way.action for way in coordinator.plan.alternatives] == ["abandon_request"]


async def test_the_way_on_that_it_names_is_one() -> None:
    async with deciding(lost_payment(SESSION)) as (coordinator, _):
        await coordinator.reconcile_tool_outcome("r1.t1.a1.c0", outcome="completed", evidence="statement")
        with pytest.raises(UnsafeRollover, match="complete_turn"):
            await coordinator.prepare_turn_recovery(**WHY)
        await coordinator.apply_automatic()
        assert coordinator.plan.items[0].action == "continue_request"


TURN_REFUSALS: dict[str, tuple[Scenario, str]] = {
    "the attempt's end is unknown": (lost_attempt(SESSION), "reconcile_model_outcome r1.t1.a1"),
    "a person is asked": (asking(SESSION), "resolve_permissions"),
    "an answer is waited for": (suspended(SESSION), "answer_suspensions"),
    "no turn": (waiting(), "resume_request"),
    "between turns": (waiting().given(STARTED, HOOKS), "reconcile_request_inputs"),
    "being aborted": (in_turn(request.RequestAbort("user")), "finish_abort"),
    "nothing open": (session_of(created()), "it says: none"),
}


@pytest.mark.parametrize("name", TURN_REFUSALS)
async def test_a_turn_is_not_rolled_over_where_somebody_has_to_decide_first(name: str) -> None:
    scenario, told = TURN_REFUSALS[name]
    async with deciding(scenario) as (coordinator, journal):
        with pytest.raises(RecoveryRejected, match=told) as refused:
            await coordinator.prepare_turn_recovery(**WHY)
        assert refused.value.code == "DURABLE_RECOVERY_INVALID_STATE"
        await _nothing_was_written(journal, scenario)


async def test_an_attempt_that_the_settings_call_lost_is_called_that_first() -> None:
    retry = SETTINGS.changed({"on_lost_attempt": "retry"})
    scenario = session_of(
        created(retry),
        accepted(settings=retry),
        [
            *STARTED,
            inputs.FinishPreparation(("i-1",)),
            turn.StartTurn(1, retry.digest()),
            attempt(),
        ],
    )
    async with deciding(scenario) as (coordinator, _):
        with pytest.raises(RecoveryRejected, match="reconcile_model_outcome"):
            await coordinator.prepare_turn_recovery(**WHY)
        await coordinator.apply_automatic()
        await coordinator.prepare_turn_recovery(**WHY)
        assert coordinator.plan.items[0].action == "resume_request"


async def test_the_last_turn_that_is_given_up_counts_as_not_taken() -> None:
    scenario = session_of(
        created(),
        accepted(max_turns=1),
        [*STARTED, inputs.FinishPreparation(("i-1",)), turn.StartTurn(1, SETTINGS.digest()), attempt()],
        FAILED,
    )
    async with deciding(scenario) as (coordinator, journal):
        receipt = await coordinator.prepare_turn_recovery(**WHY)
        assert (await appended(journal, receipt))[-1].data.max_turns == 1


async def test_sixty_calls_fit_one_commit() -> None:
    many = tuple(LOOK for _ in range(60))
    scenario = in_turn(*[[scheduled(i, LOOK), evaluated(i), running(i)] for i in range(60)], calls=many)
    async with deciding(scenario) as (coordinator, journal):
        receipt = await coordinator.prepare_turn_recovery(**WHY)
        assert len(await appended(journal, receipt)) == 60 + 1 + 3


# --- room ---------------------------------------------------------------------------------


async def test_with_the_budget_spent_no_request_takes_over() -> None:
    scenario = session_of(
        [session.Create("local", SETTINGS, {}), SetBudget(Limits(max_tokens=5))],
        accepted(),
        [*STARTED, inputs.FinishPreparation(("i-1",)), turn.StartTurn(1, SETTINGS.digest()), attempt()],
        responded(LOOK),
    )
    async with deciding(scenario) as (coordinator, journal):
        with pytest.raises(RecoveryRejected, match="the session has used 5"):
            await coordinator.prepare_turn_recovery(**WHY)
        await _nothing_was_written(journal, scenario)


def test_a_full_list_of_unsettled_effects_takes_no_successor() -> None:
    """Also where only the rollover itself would fill it."""
    put = [scheduled(0, PUT), evaluated(0), running(0)]
    state = in_turn(put, calls=(PUT,)).state
    effect = UnsettledEffect("x", "put", SideEffect.IDEMPOTENT, "k", "r0", 1, 2)
    nearly = replace(state, unsettled=(effect,) * (MAX_UNSETTLED_EFFECTS - 1))
    with pytest.raises(UnsettledEffectsFull, match="reconcile_tool_outcome"):
        rollover.TurnRollover("ticket").check(nearly)
    assert rollover.possible(nearly) is None
    rollover.TurnRollover("ticket").check(replace(nearly, unsettled=nearly.unsettled[1:]))


# --- the plan -----------------------------------------------------------------------------


def test_the_plan_offers_it_where_it_is_allowed() -> None:
    def ways(scenario: Scenario) -> list[str]:
        return [way.action for way in make_plan(scenario.state).alternatives]

    assert ways(waiting()) == ["abandon_request", "prepare_request_recovery"]
    assert ways(in_turn()) == ["abandon_request", "prepare_turn_recovery"]
    assert ways(asking()) == ["abandon_request"]
    way = make_plan(steered().state).alternatives[-1]
    assert way.python == "await coordinator.prepare_request_recovery(['i-2', 'i-3'], evidence=\"...\")"
    assert way.shell.endswith("rollover-request --applied i-2,i-3 --evidence '...'")

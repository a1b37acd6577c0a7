"""Deciding what happened: one small commit each, on record, refused where nothing calls for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapters.memory_journal import MemoryStore
from adapters.system import SystemClock, SystemIds
from domain import catalogue, inputs, request, turn
from domain.decider import CloseSession
from domain.envelope import Fence, Recorded
from domain.errors import (
    CommandConflict,
    InvalidOptions,
    JournalBlocked,
    LeaseConflict,
    LeaseLost,
    OutcomeUnknown,
    RecoveryRejected,
    RuleViolated,
    SessionNotFound,
)
from domain.events import CompactionStarted
from domain.model_ports import Block, Response
from domain.ports import CommitStatus, Holder, Journal, Receipt
from domain.values import ActorKind, OnLostAttempt, Priority, Stop, Verdict
from minutebook.testing.keeping import keep
from minutebook.testing.scenario import (
    PAY,
    PUT,
    SETTINGS,
    Called,
    Scenario,
    accepted,
    created,
    evaluated,
    recorded,
    responded,
    running,
    scheduled,
    started,
)
from recovery.coordinator import RecoveryCoordinator
from recovery.plan import Kind
from tests.journals import (
    BEGUN,
    asking,
    failed_attempt,
    lost_attempt,
    lost_payment,
    session_of,
    suspended,
    unsettled,
)

pytestmark = pytest.mark.anyio

CALL = "r1.t1.a1.c0"
NOW = inputs.AcceptInput("i-2", "stop that", Priority.NOW, 2, target_request_id="r1")
RETRY = SETTINGS.changed({"on_lost_attempt": OnLostAttempt.RETRY.value})
ANSWER = Response((Block("text", "hello"),), (), Stop.END, {"input_tokens": 7})


@asynccontextmanager
async def deciding(scenario: Scenario, **options: Any) -> AsyncIterator[tuple[RecoveryCoordinator, Journal]]:
    """A coordinator over a session, and its journal."""
    async with MemoryStore().open() as journal:
        await keep(journal, scenario)
        options = {"clock": SystemClock(), "ids": SystemIds(), "actor_id": "ann", **options}
        async with RecoveryCoordinator.open(journal, scenario.state.session_id, **options) as coordinator:
            yield coordinator, journal


async def appended(journal: Journal, receipt: Receipt, session_id: str) -> list[Recorded]:
    """What a decision appended, without the first event of every coordinator: who holds the session."""
    rows = await journal.read(session_id, after=receipt.first_sequence - 1, upto=receipt.last_sequence)
    return [event for event in map(catalogue.open_stored, rows) if event.type != "lease_acquired"]


def types(events: list[Recorded]) -> list[str]:
    return [event.type for event in events]


# --- opening ------------------------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_opening_takes_the_lease_and_leaving_gives_it_back() -> None:
    async with MemoryStore().open() as journal:
        await keep(journal, lost_attempt())
        async with RecoveryCoordinator.open(
            journal, "s-lost", clock=SystemClock(), ids=SystemIds()
        ) as coordinator:
            lease = coordinator.plan.lease
            assert lease is not None
            assert (lease.token, lease.lives) == (1, True)
            with pytest.raises(LeaseConflict):
                await journal.leases.acquire("s-lost", Holder("other", "l-2"), 1000)
        assert (await journal.leases.acquire("s-lost", Holder("other", "l-2"), 1000)).token == 2


async def test_a_session_that_a_live_worker_holds_is_refused() -> None:
    async with MemoryStore().open() as journal:
        await keep(journal, lost_attempt())
        await journal.leases.acquire("s-lost", Holder("worker", "l-1"), 60_000)
        with pytest.raises(LeaseConflict, match="worker"):
            async with RecoveryCoordinator.open(journal, "s-lost", clock=SystemClock(), ids=SystemIds()):
                raise AssertionError("it was opened")


async def test_a_session_that_is_not_there_is_not_made() -> None:
    async with MemoryStore().open() as journal:
        with pytest.raises(SessionNotFound):
            async with RecoveryCoordinator.open(journal, "s-none", clock=SystemClock(), ids=SystemIds()):
                raise AssertionError("it was opened")
        assert await journal.session("s-none") is None


async def test_a_journal_that_cannot_be_followed_is_refused_before_the_lease() -> None:
    async with MemoryStore().open() as journal:
        await keep(journal, lost_attempt())
        stored = journal._contents.sessions["s-lost"]  # type: ignore[attr-defined]  # damage it where it is
        del stored.events[6]
        with pytest.raises(JournalBlocked, match="sequence 7"):
            async with RecoveryCoordinator.open(journal, "s-lost", clock=SystemClock(), ids=SystemIds()):
                raise AssertionError("it was opened")
        assert stored.row.lease is None


# --- a model attempt ----------------------------------------------------------------------


async def test_a_lost_attempt_lets_the_turn_ask_again() -> None:
    async with deciding(lost_attempt()) as (coordinator, journal):
        receipt = await coordinator.reconcile_model_outcome("r1.t1.a1", outcome="lost", evidence="no trace")
        (event,) = await appended(journal, receipt, "s-lost")
        assert (event.type, event.data.outcome, event.data.evidence) == (
            "model_outcome_reconciled", "lost", "no trace",
        )  # fmt: skip
        assert (event.actor.kind, event.actor.id) == (ActorKind.OPERATOR, "ann")
        assert event.recorded_by is not None
        assert coordinator.plan.items[0].action == "next_attempt"
        assert coordinator.plan.head_hash == receipt.head.hex()


async def test_a_completed_attempt_brings_its_response() -> None:
    async with deciding(lost_attempt()) as (coordinator, _):
        await coordinator.reconcile_model_outcome(
            "r1.t1.a1", outcome="completed", response=ANSWER, evidence="the provider's console"
        )
        assert coordinator.plan.items[0].action == "complete_turn"


async def test_a_failed_attempt_fails_the_request() -> None:
    async with deciding(lost_attempt()) as (coordinator, _):
        await coordinator.reconcile_model_outcome(
            "r1.t1.a1", outcome="failed", message="refused", evidence="the provider's console"
        )
        assert coordinator.plan.items[0].action == "fail_request"


@pytest.mark.parametrize(
    "arguments",
    [
        {"outcome": "vanished", "evidence": "x"},
        {"outcome": "lost", "evidence": "  "},
        {"outcome": "completed", "evidence": "x"},
        {"outcome": "lost", "evidence": "x", "response": ANSWER},
        {"outcome": "completed", "evidence": "x", "response": Response((), (), "no such stop")},
    ],
)
async def test_a_decision_that_makes_no_sense_is_refused(arguments: dict[str, Any]) -> None:
    async with deciding(lost_attempt()) as (coordinator, journal):
        with pytest.raises(InvalidOptions):
            await coordinator.reconcile_model_outcome("r1.t1.a1", **arguments)
        row = await journal.session("s-lost")
        assert row is not None
        assert row.sequence == 8


async def test_another_attempt_than_the_lost_one_is_refused() -> None:
    async with deciding(lost_attempt()) as (coordinator, _):
        with pytest.raises(RecoveryRejected, match=r"reconcile_model_outcome r1\.t1\.a1\. Nothing"):
            await coordinator.reconcile_model_outcome("r1.t1.a9", outcome="lost", evidence="x")


# --- a call -------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["completed", "failed", "cancelled"])
async def test_a_lost_payment_is_settled_within_its_turn(outcome: str) -> None:
    async with deciding(lost_payment()) as (coordinator, journal):
        receipt = await coordinator.reconcile_tool_outcome(
            CALL, outcome=outcome, output="5 cents", value={"id": 9}, evidence="the bank's statement"
        )
        (event,) = await appended(journal, receipt, "s-pay")
        assert (event.data.outcome, event.data.output, event.data.value) == (outcome, "5 cents", {"id": 9})
        assert event.causation == 12
        assert coordinator.plan.items[0].action == "complete_turn"


async def test_a_call_that_turns_out_to_wait_is_suspended() -> None:
    async with deciding(lost_payment()) as (coordinator, _):
        await coordinator.reconcile_tool_outcome(CALL, outcome="suspended", evidence="the bank")
        assert coordinator.plan.items[0].action == "answer_suspensions"


@pytest.mark.parametrize("closed", [False, True])
async def test_an_unsettled_effect_is_settled_after_its_request_and_after_the_session(closed: bool) -> None:
    scenario = unsettled()
    if closed:
        scenario.given(CloseSession("done"))
    async with deciding(scenario) as (coordinator, journal):
        assert [effect.tool_id for effect in coordinator.plan.unsettled_effects] == [CALL]
        receipt = await coordinator.reconcile_tool_outcome(CALL, outcome="completed", evidence="statement")
        (event,) = await appended(journal, receipt, "s-left")
        assert (event.type, event.request_id, event.tool_id) == ("tool_outcome_reconciled", "r1", CALL)
        assert not coordinator.plan.unsettled_effects
        with pytest.raises(RecoveryRejected):
            await coordinator.reconcile_tool_outcome(CALL, outcome="failed", evidence="second thoughts")


async def test_an_effect_of_an_ended_request_does_not_wait() -> None:
    async with deciding(unsettled()) as (coordinator, _):
        with pytest.raises(RuleViolated, match="does not wait"):
            await coordinator.reconcile_tool_outcome(CALL, outcome="suspended", evidence="x")


async def test_who_knows_what_a_harmless_call_did_spares_a_second_run() -> None:
    scenario = session_of(*BEGUN, responded(PUT), [scheduled(0, PUT), evaluated(0), running(0)])
    async with deciding(scenario) as (coordinator, _):
        assert coordinator.plan.items[0].action == "start_tool"
        await coordinator.reconcile_tool_outcome(CALL, outcome="completed", evidence="looked at the store")
        assert coordinator.plan.items[0].action == "complete_turn"


async def test_a_call_that_was_never_started_has_no_outcome() -> None:
    scenario = session_of(*BEGUN, responded(PUT), [scheduled(0, PUT), evaluated(0)])
    async with deciding(scenario) as (coordinator, _):
        with pytest.raises(RecoveryRejected, match="start_tool"):
            await coordinator.reconcile_tool_outcome(CALL, outcome="completed", evidence="x")


# --- people -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [CALL, f"{CALL}.p1"])
async def test_a_question_is_allowed_by_its_id_or_its_call(name: str) -> None:
    async with deciding(asking()) as (coordinator, journal):
        digest = coordinator.plan.permissions[0].input_digest
        receipt = await coordinator.resolve_permission(name, "allow", digest=digest)
        (event,) = await appended(journal, receipt, "s-ask")
        assert (event.type, event.data.verdict, event.actor.id) == ("permission_resolved", "allow", "ann")
        assert coordinator.plan.items[0].action == "start_tool"


async def test_a_denied_call_ends_in_the_same_commit() -> None:
    async with deciding(asking()) as (coordinator, journal):
        receipt = await coordinator.resolve_permission(CALL, "deny", message="too much")
        events = await appended(journal, receipt, "s-ask")
        assert types(events) == ["permission_resolved", "tool_cancelled"]
        assert events[0].data.message == "too much"
        assert coordinator.plan.items[0].action == "complete_turn"


async def test_an_answer_about_another_input_is_refused() -> None:
    async with deciding(asking()) as (coordinator, _):
        with pytest.raises(RecoveryRejected, match="Look at the question again"):
            await coordinator.resolve_permission(CALL, "allow", digest="0" * 64)
        assert coordinator.plan.kind is Kind.WAITING


async def test_an_updated_input_is_evaluated_again() -> None:
    async with deciding(asking()) as (coordinator, _):
        await coordinator.resolve_permission(CALL, "allow", updated_input={"cents": 1})
        assert coordinator.plan.items[0].action == "evaluate"


async def test_a_question_is_answered_once() -> None:
    async with deciding(asking()) as (coordinator, _):
        await coordinator.resolve_permission(CALL, "allow")
        with pytest.raises(RecoveryRejected):
            await coordinator.resolve_permission(CALL, "deny")


async def test_a_denied_call_takes_no_other_input() -> None:
    async with deciding(asking()) as (coordinator, _):
        with pytest.raises(InvalidOptions, match="updated_input"):
            await coordinator.resolve_permission(CALL, "deny", updated_input={})
        with pytest.raises(InvalidOptions, match="verdict"):
            await coordinator.resolve_permission(CALL, "perhaps")


async def test_a_suspended_call_gets_its_answer() -> None:
    async with deciding(suspended()) as (coordinator, journal):
        receipt = await coordinator.answer_suspension(CALL, {"code": 1234})
        (event,) = await appended(journal, receipt, "s-wait")
        assert (event.type, event.data.answer) == ("tool_resumed", {"code": 1234})
        with pytest.raises(RecoveryRejected):
            await coordinator.answer_suspension(CALL, {"code": 1})


# --- the request --------------------------------------------------------------------------


def lost_hooks() -> Scenario:
    return session_of(
        created(),
        accepted(),
        [
            inputs.ApplyInput("i-1", Priority.NEXT, 1),
            request.StartRequest(),
            inputs.BeginPreparation(("i-1",), ("hook",)),
        ],
    )


async def test_lost_preparation_is_finished_by_hand() -> None:
    async with deciding(lost_hooks()) as (coordinator, journal):
        receipt = await coordinator.reconcile_request_inputs(evidence="log", contents={"i-1": "hello!"})
        (event,) = await appended(journal, receipt, "s-test")
        assert (event.type, event.data.contents, event.data.evidence) == (
            "input_prepared",
            {"i-1": "hello!"},
            "log",
        )
        assert coordinator.plan.items[0].action == "continue_request"


async def test_contents_of_other_inputs_are_refused() -> None:
    async with deciding(lost_hooks()) as (coordinator, _):
        with pytest.raises(InvalidOptions, match="i-7"):
            await coordinator.reconcile_request_inputs(evidence="log", contents={"i-7": "x"})


def foreign() -> Scenario:
    """A request accepted under settings that the journal does not hold."""
    changed = SETTINGS.changed({"model": "another"})
    return session_of(created(), accepted(settings=changed))


@pytest.mark.parametrize(
    ("outcome", "type_"), [("failed", "request_failed"), ("interrupted", "request_interrupted")]
)
async def test_a_foreign_request_is_ended_by_the_operator(outcome: str, type_: str) -> None:
    async with deciding(foreign()) as (coordinator, journal):
        receipt = await coordinator.reconcile_request_outcome(outcome, message="moved", evidence="import")
        events = await appended(journal, receipt, "s-test")
        assert types(events) == ["input_cancelled", type_]
        assert events[-1].data.evidence == "import"
        assert coordinator.plan.kind is Kind.NOTHING


async def test_a_request_that_never_ran_did_not_complete() -> None:
    async with deciding(foreign()) as (coordinator, _):
        with pytest.raises(RuleViolated):
            await coordinator.reconcile_request_outcome("completed", message="done", evidence="import")


async def test_abandoning_ends_everything_in_one_commit() -> None:
    scenario = session_of(
        *BEGUN, responded(PAY, PUT), [scheduled(0, PAY), evaluated(0), running(0), scheduled(1, PUT)]
    )
    async with deciding(scenario) as (coordinator, journal):
        receipt = await coordinator.abandon_request(reason="it hangs", evidence="ticket 4")
        events = await appended(journal, receipt, "s-test")
        assert types(events) == [
            "tool_outcome_unknown",
            "tool_cancelled",
            "turn_aborted",
            "request_interrupted",
        ]
        assert (events[-1].data.reason, events[-1].data.evidence) == ("abandoned", "it hangs (ticket 4)")
        assert events[-2].data.reason == "abandoned"
        assert [e.tool_id for e in coordinator.plan.unsettled_effects] == [CALL]


async def test_a_reason_is_needed_and_a_request() -> None:
    async with deciding(lost_payment()) as (coordinator, _):
        with pytest.raises(InvalidOptions, match="reason"):
            await coordinator.abandon_request(reason=" ")
        await coordinator.abandon_request(reason="enough")
        with pytest.raises(RecoveryRejected, match="no request"):
            await coordinator.abandon_request(reason="enough")


# --- what needs no code -------------------------------------------------------------------


def begun_compaction() -> Scenario:
    started_ = recorded(CompactionStarted(compaction_id="k-1", trigger="manual"), aggregate_id="s-test")
    return session_of(created(), started_)


def max_turns_used() -> Scenario:
    calls = [scheduled(0, PAY), evaluated(0, Verdict.DENY)]
    return session_of(created(), accepted(max_turns=1), started(), responded(PAY), calls)


@pytest.mark.parametrize(
    ("scenario", "expected", "then"),
    [
        (failed_attempt(), [["turn_aborted", "request_failed"]], "none"),
        (
            session_of(created(), accepted(), request.RequestAbort("user")),
            [["input_cancelled", "request_interrupted"]],
            "none",
        ),
        (
            session_of(created(RETRY), accepted(settings=RETRY), started(settings=RETRY)),
            [["model_outcome_reconciled"]],
            "next_attempt",
        ),
        (begun_compaction(), [["compaction_failed"]], "none"),
        (
            session_of(*BEGUN, responded(Called("pay", "{"), PAY)),
            [["tool_rejected"]],
            "schedule_call",
        ),
        (
            session_of(*BEGUN, responded(Called("pay", "{"))),
            [["tool_rejected"], ["turn_completed"]],
            "continue_request",
        ),
        (
            session_of(*BEGUN, responded(text="the answer")),
            [["turn_completed"], ["request_completed"]],
            "none",
        ),
        (
            asking("s-test").given(NOW),
            [["permission_cancelled", "tool_cancelled"], ["turn_completed"]],
            "apply_input",
        ),
        (max_turns_used(), [["tool_cancelled"], ["turn_completed"], ["request_failed"]], "none"),
        (lost_payment(), [], "reconcile_tool_outcomes"),
        (session_of(created(), accepted()), [], "resume_request"),
    ],
)
async def test_automatic_steps_that_need_no_code(
    scenario: Scenario, expected: list[list[str]], then: str
) -> None:
    async with deciding(scenario) as (coordinator, journal):
        receipts = await coordinator.apply_automatic()
        found = [await appended(journal, receipt, scenario.state.session_id) for receipt in receipts]
        assert [types(events) for events in found] == expected
        assert all(e.actor.kind is ActorKind.RECOVERY for events in found for e in events)
        assert coordinator.plan.items[0].action == then
        assert await coordinator.apply_automatic() == []


async def test_a_request_is_finalized_with_the_recorded_response() -> None:
    scenario = session_of(*BEGUN, responded(text="the answer"), turn.CompleteTurn(0, "end"))
    async with deciding(scenario) as (coordinator, journal):
        (receipt,) = await coordinator.apply_automatic()
        (event,) = await appended(journal, receipt, "s-test")
        assert (event.data.output, event.data.usage) == (
            "the answer",
            {"input_tokens": 3, "output_tokens": 2},
        )


async def test_a_malformed_call_is_rejected_with_what_is_wrong() -> None:
    async with deciding(session_of(*BEGUN, responded(Called("pay", '{"a":1,"a":2}')))) as (
        coordinator,
        journal,
    ):
        receipts = await coordinator.apply_automatic()
        (event,) = await appended(journal, receipts[0], "s-test")
        assert event.data.reason == "malformed"
        assert "each key once" in event.data.message


# --- the commit ---------------------------------------------------------------------------


async def test_the_same_command_again_gives_the_first_receipt() -> None:
    async with deciding(lost_attempt()) as (coordinator, journal):
        first = await coordinator.reconcile_model_outcome(
            "r1.t1.a1", outcome="lost", evidence="x", command_id="decision-1"
        )
        again = await coordinator.reconcile_model_outcome(
            "r1.t1.a1", outcome="lost", evidence="x", command_id="decision-1"
        )
        assert (first.status, again.status) == (CommitStatus.COMMITTED, CommitStatus.REPLAYED)
        assert (again.first_sequence, again.head) == (first.first_sequence, first.head)
        row = await journal.session("s-lost")
        assert row is not None
        assert row.sequence == first.last_sequence


async def test_the_same_command_for_something_else_is_a_conflict() -> None:
    async with deciding(lost_attempt()) as (coordinator, _):
        await coordinator.reconcile_model_outcome("r1.t1.a1", outcome="lost", evidence="x", command_id="d-1")
        with pytest.raises(CommandConflict):
            await coordinator.reconcile_model_outcome(
                "r1.t1.a1", outcome="failed", evidence="x", command_id="d-1"
            )


async def test_the_command_is_known_again_by_another_coordinator() -> None:
    async with MemoryStore().open() as journal:
        await keep(journal, lost_attempt())
        statuses = []
        for _ in range(2):
            async with RecoveryCoordinator.open(
                journal, "s-lost", clock=SystemClock(), ids=SystemIds()
            ) as coordinator:
                receipt = await coordinator.reconcile_model_outcome(
                    "r1.t1.a1", outcome="lost", evidence="x", command_id="d-1"
                )
                statuses.append(receipt.status)
    assert statuses == [CommitStatus.COMMITTED, CommitStatus.REPLAYED]


async def test_who_lost_the_lease_decides_nothing() -> None:
    async with deciding(lost_attempt()) as (coordinator, journal):
        row = await journal.session("s-lost")
        assert row is not None
        assert row.lease is not None
        ours = Fence(row.lease.holder_id, row.lease.lease_id or "", row.lease.token)
        await journal.leases.release("s-lost", ours)
        await journal.leases.acquire("s-lost", Holder("other", "l-2"), 60_000)
        with pytest.raises(LeaseLost):
            await coordinator.reconcile_model_outcome("r1.t1.a1", outcome="lost", evidence="x")


class Flaky:
    """A journal whose next commit has an unknown outcome, and which then says what became of it."""

    def __init__(self, journal: Journal, *, written: bool) -> None:
        self._journal, self._written, self._failed = journal, written, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def commit(self, batch: Any) -> Receipt:
        if self._failed:
            return await self._journal.commit(batch)
        self._failed = True
        if self._written:
            await self._journal.commit(batch)
        raise OutcomeUnknown(batch.session_id, "the disk did not answer")

    async def settle(self, batch: Any) -> Receipt | None:
        return await self._journal.settle(batch)


async def test_an_unknown_outcome_is_settled_before_anybody_is_told() -> None:
    async with MemoryStore().open() as journal:
        await keep(journal, lost_attempt())
        flaky: Any = Flaky(journal, written=True)
        async with RecoveryCoordinator.open(
            flaky, "s-lost", clock=SystemClock(), ids=SystemIds()
        ) as coordinator:
            receipt = await coordinator.reconcile_model_outcome("r1.t1.a1", outcome="lost", evidence="x")
            assert receipt.status is CommitStatus.RECONCILED
            assert coordinator.plan.items[0].action == "next_attempt"


async def test_a_commit_that_was_not_written_is_tried_once_more() -> None:
    async with MemoryStore().open() as journal:
        await keep(journal, lost_attempt())
        flaky: Any = Flaky(journal, written=False)
        async with RecoveryCoordinator.open(
            flaky, "s-lost", clock=SystemClock(), ids=SystemIds()
        ) as coordinator:
            receipt = await coordinator.reconcile_model_outcome("r1.t1.a1", outcome="lost", evidence="x")
            assert receipt.status is CommitStatus.COMMITTED


async def test_a_decision_after_sixty_calls_fits_one_commit() -> None:
    many = tuple(PAY for _ in range(60))
    scenario = session_of(*BEGUN, responded(*many), *[scheduled(i, PAY) for i in range(60)])
    async with deciding(scenario) as (coordinator, journal):
        receipt = await coordinator.abandon_request(reason="too many")
        events = await appended(journal, receipt, "s-test")
        assert len(events) == 62
        assert await journal.snapshot("s-test") is not None

"""Laws of what recovery reads, says and decides, over generated histories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import anyio
from hypothesis import given
from hypothesis import strategies as st

from adapters.memory_journal import MemoryStore
from domain import unattended
from domain.entry import Entry
from domain.model_attempt import keep as kept_response
from domain.model_attempt import response_of
from domain.model_ports import Block, Response
from domain.next_steps import Action, Step, Who, next_steps
from domain.ports import Journal
from domain.state import State
from domain.values import Stop
from minutebook.testing.histories import Walk, histories
from minutebook.testing.keeping import keep
from recovery.decisions import (
    Abandon,
    Choice,
    ModelOutcome,
    PermissionAnswer,
    PreparedInputs,
    SuspensionAnswer,
    ToolOutcome,
)
from recovery.details import read_details
from recovery.escape import json_text
from recovery.plan import Kind, make_plan, plan_of
from recovery.reading import load
from recovery.replaying import replay
from recovery.verify import Result, verify
from tests.journals import Altered, at, flipped
from tests.property.examples import share

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ANSWER = Response((Block("text", "hello"),), (), Stop.END)


def in_journal(walk: Walk, look: Callable[[Journal], Awaitable[None]]) -> None:
    """Keep a history in a memory journal, and look at it."""

    async def main() -> None:
        async with MemoryStore().open() as journal:
            await keep(journal, walk)
            await look(journal)

    anyio.run(main)


def after_commits(walk: Walk) -> Iterator[State]:
    """The state after each commit."""
    yield State(walk.state.session_id)
    for entry in walk.entries:
        yield entry.state


@share(40)
@given(histories())
def test_every_plan_is_complete_and_can_be_told(walk: Walk) -> None:
    for state in after_commits(walk):
        plan = make_plan(state)
        assert plan == make_plan(state)
        assert [item.action for item in plan.items] == [step.action.value for step in next_steps(state)]
        assert json_text(plan.to_json()).isascii()
        for item in plan.items:
            assert item.reason
            assert item.python or item.action == "none"
            assert all(0 < sequence <= state.sequence for sequence in item.evidence)
        waits = any(item.who in ("person", "host", "operator") for item in plan.items)
        assert waits or plan.kind in (Kind.AUTOMATIC, Kind.NOTHING)


@share(20)
@given(histories())
def test_any_prefix_loads_as_it_was(walk: Walk) -> None:
    states = [state for state in after_commits(walk) if state.sequence]

    async def look(journal: Journal) -> None:
        for state in states:
            found = await load(journal, state.session_id, upto=state.sequence)
            assert (found.state, found.problem, found.notes) == (state, None, ())
        whole = await load(journal, walk.state.session_id)
        assert whole.state == walk.state
        assert (await load(journal, walk.state.session_id, use_snapshot=False)).state == walk.state
        details = await read_details(journal, whole)
        assert details.notes == ()
        plan = plan_of(whole, details=details)
        assert all(pending.content is not None for pending in plan.pending_inputs)
        assert all(question.summary is not None for question in plan.permissions)
        assert all(question.input is not None for question in plan.permissions)

    in_journal(walk, look)


@share(20)
@given(histories(), st.data())
def test_a_history_is_consistent_and_no_bit_of_it_can_change(walk: Walk, data: st.DataObject) -> None:
    rows = walk.rows()
    sequence = data.draw(st.integers(1, len(rows)))
    column = data.draw(st.sampled_from(["envelope", "payload", "salt", "head"]))
    position = data.draw(st.integers(0, len(getattr(rows[sequence - 1], column)) - 1))
    changed: dict[str, Any] = {column: flipped(getattr(rows[sequence - 1], column), position)}

    async def look(journal: Journal) -> None:
        session_id = walk.state.session_id
        assert (await verify(journal, session_id)).result is Result.CONSISTENT
        proven = await verify(journal, session_id, expected_head=rows[-1].head)
        assert (proven.result, proven.proven_to) == (Result.PROVEN, len(rows))
        tampered = Altered(journal, alter=at(sequence, lambda row: replace(row, **changed)))
        found = await verify(tampered, session_id)
        assert found.result is Result.BROKEN
        assert found.problems[0].sequence == sequence
        assert (await load(tampered, session_id, use_snapshot=False)).problem is not None

    in_journal(walk, look)


@share(20)
@given(histories())
def test_a_replay_agrees_with_the_state(walk: Walk) -> None:
    async def look(journal: Journal) -> None:
        found = await replay(journal, walk.state.session_id)
        state = walk.state
        assert (found.sequence, found.problem) == (state.sequence, None)
        queue, counts = state.queue, found.pending_inputs
        assert [i.input_id for i in counts.items] == [i.input_id for i in queue.pending]
        assert (counts.accepted, counts.applied, counts.cancelled) == (
            queue.accepted,
            queue.applied,
            queue.cancelled,
        )
        plan = make_plan(state)
        asked = {question.permission_id for question in found.interactions.permissions}
        assert asked == {question.permission_id for question in plan.permissions}
        waiting = {waiting.tool_id for waiting in found.interactions.suspensions}
        assert waiting == {waiting.tool_id for waiting in plan.suspensions}
        facts = found.session.facts
        assert facts.request_id == (state.request.request_id if state.request else None)
        assert (facts.requests, facts.status) == (state.requests, plan.status)

    in_journal(walk, look)


# --- deciding -----------------------------------------------------------------------------


def choices(step: Step) -> Iterator[Choice]:
    """Everything that somebody may say to a step that waits for somebody."""
    match step.action:
        case Action.RECONCILE_MODEL_OUTCOME:
            yield ModelOutcome(step.subject, "lost", "e")
            yield ModelOutcome(step.subject, "failed", "e", message="m")
            yield ModelOutcome(step.subject, "completed", "e", ANSWER)
        case Action.RECONCILE_TOOL_OUTCOMES:
            for outcome in ("completed", "failed", "cancelled", "suspended"):
                yield ToolOutcome(step.subject, outcome, "e", "output")
        case Action.RESOLVE_PERMISSIONS:
            yield PermissionAnswer(step.subject, "allow")
            yield PermissionAnswer(step.subject, "deny", message="no")
            yield PermissionAnswer(step.subject, "allow", updated_input={"other": 1})
        case Action.ANSWER_SUSPENSIONS:
            yield SuspensionAnswer(step.subject, {"answer": 1})
        case Action.RECONCILE_REQUEST_INPUTS:
            yield PreparedInputs("e")


def decided(state: State, choice: Choice) -> State:
    """The state after a decision, by the rules."""
    entry = Entry(state, "decision", NOW)
    for command in choice.decide(state):
        entry.add(command)
    return entry.finish()


@share(40)
@given(histories())
def test_every_decision_that_the_plan_waits_for_is_legal_and_moves_it(walk: Walk) -> None:
    for state in after_commits(walk):
        for step in next_steps(state):
            for choice in choices(step) if step.who is not Who.AUTOMATIC else ():
                assert next_steps(decided(state, choice)) != next_steps(state)
        for effect in state.unsettled:
            after = decided(state, ToolOutcome(effect.tool_id, "failed", "e"))
            assert effect.tool_id not in {left.tool_id for left in after.unsettled}
        if state.request is not None:
            assert decided(state, Abandon("enough")).request is None


@share(40)
@given(histories())
def test_what_needs_no_code_can_always_be_carried_out_to_its_end(walk: Walk) -> None:
    response = None
    for entry in walk.entries:
        for event in entry.events:
            response = response_of(event) or response
        _carry_out(entry.state, response or kept_response(ANSWER))


def _carry_out(state: State, response: Any) -> None:
    for round_ in range(10):
        due = [s for s in next_steps(state) if s.who is Who.AUTOMATIC and s.action in unattended.ACTIONS]
        if not due:
            return
        entry = Entry(state, f"automatic-{round_}", NOW)
        for step in due:
            for command in unattended.commands(entry.state, step, response):
                entry.add(command)
        state = entry.finish()
    raise AssertionError(f"no end: {next_steps(state)}")

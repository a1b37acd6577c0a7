"""Every way in which a step of the plan can turn out.

Pure, and about the domain alone: `carry` lists the moves that an honest runtime
could make of a step, given the answers that a `World` allows. Choosing among
them does not belong here (see `minutebook.testing.histories`), and neither does
running anything (see `minutebook.carrying`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from domain import compaction, ids, inputs, model_attempt, permission, request, tool, turn
from domain import events as ev
from domain.canonical import digest
from domain.decider import EndRequest, OnCall, Reject, Schedule
from domain.errors import ModelFailed
from domain.next_steps import Action, Step, Who, evaluating, preparing, stop
from domain.permission import Decision
from domain.state import CallState, State
from domain.tool import Status
from domain.values import Priority, Verdict
from minutebook.testing.scenario import Writing, attempt, recorded, response
from minutebook.testing.world import Move, World

#: The input that a person may put in place of the declared one.
UPDATED: Final = {"changed": True}

_BEFORE_START = frozenset({Status.SCHEDULED, Status.RESUMED})

Outcomes = Iterator[tuple[tuple[Writing, ...], frozenset[str]]]

# --- the steps of a plan ------------------------------------------------------------------


def carry(state: State, step: Step, in_flight: frozenset[str], world: World) -> Iterator[Move]:
    """Every way to carry out `step`, or for what it waits for to end.

    None only for `Action.NONE`. Each move is a commit of its own or part of one.
    """
    for writings, after in _outcomes(state, step, in_flight, world):
        yield Move(step.action.value, writings, after)


def _outcomes(state: State, step: Step, in_flight: frozenset[str], world: World) -> Outcomes:
    match step.action:
        case Action.NONE:
            return
        case Action.FINISH_ABORT:
            yield (EndRequest("abort", request.Interrupt("abort")),), frozenset()
        case Action.FAIL_COMPACTION:
            yield _fail_compaction(state, step), in_flight
        case Action.RECONCILE_MODEL_OUTCOME:
            yield from _reconcile_model(step, in_flight, world)
        case Action.NEXT_ATTEMPT:
            number = state.attempt.number + 1 if state.attempt else 1
            yield (attempt(),), in_flight | {ids.attempt(step.subject, number)}
        case Action.PREPARE_INPUT:
            yield from _prepare(state, in_flight, world)
        case Action.INTERRUPT:
            yield (), in_flight | {stop(step.subject)}
        case Action.AWAIT:
            yield from _await(state, step.subject, in_flight, world)
        case _ if step.index is not None:
            yield from _about_call(state, step, state.calls[step.index], in_flight, world)
        case _:
            yield _plain(state, step, world), in_flight


def _plain(state: State, step: Step, world: World) -> tuple[Writing, ...]:
    """The steps that can turn out one way only."""
    active, number = state.request, (state.turn.number if state.turn else 0) + 1
    match step.action:
        case Action.START_NEXT_REQUEST:
            assert state.session is not None
            return (request.AcceptRequest(step.subject, state.session.settings, {}, world.max_turns),)
        case Action.ABORT_TURN:
            return (turn.AbortTurn("steering", state.steering_inputs()[0].input_id),)
        case Action.COMPLETE_TURN:
            assert state.attempt is not None
            return (turn.CompleteTurn(len(state.calls), state.attempt.stop),)
        case Action.APPLY_INPUT:
            item = state.queue.find(step.subject)
            assert item is not None
            return (inputs.ApplyInput(item.input_id, item.priority, number),)
    assert active is not None
    match step.action:
        case Action.RESUME_REQUEST:
            return (inputs.ApplyInput(active.input_id, Priority.NEXT, 1), request.StartRequest())
        case Action.FAIL_REQUEST:
            return (EndRequest("error", request.Fail(step.reason, "no final response")),)
        case Action.RECONCILE_REQUEST_INPUTS:
            return (inputs.FinishPreparation(active.unprepared, evidence="the host looked"),)
        case Action.CONTINUE_REQUEST:
            return (turn.StartTurn(number, active.settings_digest),)
        case Action.FINALIZE_REQUEST:
            return (request.Complete("done", dict(active.usage)),)
        case Action.RECONCILE_REQUEST_OUTCOME:
            return (EndRequest("error", request.Fail("unknown", "", evidence="the operator looked")),)
    raise AssertionError(step.action)


def _fail_compaction(state: State, step: Step) -> tuple[Writing, ...]:
    fail = compaction.FailCompaction(step.subject, step.reason)
    attempt = state.compaction_attempt
    if attempt is None or attempt.status is not model_attempt.Status.STARTED:
        return (fail,)
    return (model_attempt.Reconcile("lost", "nobody runs it any more"), fail)


def _reconcile_model(step: Step, in_flight: frozenset[str], world: World) -> Outcomes:
    yield (model_attempt.Reconcile("lost", step.reason),), in_flight
    if step.who is Who.AUTOMATIC:
        return
    yield (model_attempt.Reconcile("failed", "the provider says so"),), in_flight
    for answer in world.responses:
        yield (model_attempt.Reconcile("completed", "the provider says so", answer),), in_flight


def _prepare(state: State, in_flight: frozenset[str], world: World) -> Outcomes:
    assert state.request is not None
    unprepared = state.request.unprepared
    yield (inputs.FinishPreparation(unprepared),), in_flight
    if world.hooks:
        began = inputs.BeginPreparation(unprepared, ("hook",))
        yield (began,), in_flight | {preparing(state.request.request_id)}


# --- calls --------------------------------------------------------------------------------


def _about_call(
    state: State, step: Step, call: CallState, in_flight: frozenset[str], world: World
) -> Outcomes:
    match step.action:
        case Action.REJECT_CALL:
            yield (Reject(call.index, step.reason, "see the reason"),), in_flight
        case Action.SCHEDULE_CALL:
            yield _schedule(call, world), in_flight
        case Action.CANCEL_TOOL:
            yield (*_cancel(call, step.reason),), in_flight
        case Action.EVALUATE:
            yield from _evaluate(state, call, in_flight, world)
            yield (), in_flight | {evaluating(call.call_id)}
        case Action.ASK:
            yield (OnCall(call.index, permission.Ask(f"May {call.name} run?")),), in_flight
        case Action.RESOLVE_PERMISSIONS:
            yield from _resolve(call, in_flight, world)
        case Action.START_TOOL:
            yield (OnCall(call.index, _start(state, call)),), in_flight | {call.call_id}
        case Action.ANSWER_SUSPENSIONS:
            answer = OnCall(call.index, tool.Answer({"yes": True}))
            yield (answer,), in_flight
            if call.permission is not None and call.permission.decision is Decision.ALLOW:
                yield (answer, OnCall(call.index, tool.Complete({"output": "as answered"}))), in_flight
        case Action.RECONCILE_TOOL_OUTCOMES:
            yield from _reconcile_tool(call, in_flight, world)


def _schedule(call: CallState, world: World) -> tuple[Writing, ...]:
    found = world.tool(call.name)
    if found is None:
        return (Reject(call.index, "unknown_tool", f"there is no tool {call.name!r}"),)
    return (Schedule(call.index, found.arguments, "d" * 64, found.side_effect, found.kind, found.interrupt),)


def _cancel(call: CallState, reason: str) -> Iterator[Writing]:
    if call.permission is not None and call.permission.decision is Decision.PENDING:
        yield OnCall(call.index, permission.Withdraw(reason))
    yield OnCall(call.index, tool.Cancel(reason))


def _evaluate(state: State, call: CallState, in_flight: frozenset[str], world: World) -> Outcomes:
    assert state.session is not None and call.permission is not None
    after = in_flight - {evaluating(call.call_id)}
    confirms = call.permission.by_person  # what a person allowed is never asked about again
    for verdict in world.verdicts:
        allowed = Verdict.ALLOW if confirms and verdict is Verdict.ASK else verdict
        evaluate = permission.Evaluate(allowed, "rule", state.session.policy_digest)
        yield (OnCall(call.index, evaluate),), after


def _resolve(call: CallState, in_flight: frozenset[str], world: World) -> Outcomes:
    deny = OnCall(call.index, permission.Resolve(Verdict.DENY))
    yield (OnCall(call.index, permission.Resolve(Verdict.ALLOW)),), in_flight
    yield (deny,), in_flight
    yield (deny, OnCall(call.index, tool.Cancel("permission_denied"))), in_flight
    if world.updates:
        changed = permission.Resolve(Verdict.ALLOW, UPDATED, digest(UPDATED))
        yield (OnCall(call.index, changed),), in_flight


def _start(state: State, call: CallState) -> tool.Start:
    assert call.tool is not None and call.permission is not None
    exact = call.permission.input_digest
    updated = UPDATED if exact == digest(UPDATED) and exact != call.input_digest else None
    key = call.tool.idempotency_key or f"{state.session_id}/{call.call_id}"
    return tool.Start(exact, key, updated)


def _reconcile_tool(call: CallState, in_flight: frozenset[str], world: World) -> Outcomes:
    assert call.tool is not None
    outcomes = ["completed", "failed", "cancelled"]
    if call.tool.segment < world.segments:
        outcomes.append("suspended")
    for outcome in outcomes:
        yield (OnCall(call.index, tool.Reconcile(outcome, "the host looked")),), in_flight


# --- what is in flight ----------------------------------------------------------------------


def landings(state: State, in_flight: frozenset[str], world: World) -> Iterator[Move]:
    """Every way in which something in flight may end, whether or not the plan waits for it."""
    for subject in sorted(in_flight):
        for writings, after in _await(state, subject, in_flight, world):
            yield Move("landing", writings, after)


def _await(state: State, subject: str, in_flight: frozenset[str], world: World) -> Outcomes:
    left = in_flight - {subject, stop(subject)}
    active = state.request
    if state.attempt is not None and subject == state.attempt.attempt_id:
        yield from _attempt_ends(left, world, told=stop(subject) in in_flight)
    elif state.compaction is not None and subject == state.compaction.compaction_id:
        yield from _compaction_ends(subject, left)
    elif (
        active is not None
        and preparing(active.request_id) in in_flight
        and subject
        in (
            active.request_id,
            preparing(active.request_id),
        )
    ):
        yield (inputs.FinishPreparation(active.unprepared),), in_flight - {preparing(active.request_id)}
    for call in state.calls:
        if subject not in (call.call_id, evaluating(call.call_id)):
            continue
        if call.tool is None:
            continue
        if evaluating(call.call_id) in in_flight and call.tool.status in _BEFORE_START:
            yield from _evaluate(state, call, in_flight, world)
        elif call.tool.status is Status.STARTED:
            yield from _run_ends(call, left, world, told=stop(subject) in in_flight)


def _compaction_ends(compaction_id: str, left: frozenset[str]) -> Outcomes:
    done = ev.CompactionCompleted(compaction_id=compaction_id, summary="short", upto_sequence=1)
    yield (model_attempt.Finish(response()), recorded(done, aggregate_id=compaction_id)), left
    error = ModelFailed("overloaded", "try later")
    yield (model_attempt.Fail(error), compaction.FailCompaction(compaction_id, "no summary")), left


def _attempt_ends(left: frozenset[str], world: World, told: bool) -> Outcomes:
    for answer in world.responses:
        yield (model_attempt.Finish(answer),), left
    for retryable in (True, False):
        error = ModelFailed("overloaded", "try later", retryable=retryable)
        yield (model_attempt.Fail(error),), left
    if told:
        yield (model_attempt.Abandon("steering"),), left


def _run_ends(call: CallState, left: frozenset[str], world: World, told: bool) -> Outcomes:
    assert call.tool is not None
    ends: list[tool.Command] = [tool.Complete({"output": "ok"}), tool.Fail("ValueError", "no")]
    if world.unsure:
        ends.append(tool.LoseSight("the connection broke"))
    if call.tool.segment < world.segments:
        ends.append(tool.Suspend({"question": "which?"}, {"type": "object"}))
    if told:
        ends.append(tool.Cancel("steering"))
    for end in ends:
        yield (OnCall(call.index, end),), left

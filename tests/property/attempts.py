"""Everything a faulty writer might try next: most of it is refused, wherever a session stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from domain import compaction, inputs, model_attempt, permission, request, tool, turn
from domain import events as ev
from domain.decider import CloseSession, EndRequest, OnCall, Reject, Schedule, SettleEffect
from domain.errors import ModelFailed
from domain.state import CallState, State
from domain.values import Priority, Verdict
from minutebook.testing.scenario import Writing, attempt, evaluated, forged, recorded
from minutebook.testing.world import World

Attempts = Iterator[list[Writing]]


def attempts(state: State, world: World) -> Attempts:
    """Commits of one event, or of two that belong together, legal or not."""
    if state.session is None:
        return
    yield [CloseSession("user")]
    yield [recorded(ev.SessionClosed())]
    yield [recorded(ev.CompactionStarted(compaction_id="c-x", trigger="size"), aggregate_id="c-x")]
    if state.compaction is not None:
        yield [compaction.FailCompaction(state.compaction.compaction_id, "no")]
    for effect in state.unsettled:
        yield [SettleEffect(effect.tool_id, tool.Reconcile("failed", "asked"))]
    yield from _inputs(state, world)
    yield from _request()
    yield from _rollover(state, world)
    yield from _turn(state, world)
    for call in state.calls:
        yield from _call(state, call, world)


def _inputs(state: State, world: World) -> Attempts:
    number = (state.turn.number if state.turn else 0) + 1
    for item in state.queue.pending:
        applied = inputs.ApplyInput(item.input_id, item.priority, number)
        cancelled = inputs.CancelInput(item.input_id, "user")
        assert state.session is not None
        yield [applied]
        yield [applied, request.StartRequest()]
        yield [cancelled]
        yield [cancelled, request.Interrupt("user")]
        yield [request.AcceptRequest(item.input_id, state.session.settings, {}, world.max_turns)]
    unprepared = state.request.unprepared if state.request else ()
    yield [inputs.BeginPreparation(unprepared)]
    yield [inputs.FinishPreparation(unprepared)]
    ordinal = state.queue.accepted + 1
    yield [inputs.AcceptInput(f"i-{ordinal}", "x", Priority.LATER, ordinal)]


def _request() -> Attempts:
    yield [request.StartRequest()]
    yield [request.RequestAbort("user")]
    yield [request.Complete("done", {})]
    yield [request.Fail("code", "text")]
    yield [request.Interrupt("user")]
    yield [EndRequest("error", request.Fail("code", "text"))]
    yield [EndRequest("abort", request.Interrupt("user"))]
    yield [EndRequest("abort", request.Complete("done", {}))]


def _rollover(state: State, world: World) -> Attempts:
    """Whole ones, halves, and one about another input than its own."""
    assert state.session is not None
    ordinal = state.queue.accepted + 1
    end = EndRequest("superseded", request.Supersede("host", by_request_id=f"r{state.requests + 1}"))
    own = inputs.AcceptInput(f"i-{ordinal}", "go on", Priority.NEXT, ordinal)
    begin = request.AcceptRequest(own.input_id, state.session.settings, {}, world.max_turns)
    yield [end, own, begin]
    yield [end]
    yield [end, own]
    yield [end, begin]
    for item in state.queue.pending:
        yield [end, own, replace(begin, input_id=item.input_id)]


def _turn(state: State, world: World) -> Attempts:
    active = state.request
    number = (state.turn.number if state.turn else 0) + 1
    settings = active.settings_digest if active else ""
    yield [turn.StartTurn(number, settings)]
    yield [turn.StartTurn(number + 1, settings)]
    stop = state.attempt.stop if state.attempt else "end"
    complete = turn.CompleteTurn(len(state.calls), stop or "end")
    yield [complete]
    yield [forged(complete, data={"has_tool_calls": not state.calls})]
    yield [turn.AbortTurn("steering")]
    yield [turn.AbortTurn("error")]
    yield [turn.AbortTurn("error"), request.Fail("code", "text")]
    yield [attempt()]
    for answer in world.responses:
        yield [model_attempt.Finish(answer)]
        yield [model_attempt.Reconcile("completed", "asked", answer)]
    for retryable in (True, False):
        yield [model_attempt.Fail(ModelFailed("overloaded", "no", retryable=retryable))]
    yield [model_attempt.Abandon("steering")]
    yield [model_attempt.Reconcile("lost", "asked")]
    yield [model_attempt.Reconcile("failed", "asked")]


def _call(state: State, call: CallState, world: World) -> Attempts:
    found = world.tool(call.name)
    if found is not None and call.input_digest is not None:
        yield [
            Schedule(call.index, found.arguments, "d" * 64, found.side_effect, found.kind, found.interrupt)
        ]
    yield [Reject(call.index, "policy", "no")]
    if call.tool is None or call.permission is None:
        return
    key = call.tool.idempotency_key or "key"
    for command in (
        tool.Start(call.permission.input_digest, key),
        tool.Complete({"output": "ok"}),
        tool.Fail("ValueError", "no"),
        tool.Cancel("user"),
        tool.LoseSight("gone"),
        tool.Suspend(None, {}),
        tool.Answer(1),
        tool.Reconcile("completed", "asked"),
        tool.Reconcile("suspended", "asked"),
        permission.Ask("may it?"),
        permission.Resolve(Verdict.ALLOW),
        permission.Resolve(Verdict.DENY),
        permission.Withdraw("user"),
    ):
        yield [OnCall(call.index, command)]
    for verdict in Verdict:
        yield [evaluated(call.index, verdict)]
        yield [OnCall(call.index, permission.Withdraw("policy")), evaluated(call.index, verdict)]

"""Scripted sessions: what models, tools and people do is fixed by place, so that a run can be repeated.

`play` takes a session from wherever its journal ends to where nothing is left to
do. A run that was cut off goes on with nothing in flight, and tells the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from domain import inputs, model_attempt, permission, request, tool
from domain.decider import Command, OnCall
from domain.entry import Entry
from domain.envelope import Recorded
from domain.errors import ModelFailed
from domain.model_ports import Response
from domain.next_steps import Action, Step, Who, next_steps, stop
from domain.state import CallState, State
from domain.values import Interrupt, Priority, Verdict
from minutebook.testing.histories import Walk, responses, tools_of
from minutebook.testing.moves import carry
from minutebook.testing.scenario import Writing, response
from minutebook.testing.world import Move, World

#: Request, turn; and for calls the index.
Place = tuple[int, ...]
FATAL = 99


@dataclass(frozen=True)
class Fate:
    """What becomes of a call."""

    verdict: Verdict = Verdict.ALLOW
    person: Verdict = Verdict.ALLOW
    suspends: bool = False
    succeeds: bool = True


@dataclass(frozen=True)
class Script:
    """All that happens, by place; elsewhere models answer plainly and calls are allowed.

    Args:
        failures: how many attempts of a turn fail before one brings the answer; `FATAL`: for good.
        interventions: (event type, its count, what is sent then): a priority, or "abort".
    """

    answers: dict[Place, Response]
    failures: dict[Place, int]
    fates: dict[Place, Fate]
    interventions: tuple[tuple[str, int, str], ...]
    world: World


_fates = st.builds(
    Fate,
    st.sampled_from((Verdict.ALLOW, Verdict.ALLOW, Verdict.DENY, Verdict.ASK, Verdict.ASK)),
    st.sampled_from((Verdict.ALLOW, Verdict.ALLOW, Verdict.DENY)),
    st.booleans(),
    st.booleans(),
)
_WHEN = (
    *("request_accepted", "request_started", "input_prepared", "turn_started", "model_request_started"),
    *("model_request_completed", "tool_scheduled", "permission_requested", "tool_started"),
    *("tool_completed", "turn_completed", "model_request_failed"),
)
_interventions = st.tuples(
    st.sampled_from(_WHEN),
    st.integers(1, 2),
    st.sampled_from(("now", "now", "next", "next", "later", "abort")),
)


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Scripts whose first two requests have two turns that are more than a plain answer."""
    answers: dict[Place, Response] = {(r, t): draw(responses()) for r in (1, 2) for t in (1, 2)}
    calls = [(*place, index) for place, answer in answers.items() for index in range(len(answer.calls))]
    given = tuple(answers.values())
    return Script(
        answers,
        {place: draw(st.sampled_from((0, 0, 0, 0, 1, FATAL))) for place in answers},
        {place: draw(_fates) for place in calls},
        tuple(draw(st.lists(_interventions, max_size=2))),
        World(responses=(*given, response()), tools=tools_of(given), unsure=False, updates=False),
    )


def resumed(script: Script, entries: Sequence[Entry]) -> Walk:
    """The session after these commits, in a new process."""
    walk = Walk(script.world)
    for entry in entries:
        walk.record(entry)
    return walk


def play(script: Script, walk: Walk) -> Walk:
    """Go on until nothing is left to do; one step of the plan is one commit."""
    for _ in range(400):
        intervention = _intervention(script, walk)
        if intervention is not None:
            walk.go_on(Move("intervention", intervention, walk.in_flight))
            continue
        step = _next(next_steps(walk.state, walk.in_flight))
        if step.action is Action.NONE:
            return walk
        walk.go_on(_outcome(script, walk, step))
    raise AssertionError(f"no end: {walk}")


def _next(steps: Sequence[Step]) -> Step:
    """What is ready first, then what somebody decides, then what has to be awaited."""
    order = {Who.AUTOMATIC: 0, Who.HOST: 1, Who.PERSON: 1}
    return min(steps, key=lambda step: order.get(step.who, 2))


# --- people ---------------------------------------------------------------------------------


def _intervention(script: Script, walk: Walk) -> tuple[Command, ...] | None:
    state = walk.state
    if not walk.events:
        return (walk.wished()[0].writings[0],)  # type: ignore[return-value]  # the command that creates it
    if state.requests == 0:
        return next(move.writings for move in walk.wished() if move.label == "send")  # type: ignore[return-value]  # two commands
    happened = [event.type for event in walk.events]
    done = happened.count("input_accepted") - 1 + happened.count("abort_requested")
    if done >= len(script.interventions) or state.request is None:
        return None
    type_, count, what = script.interventions[done]
    if _milestones(walk.events).count(type_) < count:
        return None
    if what == "abort":
        return None if state.request.aborting else (request.RequestAbort("user"),)
    ordinal = state.queue.accepted + 1
    aim = None if what == "later" else state.request.request_id
    return (inputs.AcceptInput(f"i-{ordinal}", "more", Priority(what), ordinal, aim),)


def _milestones(events: Sequence[Recorded]) -> list[str]:
    """Types of events, what a crash made begin again counted once; a reconciled end is that end."""
    seen: set[tuple[str, str]] = set()
    types = []
    for event in events:
        type_ = event.type
        if type_.endswith("_outcome_reconciled"):
            type_ = f"{event.aggregate_kind}_{event.data.outcome}".replace("model_attempt", "model_request")
        about = (type_, event.tool_id or event.turn_id or "")
        if type_ in ("model_request_started", "tool_started") and about in seen:
            continue
        seen.add(about)
        types.append(type_)
    return types


# --- models and tools -------------------------------------------------------------------------


def _outcome(script: Script, walk: Walk, step: Step) -> Move:
    moves = [m for m in carry(walk.state, step, walk.in_flight, script.world) if m.writings or m.in_flight]
    wanted = _wanted(script, walk, step)
    if wanted is None:
        return moves[0]
    found = [move for move in moves if move.writings and _is(move.writings[0], wanted)]
    assert found, f"{wanted} is no way to carry out {step}: {moves}"
    return found[0]


def _is(writing: Writing, wanted: Command) -> bool:
    if isinstance(writing, model_attempt.Fail) and isinstance(wanted, model_attempt.Fail):
        return writing.error.retryable is wanted.error.retryable  # errors are equal to themselves only
    return writing == wanted


def _wanted(script: Script, walk: Walk, step: Step) -> Command | None:
    """The command that the script says, where a step can turn out in several ways."""
    state = walk.state
    if step.index is not None:
        return _of_call(script, walk, step, state.calls[step.index])
    ends = step.action in (Action.AWAIT, Action.RECONCILE_MODEL_OUTCOME)
    if ends and state.active_turn is not None:
        return _of_attempt(script, walk, step)
    return None


def _place(state: State) -> Place:
    assert state.turn is not None
    return state.requests, state.turn.number


def _of_attempt(script: Script, walk: Walk, step: Step) -> Command:
    place = _place(walk.state)
    answer = script.answers.get(place, response())
    failing = script.failures.get(place, 0)
    fails = _failed(walk) < failing
    told = stop(step.subject) in walk.in_flight
    if step.action is Action.AWAIT:
        if told:
            return model_attempt.Abandon("steering")
        if fails:
            return model_attempt.Fail(ModelFailed("overloaded", "try later", retryable=failing != FATAL))
        return model_attempt.Finish(answer)
    if fails or _now(walk.state):
        return model_attempt.Reconcile("lost", step.reason)
    return model_attempt.Reconcile("completed", "the provider says so", answer)


def _failed(walk: Walk) -> int:
    turn_id = walk.state.turn.turn_id if walk.state.turn else ""
    return sum(e.type == "model_request_failed" and e.turn_id == turn_id for e in walk.events)


def _now(state: State) -> bool:
    return any(item.priority is Priority.NOW for item in state.steering_inputs())


def _of_call(script: Script, walk: Walk, step: Step, call: CallState) -> Command | None:
    state = walk.state
    fate = script.fates.get((*_place(state), call.index), Fate())
    assert call.tool is not None or step.action in (Action.SCHEDULE_CALL, Action.REJECT_CALL)
    match step.action:
        case Action.EVALUATE:
            assert state.session is not None
            verdict = permission.Evaluate(fate.verdict, "rule", state.session.policy_digest)
            return OnCall(call.index, verdict)
        case Action.RESOLVE_PERMISSIONS:
            return OnCall(call.index, permission.Resolve(fate.person))
        case Action.AWAIT:
            return OnCall(call.index, _end_of_run(walk, call, fate))
        case Action.RECONCILE_TOOL_OUTCOMES:
            return OnCall(call.index, tool.Reconcile(_truth(state, call, fate), "the host looked"))
    return None


def _end_of_run(walk: Walk, call: CallState, fate: Fate) -> tool.Command:
    assert call.tool is not None
    if stop(call.call_id) in walk.in_flight:
        return tool.Cancel("steering")
    if fate.suspends and call.tool.segment == 0:
        return tool.Suspend({"question": "which?"}, {"type": "object"})
    return tool.Complete({"output": "ok"}) if fate.succeeds else tool.Fail("ValueError", "no")


def _truth(state: State, call: CallState, fate: Fate) -> str:
    """What the host finds: a run that steering would have stopped, or that would have waited, did nothing."""
    assert call.tool is not None
    waits = fate.suspends and call.tool.segment == 0
    if _now(state) and (call.tool.interrupt is Interrupt.CANCEL or waits):
        return "cancelled"
    if waits:
        return "suspended"
    return "completed" if fate.succeeds else "failed"

"""The measure that every item of a plan lowers: natural numbers, compared from left to right.

Only a crash, a send, an abort, a change of policy or the start of a compaction
may raise it, so carrying out plans comes to an end. It knows the whole state and
nothing of `next_steps`. Between two outcomes of one kind it tells what is not in
flight from what is, and that from what was told to stop.
"""

from __future__ import annotations

from domain import model_attempt, request
from domain.limits import MAX_ATTEMPTS_PER_TURN, MAX_RUNS_PER_CALL
from domain.next_steps import evaluating, preparing, stop
from domain.permission import Decision, PermissionState
from domain.request import Preparation
from domain.state import CallState, State
from domain.tool import TERMINAL, Status, ToolState

UNDECIDED = 500  # besides its segments: more than any decision
PER_SEGMENT = 200
DECISIONS = {
    Decision.NONE: 180,
    Decision.ASK: 170,
    Decision.PENDING: 165,
    Decision.ALLOW: 100,
    Decision.DENY: 3,
}
#: What a decision made under another policy, or for another input, adds.
STALE = {
    Decision.NONE: 0,
    Decision.ASK: 40,
    Decision.PENDING: 40,
    Decision.ALLOW: 90,
    Decision.DENY: 0,
}
STALE_BY_PERSON = 40  # less than a question: it can only be confirmed or denied

Measure = tuple[int, int, int, int, int, int, int]


def measure(state: State, in_flight: frozenset[str], segments: int) -> Measure:
    """How much is left to do; `segments` is how often a call may suspend."""
    return (
        len(state.waiting_inputs()),
        _request(state),
        _turns_left(state),
        _attempt(state, in_flight),
        _preparation(state, in_flight),
        sum(_call(state, call, in_flight, segments) for call in _open_calls(state)),
        _compaction(state, in_flight),
    )


def _request(state: State) -> int:
    if state.request is None:
        return 0
    return 3 if state.request.status is request.Status.ACCEPTED else 2


def _turns_left(state: State) -> int:
    if state.request is None:
        return 0
    return state.request.max_turns - (state.turn.number if state.turn else 0)


def _attempt(state: State, in_flight: frozenset[str]) -> int:
    if state.active_turn is None:
        return 0
    if state.has_response:
        return 1
    attempt = state.attempt
    left = MAX_ATTEMPTS_PER_TURN - (attempt.number if attempt else 0)
    return 2 + 8 * left + _phase(attempt, in_flight)


def _phase(attempt: model_attempt.AttemptState | None, in_flight: frozenset[str]) -> int:
    if attempt is None:
        return 5
    if attempt.status is not model_attempt.Status.STARTED:
        return 1
    if attempt.attempt_id not in in_flight:
        return 5
    return 3 if stop(attempt.attempt_id) in in_flight else 4


def _preparation(state: State, in_flight: frozenset[str]) -> int:
    if state.request is None:
        return 0
    running = preparing(state.request.request_id) in in_flight
    levels = {
        Preparation.NONE: 0,
        Preparation.DUE: 4,
        Preparation.BEGUN: 2 if running else 3,
        Preparation.DONE: 1,
    }
    return levels[state.request.preparation]


def _open_calls(state: State) -> tuple[CallState, ...]:
    return state.calls if state.active_turn is not None else ()


def _call(state: State, call: CallState, in_flight: frozenset[str], segments: int) -> int:
    if call.tool is None:
        return PER_SEGMENT * (segments + 1) + UNDECIDED
    if call.tool.status in TERMINAL:
        return 0
    base = PER_SEGMENT * (segments + 1 - call.tool.segment)
    if call.tool.status in (Status.SCHEDULED, Status.RESUMED):
        assert call.permission is not None and state.session is not None
        asked = evaluating(call.call_id) in in_flight
        return base + _decision(call.permission, state.session.policy_digest) - asked
    if call.tool.status is Status.SUSPENDED:
        return base + 1
    return base + 10 + _run(call.tool, call.call_id, in_flight)


def _decision(permission: PermissionState, policy_digest: str) -> int:
    level = DECISIONS[permission.decision]
    if permission.current(policy_digest):
        return level
    person = permission.by_person and permission.decision is Decision.ALLOW
    return level + (STALE_BY_PERSON if person else STALE[permission.decision])


def _run(tool: ToolState, call_id: str, in_flight: frozenset[str]) -> int:
    left = 10 * max(0, MAX_RUNS_PER_CALL - tool.run)
    if tool.status is Status.UNKNOWN:
        return left + 1
    if call_id not in in_flight:
        return left + 4
    return left + (2 if stop(call_id) in in_flight else 3)


def _compaction(state: State, in_flight: frozenset[str]) -> int:
    if state.compaction is None:
        return 0
    return 1 if state.compaction.compaction_id in in_flight else 2

"""Steps that need nothing but the journal: no tool, no model, no handler, no hook.

One place for what they append, so that the running loop and an operator's
`apply_automatic` cannot come to differ. Pure; what is due is decided by
`domain.next_steps` and never here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from domain import budget, compaction, model_attempt, permission, request, tool, turn
from domain.arguments import parse_arguments
from domain.decider import Command, EndRequest, OnCall, Reject
from domain.errors import ArgumentsRefused
from domain.next_steps import Action, Step
from domain.permission import Decision
from domain.state import CallState, State

#: What `commands` can carry out, when the step is automatic.
ACTIONS: Final = frozenset(
    {
        Action.FINISH_ABORT,
        Action.FAIL_COMPACTION,
        Action.RECONCILE_MODEL_OUTCOME,
        Action.ABORT_TURN,
        Action.FAIL_REQUEST,
        Action.REJECT_CALL,
        Action.CANCEL_TOOL,
        Action.COMPLETE_TURN,
        Action.FINALIZE_REQUEST,
    }
)
#: Those of them for which the latest response has to be read.
NEED_RESPONSE: Final = frozenset({Action.REJECT_CALL, Action.FINALIZE_REQUEST})


class _HasText(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def text(self) -> str: ...


class _HasArguments(Protocol):
    @property
    def arguments(self) -> str: ...


class Latest(Protocol):
    """The latest response: the stored one, or the transcript's exchange."""

    @property
    def blocks(self) -> Sequence[_HasText]:
        """Its blocks."""

    @property
    def calls(self) -> Sequence[_HasArguments]:
        """The calls it declared."""


LOST_BY_POLICY: Final = 'recorded policy on_lost_attempt="retry"'
_REJECTIONS: Final = {
    "truncated": "The response was cut off, refused or paused; none of its calls was run.",
    "interrupted": "A newer input came first; the call was not run.",
}


def commands(state: State, step: Step, response: Latest | None = None) -> Iterator[Command]:
    """The commands that carry out an automatic step of `ACTIONS`.

    Args:
        response: the latest response of the request, for steps of `NEED_RESPONSE`.
    """
    match step.action:
        case Action.RECONCILE_MODEL_OUTCOME:
            yield model_attempt.Reconcile("lost", evidence=LOST_BY_POLICY)
        case Action.ABORT_TURN:
            yield turn.AbortTurn("steering", state.steering_inputs()[0].input_id)
        case Action.FAIL_COMPACTION:
            yield from _fail_compaction(state, step)
        case Action.COMPLETE_TURN:
            assert state.attempt is not None
            yield turn.CompleteTurn(len(state.calls), state.attempt.stop)
        case Action.CANCEL_TOOL:
            yield from cancel(_call(state, step), step.reason)
        case Action.REJECT_CALL:
            call = _call(state, step)
            raw = response.calls[call.index].arguments if response is not None else ""
            yield Reject(call.index, step.reason, rejection(step.reason, raw))
        case _:
            yield _end(state, step, response)


def _end(state: State, step: Step, response: Latest | None) -> Command:
    assert state.request is not None
    if step.action is Action.FINALIZE_REQUEST:
        text = visible_text(response) if response is not None else ""
        return request.Complete(text, dict(state.request.usage))
    if step.action is Action.FINISH_ABORT:
        return EndRequest("abort", request.Interrupt(state.request.abort_reason or "abort"))
    return failure(state, step.reason)


def _call(state: State, step: Step) -> CallState:
    assert step.index is not None
    return state.calls[step.index]


def visible_text(response: Latest) -> str:
    """What a person sees of a response."""
    return "".join(block.text for block in response.blocks if block.kind == "text")


def rejection(reason: str, raw: str) -> str:
    """What the model is told about a call that is not carried out; `raw` are its arguments."""
    if reason != "malformed":
        return _REJECTIONS[reason]
    try:
        parse_arguments(raw)
    except ArgumentsRefused as e:
        return str(e)
    return "the arguments are not one JSON object"


def cancel(call: CallState, reason: str) -> Iterator[Command]:
    """End a call that is not running; an open question is closed first."""
    if call.permission is not None and call.permission.decision is Decision.PENDING:
        yield OnCall(call.index, permission.Withdraw(reason))
    yield OnCall(call.index, tool.Cancel(reason))


def failure(state: State, reason: str) -> Command:
    """The failed end of the active request: `max_turns`, `budget`, or its last attempt's error."""
    assert state.request is not None
    if reason == "max_turns":
        code, message = "MAX_TURNS", f"the request used its {state.request.max_turns} turns"
    elif reason == "budget":
        code, message = "BUDGET_SPENT", f"the session has used {budget.told(state.spending)}"
    else:
        assert state.attempt is not None
        code = state.attempt.error_code or "attempts_used_up"
        message = state.attempt.error_message or f"after {state.attempt.number} attempts"
    return EndRequest("error", request.Fail(code, message))


def _fail_compaction(state: State, step: Step) -> Iterator[Command]:
    attempt = state.compaction_attempt
    if attempt is not None and attempt.status is model_attempt.Status.STARTED:
        yield model_attempt.Reconcile("lost", evidence="the process that ran the compaction is gone")
    yield compaction.FailCompaction(step.subject, step.reason)

"""What an operator may decide, as commands: checked against the plan, not yet written.

Pure: each choice turns a state into commands, or refuses and says what the plan
calls for. Writing them is `recovery.coordinator`'s work; the command line's
`--dry-run` stops here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol

from pydantic import ValidationError

from domain import inputs, model_attempt, permission, request, tool
from domain.canonical import digest as digest_of
from domain.decider import Command, EndRequest, OnCall, SettleEffect
from domain.errors import InvalidOptions, RecoveryRejected
from domain.model_attempt import AttemptState, keep
from domain.model_ports import Response
from domain.next_steps import Action, Step, next_steps
from domain.preview import preview
from domain.state import CallState, State
from domain.values import Verdict

MODEL_OUTCOMES: Final = ("completed", "failed", "lost")
TOOL_OUTCOMES: Final = ("completed", "failed", "cancelled", "suspended")
REQUEST_OUTCOMES: Final = ("failed", "interrupted", "completed")
VERDICTS: Final = ("allow", "deny")


class Choice(Protocol):
    """A decision: those below, and the rollovers of `recovery.rollover`."""

    kind: ClassVar[str]

    def decide(self, state: State) -> tuple[Command, ...]:
        """The commands of its commit. Raises RecoveryRejected where the plan does not call for it."""

    @property
    def arguments(self) -> dict[str, Any]:
        """What the decision's fingerprint is made of."""


@dataclass(frozen=True, slots=True)
class ModelOutcome:
    """What became of a model attempt. `response` exactly where it completed."""

    kind: ClassVar[str] = "reconcile_model_outcome"

    attempt_id: str
    outcome: str
    evidence: str
    response: Response | None = None
    message: str = ""

    def decide(self, state: State) -> tuple[Command, ...]:
        """Raises RecoveryRejected unless the plan waits for this attempt."""
        _one_of("outcome", MODEL_OUTCOMES, self.outcome)
        check_evidence(self.evidence)
        if (self.response is not None) != (self.outcome == "completed"):
            raise InvalidOptions(
                "response", "the response of a completed attempt, and none otherwise", self.outcome
            )
        _kept(self.response)
        _due_about(state, self.kind, self.attempt_id, Action.RECONCILE_MODEL_OUTCOME)
        command = model_attempt.Reconcile(self.outcome, self.evidence, self.response, self.message)
        return (command,)

    @property
    def arguments(self) -> dict[str, Any]:
        """What the decision's fingerprint is made of."""
        return {
            "attempt_id": self.attempt_id,
            "outcome": self.outcome,
            "evidence": self.evidence,
            "response": _kept(self.response),
            "message": self.message,
        }


def lost_attempt(state: State, attempt_id: str) -> AttemptState:
    """The attempt that the plan waits for. Raises RecoveryRejected where it does not."""
    _due_about(state, "look_up_model_outcome", attempt_id, Action.RECONCILE_MODEL_OUTCOME)
    assert state.attempt is not None
    return state.attempt


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What became of a started call, of the open turn or of a request that has ended.

    `output` is what the model is told; `value` the result as kept.
    """

    kind: ClassVar[str] = "reconcile_tool_outcome"

    tool_id: str
    outcome: str
    evidence: str
    output: str = ""
    value: Any = None

    def decide(self, state: State) -> tuple[Command, ...]:
        """Raises RecoveryRejected unless the call's outcome is unknown.

        Also where the plan would start the call again: somebody who knows what it
        did spares the world a second run.
        """
        _one_of("outcome", TOOL_OUTCOMES, self.outcome)
        check_evidence(self.evidence)
        command = tool.Reconcile(self.outcome, self.evidence, self.output, self.value)
        if any(effect.tool_id == self.tool_id for effect in state.unsettled):
            return (SettleEffect(self.tool_id, command),)
        step = _due_about(state, self.kind, self.tool_id, Action.RECONCILE_TOOL_OUTCOMES, Action.START_TOOL)
        if step.action is Action.START_TOOL and step.reason != "again":
            raise rejected(state, self.kind, self.tool_id)
        assert step.index is not None
        return (OnCall(step.index, command),)

    @property
    def arguments(self) -> dict[str, Any]:
        """What the decision's fingerprint is made of."""
        return {
            "tool_id": self.tool_id,
            "outcome": self.outcome,
            "evidence": self.evidence,
            "output": self.output,
            "value": self.value,
        }


@dataclass(frozen=True, slots=True)
class PermissionAnswer:
    """A person's answer to an open question, named by its own id or its call's.

    `digest` of the input that was looked at; where given it has to be the open
    question's. `updated_input` replaces the input and is checked again by the policy.
    """

    kind: ClassVar[str] = "resolve_permission"

    permission_or_tool_id: str
    verdict: str
    digest: str | None = None
    message: str = ""
    updated_input: dict[str, Any] | None = None

    def decide(self, state: State) -> tuple[Command, ...]:
        """Raises RecoveryRejected unless the question is open and about this input."""
        _one_of("verdict", VERDICTS, self.verdict)
        denied = self.verdict == "deny"
        if denied and self.updated_input is not None:
            raise InvalidOptions("updated_input", "none where the call is denied", self.updated_input)
        call = self._asked(state)
        assert call.permission is not None
        if self.digest not in (None, call.permission.input_digest):
            raise RecoveryRejected(
                self.kind,
                f"expected digest {call.permission.input_digest} of the input that is asked about, "
                f"got {preview(self.digest)}. Look at the question again.",
            )
        updated = None if self.updated_input is None else digest_of(self.updated_input)
        answer = permission.Resolve(Verdict(self.verdict), self.updated_input, updated, self.message)
        commands: list[Command] = [OnCall(call.index, answer)]
        if denied:
            commands.append(OnCall(call.index, tool.Cancel("permission_denied")))
        return tuple(commands)

    @property
    def arguments(self) -> dict[str, Any]:
        """What the decision's fingerprint is made of."""
        return {
            "id": self.permission_or_tool_id,
            "verdict": self.verdict,
            "digest": self.digest,
            "message": self.message,
            "updated_input": self.updated_input,
        }

    def _asked(self, state: State) -> CallState:
        for step in next_steps(state):
            if step.action is not Action.RESOLVE_PERMISSIONS or step.index is None:
                continue
            call = state.calls[step.index]
            assert call.permission is not None
            if self.permission_or_tool_id in (call.call_id, call.permission.question_id(call.call_id)):
                return call
        raise rejected(state, self.kind, self.permission_or_tool_id)


@dataclass(frozen=True, slots=True)
class SuspensionAnswer:
    """The answer that a suspended call waits for."""

    kind: ClassVar[str] = "answer_suspension"

    tool_id: str
    answer: Any

    def decide(self, state: State) -> tuple[Command, ...]:
        """Raises RecoveryRejected unless the call is suspended."""
        step = _due_about(state, self.kind, self.tool_id, Action.ANSWER_SUSPENSIONS)
        assert step.index is not None
        return (OnCall(step.index, tool.Answer(self.answer)),)

    @property
    def arguments(self) -> dict[str, Any]:
        """What the decision's fingerprint is made of."""
        return {"tool_id": self.tool_id, "answer": self.answer}


@dataclass(frozen=True, slots=True)
class PreparedInputs:
    """The applied inputs are prepared; `contents` (by input id) is what preparation changed."""

    kind: ClassVar[str] = "reconcile_request_inputs"

    evidence: str
    contents: Mapping[str, Any] = field(default_factory=dict)

    def decide(self, state: State) -> tuple[Command, ...]:
        """Raises RecoveryRejected unless a preparation was begun and not finished."""
        check_evidence(self.evidence)
        _due(state, self.kind, Action.RECONCILE_REQUEST_INPUTS)
        assert state.request is not None
        waiting = state.request.unprepared
        foreign = sorted(set(self.contents) - set(waiting))
        if foreign:
            raise InvalidOptions("contents", f"contents of {list(waiting)}", foreign)
        command = inputs.FinishPreparation(waiting, dict(self.contents), self.evidence)
        return (command,)

    @property
    def arguments(self) -> dict[str, Any]:
        """What the decision's fingerprint is made of."""
        return {"evidence": self.evidence, "contents": dict(self.contents)}


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """How a request ended that the journal does not say how to go on with.

    `text` is the output of a completed request, the message of a failed one, the
    reason of an interrupted one.
    """

    kind: ClassVar[str] = "reconcile_request_outcome"

    outcome: str
    evidence: str
    text: str = ""

    def decide(self, state: State) -> tuple[Command, ...]:
        """Raises RecoveryRejected unless the plan waits for this."""
        _one_of("outcome", REQUEST_OUTCOMES, self.outcome)
        check_evidence(self.evidence)
        _due(state, self.kind, Action.RECONCILE_REQUEST_OUTCOME)
        return (self._end(state),)

    def _end(self, state: State) -> Command:
        assert state.request is not None
        match self.outcome:
            case "completed":
                return request.Complete(self.text, dict(state.request.usage), self.evidence)
            case "failed":
                return EndRequest("error", request.Fail("reconciled_failed", self.text, self.evidence))
        return EndRequest("abort", request.Interrupt(self.text or "reconciled", evidence=self.evidence))

    @property
    def arguments(self) -> dict[str, Any]:
        """What the decision's fingerprint is made of."""
        return {"outcome": self.outcome, "evidence": self.evidence, "text": self.text}


@dataclass(frozen=True, slots=True)
class Abandon:
    """End the open request whatever the plan says; the reason goes on record."""

    kind: ClassVar[str] = "abandon_request"

    reason: str
    evidence: str = ""

    def decide(self, state: State) -> tuple[Command, ...]:
        """Raises RecoveryRejected where no request is open."""
        if not self.reason.strip():
            raise InvalidOptions("reason", "why the request is given up", self.reason)
        if state.request is None:
            raise RecoveryRejected(self.kind, f"no request of session {state.session_id!r} is open")
        why = f"{self.reason} ({self.evidence})" if self.evidence else self.reason
        end = EndRequest("abandoned", request.Interrupt("abandoned", evidence=why))
        return (end,)

    @property
    def arguments(self) -> dict[str, Any]:
        """What the decision's fingerprint is made of."""
        return {"reason": self.reason, "evidence": self.evidence}


def _kept(response: Response | None) -> dict[str, Any] | None:
    try:
        return keep(response).model_dump() if response is not None else None
    except ValidationError as e:
        first = e.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidOptions("response", "a whole response", f"{where}: {first['msg']}") from e


def _one_of(option: str, allowed: tuple[str, ...], given: str) -> None:
    if given not in allowed:
        raise InvalidOptions(option, " or ".join(allowed), given)


def check_evidence(text: str) -> None:
    """Raises InvalidOptions where nothing is said."""
    if not text.strip():
        raise InvalidOptions("evidence", "how you know (a ticket, a log line, what you looked at)", text)


def _due(state: State, kind: str, *actions: Action) -> Step:
    """The plan's step of one of these kinds, whatever it is about."""
    for step in next_steps(state):
        if step.action in actions:
            return step
    raise rejected(state, kind)


def _due_about(state: State, kind: str, subject: str, *actions: Action) -> Step:
    """The plan's step of one of these kinds about `subject`; no subject names none."""
    for step in next_steps(state):
        if step.action in actions and step.subject == subject:
            return step
    raise rejected(state, kind, subject)


def rejected(state: State, kind: str, subject: str | None = None) -> RecoveryRejected:
    """The plan does not call for a decision of this kind (about `subject`); it says what instead."""
    plan = ", ".join(f"{s.action.value} {s.subject}".rstrip() for s in next_steps(state))
    about = f" for {preview(subject)}" if subject else ""
    return RecoveryRejected(
        kind, f"the plan does not call for it{about}; it says: {plan}. Nothing was written."
    )

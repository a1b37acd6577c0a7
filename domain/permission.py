"""Permission: whether one call may run with exactly one input.

    none --evaluated--> allow | deny | ask
    ask  --requested--> pending --resolved--> allow | deny
                        pending --cancelled--> none

A decision is good for one call: its runs and its segments. It is bound to the
digest of the input and to the digest of the policy it was made under; when
either differs the call is evaluated again. What a person allowed is never asked
about again: a new evaluation may only confirm or deny it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from domain import events as ev
from domain import ids
from domain.canonical import digest
from domain.envelope import Recorded
from domain.errors import RuleViolated
from domain.events import Payload
from domain.rules import need
from domain.values import Verdict

# --- commands -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Record the policy's verdict."""

    verdict: Verdict
    source: str
    policy_digest: str
    rule_id: str | None = None
    explanation: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """Put the question to a person."""

    summary: str
    expires_at: str | None = None


@dataclass(frozen=True, slots=True)
class Resolve:
    """A person's answer; `updated_input` with its digest replaces the input."""

    verdict: Verdict
    updated_input: dict[str, Any] | None = None
    updated_digest: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Close an open question."""

    reason: str


Command = Evaluate | Ask | Resolve | Withdraw

# --- state ------------------------------------------------------------------------


class Decision(StrEnum):
    """Where a call stands with its permission."""

    NONE = "none"
    ASK = "ask"
    PENDING = "pending"
    ALLOW = "allow"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class PermissionState:
    """One call's permission. `input_digest` is the input a start needs."""

    input_digest: str
    decision: Decision = Decision.NONE
    by_person: bool = False
    questions: int = 0
    policy_digest: str = ""
    evaluated_input: str = ""
    sequence: int = 0

    def question_id(self, tool_id: str) -> str:
        """The id of the latest question."""
        return ids.permission(tool_id, self.questions)

    def current(self, policy_digest: str) -> bool:
        """Whether the evaluation was made for this input and under this policy."""
        return self.policy_digest == policy_digest and self.evaluated_input == self.input_digest


# --- decide ------------------------------------------------------------------------


def decide(state: PermissionState, tool_id: str, command: Command) -> Payload:
    """The event that carries out `command`."""
    match command:
        case Evaluate():
            return ev.PermissionEvaluated(
                verdict=command.verdict,
                source=command.source,  # type: ignore[arg-type]  # checked by the payload
                rule_id=command.rule_id,
                policy_digest=command.policy_digest,
                input_digest=state.input_digest,
                explanation=list(command.explanation),
            )
        case Ask():
            return ev.PermissionRequested(
                permission_id=ids.permission(tool_id, state.questions + 1),
                summary=command.summary,
                input_digest=state.input_digest,
                expires_at=command.expires_at,
            )
        case Resolve():
            return ev.PermissionResolved(
                permission_id=state.question_id(tool_id),
                verdict="allow" if command.verdict is Verdict.ALLOW else "deny",
                input_digest=state.input_digest,
                updated_input=command.updated_input,
                updated_digest=command.updated_digest,
                message=command.message,
            )
        case Withdraw():
            return ev.PermissionCancelled(permission_id=state.question_id(tool_id), reason=command.reason)


# --- evolve --------------------------------------------------------------------------


def evolve(state: PermissionState, event: Recorded, policy_digest: str) -> PermissionState:
    """Fold one permission event of this call. Raises RuleViolated."""
    data = event.data
    assert event.tool_id is not None
    match data:
        case ev.PermissionEvaluated():
            return _evaluated(state, event, data, policy_digest)
        case ev.PermissionRequested():
            need(state.decision is Decision.ASK, "a person is asked only after evaluated ask", event)
            need(data.input_digest == state.input_digest, "the question is about the call's input", event)
            number = state.questions + 1
            need(data.permission_id == ids.permission(event.tool_id, number), "questions are numbered", event)
            return replace(state, decision=Decision.PENDING, questions=number, sequence=event.sequence)
        case ev.PermissionResolved():
            _answers_open_question(state, event, data.permission_id)
            need(data.input_digest == state.input_digest, "the answer repeats the input's digest", event)
            need(
                (data.updated_input is None) == (data.updated_digest is None),
                "an updated input has a digest",
                event,
            )
            own = data.updated_input is None or digest(data.updated_input) == data.updated_digest
            need(own, "the digest is that of the updated input", event)
            return replace(
                state,
                decision=Decision(data.verdict),
                by_person=True,
                input_digest=data.updated_digest or state.input_digest,
                sequence=event.sequence,
            )
        case ev.PermissionCancelled():
            _answers_open_question(state, event, data.permission_id)
            return replace(state, decision=Decision.NONE, sequence=event.sequence)
    raise RuleViolated("a permission event", event.type, event.sequence)


def _answers_open_question(state: PermissionState, event: Recorded, permission_id: str) -> None:
    assert event.tool_id is not None
    need(state.decision is Decision.PENDING, "the question is open (the first answer wins)", event)
    need(permission_id == state.question_id(event.tool_id), "the answer names the open question", event)


def _evaluated(
    state: PermissionState, event: Recorded, data: ev.PermissionEvaluated, policy_digest: str
) -> PermissionState:
    need(state.decision is not Decision.PENDING, "an open question is closed before a new evaluation", event)
    need(data.policy_digest == policy_digest, "evaluated under the present policy", event)
    need(data.input_digest == state.input_digest, "evaluated for the call's input", event)
    fresh = state.decision is Decision.NONE or not state.current(policy_digest)
    need(fresh, "evaluated once per policy and input", event)
    confirms = data.verdict is not Verdict.ASK or not state.by_person
    need(confirms, "what a person allowed is never asked about again", event)
    return replace(
        state,
        decision=Decision(data.verdict),
        by_person=state.by_person and data.verdict is Verdict.ALLOW,
        policy_digest=data.policy_digest,
        evaluated_input=data.input_digest,
        sequence=event.sequence,
    )

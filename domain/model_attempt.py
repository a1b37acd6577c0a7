"""ModelAttempt: one request sent to a provider.

started --completed--> completed
started --failed-----> failed      (a further attempt if it was retryable)
started --aborted----> aborted     (a further attempt)
started --reconciled-> completed | failed (never retried) | lost (a further attempt)

While it is started its provider's id of the response may become known, once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from domain import events as ev
from domain import ids
from domain.envelope import Recorded
from domain.errors import ModelFailed, RuleViolated
from domain.events import Payload
from domain.model_ports import Found, LostAttempt, Response
from domain.rules import need

# --- commands -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Identify:
    """The provider told its id of the response that is under way."""

    response_id: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The response arrived whole."""

    response: Response


@dataclass(frozen=True, slots=True)
class Fail:
    """The attempt ended without a usable response."""

    error: ModelFailed


@dataclass(frozen=True, slots=True)
class Abandon:
    """We stopped listening; `reason` as in `ModelRequestAborted`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reconcile:
    """Somebody says what became of it: completed (with the response), failed or lost."""

    outcome: str
    evidence: str
    response: Response | None = None
    message: str = ""


Command = Identify | Finish | Fail | Abandon | Reconcile

# --- state --------------------------------------------------------------------------


class Status(StrEnum):
    """Where an attempt stands."""

    STARTED = "started"
    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class AttemptState:
    """The latest attempt of a turn or of a compaction.

    `provider` and `api` are whom it was sent to; `response_id` and `attempt_key` what that
    provider can be asked by, where it keeps responses.
    """

    attempt_id: str
    number: int
    status: Status
    started_sequence: int
    sequence: int
    provider_run_tools: bool = False
    retryable: bool = True
    retry_after_s: float | None = None
    error_code: str = ""
    error_message: str = ""
    stop: str = ""
    provider: str = ""
    api: str = ""
    response_id: str | None = None
    attempt_key: str | None = None

    @property
    def findable(self) -> bool:
        """Whether there is anything to ask the provider by."""
        return self.response_id is not None or self.attempt_key is not None


# --- decide ---------------------------------------------------------------------------


def keep(response: Response) -> ev.ResponseKept:
    """A provider's response in its stored form."""
    return ev.ResponseKept.model_validate(
        {
            "blocks": [{"kind": b.kind, "text": b.text, "format": b.format} for b in response.blocks],
            "calls": [
                {"provider_call_id": c.provider_call_id, "name": c.name, "arguments": c.arguments}
                for c in response.calls
            ],
            "stop": response.stop,
            "usage": response.usage,
            "provider_ids": response.provider_ids,
        }
    )


def decide(state: AttemptState, command: Command) -> Payload:
    """The event that carries out `command`."""
    del state  # what becomes of an attempt is decided by what arrived alone
    match command:
        case Identify():
            return ev.ModelResponseIdentified(response_id=command.response_id)
        case Finish():
            return ev.ModelRequestCompleted(response=keep(command.response))
        case Fail():
            e = command.error
            return ev.ModelRequestFailed(
                error_code=e.kind,
                message=e.message,
                retryable=e.retryable,
                bytes_sent=e.bytes_sent,
                retry_after_s=e.retry_after_s,
                received_digest=e.received_digest,
            )
        case Abandon():
            return ev.ModelRequestAborted(reason=command.reason)  # type: ignore[arg-type]  # checked by the payload
        case Reconcile():
            fields: dict[str, Any] = {"outcome": command.outcome, "evidence": command.evidence}
            if command.response is not None:
                fields["response"] = keep(command.response)
            return ev.ModelOutcomeReconciled(**fields, message=command.message)


def asked_about(attempt: AttemptState) -> LostAttempt:
    """The attempt as its provider can be asked about it."""
    return LostAttempt(attempt.provider, attempt.api, attempt.response_id, attempt.attempt_key)


def settled_by(attempt: AttemptState, found: Found) -> Reconcile | None:
    """What a provider's answer decides, or None where the outcome stays open.

    A response that the server gave up is lost for good: the model may be asked again,
    unless the provider ran tools for it, which may have acted.
    """
    match found.outcome:
        case "completed" if found.response is not None:
            return Reconcile("completed", found.evidence, found.response)
        case "failed":
            return Reconcile("failed", found.evidence, message=found.message)
        case "cancelled" if not attempt.provider_run_tools:
            return Reconcile("lost", found.evidence)
    return None


# --- evolve ------------------------------------------------------------------------------


def first(event: Recorded, parent_id: str, number: int) -> AttemptState:
    """An attempt's first event."""
    data = event.data
    if not isinstance(data, ev.ModelRequestStarted):
        raise RuleViolated("no attempt is active", event.type, event.sequence)
    assert event.model_attempt_id is not None
    need(data.number == number, "attempts are numbered", event)
    need(event.model_attempt_id == ids.attempt(parent_id, number), "attempt ids are derived", event)
    return AttemptState(
        event.model_attempt_id,
        number,
        Status.STARTED,
        event.sequence,
        event.sequence,
        provider_run_tools=data.provider_run_tools,
        provider=data.provider,
        api=data.api,
        attempt_key=data.attempt_key,
    )


def evolve(state: AttemptState, event: Recorded) -> AttemptState:
    """Fold the attempt's end, or what is known of it before. Raises RuleViolated."""
    data = event.data
    need(state.status is Status.STARTED, "an attempt ends once", event)
    need(event.model_attempt_id == state.attempt_id, "the end names the active attempt", event)
    if isinstance(data, ev.ModelResponseIdentified):
        need(state.response_id is None, "a response is identified once", event)
        return replace(state, response_id=data.response_id, sequence=event.sequence)
    ended = replace(state, sequence=event.sequence)
    match data:
        case ev.ModelRequestCompleted():
            return replace(ended, status=Status.COMPLETED, stop=data.response.stop)
        case ev.ModelRequestFailed():
            return replace(
                ended,
                status=Status.FAILED,
                retryable=data.retryable,
                retry_after_s=data.retry_after_s,
                error_code=data.error_code,
                error_message=data.message,
            )
        case ev.ModelRequestAborted():
            return replace(ended, status=Status.ABORTED)
        case ev.ModelOutcomeReconciled():
            return _reconciled(ended, event, data)
    raise RuleViolated("one attempt at a time", event.type, event.sequence)


def response_of(event: Recorded) -> ev.ResponseKept | None:
    """The response that an attempt's end brought, if it did."""
    match event.data:
        case ev.ModelRequestCompleted():
            return event.data.response
        case ev.ModelOutcomeReconciled():
            return event.data.response
    return None


def _reconciled(state: AttemptState, event: Recorded, data: ev.ModelOutcomeReconciled) -> AttemptState:
    brings = data.response is not None
    need(brings == (data.outcome == "completed"), "only a completed outcome brings a response", event)
    if data.response is not None:
        return replace(state, status=Status.COMPLETED, stop=data.response.stop)
    return replace(
        state,
        status=Status(data.outcome),
        retryable=data.outcome == "lost",
        error_code="reconciled_failed" if data.outcome == "failed" else "",
        error_message=data.message,
    )

"""Tokens that the providers reported: per attempt, per request and for the session.

Pure. Sums hold what was reported and nothing else. Attempts that ended without a
report are counted beside them, because they may have been billed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from domain import events as ev
from domain.envelope import Recorded

#: The event types that the projector folds.
TYPES: Final = frozenset(
    cls.type
    for cls in (
        ev.ModelRequestStarted,
        ev.ModelRequestCompleted,
        ev.ModelRequestFailed,
        ev.ModelRequestAborted,
        ev.ModelOutcomeReconciled,
    )
)


@dataclass(frozen=True, slots=True)
class AttemptUsage:
    """One model attempt.

    Args:
        outcome: open, completed, failed, aborted or lost.
        tokens: counts by name, as the provider gave them; empty without a report.
        maybe_billed: it ended (or never ended) without a report after it may have been sent.
    """

    attempt_id: str
    request_id: str | None
    turn_id: str | None
    purpose: str
    model: str
    started_sequence: int
    outcome: str = "open"
    tokens: Mapping[str, int] = field(default_factory=dict)
    maybe_billed: bool = True


@dataclass(frozen=True, slots=True)
class Sum:
    """Token counts of several attempts, and how many of those may have been billed unseen."""

    attempts: int = 0
    tokens: Mapping[str, int] = field(default_factory=dict)
    maybe_billed: int = 0


class Usage:
    """Folds a session's events into one entry per attempt, in order."""

    def __init__(self) -> None:
        self._attempts: dict[str, AttemptUsage] = {}

    @property
    def attempts(self) -> tuple[AttemptUsage, ...]:
        """Every attempt."""
        return tuple(self._attempts.values())

    @property
    def session(self) -> Sum:
        """Everything, compactions included."""
        return total(self._attempts.values())

    @property
    def requests(self) -> dict[str, Sum]:
        """The attempts of each request, by request id, in order."""
        grouped: dict[str, list[AttemptUsage]] = {}
        for attempt in self._attempts.values():
            if attempt.request_id is not None:
                grouped.setdefault(attempt.request_id, []).append(attempt)
        return {request_id: total(attempts) for request_id, attempts in grouped.items()}

    def apply(self, event: Recorded) -> None:
        """Fold one event; those of other types are passed over."""
        data, attempt_id = event.data, event.model_attempt_id
        if attempt_id is None:
            return
        if isinstance(data, ev.ModelRequestStarted):
            self._attempts[attempt_id] = AttemptUsage(
                attempt_id, event.request_id, event.turn_id, data.purpose, data.model, event.sequence
            )
        elif attempt_id in self._attempts:
            self._attempts[attempt_id] = _ended(self._attempts[attempt_id], data)


def total(attempts: Iterable[AttemptUsage]) -> Sum:
    """The sum over attempts; a count that only some report is summed over those."""
    count = unseen = 0
    tokens: dict[str, int] = {}
    for attempt in attempts:
        count += 1
        unseen += attempt.maybe_billed
        for name, value in attempt.tokens.items():
            tokens[name] = tokens.get(name, 0) + value
    return Sum(count, tokens, unseen)


def _ended(attempt: AttemptUsage, data: ev.Payload) -> AttemptUsage:
    match data:
        case ev.ModelRequestCompleted(response=response):
            return _reported(attempt, response)
        case ev.ModelOutcomeReconciled(response=response) if response is not None:
            return _reported(attempt, response)
        case ev.ModelOutcomeReconciled(outcome=outcome):
            return replace(attempt, outcome=outcome)
        case ev.ModelRequestFailed(bytes_sent=sent):
            return replace(attempt, outcome="failed", maybe_billed=sent)
        case ev.ModelRequestAborted():
            return replace(attempt, outcome="aborted")
    return attempt


def _reported(attempt: AttemptUsage, response: ev.ResponseKept) -> AttemptUsage:
    return replace(attempt, outcome="completed", tokens=response.usage, maybe_billed=not response.usage)

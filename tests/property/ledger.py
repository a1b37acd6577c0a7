"""What a list of events says, read without any of our folds: the tests' own bookkeeping.

It looks at types, ids and a few fields of payloads. It refuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from domain.envelope import Recorded

ATTEMPT_ENDS = {
    "model_request_completed",
    "model_request_failed",
    "model_request_aborted",
    "model_outcome_reconciled",
}
REQUEST_ENDS = {"request_completed", "request_failed", "request_interrupted", "request_superseded"}
CALL_ENDS = {"tool_completed", "tool_failed", "tool_cancelled", "tool_rejected"}


@dataclass(slots=True)
class Run:
    """The latest start of a call that has not ended."""

    side_effect: str
    key: str
    unknown: bool = False


@dataclass(slots=True)
class Ledger:
    """What is open after some events, and what ended."""

    accepted: list[str] = field(default_factory=list)
    applied: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    attempts: set[str] = field(default_factory=set)
    runs: dict[str, Run] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    starts: dict[tuple[str, int], list[str]] = field(default_factory=dict)

    def read(self, events: Iterable[Recorded]) -> Ledger:
        """Take in more events."""
        for event in events:
            self._read(event)
        return self

    @property
    def pending(self) -> list[str]:
        """Inputs that are neither applied nor cancelled."""
        gone = set(self.applied) | set(self.cancelled)
        return [i for i in self.accepted if i not in gone]

    def _read(self, event: Recorded) -> None:
        data = event.data
        match event.type:
            case "input_accepted":
                self.accepted.append(data.input_id)
            case "input_applied":
                self.applied.append(data.input_id)
            case "input_cancelled":
                self.cancelled.append(data.input_id)
            case "model_request_started":
                self.attempts.add(event.model_attempt_id or "")
            case "tool_started":
                self._started(event)
            case "tool_outcome_unknown":
                self.runs[event.tool_id or ""].unknown = True
            case "tool_suspended":
                del self.runs[event.tool_id or ""]
            case "tool_outcome_reconciled":
                self.runs.pop(event.tool_id or "", None)
                if data.outcome != "suspended":
                    self.ended.append(event.tool_id or "")
        if event.type in ATTEMPT_ENDS:
            self.attempts.discard(event.model_attempt_id or "")
            self.ended.append(event.model_attempt_id or "")
        elif event.type in REQUEST_ENDS:
            self.ended.append(event.request_id or "")
        elif event.type in ("turn_completed", "turn_aborted"):
            self.ended.append(event.turn_id or "")
        elif event.type in CALL_ENDS:
            self.runs.pop(event.tool_id or "", None)
            self.ended.append(event.tool_id or "")

    def _started(self, event: Recorded) -> None:
        tool_id, data = event.tool_id or "", event.data
        self.runs[tool_id] = Run(data.side_effect, data.idempotency_key)
        self.starts.setdefault((tool_id, data.segment), []).append(data.side_effect)


def prefixes(commits: Iterable[list[Recorded]]) -> Iterator[tuple[Ledger, list[Recorded]]]:
    """The books after each commit, and that commit."""
    ledger = Ledger()
    for commit in commits:
        yield ledger.read(commit), commit

"""Compaction: history is being summarised, and nothing else of the session runs.

    (nothing) --started--> open --completed | failed--> (nothing)

Its model attempt, if it made one, ends before it does.
"""

from __future__ import annotations

from dataclasses import dataclass

from domain import events as ev
from domain.envelope import Recorded
from domain.errors import RuleViolated
from domain.events import Payload
from domain.rules import need

# --- commands -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FailCompaction:
    """Give up; history stays as it was."""

    compaction_id: str
    reason: str


# --- state --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CompactionState:
    """The open compaction."""

    compaction_id: str
    sequence: int


# --- decide ---------------------------------------------------------------------------


def decide(command: FailCompaction) -> Payload:
    """The event that carries out `command`."""
    return ev.CompactionFailed(compaction_id=command.compaction_id, reason=command.reason)


# --- evolve ------------------------------------------------------------------------------


def evolve(state: CompactionState | None, event: Recorded) -> CompactionState | None:
    """Fold one event of a compaction. Raises RuleViolated."""
    data = event.data
    if isinstance(data, ev.CompactionStarted):
        need(state is None, "one compaction at a time", event)
        return CompactionState(data.compaction_id, event.sequence)
    if state is None:
        raise RuleViolated("a compaction is open", event.type, event.sequence)
    need(data.compaction_id == state.compaction_id, "it names the open compaction", event)
    return None

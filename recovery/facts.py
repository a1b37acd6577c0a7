"""What a plan states besides its items: what is queued, asked, suspended, unsettled, leased.

Values and pure functions from a state to them. Imported by `recovery.plan` and
`recovery.details`. What comes next is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from domain.permission import Decision
from domain.ports import LeaseRow
from domain.state import State, UnsettledEffect
from domain.tool import Status as Tool
from projections.interactions import Interactions, OpenPermission, OpenSuspension
from projections.pending_inputs import PendingInputs
from recovery import wording
from recovery.problem import Blocked


@dataclass(frozen=True, slots=True)
class PendingFact:
    """A queued input. `priority` as it counts now; `content` only where it was read."""

    input_id: str
    sequence: int
    ordinal: int
    priority: str
    size_bytes: int
    target_request_id: str | None
    content: Any = None


@dataclass(frozen=True, slots=True)
class PermissionFact:
    """An open question. `summary`, `input` and `expires_at` only where they were read."""

    permission_id: str
    tool_id: str
    name: str
    side_effect: str
    input_digest: str
    evidence: tuple[int, ...]
    summary: str | None = None
    input: Any = None
    expires_at: str | None = None


@dataclass(frozen=True, slots=True)
class SuspensionFact:
    """A call that waits for an answer. `payload` and `resume_schema` only where they were read."""

    tool_id: str
    name: str
    evidence: tuple[int, ...]
    payload: Any = None
    resume_schema: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class EffectFact:
    """A started call of unknown outcome whose request has ended, and how to settle it."""

    tool_id: str
    name: str
    side_effect: str
    idempotency_key: str
    request_id: str
    evidence: tuple[int, ...]
    python: str
    shell: str


@dataclass(frozen=True, slots=True)
class LeaseFact:
    """Who may write. `lives`: whether it holds now, None where nobody looked."""

    holder: str | None
    token: int
    expires_at: str
    lives: bool | None
    process_id: int | None = None


@dataclass(frozen=True, slots=True)
class Details:
    """Content that was read for display; no plan depends on it."""

    inputs: PendingInputs = field(default_factory=PendingInputs)
    interactions: Interactions = field(default_factory=Interactions)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about a session besides its state.

    Args:
        head: 32 bytes, at the state's sequence.
        verified: first and last sequence whose links were proved; (1, 0) if none.
        snapshot_sequence: where folding began; 0 if at the beginning.
        problem: what stands in the way of following the journal.
        notes: sentences worth knowing.
        lease_lives: whether the lease holds now, None where nobody looked.
        journal: what shell commands are to call the journal.
    """

    head: bytes = b""
    verified: tuple[int, int] = (1, 0)
    snapshot_sequence: int = 0
    problem: Blocked | None = None
    notes: tuple[str, ...] = ()
    lease: LeaseRow | None = None
    lease_lives: bool | None = None
    journal: str = "JOURNAL"
    details: Details = field(default_factory=Details)


def pending_inputs(state: State, details: Details) -> Iterator[PendingFact]:
    """The queue, in order of acceptance."""
    contents = {item.input_id: item.content for item in details.inputs.items}
    for item in state.queue.pending:
        yield PendingFact(
            item.input_id,
            item.sequence,
            item.ordinal,
            state.effective_priority(item).value,
            item.size_bytes,
            item.target_request_id,
            contents.get(item.input_id),
        )


def open_permissions(state: State, details: Details) -> Iterator[PermissionFact]:
    """The questions that wait for a person, by call."""
    for call in state.calls:
        asked, scheduled = call.permission, call.tool
        if asked is None or scheduled is None or asked.decision is not Decision.PENDING:
            continue
        known = details.interactions.find(call.call_id)
        read = known if isinstance(known, OpenPermission) else None
        yield PermissionFact(
            asked.question_id(call.call_id),
            call.call_id,
            call.name,
            scheduled.side_effect.value,
            asked.input_digest,
            (scheduled.scheduled_sequence, asked.sequence),
            read.summary if read else None,
            read.input if read else None,
            read.expires_at if read else None,
        )


def open_suspensions(state: State, details: Details) -> Iterator[SuspensionFact]:
    """The calls that wait for an answer."""
    for call in state.calls:
        if call.tool is None or call.tool.status is not Tool.SUSPENDED:
            continue
        known = details.interactions.find(call.call_id)
        read = known if isinstance(known, OpenSuspension) else None
        yield SuspensionFact(
            call.call_id,
            call.name,
            (call.tool.scheduled_sequence, call.tool.sequence),
            read.payload if read else None,
            read.resume_schema if read else None,
        )


def unsettled(state: State, journal: str) -> Iterator[EffectFact]:
    """The effects that ended requests left behind."""
    for effect in state.unsettled:
        yield _effect(effect, {"subject": effect.tool_id, "session": state.session_id, "journal": journal})


def _effect(effect: UnsettledEffect, names: dict[str, object]) -> EffectFact:
    return EffectFact(
        effect.tool_id,
        effect.name,
        effect.side_effect.value,
        effect.idempotency_key,
        effect.request_id,
        (effect.started_sequence, effect.sequence),
        wording.fill(wording.SETTLE.python, names),
        wording.fill_shell(wording.SETTLE.shell, names),
    )


def lease(row: LeaseRow | None, lives: bool | None) -> LeaseFact | None:
    """A lease row as the plan states it; a released one has no holder."""
    if row is None:
        return None
    held = row.lease_id is not None
    return LeaseFact(
        row.holder_id if held else None,
        row.token,
        _time(row.expires_at),
        lives if held else False,
        row.process_id if held else None,
    )


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")

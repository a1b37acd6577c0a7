"""Lease: which worker holds the session, as its journal says it.

(nobody) --acquired--> held --released--> free --acquired--> held ...

The store's row decides who may write. These events put on record who did, and
what became of the holder before. A journal of an older version has none of them;
from the first one on every new fencing token is announced by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from domain import events as ev
from domain.envelope import Recorded
from domain.errors import RuleViolated
from domain.events import Payload
from domain.rules import need

# --- commands -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AcquireLease:
    """Put on record that this writer holds the session.

    Args:
        ttl_ms: how long the lease lasts without a renewal.
        former_worker_id, former_token: who held it before; None: nobody did.
        former_end: what became of that lease.
    """

    ttl_ms: int
    former_worker_id: str | None = None
    former_token: int | None = None
    former_end: Literal["released", "ran_out", "died"] | None = None


@dataclass(frozen=True, slots=True)
class ReleaseLease:
    """Put on record that this writer gives the session back."""

    reason: Literal["handoff", "closed"]


@dataclass(frozen=True, slots=True)
class CompleteHandoff:
    """Everything here has stopped; whoever comes next begins with `next_action`."""

    next_action: str


Command = AcquireLease | ReleaseLease | CompleteHandoff

# --- state ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The last lease on record. Not `held`: it was given back, and nothing more comes under it."""

    worker_id: str
    lease_id: str
    token: int
    sequence: int
    held: bool = True


# --- decide ---------------------------------------------------------------------


def decide(command: Command) -> tuple[Payload, ...]:
    """The events that carry out `command`."""
    match command:
        case AcquireLease():
            return (
                ev.LeaseAcquired(
                    ttl_ms=command.ttl_ms,
                    former_worker_id=command.former_worker_id,
                    former_token=command.former_token,
                    former_end=command.former_end,
                ),
            )
        case ReleaseLease():
            return (ev.LeaseReleased(reason=command.reason),)
        case CompleteHandoff():
            return (
                ev.HandoffCompleted(next_action=command.next_action),
                ev.LeaseReleased(reason="handoff"),
            )


# --- evolve ---------------------------------------------------------------------


def evolve(state: LeaseState | None, event: Recorded) -> LeaseState | None:
    """Fold one event of the lease. Raises RuleViolated."""
    match event.data:
        case ev.LeaseAcquired():
            return _acquired(state, event)
        case ev.LeaseReleased():
            need(state is not None and state.held, "a lease is released that is held", event)
            assert state is not None
            return replace(state, held=False)
        case _:
            need(state is not None and state.held, "a handoff is by the holder of the lease", event)
            return state


def _acquired(state: LeaseState | None, event: Recorded) -> LeaseState:
    by = event.recorded_by
    if by is None:
        raise RuleViolated("a lease is acquired by a worker that has one", event.type, event.sequence)
    need(state is None or by.token > state.token, "every new lease has a higher token", event)
    return LeaseState(by.worker_id, by.lease_id, by.token, event.sequence)


def check_writer(state: LeaseState | None, event: Recorded) -> None:
    """Check that an event is by the holder of the lease that is on record.

    Raises:
        RuleViolated: it is by somebody whose lease was not announced, or was given back.
    """
    if state is None or isinstance(event.data, ev.LeaseAcquired):
        return
    by = event.recorded_by
    same = by is not None and (by.worker_id, by.lease_id, by.token) == (
        state.worker_id,
        state.lease_id,
        state.token,
    )
    need(same, "a new holder says so first", event)
    closing = isinstance(event.data, ev.SessionClosed) and event.command_index > 0
    need(state.held or closing, "nothing is written under a lease that was released", event)

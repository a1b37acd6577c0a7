"""Composing one commit: commands become events on a preview of the state.

Synchronous and pure: time, salts and ids are handed in. Used by the book (live),
by `recovery.writer` (decisions) and by `minutebook.testing` (given/when/then);
nothing else stamps events. Writing the batch to a store does not belong here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from domain import canonical, catalogue, decider, lifecycle, snapshot
from domain.envelope import Actor, Draft, Fence, Recorded, Stored, seal
from domain.errors import Rejected, RuleViolated, ValueRefused
from domain.limits import MAX_EVENTS_PER_COMMIT, MAX_PAYLOAD_BYTES
from domain.next_steps import Who, next_steps
from domain.ports import Batch, Blob, Listing
from domain.state import CommandPlace, State


class Entry:
    """A commit in the making. `state` is the preview; `events` are stamped, not yet sealed.

    Args:
        state: where the session stands.
        command_id: what every event of this commit carries.
        now: the time of all of it, aware UTC.
        fence: the writer's right to write, if the session is leased.
    """

    def __init__(self, state: State, command_id: str, now: datetime, fence: Fence | None = None) -> None:
        self.base = state
        self.state = state
        self.command_id = command_id
        self.now = now
        self.fence = fence
        self.events: list[Recorded] = []

    def __repr__(self) -> str:
        return f"Entry({self.state.session_id}, {self.command_id}, {[e.type for e in self.events]})"

    def add(self, command: decider.Command, actor: Actor = decider.HOST) -> list[Recorded]:
        """Decide `command` on the preview and fold what it appends.

        Raises:
            RuleViolated: it may not follow; the entry is as before.
        """
        before = self.state, len(self.events)
        try:
            return [self.append(draft) for draft in decider.handle(self.state, command, actor)]
        except Rejected:
            self.state = before[0]
            del self.events[before[1] :]
            raise

    def append(self, draft: Draft) -> Recorded:
        """Stamp one draft and fold it; `add` does this for whole commands.

        Raises:
            RuleViolated: it may not follow; the entry is as before.
        """
        if len(self.events) == MAX_EVENTS_PER_COMMIT:
            raise RuleViolated(f"at most {MAX_EVENTS_PER_COMMIT} events in a commit", draft.data.type)
        event = Recorded(
            session_id=self.state.session_id,
            sequence=self.state.sequence + 1,
            type=draft.data.type,
            version=draft.data.version,
            aggregate_kind=draft.data.aggregate,
            aggregate_id=draft.aggregate_id,
            request_id=draft.request_id,
            turn_id=draft.turn_id,
            model_attempt_id=draft.model_attempt_id,
            tool_id=draft.tool_id,
            occurred_at=self.now,
            recorded_at=self.now,
            command_id=self.command_id,
            causation=draft.causation,
            recorded_by=self.fence,
            actor=draft.actor,
            data=draft.data,
            command_index=len(self.events),
            command_size=MAX_EVENTS_PER_COMMIT + 1,  # not known yet; see `finish`
        )
        self.state = lifecycle.advance(self.state, event)
        self.events.append(event)
        return event

    def finish(self) -> State:
        """Fix the command's size, which every event states, and return the state after it.

        Raises:
            RuleViolated: the commit would end in the middle of something.
        """
        if self.state.owed:
            raise RuleViolated(f"the same commit goes on with {self.state.owed[0]}", self.events[-1].type)
        size = len(self.events)
        self.events = [replace(event, command_size=size) for event in self.events]
        self.state = replace(self.state, command=CommandPlace(self.command_id, size - 1, size))
        return self.state

    def sealed(self, head: bytes, salt: Callable[[], bytes]) -> tuple[Stored, ...]:
        """The rows to store, chained from `head`; each event is given its own.

        Raises:
            ValueRefused: a payload cannot be kept, or is larger than a payload may be.
        """
        rows = []
        for index, event in enumerate(self.events):
            payload = catalogue.encode(event.data)
            if len(payload) > MAX_PAYLOAD_BYTES:
                raise ValueRefused(f"$ of {event.type}", f"at most {MAX_PAYLOAD_BYTES} bytes", len(payload))
            row = seal(event, payload, salt(), head)
            rows.append(row)
            head = row.head
            self.events[index] = replace(event, head=head)
        return tuple(rows)


# --- what a store is given ----------------------------------------------------------------


def to_batch(
    entry: Entry,
    head: bytes,
    salt: Callable[[], bytes],
    owner_id: str,
    kind: str,
    arguments: Mapping[str, Any],
    blobs: tuple[Blob, ...] = (),
) -> Batch:
    """Everything that committing a finished entry writes.

    Args:
        entry: after `finish`.
        head: the head after the entry's base state, 32 bytes.
        salt: gives new random bytes at each call.
        kind, arguments: what was asked for, in plain values; see `fingerprint`.
        blobs: what the events refer to.

    Raises:
        ValueRefused: a payload or an argument cannot be kept.

    Guarantees: holds a snapshot exactly when the commit crosses a snapshot boundary.
    """
    rows = entry.sealed(head, salt)
    due = snapshot.is_due(entry.base.sequence, entry.state.sequence)
    return Batch(
        session_id=entry.state.session_id,
        command_id=entry.command_id,
        fingerprint=fingerprint(kind, arguments),
        events=rows,
        expected_sequence=entry.base.sequence,
        expected_head=head,
        owner_id=owner_id,
        listing=listing(entry.state),
        fence=entry.fence,
        snapshot=snapshot.take(entry.state, rows[-1].head) if due else None,
        blobs=blobs,
    )


def fingerprint(kind: str, arguments: Mapping[str, Any]) -> bytes:
    """SHA-256 over what was asked for, so that a retry is known again whatever time it is made.

    Raises:
        ValueRefused: an argument cannot be kept; `path` says which.
    """
    return hashlib.sha256(canonical.encode({"kind": kind, "arguments": dict(arguments)})).digest()


def listing(state: State) -> Listing:
    """What listings of sessions show of a state.

    The first step that needs nobody goes before the first one, so that a session that can go
    on is found although a question of it is open.
    """
    status = state.session.status.value if state.session is not None else "none"
    steps = next_steps(state)
    shown = next((step for step in steps if step.who is Who.AUTOMATIC), steps[0])
    return Listing(status, shown.action.value)

"""From `send` to events: what may be sent, what it appends, and the receipt of an earlier call."""

from __future__ import annotations

from typing import Any, Final

import anyio.to_thread

from domain import budget as budget_rules
from domain import catalogue, inputs, request
from domain.canonical import encode
from domain.entry import Entry
from domain.envelope import Actor
from domain.errors import SendRejected, UnsettledEffectsFull
from domain.limits import (
    MAX_PENDING_INPUT_BYTES,
    MAX_PENDING_INPUTS,
    MAX_PENDING_MEDIA_BYTES,
    MAX_UNSETTLED_EFFECTS,
)
from domain.model_ports import Capabilities
from domain.ports import Journal, Receipt
from domain.state import State
from domain.values import ActorKind, Priority
from minutebook.carrying import context_of
from minutebook.input_parts import Content, Plain, Prepared, needs_work, prepare
from minutebook.receipts import InputReceipt

USER: Final = Actor(ActorKind.USER)


def check_room(state: State, content: Plain, media_bytes: int = 0) -> None:
    """Refuse an input that has no place.

    Args:
        media_bytes: of the images and files that would wait, its own included.

    Raises:
        UnsettledEffectsFull: settle some effects first.
        SendRejected: QUEUE_FULL, BUDGET_SPENT.
    """
    if state.spending.is_spent:
        used = budget_rules.told(state.spending)
        raise SendRejected("BUDGET_SPENT", f"the session has used {used}; set_budget gives it more")
    if len(state.unsettled) >= MAX_UNSETTLED_EFFECTS:
        raise UnsettledEffectsFull(len(state.unsettled), MAX_UNSETTLED_EFFECTS)
    size = state.queue.size_bytes + len(encode(content))
    if len(state.queue.pending) >= MAX_PENDING_INPUTS or size > MAX_PENDING_INPUT_BYTES:
        raise SendRejected(
            "QUEUE_FULL",
            f"{len(state.queue.pending)} inputs of {size} bytes would wait; the limits are "
            f"{MAX_PENDING_INPUTS} and {MAX_PENDING_INPUT_BYTES}",
        )
    if media_bytes > MAX_PENDING_MEDIA_BYTES:
        told = f"images and files of {media_bytes} bytes would wait; the limit is {MAX_PENDING_MEDIA_BYTES}"
        raise SendRejected("QUEUE_FULL", told)


async def prepared(content: Content, capabilities: Capabilities) -> Prepared:
    """`prepare`, in a thread where bytes have to be looked at."""
    if not needs_work(content):
        return prepare(content, capabilities)
    return await anyio.to_thread.run_sync(prepare, content, capabilities)


def compose(
    entry: Entry,
    content: Plain,
    priority: Priority,
    max_turns: int | None,
    metadata: dict[str, Any],
) -> InputReceipt:
    """Append an input; if the session is idle, accept its request with it."""
    state, session_id, input_id = entry.state, entry.state.session_id, entry.command_id
    busy = state.request is not None or bool(state.queue.pending)
    given = Priority.LATER if busy else Priority.NEXT
    downgraded = priority if busy and priority is not Priority.LATER else None
    ordinal = state.queue.accepted + 1
    accept = inputs.AcceptInput(
        input_id, content, given, ordinal, None, downgraded, max_turns=max_turns, metadata=metadata
    )
    (accepted,) = entry.add(accept, USER)
    if busy:
        return InputReceipt("queued", session_id, input_id, given, accepted.sequence, None, downgraded)
    assert state.session is not None
    settings = state.session.settings
    start = request.AcceptRequest(
        input_id, settings, context_of(settings, metadata), max_turns or settings.max_turns
    )
    (begun,) = entry.add(start, USER)
    return InputReceipt("started", session_id, input_id, given, accepted.sequence, begun.request_id)


async def earlier_receipt(journal: Journal, session_id: str, input_id: str, commit: Receipt) -> InputReceipt:
    """The receipt that the first call with this input id got."""
    rows = await journal.read(session_id, after=commit.first_sequence - 1, upto=commit.last_sequence)
    accepted, *rest = [catalogue.open_stored(row) for row in rows]
    return InputReceipt(
        "started" if rest else "queued",
        session_id,
        input_id,
        accepted.data.priority,
        accepted.sequence,
        rest[0].request_id if rest else None,
        accepted.data.downgraded_from,
    )

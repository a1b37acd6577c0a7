"""What a session's calls return: proof of an input, the end of a request, a page of history."""

from __future__ import annotations

from dataclasses import dataclass

from domain.values import Priority
from projections.transcript import Item


@dataclass(frozen=True, slots=True)
class InputReceipt:
    """Proof that an input is durable.

    Args:
        status: "started" (its request was accepted with it) or "queued" (it waits as `later`).
        request_id: of the request it started, if it did.
        downgraded_from: the priority that was asked for, where another was given.
        sequence: of `input_accepted`.
    """

    status: str
    session_id: str
    input_id: str
    priority: Priority
    sequence: int
    request_id: str | None = None
    downgraded_from: Priority | None = None


@dataclass(frozen=True, slots=True)
class RequestResult:
    """How a request ended. `status`: completed, failed, interrupted; `error_code` unless completed."""

    request_id: str
    status: str
    content: str
    usage: dict[str, int]
    error_code: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """A page of the conversation. `position`: the journal sequence it was read at."""

    items: tuple[Item, ...]
    offset: int
    next_offset: int | None
    total: int
    position: int

"""What a session's calls return: proof of an input, the end of a request, a page of history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
    """How a request ended. `status`: completed, failed, interrupted; `error_code` unless completed.

    With an `output_schema`: `parsed` is the content as a value of it (of its class, if a class was
    given), or None and `output_error` says why it does not match; `content` is the text either way.
    """

    request_id: str
    status: str
    content: str
    usage: dict[str, int]
    error_code: str | None = None
    message: str = ""
    parsed: Any = None
    output_error: str | None = None


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """A page of the conversation. `position`: the journal sequence it was read at."""

    items: tuple[Item, ...]
    offset: int
    next_offset: int | None
    total: int
    position: int

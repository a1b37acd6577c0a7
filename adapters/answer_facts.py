"""What the accumulators of all dialects note beside an answer's text: its ids, its counts, its calls.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapters.model_failures import failed
from domain.limits import MAX_CALLS_PER_RESPONSE


def count(value: Any) -> int | None:
    """A count of tokens, or None where it is none."""
    return value if type(value) is int and value >= 0 else None


def given_counts(named: Mapping[str, Any]) -> dict[str, int]:
    """The counts among these."""
    return {name: found for name, value in named.items() if (found := count(value)) is not None}


def within(given: Any, name: str) -> Any:
    """A member of what may be an object."""
    return given.get(name) if isinstance(given, dict) else None


def note_ids(ids: dict[str, str], answer: Mapping[str, Any]) -> None:
    """Note an answer's id and its model where they are first told."""
    for name, key in (("response_id", "id"), ("model", "model")):
        if not ids.get(name) and isinstance(answer.get(key), str):
            ids[name] = answer[key]


def provider_ids(ids: Mapping[str, str], request_id: str | None) -> dict[str, str]:
    """What a response says of who made it: the ids that were told."""
    return {name: value for name, value in {**ids, "request_id": request_id or ""}.items() if value}


def check_number_of_calls(number: int) -> None:
    """Refuse more calls than a response may have. Raises ModelFailed."""
    if number > MAX_CALLS_PER_RESPONSE:
        message = f"expected at most {MAX_CALLS_PER_RESPONSE} calls in one response, got more"
        raise failed("too_many_calls", message)

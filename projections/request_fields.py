"""What the fields of a request have in common in every dialect. Pure; the encoders import it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from domain.errors import InvalidOptions


def check_free(extra: Mapping[str, Any], reserved: Collection[str]) -> None:
    """Refuse additional fields that only an encoder sets. Raises InvalidOptions."""
    taken = sorted(extra.keys() & set(reserved))
    if taken:
        raise InvalidOptions("extra", f"fields other than {sorted(reserved)}", taken)


def streamed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that say something, and that the answer is to come as a stream."""
    return {name: value for name, value in fields.items() if value is not None} | {"stream": True}


def filled(text: str | None) -> str | None:
    """A text with something in it, otherwise None: some servers refuse blank ones."""
    return text if text and text.strip() else None

"""Credentials that this process was given, so that what tools return and raise is kept without them.

`provider_config.Secret` tells them here, `tool_result` asks. A tool that prints its
environment, or an exception that quotes a request, would otherwise put the key into a
journal for good. Which forms are recognised, and for how long: `domain.masking`. No text
that is short enough to be a word counts. Never shows one.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from domain.masking import Lookout, Watched

#: Shorter ones are not looked for: they could be ordinary words.
MIN_CHARACTERS: Final = 16
NOTE: Final = "a credential of this process was replaced"

_LOOKOUT: Final = Lookout(MIN_CHARACTERS, threading.Lock())


def remember(secret: str) -> Watched | None:
    """Look for a credential from now on, at least as long as what is returned is held."""
    return _LOOKOUT.watch(secret)


def masked(text: str) -> str:
    """`text` without any known credential; the same object where there is none in it."""
    return _LOOKOUT.masked(text)


def masked_bytes(data: bytes) -> bytes:
    """As `masked`."""
    return _LOOKOUT.masked_bytes(data)


def masked_value(value: Any) -> Any:
    """A plain value without any known credential, in texts, bytes and keys."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, bytes):
        return masked_bytes(value)
    if isinstance(value, list):
        return [masked_value(item) for item in value]
    if isinstance(value, dict):
        return {masked(key): masked_value(item) for key, item in value.items()}
    return value


def is_in(stored: bytes) -> bool:
    """Whether the stored form of a value may hold one. Quick: most values never have to be walked.

    Text is kept as JSON, bytes as base64: both are among the forms.
    """
    return _LOOKOUT.is_in(stored)

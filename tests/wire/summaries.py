"""Texts of recorded answers, named so that a table of them can be read."""

from __future__ import annotations

import hashlib

#: A short text itself, or beginning, length in characters and start of the SHA-256.
Summary = str | tuple[str, int, str]


def summary(text: str) -> Summary:
    """A text, or what names a long one."""
    if len(text) <= 60:
        return text
    return text[:20], len(text), hashlib.sha256(text.encode()).hexdigest()[:12]

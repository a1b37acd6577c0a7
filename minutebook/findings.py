"""A finding of `minutebook doctor`: what was looked at, how bad it is, what to do about it.

Imported by those who look. Pure values; nothing here looks at anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_NAMES_SHOWN: Final = 5


class Grade(StrEnum):
    """How bad a finding is: fine, worth knowing, or to be mended before use."""

    OK = "ok"
    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: a topic of one word, a sentence, and what to do about it."""

    topic: str
    grade: Grade
    sentence: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was looked at, in order."""

    findings: tuple[Finding, ...]

    @property
    def worst(self) -> Grade:
        """The worst grade of all; OK if nothing was looked at."""
        order = list(Grade)
        return max((finding.grade for finding in self.findings), key=order.index, default=Grade.OK)


def some(items: Sequence[str]) -> str:
    """The first few of them, and how many more there are."""
    more = len(items) - _NAMES_SHOWN
    return ", ".join(items[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")

"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class ManualClock:
    """`domain.ports.Clock` that a test moves by hand.

    Args:
        now: where it begins; aware UTC.
    """

    def __init__(self, now: datetime = datetime(2024, 1, 1, tzinfo=UTC)) -> None:
        self._now = now
        self._monotonic = 0.0

    def now(self) -> datetime:
        """Aware UTC."""
        return self._now

    def monotonic(self) -> float:
        """Seconds; moved by `advance` alone."""
        return self._monotonic

    def advance(self, milliseconds: int) -> None:
        """Let time pass on both clocks."""
        self._now += timedelta(milliseconds=milliseconds)
        self._monotonic += milliseconds / 1000

    def set(self, now: datetime) -> None:
        """Set the wall clock, as an operator or a time server may: backwards too."""
        self._now = now

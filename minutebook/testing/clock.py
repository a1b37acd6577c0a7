"""A clock that moves when a test says so.

For tests of what waits: retries, deadlines, leases. It stands for the `Timer` port, and
for the `Clock` of a store. Nothing here knows what waits, or for what.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import anyio

START: Final = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """Stands still until `advance`. Wall time and monotonic time move together.

    Args:
        start: wall time at the beginning, aware UTC; the monotonic time is then 0.

    `boot_id` may be set: None stands for a host that does not know its boot.
    """

    def __init__(self, start: datetime = START) -> None:
        self.boot_id: str | None = "boot-1"
        self._start, self._seconds = start, 0.0
        self._sleepers: list[tuple[float, anyio.Event]] = []
        self._changed = anyio.Event()

    def now(self) -> datetime:
        """Aware UTC."""
        return self._start + timedelta(seconds=self._seconds)

    def monotonic(self) -> float:
        """Seconds since the beginning."""
        return self._seconds

    def advance(self, seconds: float) -> None:
        """Move on, and wake everybody whose time has come.

        Args:
            seconds: from 0.
        """
        self._seconds += seconds
        for moment, due in self._sleepers:
            if moment <= self._seconds:
                due.set()

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back, as people and time servers do; nothing else moves."""
        self._start += timedelta(seconds=seconds)

    def restart(self, boot_id: str) -> None:
        """Start the host again: the monotonic time is 0, the wall clock goes on. Nobody may be asleep."""
        self.boot_id = boot_id
        self._start, self._seconds = self.now(), 0.0

    async def sleep_until(self, moment: float) -> None:
        """Return once the clock was moved to `moment`; at once if it is there."""
        if moment <= self._seconds:
            return
        sleeper = (moment, anyio.Event())
        self._sleepers.append(sleeper)
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
        try:
            await sleeper[1].wait()
        finally:
            self._sleepers.remove(sleeper)

    async def awaited(self, seconds: float) -> None:
        """Return once somebody sleeps until `seconds` from now, to the microsecond."""
        while all(abs(moment - self._seconds - seconds) > 1e-6 for moment, _ in self._sleepers):
            await self._changed.wait()

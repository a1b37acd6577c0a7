"""The live feed of one session: durable events after their commit, deltas at once.

Readers keep their own position. Durable events are read from the journal when
they are no longer in memory, so a slow reader never loses one. Deltas are kept
for a bounded while; a reader that comes too late is told how many are gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

import anyio

from domain import catalogue
from domain.cursor import Cursor
from domain.envelope import Recorded
from domain.errors import MinutebookError, StaleView
from domain.ports import JournalReader, Probe
from minutebook.stream_events import StreamEvent

MAX_RECENT_EVENTS: Final = 512
MAX_DELTAS: Final = 1000


class Feed:
    """What readers of one session are woken by."""

    def __init__(self, journal: JournalReader, session_id: str, sequence: int, probe: Probe) -> None:
        self._journal, self._session_id, self._probe = journal, session_id, probe
        self.sequence = sequence
        self._recent: deque[Recorded] = deque(maxlen=MAX_RECENT_EVENTS)
        #: (sequence of the durable event it follows, what it is part of, the delta),
        #: numbered from `_first_delta`.
        self._deltas: deque[tuple[int, str, StreamEvent]] = deque()
        self._first_delta = 0
        self._dropped_part = ""
        #: There while somebody waits: most pieces of an answer wake nobody.
        self._changed: anyio.Event | None = None
        #: Why nothing more comes at present, or for good.
        self.stopped: MinutebookError | None = None
        self.closed = False
        self._stale: StaleView | None = None

    def take(self, events: Sequence[Recorded]) -> None:
        """Take durable events, in order."""
        self._probe("before_emit")
        self._recent.extend(events)
        self.sequence = events[-1].sequence
        self._wake()
        self._probe("after_emit")

    def fail(self, stale: StaleView) -> None:
        """Nothing durable comes any more: what was missed would be a hole."""
        self._stale = stale
        self._wake()

    def delta(self, event: StreamEvent, part_of: str = "") -> None:
        """Take something live that follows what is durable now.

        Args:
            part_of: what it makes sense with; a reader that comes late gets all of that or none.
        """
        self._deltas.append((self.sequence, part_of, event))
        if len(self._deltas) > MAX_DELTAS:
            self._dropped_part = self._deltas.popleft()[1] or self._dropped_part
            self._first_delta += 1
        self._wake()

    def stop(self, error: MinutebookError | None) -> None:
        """Say why nothing more comes at present (None: it goes on)."""
        self.stopped = error
        self._wake()

    def close(self) -> None:
        """Nothing more comes from this handle."""
        self.closed = True
        self._wake()

    async def wait(self) -> None:
        """Return after the next change.

        Raises:
            StaleView: nothing durable comes any more.
        """
        if self._stale is not None:
            raise self._stale.with_traceback(None)
        if self._changed is None:
            self._changed = anyio.Event()
        await self._changed.wait()

    async def check(self, seen: Cursor) -> None:
        """Raise CursorMismatch unless the journal has a reader's place."""
        seen.following(self._session_id, await self.durable(seen.read_after))

    async def durable(self, after: int) -> Sequence[Recorded]:
        """Durable events after a sequence, in order, at most a page of them."""
        if after >= self.sequence:
            return ()
        if self._recent and self._recent[0].sequence <= after + 1:
            return tuple(islice(self._recent, after + 1 - self._recent[0].sequence, None))
        rows = await self._journal.read(self._session_id, after=after)
        return [catalogue.open_stored(row) for row in rows]

    def deltas(self, position: int, upto: int) -> tuple[int, list[StreamEvent]]:
        """The deltas from `position` on that follow events up to `upto`, and the number of the first.

        That is a later one than `position` where some are gone.
        """
        number = max(position, self._first_delta)
        found: list[StreamEvent] = []
        for offset in range(number - self._first_delta, len(self._deltas)):
            follows, _, event = self._deltas[offset]
            if follows > upto:
                break
            found.append(event)
        return number, found

    def first_delta_from(self, sequence: int) -> int:
        """The number of the first kept delta that follows `sequence` or a later event.

        Those whose beginning is gone are passed over.
        """
        number = self._first_delta + len(self._deltas)
        for follows, part_of, _ in reversed(self._deltas):
            if follows < sequence or (part_of and part_of == self._dropped_part):
                break
            number -= 1
        return number

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

"""How far a command is: one line on a terminal that goes away again.

For whoever waits. Written to standard error, and to a terminal only, so that no
output and no log ever holds it. Imported by the commands; nothing is counted elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TextIO, cast

from domain.envelope import Stored
from domain.ports import Clock, JournalReader
from recovery import stores
from recovery.escape import visible

#: Before the line is first shown, and between two of them, in seconds.
EVERY_S: Final = 1.0


class Progress:
    """A line that says how many events were read, and of which session the last of them is.

    Args:
        doing: what the command does, as in "verifying".
        to: a terminal; None: nothing is shown.
        clock: says when there is something to show.

    Guarantees: whoever prints something else calls `clear` first, and finds an empty line.
    """

    def __init__(self, doing: str, to: TextIO | None, clock: Clock) -> None:
        self._doing, self._to, self._clock = doing, to, clock
        self._events, self._width = 0, 0
        self._next = clock.monotonic() + EVERY_S

    def watch(self, reader: JournalReader) -> JournalReader:
        """The same reader; what is read through it is counted."""
        return cast("JournalReader", _Watched(reader, self)) if self._to is not None else reader

    def read(self, session_id: str, events: int) -> None:
        """So many more events were read."""
        self._events += events
        if self._to is not None and self._clock.monotonic() >= self._next:
            self._next = self._clock.monotonic() + EVERY_S
            self._show(f"{self._doing}: {self._events:,} events read, at {visible(session_id)}"[:79])

    def clear(self) -> None:
        """Take the line away."""
        if self._width:
            self._show("")

    def _show(self, text: str) -> None:
        assert self._to is not None
        # What was there is overwritten: not every terminal knows how to erase.
        print(f"\r{text:<{self._width}}", end="" if text else "\r", file=self._to, flush=True)
        self._width = len(text)


class _Watched:
    """A reader whose pages are counted; everything else is the reader's own."""

    def __init__(self, reader: JournalReader, progress: Progress) -> None:
        self._reader, self._progress = reader, progress

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    async def read(self, session_id: str, **which: Any) -> Sequence[Stored]:
        rows = await self._reader.read(session_id, **which)
        self._progress.read(session_id, len(rows))
        return rows


@contextmanager
def progress(doing: str) -> Iterator[Progress]:
    """A line on standard error while a command reads, if that is a terminal."""
    made = Progress(doing, sys.stderr if sys.stderr.isatty() else None, stores.clock())
    try:
        yield made
    finally:
        made.clear()

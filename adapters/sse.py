"""Server-sent events out of bytes, however the network cut them.

Pure: bytes in, events out; no SDK, no I/O. The dialects' readers use it, because
the SDKs' own readers hide the terminal marker `[DONE]` and comments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its name ("message" if it has none) and its data, lines joined."""

    name: str
    data: bytes


@dataclass(slots=True)
class EventReader:
    """Collects bytes and hands out the events that are complete.

    Guarantees: the events do not depend on where the bytes were cut. Each byte is
    looked at once, so one long line costs no more than many short ones.
    """

    _buffer: bytearray = field(default_factory=bytearray)
    _scanned: int = 0
    _after_cr: bool = False
    _name: str = ""
    _data: list[bytes] = field(default_factory=list)

    def feed(self, data: bytes) -> list[ServerEvent]:
        """Take the next bytes; return the events they complete."""
        self._buffer += self._without_split_line_end(data)
        events, start, searched = [], 0, self._scanned
        while end := _LINE_END.search(self._buffer, searched):
            event = self._line(bytes(self._buffer[start : end.start()]))
            start = searched = end.end()
            self._after_cr = end[0] == b"\r" and start == len(self._buffer)
            if event is not None:
                events.append(event)
        del self._buffer[:start]
        self._scanned = len(self._buffer)
        return events

    def pending(self) -> ServerEvent | None:
        """What an end of the bytes leaves behind: an event without its empty line, or None."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        self._scanned = 0
        if rest:
            self._line(rest)
        return self._dispatch()

    def _without_split_line_end(self, data: bytes) -> bytes:
        if not data or not self._after_cr:
            return data
        self._after_cr = False
        return data.removeprefix(b"\n")

    def _line(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._name = value.decode("utf-8", "replace")
        return None

    def _dispatch(self) -> ServerEvent | None:
        name, data = self._name or "message", self._data
        self._name, self._data = "", []
        return ServerEvent(name, b"\n".join(data)) if data else None

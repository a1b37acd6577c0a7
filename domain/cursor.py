"""A place in a session's journal, as a reader keeps it to go on from there later.

A sequence alone is not enough: a journal that was restored from a backup, or a database that
lost its last commits, has other events under the same sequences. The head tells them apart,
since it stands for everything up to there. Pure; reading a store does not belong here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from domain.envelope import Recorded, Stored, genesis
from domain.errors import CursorMismatch, InvalidOptions

Event = TypeVar("Event", Stored, Recorded)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where somebody stands in a session's journal: after which event, and the head there.

    The three values may be kept anywhere, and the cursor made of them again.

    Args:
        sequence: of the last event; 0 before the first one.
        head: the journal's head after that event, 32 bytes.

    Raises:
        InvalidOptions: a value of another kind. Whether a journal has the place shows when it is read.
    """

    session_id: str
    sequence: int
    head: bytes

    def __post_init__(self) -> None:
        given = (self.session_id, self.sequence, self.head)
        if tuple(map(type, given)) != (str, int, bytes):
            raise InvalidOptions("cursor", "a session's id, a whole number and a head in bytes", given)

    @classmethod
    def start(cls, session_id: str) -> Cursor:
        """Before the first event."""
        return cls(session_id, 0, genesis(session_id))

    @classmethod
    def after(cls, event: Stored | Recorded) -> Cursor:
        """After an event of a journal.

        Raises:
            InvalidOptions: it is none, as a live piece of an answer is none.
        """
        if not isinstance(event, (Stored, Recorded)):
            raise InvalidOptions("cursor", "an event of a journal", event)
        return cls(event.session_id, event.sequence, event.head)

    def __str__(self) -> str:
        return f"event {self.sequence} of {self.session_id!r} with head {self.head.hex()[:16]}"

    @property
    def read_after(self) -> int:
        """The sequence to read after for a page that `following` takes."""
        return max(self.sequence - 1, 0)

    def following(self, session_id: str, page: Sequence[Event]) -> Sequence[Event]:
        """The events that follow this place, of a page that begins with the event of this place.

        Args:
            session_id: whose journal was read.
            page: what it has after `read_after`.

        Raises:
            CursorMismatch: that journal does not have this place.
        """
        own = page[: 1 if self.sequence else 0]
        there = Cursor.after(own[0]) if own else Cursor.start(session_id)
        if there != self:
            raise CursorMismatch(session_id, str(self), str(there) if own else "no such event")
        return page[len(own) :]

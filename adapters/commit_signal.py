"""Waking subscribers when a session may have new events.

Used by every store's subscription. It carries no events: a subscriber that is
woken reads the store again, so that nothing can be lost or come out of order.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from adapters.answers import Answer, wake
from domain.cursor import Cursor
from domain.envelope import Stored
from domain.errors import Corrupt

PAGE: Final = 256


class CommitListener:
    """One subscriber's ear: remembers a ring that came while it was not waiting."""

    def __init__(self, session_id: str, lock: threading.Lock) -> None:
        self.session_id = session_id
        self.closed = False
        self._lock = lock
        self._rung = False
        self._answer: Answer[None] | None = None

    async def wait(self) -> None:
        """Return after a ring since the last return, or when the store closes."""
        with self._lock:
            if self._rung or self.closed:
                self._rung = False
                return
            answer = self._answer = Answer()
        try:
            await answer.wait()
        finally:
            with self._lock:
                self._answer, self._rung = None, False

    def close(self) -> None:
        """Let `wait` return for good."""
        with self._lock:
            self.closed = True
            answer = self.ring()
        wake([answer] if answer else ())

    def ring(self) -> Answer[None] | None:
        """Note a ring (the lock is held); the answer that has to be woken, if any."""
        self._rung = True
        if self._answer is not None and not self._answer.done:
            self._answer.put(None)
            return self._answer
        return None


class CommitSignal:
    """The listeners of one store. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: weakref.WeakSet[CommitListener] = weakref.WeakSet()

    def __bool__(self) -> bool:
        """Whether anybody listens."""
        return len(self._listeners) > 0

    def listen(self, session_id: str) -> CommitListener:
        """A new listener. The signal forgets it with its last user."""
        listener = CommitListener(session_id, self._lock)
        with self._lock:
            self._listeners.add(listener)
        return listener

    def session_ids(self) -> set[str]:
        """The sessions that somebody listens to."""
        with self._lock:
            return {each.session_id for each in self._listeners if not each.closed}

    def ring(self, session_ids: Iterable[str] | None = None) -> None:
        """Wake the listeners of these sessions; None: of all (somebody else wrote)."""
        wanted = None if session_ids is None else set(session_ids)
        with self._lock:
            listeners = [x for x in self._listeners if not x.closed]
            rung = [x.ring() for x in listeners if wanted is None or x.session_id in wanted]
        wake([answer for answer in rung if answer])


class Subscription:
    """A session's rows, in order and without a hole, until the listener is closed.

    Every look begins with the row that was given out last, so that a journal that is not the
    same one any more is noticed at the next ring, whatever happened to it. Not a generator, so
    that one left unfinished needs no clean-up by the event loop.

    Args:
        read: gives the rows after a sequence, a page at a time, none at the end.
        listener: rung when there may be more.
        after: where to begin; None: with the first event.
    """

    def __init__(
        self,
        read: Callable[[int], Awaitable[Sequence[Stored]]],
        listener: CommitListener,
        after: Cursor | None,
    ) -> None:
        self._read = read
        self._listener = listener
        self._place = after if after is not None else Cursor.start(listener.session_id)
        self._page: deque[Stored] = deque()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Stored:
        """The next row, as soon as it is committed.

        Raises:
            CursorMismatch: the journal does not have the place to begin at, or to go on from.
            Corrupt: the store gave rows that do not follow one another.
        """
        while not self._page:
            if self._listener.closed:
                raise StopAsyncIteration
            page = await self._read(self._place.read_after)
            self._page.extend(self._place.following(self._listener.session_id, page))
            if not self._page:
                await self._listener.wait()
        row, expected = self._page.popleft(), self._place.sequence + 1
        if row.sequence != expected:
            raise Corrupt("subscription", f"sequence {expected}", row.sequence, expected)
        self._place = Cursor.after(row)
        return row

    async def aclose(self) -> None:
        """End it; a waiting `__anext__` ends too."""
        self._listener.close()

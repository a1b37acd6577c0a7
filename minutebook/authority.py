"""Whether this worker may begin something now: asked right before a model is sent to or a tool runs.

Imported by the opening of a session and by its flights. Where nothing was held up the answer
costs no call of the store.
"""

from __future__ import annotations

import logging
from typing import Final

import anyio

from domain.errors import Fenced, MinutebookError
from domain.ports import HeldLease, LeaseStore, Timer
from minutebook.book import Book

#: If more time than this has passed since the store was given what says that something begins,
#: the process may have been stopped in between; then the store is asked once more.
PROMPT_S: Final = 1.0

log = logging.getLogger("minutebook")


class Authority:
    """The right to begin what the journal says begins.

    Args:
        timeout_s: how long the store may take to answer.
    """

    def __init__(
        self, book: Book, held: HeldLease, leases: LeaseStore, timer: Timer, timeout_s: float
    ) -> None:
        self._book, self._held, self._leases = book, held, leases
        self._timer, self._timeout_s = timer, timeout_s

    async def may_begin(self, since: float) -> bool:
        """Whether something may begin.

        Args:
            since: the moment of the timer at which the store was given what says so.
        """
        if self._may_write() and self._timer.monotonic() - since > PROMPT_S:
            return await self._confirmed() and self._may_write()
        return self._book.fenced is None

    def _may_write(self) -> bool:
        try:
            self._book.check_open()
        except Fenced:
            return False
        return True

    async def _confirmed(self) -> bool:
        """What the store says. No answer is no: what has not begun can be begun again."""
        try:
            with anyio.move_on_after(self._timeout_s):
                await self._leases.validate(self._book.state.session_id, self._held.fence)
                return True
        except Fenced as error:
            self._book.fence_off(error)
        except MinutebookError as error:
            log.warning("session %s begins nothing: %s", self._book.state.session_id, error)
        return False

"""How a handle of a session ends: it is left, closed for good, or handed over.

Imported by `minutebook.session`, which is what applications call. Nothing here decides what
comes next: whatever is open stays open, and the journal says so to the next worker.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import anyio

from domain import session as session_rules
from domain.errors import (
    HandoffActiveWork,
    HandoffFailed,
    HandoffNotConfigured,
    HandoffPending,
    MinutebookError,
    SessionClosed,
    SessionSuspending,
)
from domain.lease import CompleteHandoff
from domain.next_steps import next_steps
from domain.session import Note
from minutebook.parts import Parts
from recovery.plan import RecoveryPlan

log = logging.getLogger("minutebook")


@dataclass(frozen=True, slots=True)
class HandoffResult:
    """A session that was handed over: where it stands, for whoever goes on.

    Args:
        head_sequence: of the last event in its journal, the release of the lease included.
        recovery_plan: what comes next there, from the journal alone.
        fenced: True: whatever this worker would still try to write is refused by the store.
    """

    session_id: str
    head_sequence: int
    recovery_plan: RecoveryPlan
    fenced: bool


class Leaving:
    """One handle's way out. `left`: it takes nothing more. `closing`: the session takes no inputs.

    Args:
        timeout_s: how long running tools have to stop.
    """

    def __init__(self, parts: Parts, timeout_s: float) -> None:
        self.left = self.closing = False
        #: Held by whoever closes, or hands over.
        self.one = anyio.Lock()
        self._parts, self._timeout_s = parts, timeout_s
        self._suspending = self._noted = False
        self._gone = anyio.Event()

    @property
    def is_final(self) -> bool:
        """Whether the session is closed for good."""
        state = self._parts.book.state.session
        return state is not None and state.status is session_rules.Status.CLOSED

    def check_left(self) -> None:
        """Raise `SessionClosed` where this handle, or the session, has ended."""
        if self.left or self.is_final:
            raise SessionClosed(self._parts.book.state.session_id, self.is_final)

    def check_open(self) -> None:
        """Raise where this handle takes no work: SessionClosed, SessionSuspending."""
        self.check_left()
        if self._suspending:
            raise SessionSuspending(self._parts.book.state.session_id)

    async def leave(self) -> None:
        """Stop at the durable frontier, whoever calls first; the others wait for it."""
        if self.left:
            await self._gone.wait()
            return
        self.left = True
        with anyio.CancelScope(shield=True):
            self._parts.loop.stop("detached")
            await self._parts.flights.wind_down(self._timeout_s)
            await self._settle()
            await self._end()

    async def hand_over(self) -> HandoffResult:
        """See `Session.suspend_for_handoff`. The caller holds `one`."""
        self.check_left()
        self._check_ready()
        self._suspending = True
        with anyio.CancelScope(shield=True):
            pending = await self._stop()
            if not pending:
                self.left = True
                await self._parts.book.give_back()
                await self._end()
        book = self._parts.book
        if pending:
            told = f"{', '.join(pending)} goes on although told to stop; nothing new begins meanwhile"
            raise HandoffPending(book.state.session_id, told, pending_callbacks=pending)
        return HandoffResult(book.state.session_id, book.durable_sequence, self._parts.plan(), fenced=True)

    async def _stop(self) -> tuple[str, ...]:
        """Stop what runs, and record that. What did not stop, or nothing, and then all is over here."""
        self._parts.loop.stop("handoff")
        pending = await self._parts.flights.converge(self._timeout_s)
        try:
            await self._parts.loop.ended()
            await self._parts.loop.settle()
            await (self._note(pending) if pending else self._complete())
        except MinutebookError as error:
            await self._give_up()
            raise HandoffFailed(self._parts.book.state.session_id, str(error)) from error
        return pending

    def _check_ready(self) -> None:
        session_id = self._parts.book.state.session_id
        if not self._parts.is_durable:
            told = f"{self._parts.journal.name} does not outlive this process; use mb.sqlite or mb.postgres"
            raise HandoffNotConfigured(session_id, told)
        shells = tuple(each.id for each in self._parts.flights.processes.background)
        if shells:
            told = f"{', '.join(shells)} runs in the background; stop it with session.background.stop"
            raise HandoffActiveWork(session_id, told, active_shell_ids=shells)

    async def _note(self, pending: tuple[str, ...]) -> None:
        """Put on record, once, that code of the application does not stop."""
        if not self._noted:
            self._noted = True
            entry = self._parts.book.begin()
            told = "code of the application goes on although it was told to stop"
            entry.add(Note("callback_pending", told, {"subjects": list(pending)}))
            await self._parts.book.put(entry, "handoff").wait()

    async def _complete(self) -> None:
        await self._parts.book.flushed()
        entry = self._parts.book.begin()
        entry.add(CompleteHandoff(next_steps(entry.state)[0].action))
        await self._parts.book.put(entry, "handoff").wait()

    async def _give_up(self) -> None:
        self.left = True
        await self._parts.flights.wind_down(self._timeout_s)
        await self._parts.book.give_back()
        await self._end()

    async def _settle(self) -> None:
        await self._parts.loop.ended()
        try:
            await self._parts.loop.settle()
            await self._parts.book.flushed()
        except MinutebookError as error:
            log.warning("session %s: %s", self._parts.book.state.session_id, error)

    async def _end(self) -> None:
        session_id = self._parts.book.state.session_id
        self._parts.book.held = None  # it is given back last, and says nothing about this handle then
        await self._parts.flights.processes.close(SessionClosed(session_id, final=False))
        self._parts.feed.close()
        self._gone.set()

"""How a handle of a session ends: it is left, closed for good, or handed over.

Imported by `minutebook.session`, which is what applications call. Nothing here decides what
comes next: whatever is open stays open, and the journal says so to the next worker.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from domain import session as session_rules
from domain.decider import CloseSession
from domain.errors import (
    CloseError,
    HandoffActiveWork,
    HandoffFailed,
    HandoffNotConfigured,
    HandoffPending,
    MinutebookError,
    RuntimeQuarantined,
    SessionClosed,
    SessionSuspending,
)
from domain.lease import CompleteHandoff
from domain.next_steps import next_steps
from domain.session import Note
from domain.state import State
from minutebook.parts import Parts
from minutebook.sending import USER
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
        #: Held by whoever closes, leaves, or hands over.
        self.one = anyio.Lock()
        self._parts, self._timeout_s = parts, timeout_s
        self._session_id = parts.book.state.session_id
        #: Why this handle takes no work; None while it does.
        self._refusal: MinutebookError | None = None
        self._noted = False

    @property
    def is_closed(self) -> bool:
        """Whether this handle was left, or the session is closed for good, as far as is durable."""
        return self.left or _is_final(self._parts.book.durable)

    def check_left(self) -> None:
        """Raise `SessionClosed` where this handle, or the session, has ended."""
        final = _is_final(self._parts.book.state)
        if self.left or final:
            raise SessionClosed(self._session_id, final)

    def check_open(self) -> None:
        """Raise where this handle takes no work: SessionClosed, SessionSuspending, RuntimeQuarantined."""
        self.check_left()
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)

    # --- three ways. The caller holds `one` -----------------------------------------------------

    async def close(self) -> None:
        """Stop at the durable frontier, once nothing of the application goes on here. Raises CloseError."""
        if not self.left:
            with anyio.CancelScope(shield=True):
                await self._still()
                await self._end()

    async def end_for_good(self, abort: Callable[[str], Awaitable[None]], reason: str) -> None:
        """Write the session's end, once nothing of the application goes on here. Raises CloseError."""
        book = self._parts.book
        if book.state.request is not None or isinstance(self._refusal, SessionSuspending):
            self.check_open()
        self.closing = True
        self._parts.loop.hold()
        if book.state.request is not None or book.durable_request is not None:
            await abort(reason)
        await self._still()
        entry = book.begin()
        entry.add(CloseSession(reason), USER)
        await book.put(entry, "close").wait()

    async def _still(self) -> None:
        """Have nothing run here any more. Raises CloseError; then nothing new begins either."""
        self._refusal = SessionClosed(self._session_id, final=False)
        with anyio.CancelScope(shield=True):
            pending = await self._stop("detached")
        if pending:
            self._refusal = RuntimeQuarantined(self._session_id, pending)
            raise CloseError(self._session_id, pending)

    async def leave(self) -> None:
        """The same at the end of the block, where nobody can come back: what goes on is left behind."""
        if self.left:
            return
        self._refusal = SessionClosed(self._session_id, final=False)
        with anyio.CancelScope(shield=True):
            if await self._stop("detached"):
                await self._end(await self._parts.flights.leave("detached"))
            else:
                await self._end()

    async def hand_over(self) -> HandoffResult:
        """See `Session.suspend_for_handoff`."""
        self.check_left()
        self._check_ready()
        self._refusal = SessionSuspending(self._session_id)
        self._parts.flights.processes.refuse_background(self._refusal)
        with anyio.CancelScope(shield=True):
            try:
                pending = await self._stop("handoff")
                self._parts.book.check_open()
                if not pending:
                    await self._complete()
            except MinutebookError as error:
                await self.leave()
                raise HandoffFailed(self._session_id, str(error)) from error
            if pending:
                told = f"{', '.join(pending)} goes on although told to stop; nothing new begins meanwhile"
                raise HandoffPending(self._session_id, told, pending_callbacks=pending)
            await self._end()
        return HandoffResult(
            self._session_id, self._parts.book.durable_sequence, self._parts.plan(), fenced=True
        )

    # --- step by step -----------------------------------------------------------------------------

    async def _stop(self, reason: str) -> tuple[str, ...]:
        """Stop what runs, and record that. Returns what did not stop."""
        self._parts.loop.stop(reason)
        pending = await self._parts.flights.converge(reason, self._timeout_s)
        await self._parts.loop.ended()
        try:
            await self._parts.loop.settle()
            await self._note(pending)
            await self._parts.book.flushed()
        except MinutebookError as error:
            self._parts.book.fence_off(error)  # and that is what whoever wants to write is told
            log.warning("session %s: %s", self._session_id, error)
        return pending

    def _check_ready(self) -> None:
        if not self._parts.is_durable:
            told = f"{self._parts.journal.name} does not outlive this process; use mb.sqlite or mb.postgres"
            raise HandoffNotConfigured(self._session_id, told)
        shells = tuple(each.id for each in self._parts.flights.processes.background)
        if shells:
            told = f"{', '.join(shells)} runs in the background; stop it with session.background.stop"
            raise HandoffActiveWork(self._session_id, told, active_shell_ids=shells)

    async def _note(self, pending: tuple[str, ...]) -> None:
        """Put on record, once, that code of the application does not stop."""
        if pending and not self._noted:
            self._noted = True
            entry = self._parts.book.begin()
            told = "code of the application goes on although it was told to stop"
            entry.add(Note("callback_pending", told, {"subjects": list(pending)}))
            await self._parts.book.put(entry, "close").wait()

    async def _complete(self) -> None:
        entry = self._parts.book.begin()
        entry.add(CompleteHandoff(next_steps(entry.state)[0].action))
        await self._parts.book.put(entry, "handoff").wait()

    async def _end(self, left_behind: tuple[str, ...] = ()) -> None:
        self.left = True
        try:
            await self._parts.flights.processes.close(SessionClosed(self._session_id, final=False))
            if left_behind:
                told = "session %s is left while %s goes on; its lease is kept until it runs out"
                log.warning(told, self._session_id, ", ".join(left_behind))
                await self._parts.book.let_run_out()
            else:
                await self._parts.book.give_back()
        finally:
            self._parts.feed.close()


def _is_final(state: State) -> bool:
    return state.session is not None and state.session.status is session_rules.Status.CLOSED

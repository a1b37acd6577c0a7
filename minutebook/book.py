"""The live end of one session's journal: composing, stamping, committing.

One way to write. Composing is synchronous, so an entry is always on top of the
latest one; commits go to the store one after the other. After a commit that
failed or whose outcome stays unknown the book is fenced: it takes no entry more,
and nobody is told anything that is not durable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio

from domain.entry import Entry, fingerprint, to_batch
from domain.envelope import Fence, Recorded
from domain.errors import CommandConflict, Fenced, MinutebookError, OutcomeUnknown
from domain.ports import Batch, Blob, Clock, CommitStatus, IdSource, Journal, LeaseRow, Receipt
from domain.state import State

#: Called with the events of each commit once they are durable, in order.
Listener = Callable[[Sequence[Recorded]], None]


class Book:
    """One session's journal as its holder sees it.

    Args:
        state, head: where the session stands (a new one: `State(id)` and the genesis head).
        fence: the lease under which this holder writes.
    """

    def __init__(
        self,
        journal: Journal,
        state: State,
        head: bytes,
        *,
        owner_id: str,
        clock: Clock,
        ids: IdSource,
        fence: Fence | None = None,
    ) -> None:
        self.state = state
        self.durable_sequence = state.sequence
        #: The request that is active as far as is durable.
        self.durable_request = state.request.request_id if state.request else None
        self.lease: LeaseRow | None = None
        self.fence = fence
        self.fenced: MinutebookError | None = None
        self.listeners: list[Listener] = []
        self._journal, self._head, self._owner_id = journal, head, owner_id
        self._clock, self._ids = clock, ids
        self._turnstile = anyio.Lock()

    def __repr__(self) -> str:
        fenced = f", fenced: {self.fenced.code}" if self.fenced else ""
        return f"Book({self.state.session_id} at {self.durable_sequence}{fenced})"

    @property
    def head(self) -> bytes:
        """The head after the latest entry."""
        return self._head

    def begin(self, command_id: str | None = None) -> Entry:
        """Start composing on top of the latest entry. Do not await until `commit`.

        Raises:
            Fenced: the book takes no more entries.
        """
        self._check_open()
        return Entry(self.state, command_id or self._ids.new("c"), self._clock.now(), self.fence)

    async def earlier(self, command_id: str, kind: str, arguments: Mapping[str, Any]) -> Receipt | None:
        """The receipt of a command that is in the journal already.

        Raises:
            CommandConflict: the id was used for something else.
        """
        found = await self._journal.command(self.state.session_id, command_id)
        if found is None:
            return None
        if found[0] != fingerprint(kind, arguments):
            raise CommandConflict(self.state.session_id, command_id)
        return found[1]

    async def commit(
        self,
        entry: Entry,
        kind: str,
        arguments: Mapping[str, Any] | None = None,
        blobs: tuple[Blob, ...] = (),
        fold: Callable[[Recorded], None] | None = None,
    ) -> Receipt:
        """Make an entry durable; it becomes the latest one at once, before anything is awaited.

        Args:
            fold: called with each event once the entry is the latest one.

        Returns:
            The receipt, once the entry's events are durable and the listeners have them.

        Raises:
            ValueRefused: something in it cannot be kept; nothing happened.
            MinutebookError: it was not, or may not have been, written; the book is fenced.
        """
        self._check_open()
        assert entry.base is self.state, "an entry is composed and committed in one piece"
        entry.finish()
        chosen = arguments if arguments is not None else {"command_id": entry.command_id}
        batch = to_batch(entry, self._head, self._ids.salt, self._owner_id, kind, chosen, blobs)
        self.state, self._head = entry.state, batch.events[-1].head
        if fold is not None:
            for event in entry.events:
                fold(event)
        with anyio.CancelScope(shield=True):  # the store bounds the time; an outcome must be learnt
            async with self._turnstile:
                self._check_open()
                receipt = await self._write(batch)
                self.durable_sequence = receipt.last_sequence
                active = entry.state.request
                self.durable_request = active.request_id if active else None
                for listener in self.listeners:
                    listener(entry.events)
        return receipt

    def fence_off(self, error: MinutebookError) -> None:
        """Take no more entries; `error` says why. The first reason stays."""
        self.fenced = self.fenced or error

    def _check_open(self) -> None:
        if self.fenced is None:
            return
        if isinstance(self.fenced, Fenced):
            raise self.fenced.with_traceback(None)
        raise Fenced(self.state.session_id, str(self.fenced)) from self.fenced

    async def _write(self, batch: Batch) -> Receipt:
        try:
            receipt = await self._settled(batch)
        except MinutebookError as error:
            self.fence_off(error)
            raise
        if receipt.status is CommitStatus.REPLAYED:
            conflict = CommandConflict(batch.session_id, batch.command_id)
            self.fence_off(conflict)
            raise conflict
        return receipt

    async def _settled(self, batch: Batch) -> Receipt:
        """Commit; an unknown outcome is settled once, and the same bytes are tried once more."""
        try:
            return await self._journal.commit(batch)
        except OutcomeUnknown:
            receipt = await self._journal.settle(batch)
            return receipt or await self._journal.commit(batch)

"""The live end of one session's journal: composing, stamping, committing.

One way to write. Composing is synchronous, so an entry is always on top of the
latest one; a task of its own hands them to the store, one after the other. After a
commit that failed or whose outcome stays unknown the book is fenced: it takes no
entry more, and nobody is told anything that is not durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

from domain.entry import Entry, fingerprint, to_batch
from domain.envelope import Fence, Recorded
from domain.errors import CommandConflict, Fenced, MinutebookError, OutcomeUnknown
from domain.ports import Batch, Blob, Clock, CommitStatus, HeldLease, IdSource, Journal, Receipt
from domain.state import State
from minutebook.following import Follower, tell
from recovery.committing import settled


@dataclass(slots=True, eq=False)
class Writing:
    """An entry on its way into the journal. It gets there whoever waits for it, or stops waiting.

    `handed_at`: when the store was given it, by the book's clock.
    """

    batch: Batch
    entry: Entry
    then: Callable[[], None] | None
    receipt: Receipt | None = None
    error: MinutebookError | None = None
    handed_at: float = 0.0
    _done: anyio.Event = field(default_factory=anyio.Event)

    def finish(self, receipt: Receipt | None, error: MinutebookError | None = None) -> None:
        """Tell who waits how it ended."""
        self.receipt, self.error = receipt, error
        self._done.set()

    async def wait(self) -> Receipt:
        """Return the receipt once the entry's events are durable and the followers have them.

        Raises:
            MinutebookError: it was not, or may not have been, written; the book is fenced.
        """
        with anyio.CancelScope(shield=True):  # the store bounds the time; an outcome must be learnt
            await self._done.wait()
        if self.error is not None:
            raise self.error.with_traceback(None)
        assert self.receipt is not None
        return self.receipt


class Book:
    """One session's journal as its holder sees it.

    Args:
        state, head: where the session stands (a new one: `State(id)` and the genesis head).
        held: the lease under which this holder writes.

    `state` is that after the latest entry, `durable` that after the last one in the journal.
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
        held: HeldLease | None = None,
    ) -> None:
        self.state = self.durable = state
        self.durable_head = head
        #: None once it was given back.
        self.held = held
        self.fence: Fence | None = held.fence if held is not None else None
        self.fenced: MinutebookError | None = None
        #: Told of each commit once it is durable, in order.
        self.followers: list[Follower] = []
        #: Called once, with the reason, when the book takes no more entries.
        self.when_fenced: Callable[[MinutebookError], None] = lambda _: None
        self._journal, self._head, self._owner_id = journal, head, owner_id
        self._clock, self._ids = clock, ids
        self._queue: deque[Writing] = deque()
        self._put = anyio.Event()

    def __repr__(self) -> str:
        fenced = f", fenced: {self.fenced.code}" if self.fenced else ""
        return f"Book({self.state.session_id} at {self.durable_sequence}{fenced})"

    @property
    def durable_sequence(self) -> int:
        """The sequence of the last event in the journal."""
        return self.durable.sequence

    @property
    def durable_request(self) -> str | None:
        """The request that is active as far as is durable."""
        return self.durable.request.request_id if self.durable.request else None

    def begin(self, command_id: str | None = None) -> Entry:
        """Start composing on top of the latest entry. Do not await until `put` or `commit`.

        Raises:
            Fenced: the book takes no more entries.
        """
        self.check_open()
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

    def put(
        self,
        entry: Entry,
        kind: str,
        arguments: Mapping[str, Any] | None = None,
        blobs: tuple[Blob, ...] = (),
        *,
        fold: Callable[[Recorded], None] | None = None,
        then: Callable[[], None] | None = None,
    ) -> Writing:
        """Make an entry the latest one; it is written when those before it are.

        Args:
            fold: called with each event once the entry is the latest one, before anything is awaited.
            then: called once it is durable, after the followers, also where nobody waits.

        Raises:
            ValueRefused: something in it cannot be kept; nothing happened.
            Fenced: the book takes no more entries.
        """
        self.check_open()
        assert entry.base is self.state, "an entry is composed and put in one piece"
        entry.finish()
        chosen = arguments if arguments is not None else {"command_id": entry.command_id}
        batch = to_batch(entry, self._head, self._ids.salt, self._owner_id, kind, chosen, blobs)
        self.state, self._head = entry.state, batch.events[-1].head
        if fold is not None:
            for event in entry.events:
                fold(event)
        writing = Writing(batch, entry, then)
        self._queue.append(writing)
        self._put.set()
        return writing

    async def flushed(self) -> None:
        """Return once everything put so far is durable. Raises as `Writing.wait`."""
        if self._queue:
            await self._queue[-1].wait()
        self.check_open()

    def fence_off(self, error: MinutebookError) -> None:
        """Take no more entries; `error` says why. The first reason stays."""
        if self.fenced is None:
            self.fenced = error
            self.when_fenced(error)

    def broken(self, error: BaseException) -> None:
        """The same for a defect of ours."""
        failure = Fenced(self.state.session_id, f"internal error: {error!r}")
        failure.__cause__ = error
        self.fence_off(failure)

    def check_open(self) -> None:
        """Raise `Fenced` where the book takes no more entries, or its lease is not ours any more."""
        if self.fenced is None and self.held is not None:
            try:
                self.held.check()
            except Fenced as error:
                self.fence_off(error)
        if self.fenced is None:
            return
        if isinstance(self.fenced, Fenced):
            raise self.fenced.with_traceback(None)
        raise Fenced(self.state.session_id, str(self.fenced)) from self.fenced

    async def give_back(self) -> None:
        """Give the lease back; nothing more is written. Once, or nothing happens."""
        held, self.held = self.held, None
        if held is not None:
            await held.release()

    async def let_run_out(self) -> None:
        """The same where something may still act: the lease is left to its time."""
        held, self.held = self.held, None
        if held is not None:
            await held.let_run_out()

    # --- the writer ---------------------------------------------------------------------------

    async def write(self) -> None:
        """Hand what is put to the store, in order, for as long as the session is open."""
        try:
            while True:
                while self._queue:
                    await self._write(self._queue[0])
                    self._queue.popleft()
                self._put = anyio.Event()
                await self._put.wait()
        finally:
            self._end()

    def _end(self) -> None:
        gone = OutcomeUnknown(self.state.session_id, "the session ended while it was being written")
        for writing in self._queue:
            self.fence_off(gone)
            writing.finish(None, gone)

    async def _write(self, writing: Writing) -> None:
        try:
            self.check_open()
            writing.handed_at = self._clock.monotonic()
            receipt = await self._settled(writing.batch)
        except MinutebookError as error:
            self.fence_off(error)
            writing.finish(None, error)
            return
        self.durable, self.durable_head = writing.entry.state, receipt.head
        tell(self.followers, writing.entry.events)
        writing.finish(receipt)
        if writing.then is not None:
            writing.then()

    async def _settled(self, batch: Batch) -> Receipt:
        receipt = await settled(self._journal, batch)
        if receipt.status is CommitStatus.REPLAYED:
            raise CommandConflict(batch.session_id, batch.command_id)
        return receipt

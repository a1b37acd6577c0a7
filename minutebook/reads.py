"""What a session shows: where it stands, its conversation, its questions, its journal.

The reading half of `minutebook.session.Session`. Everything is as far as it is durable;
nothing here changes anything or begins anything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from domain import catalogue
from domain.cursor import Cursor
from domain.envelope import Recorded, Stored
from domain.errors import Fenced, InvalidOptions
from domain.inputs import PendingInput
from domain.state import State, UnsettledEffect
from minutebook.budget import SessionUsage
from minutebook.config import SessionConfig
from minutebook.input_parts import SessionInputs
from minutebook.interactions import Interaction
from minutebook.lease_config import LeaseSnapshot
from minutebook.parts import Parts
from minutebook.processes import Background
from minutebook.receipts import HistoryPage
from minutebook.session_options import check_option
from minutebook.streaming import SessionEvent, SessionFeed
from projections.transcript import Item
from recovery.plan import RecoveryPlan


class SessionReads:
    """The reads of an open session. They are synchronous, except for those that read the store.

    `messages`, `history`, `usage` and the views of the feed raise StaleView where they could not
    take an event; the session goes on.
    """

    def __init__(self, parts: Parts, config: SessionConfig) -> None:
        self._parts, self._config = parts, config

    @property
    def id(self) -> str:
        """The session's id."""
        return self._state.session_id

    @property
    def is_running(self) -> bool:
        """Whether a request is active."""
        return self._durable.request is not None

    @property
    def is_aborting(self) -> bool:
        """Whether the active request is being aborted."""
        return self._durable.request is not None and self._durable.request.aborting

    @property
    def current_request_id(self) -> str | None:
        """The active request."""
        return self._parts.book.durable_request

    @property
    def head_sequence(self) -> int:
        """The sequence of the last durable event."""
        return self._parts.book.durable_sequence

    @property
    def cursor(self) -> Cursor:
        """The place after the last durable event."""
        return Cursor(self.id, self.head_sequence, self._parts.book.durable_head)

    @property
    def lease(self) -> LeaseSnapshot | None:
        """The lease this session is held under, as last renewed; None once it is lost or given back."""
        held = self._parts.book.held
        if held is None:
            return None
        try:
            held.check()
        except Fenced:
            return None
        return LeaseSnapshot.of(held.row)

    @property
    def background(self) -> Background:
        """What goes on behind the calls of this session."""
        return Background(self._parts.flights.processes, self._config.abort_timeout_s)

    @property
    def messages(self) -> tuple[Item, ...]:
        """The whole conversation: inputs, and responses with the outcome of each call."""
        return tuple(self._parts.shown.model.items)

    @property
    def interactions(self) -> tuple[Interaction, ...]:
        """The questions that somebody has to answer; see `respond`."""
        pending = self._parts.answers.pending(self._state)
        return tuple(i for i in pending if i.sequence <= self.head_sequence)

    @property
    def inputs(self) -> SessionInputs:
        """What this session's inputs may be made of."""
        return SessionInputs(self._parts.conversation.attachments.capabilities)

    @property
    def usage(self) -> SessionUsage:
        """Tokens and cost, for the session and by request."""
        return SessionUsage(self._parts.usage.model, lambda: self._durable.spending)

    @property
    def pending_inputs(self) -> tuple[PendingInput, ...]:
        """Inputs that are accepted and not applied, in order."""
        return self._durable.queue.pending

    @property
    def unsettled_effects(self) -> tuple[UnsettledEffect, ...]:
        """Effects whose outcome is unknown and whose requests have ended."""
        return self._durable.unsettled

    def recovery_plan(self) -> RecoveryPlan:
        """What would come next if this process died now."""
        return self._parts.plan()

    def history(self, offset: int = 0, limit: int | None = None) -> HistoryPage:
        """A page of the conversation. Items are never split: a call is with its result.

        Args:
            offset: of the first item, from 0. Past the end: an empty page.
            limit: at most this many items; 0 asks for the total only; None for all.

        Raises:
            InvalidOptions: a negative number.
        """
        if any(type(number) is not int or number < 0 for number in (offset, 0 if limit is None else limit)):
            raise InvalidOptions("offset and limit", "whole numbers from 0", (offset, limit))
        items = self._parts.shown.model.items
        end = len(items) if limit is None else min(len(items), offset + limit)
        page = tuple(items[offset:end])
        following = end if end < len(items) else None
        return HistoryPage(page, min(offset, len(items)), following, len(items), self.head_sequence)

    async def recorded(self, *, after: int = 0) -> list[Recorded]:
        """The journal's events after a sequence, decoded, as far as they are durable."""
        events: list[Recorded] = []
        while after < self.head_sequence:
            rows = await self._parts.journal.read(self.id, after=after, upto=self.head_sequence)
            events += [catalogue.open_stored(row) for row in rows]
            after = events[-1].sequence
        return events

    def events(self, *, after: Cursor | None = None) -> AsyncIterator[SessionEvent]:
        """Durable events after a place and live deltas, for any number of readers. Ends when the
        session is left.

        Args:
            after: where a reader is: `Cursor.after` the last event it took, `Cursor.start` for the
                whole journal; None: from now on.

        Raises:
            InvalidOptions: `after` is no cursor.
            CursorMismatch: while iterating: the journal does not have that place.
            Fenced, StoreFailure: while iterating: what stopped the session.
        """
        check_option("after", after)
        sequence = after.sequence if after is not None else self.head_sequence
        return SessionFeed(self._parts.feed, sequence, after)

    def journal_rows(self, *, after: Cursor | None = None) -> AsyncIterator[Stored]:
        """The journal's rows after a place (None: all), then each new one; ends when closed.

        Raises:
            InvalidOptions: `after` is no cursor.
            CursorMismatch: while iterating: the journal does not have that place.
            StoreFailure: while iterating: the store cannot be read.
        """
        check_option("after", after)
        return self._parts.journal.subscribe(self.id, after=after)

    # --- inside ---------------------------------------------------------------------------------------

    @property
    def _state(self) -> State:
        return self._parts.book.state

    @property
    def _durable(self) -> State:
        return self._parts.book.durable

"""The session as an application uses it: send, stream, respond, abort, close.

A facade: it checks, composes one entry, commits it and wakes the loop. What
comes next is never decided here.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import anyio

from domain import ids as parse
from domain import inputs, request
from domain.decider import Command
from domain.entry import Entry
from domain.errors import InteractionError, SessionClosed, StreamError
from domain.ports import Blob
from domain.values import Priority
from minutebook.budget import Budget
from minutebook.changing import Changes, SessionModel
from minutebook.config import SessionConfig
from minutebook.flights import INSIDE
from minutebook.following import View
from minutebook.input_parts import Content, listed
from minutebook.interactions import Decision, ToolAnswer
from minutebook.leaving import HandoffResult, Leaving
from minutebook.models import Thinking
from minutebook.parts import Parts
from minutebook.reads import SessionReads
from minutebook.receipts import InputReceipt, RequestResult
from minutebook.sending import USER, check_room, compose, earlier_receipt, prepared
from minutebook.session_options import check_option, check_sending
from minutebook.stream_events import StreamEvent
from minutebook.streaming import RequestStream
from minutebook.structured import Formats
from minutebook.waiting import Unstreamed, request_of, result_of

log = logging.getLogger("minutebook")


class Session(SessionReads):
    """An open session. Made by `create_session` and `resume_session`, never directly.

    Work runs in the session's own task: sending starts it, nobody has to listen.
    Reads are synchronous and show what is durable and nothing else; every call that
    changes something returns after its commit.
    """

    def __init__(self, parts: Parts, config: SessionConfig, new_id: Callable[[str], str]) -> None:
        super().__init__(parts, config)
        self._new_id = new_id
        self._leaving = Leaving(parts, config.abort_timeout_s)
        self._check_open = self._leaving.check_open
        self._one_send = anyio.Lock()
        active = self._state.request
        open_request = None
        if active is not None:
            known = active.settings.output_schema if active.settings is not None else None
            open_request = (active.request_id, known)
        self._formats = Formats(config.output(), open_request)
        self._changes = Changes(parts, config, self._do)
        self._unstreamed = View(Unstreamed(active))
        parts.book.followers.append(self._unstreamed)

    def __repr__(self) -> str:
        state = self._durable
        doing = state.request.request_id if state.request else "idle"
        return f"<Session {self.id} at {state.sequence}, {doing}>"

    @property
    def is_closed(self) -> bool:
        """Whether this handle, or the session for good, takes no more work."""
        return self._leaving.is_closed

    @property
    def model(self) -> SessionModel:
        """Which model answers, and `switch` to another one."""
        return SessionModel(self._changes, self._config)

    # --- sending ---------------------------------------------------------------------------

    async def send(
        self,
        content: Content,
        *,
        priority: Priority = Priority.NEXT,
        input_id: str | None = None,
        max_turns: int | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> InputReceipt:
        """Give the session an input. While a request runs it is accepted as `later`.

        Args:
            content: text, or a list of `TextPart`, `ImagePart`, `FilePart` and strings. The
                bytes of images and files are kept in the journal, each once.
            input_id: makes the call idempotent: a second one with the same content
                returns the first one's receipt.
            max_turns: for the request it starts.
            metadata: for the tools of the request it starts, added to the session's own.

        Returns:
            The receipt, after the input is durable.

        Raises:
            SendRejected: QUEUE_FULL, BUDGET_SPENT, EMPTY_INPUT, or what is wrong with which part (see
                `minutebook.input_parts.prepare`). Nothing was written.
            ValueRefused: something in it cannot be kept or sent. Nothing was written.
            UnsettledEffectsFull: settle some effects first. Nothing was written.
            RecoveryRequired: somebody has to decide first; nothing was written.
            CommandConflict: `input_id` was used for other content.
            SessionSuspending: the session is being handed over. Nothing was written.
            Fenced, StoreFailure: see their classes.
        """
        self._check_open()
        if self._leaving.closing:
            raise SessionClosed(self.id, final=True)
        self._parts.book.check_open()
        parts = listed(content)
        check_sending(priority, metadata, max_turns)
        given = parse.input_id(input_id) if input_id is not None else None
        async with self._one_send:  # or two calls with one id could both find nothing before them
            attachments = self._parts.conversation.attachments
            made = await prepared(parts, attachments.capabilities)
            arguments = {"content": made.content, "max_turns": max_turns, "metadata": metadata or {}}
            if given is not None:
                earlier = await self._parts.book.earlier(given, "send", arguments)
                if earlier is not None:
                    self._parts.start()  # what the first one began goes on, as after any send
                    return await earlier_receipt(self._parts.journal, self.id, given, earlier)
            if self._parts.feed.stopped is not None:
                raise self._parts.feed.stopped.with_traceback(None)
            self._parts.conversation.check(made.content)
            self._check_open()  # it may have been left, or handed over, meanwhile
            size = sum(len(blob.data) for blob in made.blobs)
            check_room(self._state, made.content, attachments.waiting_bytes + size)
            entry = self._parts.book.begin(given or self._new_id("i"))
            receipt = compose(entry, made.content, Priority(priority), max_turns, metadata or {})
            self._parts.conversation.give(made.blobs)
            await self._commit(entry, "send", arguments, made.blobs)
        return receipt

    async def cancel_input(self, input_id: str, reason: str = "user") -> bool:
        """Take an input off the queue. False: it is not pending (any more)."""
        self._check_open()
        check_option("reason", reason)
        waiting = [i.input_id for i in self._state.waiting_inputs()]
        if input_id not in waiting:
            return False
        await self._do("cancel_input", inputs.CancelInput(input_id, reason))
        return True

    # --- watching ----------------------------------------------------------------------------

    def stream(self, *, include_thinking: bool = False) -> AsyncIterator[StreamEvent]:
        """One request from its beginning to its `Result` or `Error`.

        The oldest request of this handle that nobody has streamed yet, running or
        ended. Leaving the iterator early detaches the view; the request goes on.

        Raises:
            StreamError: NO_PENDING_REQUEST.
            RecoveryRequired: while iterating: somebody has to decide, see its plan.
            Fenced, StoreFailure: while iterating: the journal takes no more events here.
        """
        self._leaving.check_left()
        accepted = self._unstreamed.model.accepted
        if not accepted:
            raise StreamError("NO_PENDING_REQUEST", "send something first")
        request_id = next(iter(accepted))
        self._parts.start()
        return RequestStream(self._parts.feed, request_id, accepted.pop(request_id), include_thinking)

    async def run(self, content: Content, **options: Any) -> RequestResult:
        """Send and wait for the end. Options as for `send`.

        Raises:
            StreamError: REENTRANT_WAIT, from inside a tool or handler of this session.
            RecoveryRequired, Fenced, StoreFailure: as for `stream`.
        """
        self._check_outside()
        receipt = await self.send(content, **options)
        self._parts.start()
        request_id, accepted = await request_of(self._parts.feed, receipt)
        self._unstreamed.model.accepted.pop(request_id, None)
        return await result_of(self._parts.feed, request_id, accepted, self._formats)

    async def wait_idle(self) -> None:
        """Return when nothing runs and nothing will by itself.

        Raises:
            StreamError: REENTRANT_WAIT, from inside a tool or handler of this session.
            RecoveryRequired, Fenced, StoreFailure: as for `stream`.
        """
        self._leaving.check_left()
        self._check_outside()
        self._parts.start()
        while True:
            await self._parts.loop.idle.wait()
            if self._parts.feed.stopped is not None:
                raise self._parts.feed.stopped.with_traceback(None)
            if self._parts.loop.idle.is_set():
                return

    # --- answering and stopping --------------------------------------------------------------------

    async def respond(
        self, interaction_id: str | None, answer: ToolAnswer, *, digest: str | None = None
    ) -> Decision:
        """Answer an open interaction; the first answer wins.

        Args:
            interaction_id: None only where exactly one is open.
            digest: of the interaction; says that the answer is about exactly that input.

        Returns:
            The decision as recorded; where somebody was first, the recorded one.

        Raises:
            InteractionError: NOT_OPEN, AMBIGUOUS, DIGEST_REQUIRED, DIGEST_MISMATCH,
                WRONG_ANSWER, TOO_LARGE.
            ArgumentsRefused: an updated input does not fit the tool.
            ValueRefused: a value in the answer cannot be kept.
        """
        self._check_open()
        try:
            found = self._parts.answers.find(self._state, interaction_id, digest)
        except InteractionError as error:
            earlier = await self._decided(interaction_id) if error.reason == "NOT_OPEN" else None
            if earlier is None:
                raise
            return earlier
        commands = self._parts.answers.commands(self._state, found.id, answer)
        entry = self._parts.book.begin()
        events = [event for command in commands for event in entry.add(command, USER)]
        for event in events:
            self._parts.conversation.apply(event)
        writing = self._parts.loop.answer(entry)
        self._parts.start()
        await writing.wait()
        told = next(e for e in events if e.type in ("permission_resolved", "tool_resumed"))
        verdict = told.data.verdict if told.type == "permission_resolved" else "answered"
        return Decision(found.id, verdict, told.sequence)

    async def _decided(self, interaction_id: str | None) -> Decision | None:
        """The recorded answer to an interaction, if it has one."""
        if not isinstance(interaction_id, str):
            return None
        await self._parts.book.flushed()
        return self._parts.conversation.decisions.get(interaction_id)

    async def abort(self, reason: str = "user", *, request_id: str | None = None, wait: bool = True) -> None:
        """Stop the active request: it is sealed at once, every tool is told to stop.

        With `wait` it returns after the request's end is durable; a tool that does
        not stop in time becomes an unsettled effect. Idle: nothing happens.

        Args:
            request_id: stop this one; nothing happens if it is not the active one (any more).

        Raises:
            Fenced, StoreFailure: the end is not durable, or it is not known to be.
            SessionClosed: the session was left meanwhile; its next holder ends the request.
        """
        self._check_open()
        check_option("reason", reason)
        active = self._state.request
        ending = active.request_id if active else self._parts.book.durable_request
        if ending is None or request_id not in (None, ending):
            return
        if active is not None and not active.aborting:
            await self._do("abort", request.RequestAbort(reason))
        self._parts.start()
        while wait and self._parts.book.durable_request == ending:
            self._parts.book.check_open()
            if self._parts.feed.closed:
                raise SessionClosed(self.id, final=False)
            await self._parts.feed.wait()

    async def change(self, **values: Any) -> None:
        """Change settings: model, system_prompt, max_turns, permission_mode, temperature,
        max_output_tokens, on_lost_attempt, context. They count from the next request on;
        a permission mode counts at once. See `model.switch` for one that counts earlier.

        Raises:
            InvalidOptions: no such setting, or not such a value. Nothing was written.
            AssemblyFailed: no such model. Nothing was written.
        """
        self._check_open()
        await self._changes.change(values)

    async def set_thinking(self, thinking: Thinking | None) -> None:
        """Ask for other reasoning from the next turn on, also within the request that runs.

        Args:
            thinking: None: nothing is said, and the model does what it does by itself;
                `Thinking()`: on; `Thinking(budget=...)`: on, with so many tokens.

        Raises:
            CapabilityUnsupported, InvalidOptions: the provider's API has or takes no such
                thing. Nothing was written.
        """
        self._check_open()
        await self._changes.set_thinking(thinking)

    async def set_budget(self, budget: Budget | None) -> None:
        """Another budget for the whole session, at once; None takes it away.

        What was used already counts. Queued inputs that wait for a budget go on by themselves.

        Raises:
            InvalidOptions: it is used up already, or cannot work. Nothing was written.
        """
        self._check_open()
        await self._changes.set_budget(budget)

    async def close(self, *, final: bool = False, reason: str = "user") -> None:
        """Leave the session and give its lease back; `final` ends it for good.

        `final` aborts what runs, cancels what is queued and writes `session_closed`.

        Raises:
            CloseError: code of the application ignores that it was told to stop; carries what. The
                lease is kept and nothing new begins (`RuntimeQuarantined`). Call again once that
                code has ended, or leave the block.
            StreamError: REENTRANT_WAIT, from inside a tool or handler of this session.
            Fenced, StoreFailure: with `final`: the end is not durable, or it is not known to be.
        """
        self._check_outside()
        check_option("reason", reason)
        async with self._leaving.one:
            if final and not self.is_closed:
                await self._leaving.end_for_good(self.abort, reason)
            await self._leaving.close()

    async def leave(self) -> None:
        """What the end of the block does; code that ignores that it was told to stop is left behind."""
        with anyio.CancelScope(shield=True):
            async with self._leaving.one:
                await self._leaving.leave()

    async def suspend_for_handoff(self) -> HandoffResult:
        """Stop here, so that another worker goes on at once. For rolling deployments.

        Every call that would change something is refused from the first moment
        (`SessionSuspending`). A model call is cut off; tools are told to stop and have
        `abort_timeout_s` to end by themselves, else they stay on record as started. When all of
        that is durable, `handoff_completed` and `lease_released` are the last commit; the lease is
        given back, and this handle is closed.

        Raises:
            HandoffNotConfigured: the store is not durable. The session runs as before.
            HandoffActiveWork: something runs in the background; carries its ids. As before.
            HandoffPending: code of the application ignores that it was told to stop; carries
                what. Nothing new begins; call again once it has ended.
            HandoffFailed: things had been stopped. This handle is closed; resume from the journal.
            SessionClosed: this handle was left before.
            StreamError: REENTRANT_WAIT, from inside a tool or handler of this session.
        """
        self._check_outside()
        async with self._leaving.one:
            return await self._leaving.hand_over()

    # --- inside ---------------------------------------------------------------------------------------

    def _check_outside(self) -> None:
        if self.id in INSIDE.get():
            told = "a tool or handler of this session would wait for its own end; call it from outside"
            raise StreamError("REENTRANT_WAIT", told)

    async def _do(self, kind: str, *commands: Command) -> Sequence[Any]:
        self._check_open()
        entry = self._parts.book.begin()
        for command in commands:
            entry.add(command, USER)
        await self._commit(entry, kind, None)
        return entry.events

    async def _commit(
        self, entry: Entry, kind: str, arguments: dict[str, Any] | None, blobs: tuple[Blob, ...] = ()
    ) -> None:
        fold = self._parts.conversation.apply
        writing = self._parts.book.put(entry, kind, arguments, blobs, fold=fold, then=self._parts.loop.nudge)
        self._parts.start()
        await writing.wait()

"""The one loop that drives a session: fold, ask what comes next, do it, commit.

It is the same code after a start and after a crash: the plan is what this loop
would do with nothing in flight. What is ready together shares a commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

from domain import session
from domain.decider import HOST, Command
from domain.entry import Entry
from domain.envelope import Actor
from domain.errors import Fenced, InteractionError, MinutebookError
from domain.limits import MAX_EVENTS_PER_COMMIT
from domain.model_attempt import Status as Attempt
from domain.next_steps import Action, Step, Who, evaluating, next_steps
from domain.ports import Blob, Clock
from domain.state import State
from domain.values import ActorKind
from minutebook.answers import Answers
from minutebook.book import Book
from minutebook.carrying import AskHandler, AskPerson, Carrier, Launch, RunTool, SendRequest
from minutebook.config import PermissionCall, SessionConfig
from minutebook.conversation import Conversation
from minutebook.feed import Feed
from minutebook.flights import Flights, Landing
from minutebook.stream_events import ToolMessage, ToolProgress
from minutebook.tool_context import ToolContext
from recovery.plan import RecoveryRequired

#: Room that one step of a call may need in a commit.
STEP_ROOM: Final = 4
RETRY_BASE_S: Final = 0.5
RETRY_MAX_S: Final = 8.0

USER = Actor(ActorKind.USER)
POLICY = Actor(ActorKind.POLICY)


class Loop:
    """Drives one session until it is told to stop.

    Args:
        recovery_required: makes the error that carries the present plan.
    """

    def __init__(
        self,
        book: Book,
        feed: Feed,
        flights: Flights,
        carrier: Carrier,
        conversation: Conversation,
        answers: Answers,
        config: SessionConfig,
        clock: Clock,
        recovery_required: Callable[[], RecoveryRequired],
    ) -> None:
        self._book, self._feed, self._flights = book, feed, flights
        self._carrier, self._conversation, self._config = carrier, conversation, config
        self._answers, self._clock, self._recovery_required = answers, clock, recovery_required
        self._asked: set[str] = set()
        self._stopping = False
        self._held = False
        self._started = False
        self._ended = anyio.Event()
        self._abort_deadline: float | None = None
        self._retry_at: tuple[str, float] | None = None
        #: Set while nothing runs and nothing is about to.
        self.idle = anyio.Event()

    async def run(self) -> None:
        """Drive the session. Returns after `stop`; a failure of the journal ends it too."""
        self._started = True
        try:
            while not self._stopping:
                if not await self._advance():
                    await self._rest()
        except MinutebookError as error:
            self._fail(error)
        except Exception as error:  # a defect of ours must not look like an end of the session
            failure = Fenced(self._book.state.session_id, f"internal error: {error!r}")
            failure.__cause__ = error
            self._fail(failure)
        finally:
            self.idle.set()
            self._ended.set()

    def _fail(self, error: MinutebookError) -> None:
        self._book.fence_off(error)
        self._feed.stop(error)
        for subject in self._flights.running:
            self._flights.tell_to_stop(subject, "error")

    def nudge(self) -> None:
        """Something was committed from outside: look again."""
        self._resume_telling()
        self._flights.wake()

    def hold(self) -> None:
        """Accept no queued input as a request any more; the session is being closed."""
        self._held = True

    async def ended(self) -> None:
        """Return after `run` has returned, or at once if it never began."""
        if self._started:
            await self._ended.wait()

    def fail(self, error: MinutebookError) -> None:
        """The right to write is gone: take no more entries, stop what runs."""
        self._fail(error)
        self._flights.wake()

    def stop(self) -> None:
        """Begin nothing new; `run` returns after what it is just doing."""
        self._stopping = True
        self._flights.wake()

    async def settle(self) -> None:
        """Record what has landed since, after `run` has returned."""
        await self._commit_landed()

    # --- one round ------------------------------------------------------------------------

    async def _advance(self) -> bool:
        """Compose and commit one entry. False: there was nothing to do."""
        launches: list[Launch] = []
        blobs: list[Blob] = []
        entry = self._book.begin()
        self._land(entry, blobs)
        while self._step(entry, launches):
            pass
        if not entry.events:
            for launch in launches:
                self._launch(entry.state, launch)
            return bool(launches)
        self._resume_telling()
        await self._book.commit(entry, "loop", blobs=tuple(blobs))
        for launch in launches:
            self._launch(entry.state, launch)
        return True

    async def _commit_landed(self) -> None:
        while self._flights.landed:
            blobs: list[Blob] = []
            entry = self._book.begin()
            self._land(entry, blobs)
            if entry.events:
                await self._book.commit(entry, "loop", blobs=tuple(blobs))

    def _land(self, entry: Entry, blobs: list[Blob]) -> None:
        """Put what flights ended with into the entry."""
        while self._flights.landed and _room(entry):
            landing = self._flights.landed.popleft()
            blobs.extend(landing.blobs)
            if landing.handler is not None:
                self._evaluated(entry, landing)
            if landing.answer is not None:
                self._answered(entry, landing)
            for command in landing.commands:
                self._record(entry, landing, command)

    def _answered(self, entry: Entry, landing: Landing) -> None:
        assert landing.answer is not None
        try:
            commands = self._answers.commands(entry.state, *landing.answer)
        except InteractionError:
            return  # somebody else answered first, or the question is closed
        for command in commands:
            self._add(entry, command, USER)

    def _record(self, entry: Entry, landing: Landing, command: Command) -> None:
        if not landing.late:
            self._add(entry, command, landing.actor)
            return
        text = f"{landing.subject} ended after its outcome had been recorded; that changes nothing"
        self._add(entry, session.Note("late_result", text, {"ended_as": type(command).__name__}))

    def _evaluated(self, entry: Entry, landing: Landing) -> None:
        assert landing.handler is not None
        index, verdict = landing.handler
        wanted = next_steps(entry.state, self._flights.in_flight)
        if any(s.action is Action.EVALUATE and s.index == index for s in wanted):
            self._add(entry, self._carrier.evaluation(entry.state, index, verdict), POLICY)

    def _add(self, entry: Entry, command: Command, actor: Actor = HOST) -> None:
        for event in entry.add(command, actor):
            self._conversation.apply(event)

    def _step(self, entry: Entry, launches: list[Launch]) -> bool:
        """Carry out the automatic steps that come next. False: there are none left."""
        moved = False
        about = {_subject(launch) for launch in launches}
        for step in next_steps(entry.state, self._flights.in_flight | frozenset(about)):
            if self._stopping:
                return False
            if step.who is Who.PERSON:
                self._ask_person(entry, step, launches)
            if step.who is not Who.AUTOMATIC:
                continue
            if step.action is Action.INTERRUPT:
                self._flights.tell_to_stop(step.subject, "steering")
            elif self._may_carry(entry, step):
                moved = self._carry(entry, step, launches) or moved
        return moved

    def _ask_person(self, entry: Entry, step: Step, launches: list[Launch]) -> None:
        if self._config.confirmation_handler is None:
            return
        interaction = self._answers.open(entry.state, step)
        if interaction.id not in self._asked:
            self._asked.add(interaction.id)
            launches.append(AskPerson(interaction))

    def _may_carry(self, entry: Entry, step: Step) -> bool:
        if step.action is Action.NEXT_ATTEMPT:
            return _room(entry) and self._retry_is_due(entry.state, step.subject)
        if step.action is Action.START_NEXT_REQUEST and self._held:
            return False
        if step.action is Action.FINISH_ABORT:
            return self._may_finish_abort(entry)
        return _room(entry, _closing_room(entry.state) if step.action is Action.FAIL_REQUEST else STEP_ROOM)

    def _carry(self, entry: Entry, step: Step, launches: list[Launch]) -> bool:
        before = len(entry.events), len(launches)
        for item in self._carrier.commands(entry.state, step):
            if isinstance(item, SendRequest | RunTool | AskHandler | AskPerson):
                launches.append(item)
            else:
                self._add(entry, item)
        return (len(entry.events), len(launches)) != before

    # --- waiting ---------------------------------------------------------------------------

    def _retry_is_due(self, state: State, turn_id: str) -> bool:
        """Whether the wait that a failed attempt calls for is over."""
        last = state.attempt
        if last is None or last.status is not Attempt.FAILED:
            return True
        if self._retry_at is None or self._retry_at[0] != last.attempt_id:
            delay = last.retry_after_s
            if delay is None:
                delay = min(RETRY_MAX_S, RETRY_BASE_S * 2 ** (last.number - 1))
            self._retry_at = (last.attempt_id, self._clock.monotonic() + delay)
        return self._clock.monotonic() >= self._retry_at[1]

    def _may_finish_abort(self, entry: Entry) -> bool:
        """Every flight has ended, or had its time; late ones are given up."""
        if self._flights.running:
            now = self._clock.monotonic()
            if self._abort_deadline is None:
                self._abort_deadline = now + self._config.abort_timeout_s
                for subject in self._flights.running:
                    self._flights.tell_to_stop(subject, "abort")
            if now < self._abort_deadline:
                return False
            for subject in self._flights.running:
                self._flights.forget(subject)
        self._abort_deadline = None
        return _room(entry, _closing_room(entry.state))

    async def _rest(self) -> None:
        """Nothing to do at this moment: say so where it is worth saying, and wait."""
        steps = next_steps(self._book.state, self._flights.in_flight)
        waits_for_time = self._next_time()
        if not self._flights.running and waits_for_time is None:
            self._tell_why(steps)
            self.idle.set()
        with anyio.move_on_after(waits_for_time if waits_for_time is not None else float("inf")):
            if not self._flights.landed and not self._stopping:
                await self._flights.wait()

    def _next_time(self) -> float | None:
        times = []
        if self._retry_at is not None:
            times.append(self._retry_at[1])
        if self._abort_deadline is not None:
            times.append(self._abort_deadline)
        now = self._clock.monotonic()
        left = [t - now for t in times if t > now]
        return min(left) if left else None

    def _tell_why(self, steps: tuple[Step, ...]) -> None:
        if self._stopping or self._held:
            return
        if any(s.who in (Who.HOST, Who.OPERATOR, Who.AUTOMATIC) for s in steps):
            self._feed.stop(self._recovery_required())

    def _resume_telling(self) -> None:
        if self.idle.is_set():
            self.idle = anyio.Event()
        if self._feed.stopped is not None:
            self._feed.stop(None)

    # --- launching ----------------------------------------------------------------------------

    def _launch(self, state: State, launch: Launch) -> None:
        if self._stopping:
            if isinstance(launch, SendRequest | RunTool):
                self._flights.never_began(launch)
            return
        match launch:
            case AskPerson():
                assert self._config.confirmation_handler is not None
                self._flights.confirm(launch.interaction, self._config.confirmation_handler)
            case SendRequest():
                self._flights.send(launch, state.session_id)
            case RunTool():
                self._flights.run(launch, self._context(state, launch))
            case AskHandler():
                call = self._permission_call(state, launch)
                handler = self._config.permission_handler
                assert handler is not None
                self._flights.ask_handler(launch.tool_id, launch.index, lambda: handler(call))

    def _context(self, state: State, launch: RunTool) -> ToolContext:
        assert state.request is not None and state.turn is not None
        context = state.request.context
        feed, session_id, tool_id, name = self._feed, state.session_id, launch.tool_id, launch.definition.name

        async def progress(value: object) -> None:
            feed.delta(ToolProgress(session_id, tool_id, name, value))

        async def message(content: object) -> None:
            feed.delta(ToolMessage(session_id, tool_id, name, content))

        return ToolContext(
            session_id=session_id,
            request_id=state.request.request_id,
            turn_id=state.turn.turn_id,
            tool_id=tool_id,
            idempotency_key=launch.idempotency_key,
            run=launch.run,
            fence=self._book.fence,
            environment=context.get("environment", {}),
            metadata=context.get("metadata", {}),
            on_progress=progress,
            on_message=message,
        )

    def _permission_call(self, state: State, launch: AskHandler) -> PermissionCall:
        assert state.request is not None
        call = state.calls[launch.index]
        assert call.tool is not None and call.permission is not None
        return PermissionCall(
            state.session_id,
            state.request.request_id,
            call.call_id,
            call.name,
            self._carrier.input_of(call),
            call.permission.input_digest,
            call.tool.kind,
            call.tool.category,
            call.tool.destructive,
        )


def _room(entry: Entry, needed: int = STEP_ROOM) -> bool:
    return len(entry.events) + needed <= MAX_EVENTS_PER_COMMIT


def _closing_room(state: State) -> int:
    return 2 * len(state.calls) + STEP_ROOM


def _subject(launch: Launch) -> str:
    match launch:
        case SendRequest():
            return launch.attempt_id
        case RunTool():
            return launch.tool_id
        case AskHandler():
            return evaluating(launch.tool_id)
        case AskPerson():
            return launch.interaction.id

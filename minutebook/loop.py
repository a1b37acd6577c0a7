"""The one loop that drives a session: fold, ask what comes next, do it, commit.

It is the same code after a start and after a crash: the plan is what this loop
would do with nothing in flight. What is ready together shares a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import anyio

from domain import permission, session, tool
from domain.decider import HOST, Command, OnCall
from domain.entry import Entry
from domain.envelope import Actor
from domain.errors import ArgumentsRefused, InteractionError, MinutebookError, ValueRefused
from domain.limits import MAX_EVENTS_PER_COMMIT
from domain.model_attempt import Status as Attempt
from domain.next_steps import Action, Step, Who, evaluating, next_steps
from domain.ports import Blob, Timer
from domain.state import State
from domain.values import ActorKind
from minutebook.answers import Answers
from minutebook.book import Book, Writing
from minutebook.carrying import AskHandler, AskPerson, Carrier, Launch, RunTool, SendRequest
from minutebook.config import SessionConfig
from minutebook.conversation import Conversation
from minutebook.feed import Feed
from minutebook.flights import Flights
from minutebook.landings import Landing
from minutebook.launching import Launcher
from minutebook.lost import LookUp, Lookups
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
        timer: Timer,
        recovery_required: Callable[[], RecoveryRequired],
        lookups: Lookups,
    ) -> None:
        self._book, self._feed, self._flights = book, feed, flights
        self._launcher = Launcher(flights, feed, carrier, config, book.fence)
        self._carrier, self._conversation, self._config = carrier, conversation, config
        self._answers, self._timer, self._recovery_required = answers, timer, recovery_required
        self._lookups = lookups
        self._asked: set[str] = set()
        #: What begins as soon as its entry is durable.
        self._about: frozenset[str] = frozenset()
        #: Why nothing begins any more; empty while it does.
        self._stopping = ""
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
            self._book.fence_off(error)
        except Exception as error:  # a defect of ours must not look like an end of the session
            self._book.broken(error)
        finally:
            self.idle.set()
            self._ended.set()

    def fenced(self, error: MinutebookError) -> None:
        """The right to write is gone: nothing more is told, what runs is stopped."""
        self._feed.stop(error)
        self._tell_all_to_stop("error")
        self._flights.processes.kill(error)
        self._flights.wake()

    def _tell_all_to_stop(self, reason: str) -> None:
        for subject in self._flights.running:
            self._flights.tell_to_stop(subject, reason)

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

    def stop(self, reason: str) -> None:
        """Begin nothing new; `run` returns after what it is just doing."""
        self._stopping = self._stopping or reason
        active = self._book.state.request
        if active is not None and active.aborting:
            self._tell_all_to_stop("abort")
        self._flights.wake()

    async def settle(self) -> None:
        """Record what has landed since, after `run` has returned."""
        await self._commit_landed()

    # --- one round ------------------------------------------------------------------------

    async def _advance(self) -> bool:
        """Compose and commit one entry. False: there was nothing to do."""
        blobs: list[Blob] = []
        entry = self._book.begin()
        self._land(entry, blobs)
        launches = self._steps(entry)
        if entry.events:
            await self._put(entry, "loop", launches, tuple(blobs)).wait()
        else:
            self._launch_all(entry.state, launches, self._timer.monotonic())
        return bool(entry.events or launches)

    def answer(self, entry: Entry) -> Writing:
        """Put an answer into the journal, together with what it lets go on."""
        try:
            return self._put(entry, "respond", self._steps(entry))
        except MinutebookError as error:
            self._book.fence_off(error)
            raise

    def _steps(self, entry: Entry) -> list[Launch]:
        launches: list[Launch] = []
        while self._step(entry, launches):
            pass
        return launches

    def _put(self, entry: Entry, kind: str, launches: list[Launch], blobs: tuple[Blob, ...] = ()) -> Writing:
        self._resume_telling()
        writing = self._book.put(
            entry, kind, blobs=blobs, then=lambda: self._launch_all(entry.state, launches, writing.handed_at)
        )
        self._about |= {_subject(launch) for launch in launches}
        return writing

    def _launch_all(self, state: State, launches: list[Launch], since: float) -> None:
        """Begin launches; `since` is when the store was given what says so."""
        self._about -= {_subject(launch) for launch in launches}
        for launch in launches:
            self._launcher.launch(state, launch, self._why_not(state), since)
        self._flights.wake()

    def _why_not(self, state: State) -> str:
        """Why nothing begins any more, though it is on record that it would; empty if it may."""
        if self._book.fenced is not None:
            return "error"
        if self._stopping:
            return self._stopping
        meant, active = state.request, self._book.state.request
        if meant is None or active is None or active.request_id != meant.request_id or active.aborting:
            return "abort"
        return ""

    async def _commit_landed(self) -> None:
        while self._flights.landed:
            blobs: list[Blob] = []
            entry = self._book.begin()
            self._land(entry, blobs)
            if entry.events:
                await self._book.put(entry, "loop", blobs=tuple(blobs)).wait()

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
        except (InteractionError, ArgumentsRefused, ValueRefused):
            return  # somebody was first, the question is closed, or it is no answer: it stays open
        for command in commands:
            self._add(entry, command, USER)

    def _record(self, entry: Entry, landing: Landing, command: Command) -> None:
        if not landing.late:
            self._add(entry, command, landing.actor)
            return
        if entry.state.session is not None and entry.state.session.status is session.Status.CLOSED:
            return
        text = f"{landing.subject} ended after its outcome had been recorded; that changes nothing"
        self._add(entry, session.Note("late_result", text, _said_late(command)))

    def _evaluated(self, entry: Entry, landing: Landing) -> None:
        assert landing.handler is not None
        index, verdict = landing.handler
        wanted = next_steps(entry.state, self._in_flight())
        due = (s for s in wanted if s.action is Action.EVALUATE)
        if any(evaluating(s.subject) == landing.subject for s in due):
            self._append(entry, self._carrier.evaluation(entry.state, index, verdict))

    def _append(self, entry: Entry, command: Command) -> None:
        """Add what the loop decided. An evaluation and what follows from it are one commit."""
        if not isinstance(command, OnCall) or not isinstance(command.command, permission.Evaluate):
            self._add(entry, command)
            return
        self._add(entry, command, POLICY)
        for step in next_steps(entry.state, self._in_flight()):
            if step.index == command.index and step.action in (Action.ASK, Action.CANCEL_TOOL):
                for item in self._carrier.commands(entry.state, step):
                    assert not isinstance(item, Launch)
                    self._add(entry, item)

    def _add(self, entry: Entry, command: Command, actor: Actor = HOST) -> None:
        for event in entry.add(command, actor):
            self._conversation.apply(event)

    def _step(self, entry: Entry, launches: list[Launch]) -> bool:
        """Carry out the automatic steps that come next. False: there are none left."""
        moved = False
        for step in next_steps(entry.state, self._in_flight(launches)):
            if self._stopping:
                return False
            if step.who is Who.PERSON:
                moved = self._ask_person(entry, step, launches) or moved
            if look_up := self._lookups.due(entry.state, step):
                launches.append(look_up)
                moved = True
            elif step.who is not Who.AUTOMATIC:
                continue
            elif step.action is Action.INTERRUPT:
                self._flights.tell_to_stop(step.subject, "steering")
            elif self._may_carry(entry, step):
                moved = self._carry(entry, step, launches) or moved
        return moved

    def _in_flight(self, launches: Iterable[Launch] = ()) -> frozenset[str]:
        """What runs, what begins when its entry is durable, and what this entry is about to begin."""
        return self._flights.in_flight | self._about | {_subject(launch) for launch in launches}

    def _ask_person(self, entry: Entry, step: Step, launches: list[Launch]) -> bool:
        gone = list(self._carrier.gone(entry.state, step)) if _room(entry) else []
        for command in gone:
            self._add(entry, command)
        if gone or self._config.confirmation_handler is None:
            return bool(gone)
        interaction = self._answers.open(entry.state, step)
        if interaction.id not in self._asked:
            self._asked.add(interaction.id)
            launches.append(AskPerson(interaction))
        return False

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
            if isinstance(item, Launch):
                launches.append(item)
            else:
                self._append(entry, item)
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
            self._retry_at = (last.attempt_id, self._timer.monotonic() + delay)
        return self._timer.monotonic() >= self._retry_at[1]

    def _may_finish_abort(self, entry: Entry) -> bool:
        """Every flight has ended, or had its time; late ones are given up."""
        if self._about or self._flights.landed:
            return False
        if self._flights.running:
            now = self._timer.monotonic()
            if self._abort_deadline is None:
                self._abort_deadline = now + self._config.abort_timeout_s
                self._tell_all_to_stop("abort")
            if now < self._abort_deadline:
                return False
            for subject in self._flights.running:
                self._flights.give_up(subject)
        self._abort_deadline = None
        return _room(entry, _closing_room(entry.state))

    async def _rest(self) -> None:
        """Nothing to do at this moment: say so where it is worth saying, and wait."""
        steps = next_steps(self._book.state, self._in_flight())
        until = self._next_time(steps)
        if until is None and not self._flights.running and not self._about:
            self._tell_why(steps)
            self.idle.set()
        if not self._flights.landed and not self._stopping:
            await self._flights.wait(until)

    def _next_time(self, steps: tuple[Step, ...]) -> float | None:
        """When there is something to do again that waits for nothing but time."""
        if self._abort_deadline is not None:
            return self._abort_deadline
        retrying = any(s.action is Action.NEXT_ATTEMPT for s in steps)
        return self._retry_at[1] if retrying and self._retry_at is not None else None

    def _tell_why(self, steps: tuple[Step, ...]) -> None:
        if self._stopping or self._held:
            return
        if any(s.who in (Who.HOST, Who.OPERATOR, Who.AUTOMATIC) for s in steps):
            self._feed.stop(self._recovery_required())

    def _resume_telling(self) -> None:
        if self._book.fenced is not None:
            return  # a commit that was under way has come through; what was told stays, nothing runs again
        if self.idle.is_set():
            self.idle = anyio.Event()
        if self._feed.stopped is not None:
            self._feed.stop(None)


def _said_late(command: Command) -> dict[str, Any]:
    """What somebody who settles the outcome may want to know."""
    match command:
        case OnCall(command=tool.Complete() as completed):
            return {"ended_as": "completed", **completed.fields}
        case OnCall(command=tool.Fail() as failed):
            return {"ended_as": "failed", "error_type": failed.error_type, "message": failed.message}
        case OnCall():
            return {"ended_as": type(command.command).__name__}
    return {"ended_as": type(command).__name__}


def _room(entry: Entry, needed: int = STEP_ROOM) -> bool:
    return len(entry.events) + needed <= MAX_EVENTS_PER_COMMIT


def _closing_room(state: State) -> int:
    return 2 * len(state.calls) + STEP_ROOM


def _subject(launch: Launch) -> str:
    match launch:
        case SendRequest() | LookUp():
            return launch.attempt_id
        case RunTool():
            return launch.tool_id
        case AskHandler():
            return evaluating(launch.tool_id)
        case AskPerson():
            return launch.interaction.id

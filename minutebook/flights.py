"""What a session is executing right now: model attempts, tool runs, questions.

Each flight is a task. It ends by handing the loop what to record, never by
writing to the journal itself; that keeps one writer and one order.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

import anyio

from domain import model_attempt, tool
from domain.decider import HOST, Command, OnCall
from domain.envelope import Actor
from domain.errors import ModelFailed
from domain.limits import MAX_RESPONSE_ID_CHARACTERS
from domain.model_attempt import AttemptState
from domain.model_ports import Found, Identified, Response, Text, Thinking
from domain.next_steps import evaluating, stop
from domain.ports import Blob, Probe, Timer
from domain.values import ActorKind, Verdict
from minutebook import stream_events as se
from minutebook.carrying import AskHandler, AskPerson, RunTool, SendRequest
from minutebook.feed import Feed
from minutebook.interactions import Interaction, ToolAnswer
from minutebook.lost import LookUp
from minutebook.outcomes import checked, cut_off, defect, kept, recorded
from minutebook.tasks import SessionTasks
from minutebook.tool_context import ToolContext
from minutebook.tool_runner import run_tool

MODEL = Actor(ActorKind.MODEL)
RECOVERY = Actor(ActorKind.RECOVERY)

log = logging.getLogger("minutebook")

#: Ids of the sessions whose tools, handlers or models the running code belongs to.
INSIDE: ContextVar[frozenset[str]] = ContextVar("minutebook_inside", default=frozenset())


@dataclass(frozen=True, slots=True)
class Landing:
    """What a flight ended with: the commands to record, and blobs that go with them.

    `handler` is set instead where an evaluation ended: (call index, the handler's answer);
    `answer` where a confirmation handler answered: (interaction id, answer). `late`: it had
    been given up, and what it says is only noted. `in_passing`: the flight goes on; this is
    dropped where it ends first.
    """

    subject: str
    commands: tuple[Command, ...] = ()
    blobs: tuple[Blob, ...] = ()
    handler: tuple[int, Verdict | None] | None = None
    answer: tuple[str, ToolAnswer] | None = None
    actor: Actor = HOST
    late: bool = False
    in_passing: bool = False


@dataclass(slots=True, eq=False)
class _Flight:
    """One task: what it was begun with, and what it was told since."""

    launch: object
    ctx: ToolContext | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    told: str = ""
    given_up: bool = False

    def cut_off(self, reason: str) -> None:
        """Cancel it, whatever it is doing."""
        self.told = self.told or reason
        if self.ctx is not None:
            self.ctx.stopping.set()
        self.scope.cancel()


class Flights:
    """The tasks of one session. `in_flight` is what `next_steps` is told."""

    def __init__(
        self,
        session_id: str,
        tasks: SessionTasks,
        feed: Feed,
        probe: Probe,
        timer: Timer,
    ) -> None:
        self.landed: deque[Landing] = deque()
        self._session_id = session_id
        self._tasks, self._feed = tasks, feed
        self._probe, self._timer = probe, timer
        self._flying: dict[str, _Flight] = {}
        self._woken: anyio.Event | None = None

    @property
    def in_flight(self) -> frozenset[str]:
        """Ids of what is running or not on record yet, and of what was told to stop."""
        told = {stop(subject) for subject, flight in self._flying.items() if flight.told}
        return self.running | {landing.subject for landing in self.landed} | told

    @property
    def running(self) -> frozenset[str]:
        """Ids of what is running."""
        return frozenset(self._flying)

    async def wait(self, until: float | None = None) -> None:
        """Return when something landed, when somebody called `wake`, or at a moment of the timer."""
        if self._woken is None:
            self._woken = anyio.Event()
        woken = self._woken
        if until is None:
            await woken.wait()
            return
        async with anyio.create_task_group() as alarm:
            alarm.start_soon(self._wake_at, until)
            await woken.wait()
            alarm.cancel_scope.cancel()

    async def _wake_at(self, moment: float) -> None:
        await self._timer.sleep_until(moment)
        self.wake()

    def wake(self) -> None:
        """Let the loop look again."""
        if self._woken is not None:
            self._woken.set()
            self._woken = None

    def tell_to_stop(self, subject: str, reason: str) -> None:
        """Ask a flight to end; it lands by itself.

        A tool in a thread cannot be made to; it is told, and may look.
        """
        flight = self._flying.get(subject)
        if flight is None or flight.told:
            return
        if isinstance(flight.launch, RunTool) and not flight.launch.definition.is_async and reason == "abort":
            assert flight.ctx is not None
            flight.told = reason
            flight.ctx.stopping.set()
        else:
            flight.cut_off(reason)

    def never_began(self, launch: SendRequest | RunTool, reason: str) -> None:
        """A launch that is on record as started and will not be made: that much is known."""
        if isinstance(launch, SendRequest):
            self.landed.append(Landing(launch.attempt_id, (model_attempt.Abandon(reason),)))
        else:
            cancel = tool.Cancel(f"{reason} before it began")
            self.landed.append(Landing(launch.tool_id, (OnCall(launch.index, cancel),)))

    async def wind_down(self, timeout_s: float) -> None:
        """Let everything end: models at once, tools within their time; then cut them off.

        A tool that does not end in time stays on record as started.
        """
        for flight in self._flying.values():
            if flight.ctx is None:
                flight.cut_off("detached")
            else:
                flight.ctx.stopping.set()
        until = self._timer.monotonic() + timeout_s
        while self._flying and self._timer.monotonic() < until:
            await self.wait(until)
        for flight in self._flying.values():
            flight.cut_off("detached")
        while self._flying:
            await self.wait()

    def give_up(self, subject: str) -> None:
        """Stop waiting for a flight that does not end; what it lands with later is late."""
        self._flying.pop(subject).given_up = True

    # --- model attempts --------------------------------------------------------------

    def send(self, launch: SendRequest, session_id: str) -> None:
        """Send a model request."""
        self._begin(launch.attempt_id, _Flight(launch), lambda: self._attempt(launch, session_id))

    async def _attempt(self, launch: SendRequest, session_id: str) -> Landing:
        seen = False
        try:
            self._probe("before_send")
            async with aclosing(launch.provider.send(launch.body, attempt_id=launch.attempt_id)) as signals:  # type: ignore[type-var]  # the port promises an async generator
                async for signal in signals:
                    if isinstance(signal, Response):
                        return Landing(launch.attempt_id, (checked(signal),), actor=MODEL)
                    if isinstance(signal, Identified):
                        self._identified(launch.attempt_id, signal.response_id)
                    seen = self._show(signal, launch, session_id) or seen
            error = ModelFailed("no_response", "the provider ended without a response", retryable=not seen)
        except ModelFailed as e:
            # What was shown cannot be taken back: a second try is for people to decide.
            error = e
            if seen and e.retryable:
                error = ModelFailed(
                    e.kind, e.message, bytes_sent=e.bytes_sent, received_digest=e.received_digest
                )
        except Exception as e:
            error = defect(e)
        return Landing(launch.attempt_id, (model_attempt.Fail(error),))

    def _identified(self, attempt_id: str, response_id: str) -> None:
        """Have the response's id recorded while the attempt goes on; no piece waits for that."""
        if attempt_id in self._flying and 0 < len(response_id) <= MAX_RESPONSE_ID_CHARACTERS:
            identify = model_attempt.Identify(response_id)
            self.landed.append(Landing(attempt_id, (identify,), actor=MODEL, in_passing=True))
            self.wake()

    def look_up(self, launch: LookUp, attempt: AttemptState) -> None:
        """Ask a provider what became of an attempt that was lost."""
        self._begin(launch.attempt_id, _Flight(launch), lambda: self._looked_up(launch, attempt))

    async def _looked_up(self, launch: LookUp, attempt: AttemptState) -> Landing:
        self._probe("before_send")
        try:
            found = await launch.provider.look_up(launch.lost)
        except Exception as e:  # the port promises none; it stays unknown, and somebody is asked
            found = Found("unknown", defect(e).message)
        command = model_attempt.settled_by(attempt, found)
        if command is None:
            where = f"attempt {launch.attempt_id} of session {self._session_id}"
            log.warning("%s was looked up and stays %s: %s", where, found.outcome, found.evidence)
            return Landing(launch.attempt_id)
        return Landing(launch.attempt_id, (kept(command),), actor=RECOVERY)

    def _show(self, signal: object, launch: SendRequest, session_id: str) -> bool:
        self._probe("mid_stream")
        if isinstance(signal, Text):
            self._feed.delta(se.ContentDelta(session_id, signal.text), part_of=launch.attempt_id)
        elif isinstance(signal, Thinking):
            self._feed.delta(se.ThinkingDelta(session_id, signal.text), part_of=launch.attempt_id)
        else:
            return False
        return True

    # --- tools -------------------------------------------------------------------------

    def run(self, launch: RunTool, ctx: ToolContext) -> None:
        """Run a tool's code."""
        self._begin(launch.tool_id, _Flight(launch, ctx), lambda: self._tool(launch, ctx))

    async def _tool(self, launch: RunTool, ctx: ToolContext) -> Landing:
        self._probe("before_effect")
        finished = await run_tool(launch.definition, launch.arguments, ctx)
        self._probe("after_effect")
        command, blobs = recorded(launch, finished)
        return Landing(launch.tool_id, (OnCall(launch.index, command),), blobs)

    # --- questions -----------------------------------------------------------------------

    def ask_handler(self, launch: AskHandler, ask: Callable[[], Awaitable[Verdict | None]]) -> None:
        """Ask the application's permission handler about a call."""
        self._begin(evaluating(launch.tool_id), _Flight(launch), lambda: self._handler(launch, ask))

    async def _handler(self, launch: AskHandler, ask: Callable[[], Awaitable[Verdict | None]]) -> Landing:
        try:
            answer = await ask()
            verdict = None if answer is None else Verdict(answer)
        except Exception:
            verdict = Verdict.ASK  # fails closed: a person decides
        return Landing(evaluating(launch.tool_id), handler=(launch.index, verdict))

    def confirm(self, launch: AskPerson, ask: Callable[[Interaction], Awaitable[ToolAnswer | None]]) -> None:
        """Ask the application's confirmation handler to answer for a person."""
        subject = f"confirm:{launch.interaction.id}"
        self._begin(subject, _Flight(launch), lambda: self._confirmation(subject, launch.interaction, ask))

    async def _confirmation(
        self,
        subject: str,
        interaction: Interaction,
        ask: Callable[[Interaction], Awaitable[ToolAnswer | None]],
    ) -> Landing:
        try:
            answer = await ask(interaction)
        except Exception:
            answer = None  # fails closed: the question stays open
        return Landing(subject, answer=None if answer is None else (interaction.id, answer))

    # --- all -------------------------------------------------------------------------------

    def _begin(self, subject: str, flight: _Flight, run: Callable[[], Awaitable[Landing]]) -> None:
        self._flying[subject] = flight
        flight.scope = self._tasks.start(self._fly, subject, flight, run, name=subject)

    async def _fly(self, subject: str, flight: _Flight, run: Callable[[], Awaitable[Landing]]) -> None:
        landing = None
        INSIDE.set(INSIDE.get() | {self._session_id})
        try:
            landing = await run()
        except anyio.get_cancelled_exc_class() as e:
            if flight.told:
                landing = _stopped(subject, flight)
                raise
            landing = _broke(subject, flight, e)  # it cancelled itself; nobody else was meant
        finally:
            self._land(subject, flight, landing)

    def _land(self, subject: str, flight: _Flight, landing: Landing | None) -> None:
        if flight.given_up:
            landing = landing and replace(landing, late=True)
        else:
            del self._flying[subject]
        passed = [one for one in self.landed if one.in_passing and one.subject == subject]
        for one in passed:
            self.landed.remove(one)
        if landing is not None:
            self.landed.append(landing)
        self.wake()


def _stopped(subject: str, flight: _Flight) -> Landing | None:
    """What to record of a flight that ended because it was told to."""
    if flight.given_up:
        return None
    match flight.launch:
        case SendRequest():
            return Landing(subject, (model_attempt.Abandon(flight.told),))
        case RunTool() as launch if flight.told != "detached":
            return Landing(subject, (OnCall(launch.index, cut_off(launch, flight.told)),))
    return None


def _broke(subject: str, flight: _Flight, error: BaseException) -> Landing | None:
    """What to record of a flight that cancelled its own task."""
    match flight.launch:
        case SendRequest():
            return Landing(subject, (model_attempt.Fail(defect(error)),))
        case RunTool() as launch:
            return Landing(subject, (OnCall(launch.index, cut_off(launch, "cancelled from outside")),))
        case AskHandler() as launch:
            return Landing(subject, handler=(launch.index, Verdict.ASK))
    return None

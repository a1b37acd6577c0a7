"""What a session is executing right now: model attempts, tool runs, questions.

Each flight is a task. It ends by handing the loop what to record, never by
writing to the journal itself; that keeps one writer and one order.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import replace
from typing import Final

import anyio

from domain import model_attempt
from domain.decider import OnCall
from domain.envelope import Actor
from domain.errors import ModelFailed
from domain.limits import MAX_RESPONSE_ID_CHARACTERS
from domain.model_attempt import AttemptState
from domain.model_ports import Found, Identified, Response, Text, Thinking
from domain.next_steps import evaluating, stop
from domain.ports import Probe, Timer
from domain.values import ActorKind, Verdict
from minutebook import stream_events as se
from minutebook.authority import Authority
from minutebook.carrying import AskHandler, AskPerson, RunTool, SendRequest
from minutebook.feed import Feed
from minutebook.interactions import Interaction, ToolAnswer
from minutebook.landings import Flight, Landing, broke, never_began, stopped, unmade
from minutebook.lost import LookUp
from minutebook.outcomes import checked, defect, kept, recorded
from minutebook.processes import Processes
from minutebook.tasks import SessionTasks
from minutebook.tool_context import ToolContext
from minutebook.tool_runner import run_tool

MODEL = Actor(ActorKind.MODEL)
RECOVERY = Actor(ActorKind.RECOVERY)

#: How long what is cancelled has to take notice, before it counts as going on all the same.
NOTICE_S: Final = 1.0
log = logging.getLogger("minutebook")

#: Ids of the sessions whose tools, handlers or models the running code belongs to.
INSIDE: ContextVar[frozenset[str]] = ContextVar("minutebook_inside", default=frozenset())


class Flights:
    """The tasks of one session. `in_flight` is what `next_steps` is told."""

    def __init__(
        self,
        session_id: str,
        tasks: SessionTasks,
        feed: Feed,
        probe: Probe,
        timer: Timer,
        authority: Authority,
        processes: Processes,
    ) -> None:
        self.landed: deque[Landing] = deque()
        self.processes = processes
        self._session_id, self._authority = session_id, authority
        self._tasks, self._feed = tasks, feed
        self._probe, self._timer = probe, timer
        self._flying: dict[str, Flight] = {}
        #: Tools whose outcome is recorded, or left open, and whose code may go on all the same.
        self._unattended: dict[str, Flight] = {}
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

    @property
    def unattended(self) -> frozenset[str]:
        """Ids of tools whose code goes on although nobody waits for it any more."""
        return frozenset(subject for subject, each in self._unattended.items() if not each.ended.is_set())

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
        if flight.in_thread and reason == "abort":
            assert flight.ctx is not None
            flight.told = reason
            self._ask_to_stop(subject, flight.ctx)
        else:
            flight.cut_off(reason)

    def _ask_to_stop(self, subject: str, ctx: ToolContext) -> None:
        ctx.stopping.set()
        self.processes.ask(subject)

    def never_began(self, launch: SendRequest | RunTool, reason: str) -> None:
        """A launch that is on record as started and will not be made: that much is known."""
        self.landed.append(unmade(launch, reason))

    async def converge(self, reason: str, timeout_s: float) -> tuple[str, ...]:
        """Let everything end: models at once, tools within their time; then cut them off.

        A tool that does not end in time stays on record as started. A thread is not left alone,
        and nothing is waited for without end.

        Returns:
            Ids of what goes on all the same. It may end later.
        """
        for subject, flight in self._flying.items():
            if flight.ctx is None:
                flight.cut_off(reason)
            else:
                self._ask_to_stop(subject, flight.ctx)
        await self._until(lambda: not self._flying, timeout_s)
        for flight in self._flying.values():
            if not flight.in_thread:
                flight.cut_off(reason)
        await self._until_noticed()
        return tuple(sorted(self.running | self.unattended))

    async def leave(self, reason: str) -> tuple[str, ...]:
        """Wait no more for what goes on after `converge`.

        Returns:
            Ids of what may still act.
        """
        for flight in self._flying.values():
            flight.cut_off(reason)
        await self._until_noticed()
        for flight in (*self._flying.values(), *self._unattended.values()):
            self._tasks.leave(flight.scope)
        return tuple(sorted(self.running | self.unattended))

    async def _until_noticed(self) -> None:
        flying = self._flying
        await self._until(lambda: not any(each.scope.cancel_called for each in flying.values()), NOTICE_S)

    async def _until(self, is_so: Callable[[], bool], timeout_s: float) -> None:
        until = self._timer.monotonic() + timeout_s
        while not is_so() and self._timer.monotonic() < until:
            await self.wait(until)

    def give_up(self, subject: str) -> None:
        """Stop waiting for a flight that does not end; what it lands with later is late."""
        flight = self._unattended[subject] = self._flying.pop(subject)
        flight.given_up = True
        self._tasks.start(self.processes.end_call, subject, name=f"ends {subject}")

    # --- model attempts --------------------------------------------------------------

    def send(self, launch: SendRequest, session_id: str, since: float) -> None:
        """Send a model request that the store was given at a moment of the timer."""
        self._begin(launch.attempt_id, Flight(launch, since), lambda: self._attempt(launch, session_id))

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

    def look_up(self, launch: LookUp, attempt: AttemptState, since: float) -> None:
        """Ask a provider what became of an attempt that was lost."""
        self._begin(launch.attempt_id, Flight(launch, since), lambda: self._looked_up(launch, attempt))

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

    def run(self, launch: RunTool, ctx: ToolContext, since: float) -> None:
        """Run a tool's code, the start of which the store was given at a moment of the timer."""
        flight = Flight(launch, since, ctx)
        self._begin(launch.tool_id, flight, lambda: self._tool(launch, ctx, flight.ended))

    async def _tool(self, launch: RunTool, ctx: ToolContext, ended: threading.Event) -> Landing:
        self._probe("before_effect")
        try:
            finished = await run_tool(launch.definition, launch.arguments, ctx, ended=ended)
        finally:
            await self.processes.end_call(launch.tool_id)
        self._probe("after_effect")
        command, blobs = recorded(launch, finished)
        return Landing(launch.tool_id, (OnCall(launch.index, command),), blobs)

    # --- questions -----------------------------------------------------------------------

    def ask_handler(
        self, launch: AskHandler, ask: Callable[[], Awaitable[Verdict | None]], since: float
    ) -> None:
        """Ask the application's permission handler about a call."""
        self._begin(evaluating(launch.tool_id), Flight(launch, since), lambda: self._handler(launch, ask))

    async def _handler(self, launch: AskHandler, ask: Callable[[], Awaitable[Verdict | None]]) -> Landing:
        try:
            answer = await ask()
            verdict = None if answer is None else Verdict(answer)
        except Exception:
            verdict = Verdict.ASK  # fails closed: a person decides
        return Landing(evaluating(launch.tool_id), handler=(launch.index, verdict))

    def confirm(
        self, launch: AskPerson, ask: Callable[[Interaction], Awaitable[ToolAnswer | None]], since: float
    ) -> None:
        """Ask the application's confirmation handler to answer for a person."""
        subject = f"confirm:{launch.interaction.id}"
        flight = Flight(launch, since)
        self._begin(subject, flight, lambda: self._confirmation(subject, launch.interaction, ask))

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

    def _begin(self, subject: str, flight: Flight, run: Callable[[], Awaitable[Landing]]) -> None:
        self._flying[subject] = flight
        flight.scope = self._tasks.start(self._fly, subject, flight, run, name=subject)

    async def _fly(self, subject: str, flight: Flight, run: Callable[[], Awaitable[Landing]]) -> None:
        landing = None
        INSIDE.set(INSIDE.get() | {self._session_id})
        try:
            if await self._authority.may_begin(flight.since):
                flight.begun = True
                landing = await run()
            else:
                landing = never_began(flight, "error")
        except anyio.get_cancelled_exc_class() as e:
            if flight.told:
                landing = stopped(subject, flight)
                raise
            landing = broke(subject, flight, e)  # it cancelled itself; nobody else was meant
        finally:
            self._land(subject, flight, landing)

    def _land(self, subject: str, flight: Flight, landing: Landing | None) -> None:
        if flight.given_up:
            landing = landing and replace(landing, late=True)
        else:
            del self._flying[subject]
        if isinstance(flight.launch, RunTool) and flight.begun and not flight.ended.is_set():
            self._unattended[subject] = flight
        else:
            self._unattended.pop(subject, None)
        passed = [one for one in self.landed if one.in_passing and one.subject == subject]
        for one in passed:
            self.landed.remove(one)
        if landing is not None:
            self.landed.append(landing)
        self.wake()

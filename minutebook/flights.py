"""What a session is executing right now: model attempts, tool runs, questions.

Each flight is a task. It ends by handing the loop what to record, never by
writing to the journal itself; that keeps one writer and one order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import anyio
from anyio.abc import TaskGroup

from domain import model_attempt, tool
from domain.canonical import encode
from domain.decider import HOST, Command, OnCall
from domain.envelope import Actor
from domain.errors import ModelFailed, ValueRefused
from domain.limits import MAX_CALLS_PER_RESPONSE, MAX_PAYLOAD_BYTES
from domain.next_steps import evaluating, stop
from domain.ports import Blob, ModelProvider, Probe, Response, Text, Thinking
from domain.values import ActorKind, Interrupt, SideEffect, Verdict
from minutebook import stream_events as se
from minutebook.carrying import RunTool, SendRequest
from minutebook.feed import Feed
from minutebook.interactions import Interaction, ToolAnswer
from minutebook.tool_context import ToolContext
from minutebook.tool_runner import Cancelled, Completed, Failed, Finished, TimedOut, run_tool

MODEL = Actor(ActorKind.MODEL)


@dataclass(frozen=True, slots=True)
class Landing:
    """What a flight ended with: the commands to record, and blobs that go with them.

    `handler` is set instead where an evaluation ended: (call index, the handler's answer);
    `answer` where a confirmation handler answered: (interaction id, answer). `late`: it had
    been given up, and what it says is only noted.
    """

    subject: str
    commands: tuple[Command, ...] = ()
    blobs: tuple[Blob, ...] = ()
    handler: tuple[int, Verdict | None] | None = None
    answer: tuple[str, ToolAnswer] | None = None
    actor: Actor = HOST
    late: bool = False


class Flights:
    """The tasks of one session. `in_flight` is what `next_steps` is told."""

    def __init__(self, tasks: TaskGroup, provider: ModelProvider, feed: Feed, probe: Probe) -> None:
        self.landed: deque[Landing] = deque()
        self._tasks, self._provider, self._feed, self._probe = tasks, provider, feed, probe
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._contexts: dict[str, ToolContext] = {}
        self._told: dict[str, str] = {}
        self._wake = anyio.Event()

    @property
    def in_flight(self) -> frozenset[str]:
        """Ids of what is running, and of what was told to stop."""
        return frozenset(self._scopes) | frozenset(stop(subject) for subject in self._told)

    @property
    def running(self) -> frozenset[str]:
        """Ids of what is running."""
        return frozenset(self._scopes)

    async def wait(self) -> None:
        """Return when something landed or somebody called `wake`."""
        await self._wake.wait()

    def wake(self) -> None:
        """Let the loop look again."""
        woken, self._wake = self._wake, anyio.Event()
        woken.set()

    def tell_to_stop(self, subject: str, reason: str) -> None:
        """Ask a flight to end; it lands by itself."""
        if subject not in self._scopes or subject in self._told:
            return
        self._told[subject] = reason
        if subject in self._contexts:
            self._contexts[subject].stopping.set()
        self._scopes[subject].cancel()

    def never_began(self, launch: SendRequest | RunTool) -> None:
        """A launch that is on record as started and will not be made: that much is known."""
        if isinstance(launch, SendRequest):
            self.landed.append(Landing(launch.attempt_id, (model_attempt.Abandon("detached"),)))
        else:
            cancel = tool.Cancel("detached before it began")
            self.landed.append(Landing(launch.tool_id, (OnCall(launch.index, cancel),)))

    async def wind_down(self, timeout_s: float) -> None:
        """Let everything end: models at once, tools within their time; then cut them off.

        A tool that does not end in time stays on record as started.
        """
        for ctx in self._contexts.values():
            ctx.stopping.set()
        for subject in self.running - frozenset(self._contexts):
            self.tell_to_stop(subject, "detached")
        with anyio.move_on_after(timeout_s):
            while self._scopes:
                await self.wait()
        for subject in self.running:
            self.tell_to_stop(subject, "detached")
        while self._scopes:
            await self.wait()

    def forget(self, subject: str) -> None:
        """Stop waiting for a flight that does not end; what it lands with later is late."""
        self._scopes.pop(subject, None)
        self._told.pop(subject, None)
        self._contexts.pop(subject, None)

    # --- model attempts --------------------------------------------------------------

    def send(self, launch: SendRequest, session_id: str) -> None:
        """Send a model request."""
        self._begin(launch.attempt_id, self._attempt, launch, session_id)

    async def _attempt(self, launch: SendRequest, session_id: str) -> Landing:
        seen = False
        try:
            self._probe("before_send")
            async with aclosing(self._provider.send(launch.body, attempt_id=launch.attempt_id)) as signals:  # type: ignore[type-var]  # the port promises an async generator
                async for signal in signals:
                    if isinstance(signal, Response):
                        return Landing(launch.attempt_id, (_checked(signal),), actor=MODEL)
                    seen = self._show(signal, session_id) or seen
            error = ModelFailed("no_response", "the provider ended without a response", retryable=not seen)
        except ModelFailed as e:
            # What was shown cannot be taken back: a second try is for people to decide.
            error = e
            if seen and e.retryable:
                error = ModelFailed(
                    e.kind, e.message, bytes_sent=e.bytes_sent, received_digest=e.received_digest
                )
        except Exception as e:
            error = ModelFailed("provider_error", f"{type(e).__name__}: {e}"[:2000])
        return Landing(launch.attempt_id, (model_attempt.Fail(error),))

    def _show(self, signal: object, session_id: str) -> bool:
        self._probe("mid_stream")
        if isinstance(signal, Text):
            self._feed.delta(se.ContentDelta(session_id, signal.text))
        elif isinstance(signal, Thinking):
            self._feed.delta(se.ThinkingDelta(session_id, signal.text))
        else:
            return False
        return True

    # --- tools -------------------------------------------------------------------------

    def run(self, launch: RunTool, ctx: ToolContext) -> None:
        """Run a tool's code."""
        self._contexts[launch.tool_id] = ctx
        self._begin(launch.tool_id, self._tool, launch, ctx)

    async def _tool(self, launch: RunTool, ctx: ToolContext) -> Landing:
        self._probe("before_effect")
        finished = await run_tool(launch.definition, launch.arguments, ctx)
        self._probe("after_effect")
        command, blobs = _recorded(launch, finished)
        return Landing(launch.tool_id, (OnCall(launch.index, command),), blobs)

    # --- questions -----------------------------------------------------------------------

    def ask_handler(self, tool_id: str, index: int, ask: Callable[[], Awaitable[Verdict | None]]) -> None:
        """Ask the application's permission handler about a call."""
        self._begin(evaluating(tool_id), self._handler, tool_id, index, ask)

    async def _handler(
        self, tool_id: str, index: int, ask: Callable[[], Awaitable[Verdict | None]]
    ) -> Landing:
        try:
            answer = await ask()
            verdict = None if answer is None else Verdict(answer)
        except Exception:
            verdict = Verdict.ASK  # fails closed: a person decides
        return Landing(evaluating(tool_id), handler=(index, verdict))

    def confirm(
        self, interaction: Interaction, ask: Callable[[Interaction], Awaitable[ToolAnswer | None]]
    ) -> None:
        """Ask the application's confirmation handler to answer for a person."""
        self._begin(f"confirm:{interaction.id}", self._confirmation, interaction, ask)

    async def _confirmation(
        self, interaction: Interaction, ask: Callable[[Interaction], Awaitable[ToolAnswer | None]]
    ) -> Landing:
        subject = f"confirm:{interaction.id}"
        try:
            answer = await ask(interaction)
        except Exception:
            answer = None  # fails closed: the question stays open
        return Landing(subject, answer=None if answer is None else (interaction.id, answer))

    # --- all -------------------------------------------------------------------------------

    def _begin(self, subject: str, run: Callable[..., Awaitable[Landing]], *arguments: Any) -> None:
        scope = anyio.CancelScope()
        self._scopes[subject] = scope
        self._tasks.start_soon(self._fly, subject, scope, run, arguments, name=subject)

    async def _fly(
        self,
        subject: str,
        scope: anyio.CancelScope,
        run: Callable[..., Awaitable[Landing]],
        arguments: tuple[Any, ...],
    ) -> None:
        landing: Landing | None = None
        with scope:
            landing = await run(*arguments)
        if self._scopes.get(subject) is not scope:
            landing = None if landing is None else replace(landing, late=True)
        elif landing is None:
            landing = Landing(subject, self._stopped(subject, arguments))
        if landing is not None:
            self.landed.append(landing)
        if self._scopes.get(subject) is scope:
            self.forget(subject)
        self.wake()

    def _stopped(self, subject: str, arguments: tuple[Any, ...]) -> tuple[Command, ...]:
        """What to record of a flight that ended because it was told to."""
        reason = self._told.get(subject, "detached")
        launch = arguments[0]
        if isinstance(launch, SendRequest):
            return (model_attempt.Abandon(reason),)
        if isinstance(launch, RunTool) and reason != "detached":
            return (OnCall(launch.index, _cut_off(launch, reason)),)
        return ()


def _checked(response: Response) -> Command:
    """A response, unless it is more than an event may hold."""
    count = len(response.calls)
    if count > MAX_CALLS_PER_RESPONSE:
        message = f"{count} calls in one response, the limit is {MAX_CALLS_PER_RESPONSE}"
        return model_attempt.Fail(ModelFailed("too_many_calls", message))
    finish = model_attempt.Finish(response)
    try:
        size = len(encode(model_attempt.keep(response).model_dump(mode="python")))
    except ValueRefused as e:
        return model_attempt.Fail(ModelFailed("unusable_response", str(e)))
    if size > MAX_PAYLOAD_BYTES - 1024:
        message = f"a response of {size} bytes, the limit is {MAX_PAYLOAD_BYTES - 1024}"
        return model_attempt.Fail(ModelFailed("response_too_large", message))
    return finish


def _cut_off(launch: RunTool, reason: str) -> tool.Command:
    """A tool that was cancelled while it ran: did it stop before its effect?"""
    harmless = launch.side_effect is SideEffect.PURE
    if harmless or (launch.definition.interrupt is Interrupt.CANCEL and launch.definition.is_async):
        return tool.Cancel(reason)
    return tool.LoseSight(f"{reason}: cancelled while it ran")


def _recorded(launch: RunTool, finished: Finished) -> tuple[tool.Command, tuple[Blob, ...]]:
    match finished:
        case Completed():
            outcome = finished.outcome
            fields = {
                "output": outcome.output_text,
                "value": None if outcome.value == outcome.output_text else outcome.value,
                "kept": outcome.kept.value,
                "display": outcome.display,
                "messages": list(outcome.messages),
                "notes": list(outcome.notes),
                "blobs": [blob.digest for blob in outcome.blobs],
                "raw_digest": outcome.raw_digest,
                "original_bytes": outcome.original_bytes,
            }
            return tool.Complete(fields), outcome.blobs
        case Failed():
            return tool.Fail(finished.error["type"], finished.error["message"]), ()
        case Cancelled():
            return _cut_off(launch, finished.reason), ()
        case TimedOut():
            text = f"it did not end within {finished.timeout_s:g} s"
            if launch.side_effect is SideEffect.NON_IDEMPOTENT or finished.still_running:
                return tool.LoseSight(f"timeout: {text}"), ()
            return tool.Fail("Timeout", text), ()

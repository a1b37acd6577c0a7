"""The application that is killed: a program that may be started again at any time.

It does the same at every start: it creates its session or resumes it, lets an
operator decide what has to be decided, and goes on until the session is closed.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import anyio

import minutebook as mb
from adapters.sqlite_store import SqliteStore
from domain import inputs
from domain.cursor import Cursor
from domain.session import Note
from minutebook.interactions import ToolAnswer
from minutebook.testing.crash import Tell
from minutebook.testing.scripted import Attempt, ScriptedProvider, Sent
from recovery.items import PlanItem
from tests.crash.script import INPUTS, SESSION, STEER, TOOLS, World, answer, output_of

#: What a process returns that another one kept out.
CONFLICT = 75
ENDS = ("request_completed", "request_failed", "request_interrupted")


@dataclass(frozen=True, slots=True)
class Story:
    """How the application is started.

    Args:
        on_lost_attempt, permission_mode: the session's settings.
        steered: the second request is steered by an input of priority `now`, not aborted.
        handlers: handlers of the session answer its questions, not somebody who watches it.
        fillers: how many events a new session gets at first, so that a snapshot falls due later.
    """

    on_lost_attempt: mb.OnLostAttempt = mb.OnLostAttempt.ASK
    permission_mode: mb.PermissionMode = mb.PermissionMode.AUTO_EDIT
    steered: bool = False
    handlers: bool = False
    fillers: int = 0


@dataclass(slots=True)
class Program:
    """One process of the application. `store` is opened as often as need be."""

    tell: Tell
    store: SqliteStore
    world: World
    story: Story
    ended: dict[str, anyio.Event] = field(default_factory=lambda: {i: anyio.Event() for i in INPUTS})

    async def run(self) -> None:
        """Go on, from wherever the journal stands, until the session is closed."""
        while not await self._go_on():
            await self._decide()

    async def _go_on(self) -> bool:
        """False: somebody has to decide first."""
        try:
            async with AsyncExitStack() as stack:
                session = await self._opened(stack)
                if decisions(session.recovery_plan()):
                    return False
                await self._play(session)
        except mb.RecoveryRequired:
            return False
        except mb.errors.SessionClosed:
            self.tell(closed=True)
        return True

    async def _opened(self, stack: AsyncExitStack) -> mb.Session:
        try:
            resuming = mb.resume_session(SESSION, self._config(), store=self.store)
            return await stack.enter_async_context(resuming)
        except mb.errors.SessionNotFound:
            creating = mb.create_session(self._config(), store=self.store, session_id=SESSION)
            session = await stack.enter_async_context(creating)
            if self.story.fillers:
                await session._do("fill", *[Note("filler", "one of many")] * self.story.fillers)
            return session

    def _config(self) -> mb.SessionConfig:
        return mb.SessionConfig(
            provider=ScriptedProvider(self._asked),
            model="scripted",
            tools=TOOLS,
            permission_mode=self.story.permission_mode,
            on_lost_attempt=self.story.on_lost_attempt,
            permission_handler=self._permit if self.story.handlers else None,
            confirmation_handler=self._confirm if self.story.handlers else None,
            probe=self.world.probe,
        )

    def _asked(self, request: Sent) -> Attempt:
        self.world.witness.record(request.attempt_id, "asked")
        return answer(request.attempt_id, self.story.steered)

    # --- what the people do -----------------------------------------------------------------

    async def _play(self, session: mb.Session) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, session)
            await self._send(session, "i-1")
            await self._send(session, "i-2")
            await self.ended["i-1"].wait()
            await self._send(session, "i-3")
            await self.ended["i-2"].wait()
            await self.ended["i-3"].wait()
            await session.close(final=True)
            self.tell(closed=True)

    async def _send(self, session: mb.Session, input_id: str) -> None:
        receipt = await session.send(INPUTS[input_id], input_id=input_id)
        self.tell(receipt=receipt.input_id, sequence=receipt.sequence)

    async def _watch(self, session: mb.Session) -> None:
        """Tell everything durable, from the beginning, and follow each request that is open or begins."""
        requests: dict[str, str] = {}
        opened_at = session.head_sequence
        async with anyio.create_task_group() as tasks:
            if session.is_running:
                tasks.start_soon(self._follow, session)
            async for event in session.events(after=Cursor.start(session.id)):
                if isinstance(event, mb.StreamEvent):
                    continue
                self.tell(event=event.sequence, type=event.type)
                if event.type == "tool_completed":
                    self.world.looked.set()
                if event.type == "request_accepted":
                    requests[event.request_id or ""] = event.data.input_id
                    if event.sequence > opened_at:
                        tasks.start_soon(self._follow, session)
                if self.story.steered and event.type == "model_request_started" and event.turn_id == "r2.t1":
                    await self._steer(session)
                if event.type in ENDS:
                    self.ended[requests[event.request_id or ""]].set()

    async def _steer(self, session: mb.Session) -> None:
        """Send an input of priority `now`, once. `send` has none yet; rules, plan and loop know it."""
        if any(e.type == "input_accepted" and e.data.input_id == STEER for e in await session.recorded()):
            return
        ordinal = session._state.queue.accepted + 1
        now = inputs.AcceptInput(STEER, "stop that", mb.Priority.NOW, ordinal, session.current_request_id)
        await session._do("send", now)
        self.tell(receipt=STEER)

    async def _follow(self, session: mb.Session) -> None:
        """Show one request's stream, answer its questions, stop the one that watches."""
        request, seen = "", set[str]()
        async for told in session.stream():
            match told:
                case mb.InputApplied():
                    request = told.request_id
                case mb.InteractionOpened():
                    self.tell(visible=told.type, id=told.interaction_id)
                    await self._answer(session, told)
                    continue
                case mb.ToolProgress():
                    seen.add("watching")
                case mb.ToolResult() if request == "r2":
                    seen.add(told.name)
            self._show(told, request)
            if seen == {"watching", "pay"}:
                seen.clear()  # once: an abort is about whatever request is active
                await session.abort("enough")
                self.tell(aborted=request)

    async def _answer(self, session: mb.Session, question: mb.InteractionOpened) -> None:
        if self.story.handlers:
            return
        answer = verdict_on(question.summary)
        decision = await session.respond(question.interaction_id, answer, digest=question.digest)
        self.tell(answered=question.interaction_id, verdict=decision.verdict)

    async def _permit(self, call: mb.PermissionCall) -> mb.Verdict | None:
        return None

    async def _confirm(self, question: mb.Interaction) -> ToolAnswer | None:
        return verdict_on(question.summary)

    def _show(self, told: mb.StreamEvent, request: str) -> None:
        match told:
            case mb.TurnStart() | mb.TurnEnd() | mb.TurnInterrupted():
                self.tell(visible=told.type, id=f"{request}.t{told.turn}")
            case mb.ToolUse():
                self.tell(visible=told.type, id=told.id)
            case mb.ToolResult():
                self.tell(visible=told.type, id=told.id, outcome=told.outcome)
            case mb.InputApplied():
                self.tell(visible=told.type, id=told.input_id)
            case mb.Result() | mb.Error():
                self.tell(visible=told.type, id=told.request_id)
            case mb.AttemptDiscarded():
                self.tell(visible=told.type, id=told.attempt_id)

    # --- what an operator does ----------------------------------------------------------------

    async def _decide(self) -> None:
        """Say what happened, as the world outside the journal tells it."""
        async with mb.open_coordinator(SESSION, store=self.store, actor_id="ada") as coordinator:
            for item in decisions(coordinator.plan):
                match item.action:
                    case mb.Action.RECONCILE_MODEL_OUTCOME:
                        outcome = await self._settle_attempt(coordinator, item.subject)
                    case mb.Action.RECONCILE_TOOL_OUTCOMES:
                        outcome = await self._settle_call(coordinator, item.subject)
                    case mb.Action.RECONCILE_REQUEST_INPUTS:
                        await coordinator.reconcile_request_inputs(evidence="the hook changes nothing")
                        outcome = "prepared"
                    case _:
                        raise AssertionError(f"nobody foresaw {item}")
                self.tell(decided=item.action, id=item.subject, outcome=outcome)

    async def _settle_attempt(self, coordinator: mb.RecoveryCoordinator, attempt_id: str) -> str:
        """The provider keeps the answers of the third request, and no others."""
        asked = (attempt_id, "asked") in self.world.witness.lines()
        if asked and attempt_id.startswith("r3."):
            response = answer(attempt_id)[-1]
            assert isinstance(response, mb.Response)
            await coordinator.reconcile_model_outcome(
                attempt_id, outcome="completed", evidence="the provider keeps it", response=response
            )
            return "completed"
        await coordinator.reconcile_model_outcome(
            attempt_id, outcome="lost", evidence="the provider has none"
        )
        return "lost"

    async def _settle_call(self, coordinator: mb.RecoveryCoordinator, tool_id: str) -> str:
        found = [line for line in self.world.witness.lines() if line[0] == tool_id]
        if not found:
            await coordinator.reconcile_tool_outcome(
                tool_id, outcome="cancelled", evidence="the witness has nothing of it"
            )
            return "cancelled"
        await coordinator.reconcile_tool_outcome(
            tool_id, outcome="completed", evidence="the witness has it", output=output_of(tool_id)
        )
        return "completed"


def verdict_on(summary: str) -> mb.Approve | mb.Deny:
    """What people say when they are asked."""
    return mb.Approve() if summary.startswith("mail") else mb.Deny("keep it")


def decisions(plan: mb.RecoveryPlan) -> list[PlanItem]:
    """What somebody has to say before everything can go on."""
    return [item for item in plan.items if item.who in (mb.Who.HOST, mb.Who.OPERATOR)]

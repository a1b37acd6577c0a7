"""How one thing that a session executes ends: what it was told, and what to record of it.

Imported by `minutebook.flights` and by the loop. Pure, but for the telling. What runs, and
when it is told to stop, is decided there.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final

import anyio

from domain import model_attempt, tool
from domain.decider import HOST, Command, OnCall
from domain.envelope import Actor
from domain.ports import Blob
from domain.values import Verdict
from minutebook.carrying import AskHandler, RunTool, SendRequest
from minutebook.interactions import ToolAnswer
from minutebook.outcomes import cut_off, defect
from minutebook.tool_context import ToolContext

#: Reasons of which the journal says nothing about a tool: the next worker finds it as started.
LEFT: Final = frozenset({"detached", "handoff"})


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
class Flight:
    """One task: what it was begun with, and what it was told since.

    `since`: when the store was given what says that it begins. `begun`: its code was reached.
    `ended`: its code has ended, also where it runs in a thread that nobody waits for.
    """

    launch: object
    since: float
    ctx: ToolContext | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    told: str = ""
    given_up: bool = False
    begun: bool = False
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def in_thread(self) -> bool:
        """Whether its code is in a thread, which nothing can end."""
        return isinstance(self.launch, RunTool) and not self.launch.definition.is_async

    def cut_off(self, reason: str) -> None:
        """Cancel it, whatever it is doing."""
        self.told = self.told or reason
        if self.ctx is not None:
            self.ctx.stopping.set()
        self.scope.cancel()


def unmade(launch: SendRequest | RunTool, reason: str) -> Landing:
    """What to record of something that is on record as started and has not begun."""
    if isinstance(launch, SendRequest):
        return Landing(launch.attempt_id, (model_attempt.Abandon(reason),))
    return Landing(launch.tool_id, (OnCall(launch.index, tool.Cancel(f"{reason} before it began")),))


def never_began(flight: Flight, reason: str) -> Landing | None:
    """The same for a flight that was stopped before its code was reached."""
    launch = flight.launch
    return unmade(launch, reason) if isinstance(launch, SendRequest | RunTool) else None


def stopped(subject: str, flight: Flight) -> Landing | None:
    """What to record of a flight that ended because it was told to."""
    if flight.given_up:
        return None
    if not flight.begun:
        return never_began(flight, flight.told)
    match flight.launch:
        case SendRequest():
            return Landing(subject, (model_attempt.Abandon(flight.told),))
        case RunTool() as launch if flight.told not in LEFT:
            return Landing(subject, (OnCall(launch.index, cut_off(launch, flight.told)),))
    return None


def broke(subject: str, flight: Flight, error: BaseException) -> Landing | None:
    """What to record of a flight that cancelled its own task."""
    match flight.launch:
        case SendRequest():
            return Landing(subject, (model_attempt.Fail(defect(error)),))
        case RunTool() as launch:
            return Landing(subject, (OnCall(launch.index, cut_off(launch, "cancelled from outside")),))
        case AskHandler() as launch:
            return Landing(subject, handler=(launch.index, Verdict.ASK))
    return None

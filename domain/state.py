"""The control state of one session: everything the rules and the plan look at.

Bounded: it holds what is open and counters of what was, never the conversation.
Only `domain.lifecycle` makes a new one; everybody else reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from domain.budget import Spending
from domain.compaction import CompactionState
from domain.inputs import PendingInput, Queue
from domain.lease import LeaseState
from domain.limits import MAX_ATTEMPTS_PER_TURN
from domain.model_attempt import AttemptState
from domain.model_attempt import Status as Attempt
from domain.permission import PermissionState
from domain.request import RequestState
from domain.session import SessionState
from domain.tool import ToolState
from domain.turn import Status as Turn
from domain.turn import TurnState
from domain.values import CUT_STOPS, Priority, SideEffect


@dataclass(frozen=True, slots=True)
class CallState:
    """One call that the active turn's response declared.

    `input_digest` is that of the parsed arguments, None where they do not parse.
    """

    index: int
    call_id: str
    provider_call_id: str
    name: str
    arguments_digest: str
    input_digest: str | None
    tool: ToolState | None = None
    permission: PermissionState | None = None


@dataclass(frozen=True, slots=True)
class UnsettledEffect:
    """A started call whose outcome is unknown and whose request has ended."""

    tool_id: str
    name: str
    side_effect: SideEffect
    idempotency_key: str
    request_id: str
    started_sequence: int
    sequence: int


@dataclass(frozen=True, slots=True)
class CommandPlace:
    """Where in its command the latest event stands."""

    command_id: str = ""
    index: int = 0
    size: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether the command's last event has been folded."""
        return self.index == self.size - 1


@dataclass(frozen=True, slots=True)
class State:
    """One session as of `sequence`. `owed` lists the types that must come next, in this command."""

    session_id: str
    sequence: int = 0
    session: SessionState | None = None
    queue: Queue = field(default_factory=Queue)
    requests: int = 0
    request: RequestState | None = None
    turn: TurnState | None = None
    attempt: AttemptState | None = None
    calls: tuple[CallState, ...] = ()
    compaction: CompactionState | None = None
    compaction_attempt: AttemptState | None = None
    unsettled: tuple[UnsettledEffect, ...] = ()
    spending: Spending = field(default_factory=Spending)
    owed: tuple[str, ...] = ()
    command: CommandPlace = field(default_factory=CommandPlace)
    token: int = 0
    lease: LeaseState | None = None

    @property
    def active_turn(self) -> TurnState | None:
        """The turn in progress."""
        return self.turn if self.turn is not None and self.turn.status is Turn.ACTIVE else None

    @property
    def has_response(self) -> bool:
        """Whether the active turn's response is there."""
        return self.attempt is not None and self.attempt.status is Attempt.COMPLETED

    @property
    def cut_response(self) -> bool:
        """Whether the response ended in a way that runs none of its calls."""
        return self.attempt is not None and self.attempt.stop in CUT_STOPS

    @property
    def turn_due(self) -> bool:
        """Whether the last turn alone asks for another."""
        return self.turn is not None and self.turn.wants_another

    def effective_priority(self, item: PendingInput) -> Priority:
        """`now` and `next` count only while the request they aim at is active, not aborted, and may
        still ask a model."""
        request = self.request
        if request is None or request.aborting or self.spending.is_spent:
            return Priority.LATER
        return item.priority if item.target_request_id == request.request_id else Priority.LATER

    def waiting_inputs(self) -> tuple[PendingInput, ...]:
        """Pending inputs besides the active request's own, by acceptance."""
        own = self.request.input_id if self.request else None
        return tuple(i for i in self.queue.pending if i.input_id != own)

    def steering_inputs(self) -> tuple[PendingInput, ...]:
        """Inputs that the active request will take in: `now` before `next`, then by acceptance."""
        aimed = [i for i in self.waiting_inputs() if self.effective_priority(i) is not Priority.LATER]
        return tuple(sorted(aimed, key=lambda i: (i.priority is not Priority.NOW, i.ordinal)))

    @property
    def attempts_left(self) -> bool:
        """Whether the active turn may make a further attempt."""
        if self.attempt is None:
            return True
        return self.attempt.retryable and self.attempt.number < MAX_ATTEMPTS_PER_TURN

"""The ordering contract, read from events alone: what must have happened before what.

Its own bookkeeping, nothing of the rules under test. `read` takes one commit at a
time and fails where the contract is broken, whoever wrote the commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from domain.envelope import Recorded
from tests.property.ledger import REQUEST_ENDS

SEALED = {
    *("input_applied", "request_started", "input_preparation_started", "turn_started"),
    *("model_request_started", "tool_scheduled", "tool_started", "request_completed"),
}
ENDED = {"completed", "failed", "cancelled", "rejected"}
CUT = {"length", "refusal", "pause"}


@dataclass(slots=True)
class Call:
    """One declared call."""

    stands: str = "declared"
    decision: str = "none"
    policy: tuple[Any, ...] = ()
    asked: bool = False
    key: str = ""
    side_effect: str = ""
    runs: int = 0


@dataclass(slots=True)
class Turn:
    """The latest turn of the active request."""

    number: int
    stands: str = "active"
    attempt: str = "none"
    retryable: bool = True
    attempts: int = 0
    stop: str = ""
    calls: list[Call] = field(default_factory=list)

    @property
    def due(self) -> bool:
        """Whether it asks for another turn."""
        return self.stands == "steered" or (
            self.stands == "completed" and (bool(self.calls) or self.stop == "pause")
        )


@dataclass(slots=True)
class Contract:
    """Where a session stands by its events."""

    pending: list[str] = field(default_factory=list)
    aims: dict[str, str] = field(default_factory=dict)
    request: str = ""
    own: str = ""
    running: bool = False
    aborting: bool = False
    most_turns: int = 0
    unseen: str = "nothing"  # of applied inputs: nothing, due, begun, prepared
    turn: Turn | None = None
    policy: tuple[Any, ...] = ()
    compacting: bool = False
    closed: bool = False

    def read(self, commit: list[Recorded]) -> None:
        """Take in one commit."""
        names = [event.type for event in commit]
        for at, event in enumerate(commit):
            if self.aborting:
                assert event.type not in SEALED
            assert not self.closed or event.type == "tool_outcome_reconciled"
            self._input(event, names, at)
            self._request(event, names, at)
            self._turn(event, names[at + 1 :])
            self._attempt(event)
            self._call(event)
            self._session(event)

    # --- inputs and requests --------------------------------------------------------------

    def _input(self, event: Recorded, names: list[str], at: int) -> None:
        match event.type:
            case "input_accepted":
                self.pending.append(event.data.input_id)
                if event.data.priority != "later" and event.data.target_request_id:
                    self.aims[event.data.input_id] = event.data.target_request_id
            case "input_applied":
                assert self.turn is None or self.turn.stands != "active"
                assert self.unseen != "begun"
                if not self.running:
                    assert event.data.input_id == self.own
                    assert names[at + 1] == "request_started"
                self.pending.remove(event.data.input_id)
                self.unseen = "due"
            case "input_cancelled":
                self.pending.remove(event.data.input_id)
                if event.data.input_id == self.own:
                    assert names[at + 1] in REQUEST_ENDS
            case "input_preparation_started":
                assert self.unseen == "due"
                self.unseen = "begun"
            case "input_prepared":
                assert self.unseen in ("due", "begun")
                self.unseen = "prepared"

    def _request(self, event: Recorded, names: list[str], at: int) -> None:
        match event.type:
            case "request_accepted":
                assert not self.request
                assert event.data.input_id in self.pending
                self.request, self.own = event.request_id or "", event.data.input_id
                self.most_turns = event.data.max_turns
            case "request_started":
                assert not self.running
                assert names[at - 1] == "input_applied"
                self.running = True
            case "abort_requested":
                self.aborting = True
            case "request_completed":
                self._completed()
        if event.type in REQUEST_ENDS:
            assert self.turn is None or self.turn.stands != "active"
            assert self.running or self.own not in self.pending
            self.request, self.own, self.running, self.aborting = "", "", False, False
            self.turn, self.unseen = None, "nothing"

    def _completed(self) -> None:
        assert self.running
        assert self.turn is not None
        assert self.turn.stands == "completed"
        assert not self.turn.due
        assert self.unseen == "nothing"
        assert not [i for i in self.pending if self.aims.get(i) == self.request]

    # --- turns and attempts -----------------------------------------------------------------

    def _turn(self, event: Recorded, following: list[str]) -> None:
        match event.type:
            case "turn_started":
                last = self.turn
                assert self.running
                assert not self.compacting
                assert last is None or last.stands != "active"
                assert event.data.number == (last.number if last else 0) + 1 <= self.most_turns
                assert self.unseen == "prepared" or (self.unseen == "nothing" and last and last.due)
                self.turn, self.unseen = Turn(event.data.number), "nothing"
            case "turn_completed":
                turn = self._active()
                assert turn.attempt == "completed"
                assert all(call.stands in ENDED for call in turn.calls)
                turn.stands = "completed"
            case "turn_aborted":
                turn = self._active()
                assert turn.attempt != "started"
                assert all(call.stands in {*ENDED, "unknown"} for call in turn.calls)
                turn.stands = "steered" if event.data.reason == "steering" else "aborted"
                if turn.stands == "aborted":
                    assert following[0] in REQUEST_ENDS

    def _active(self) -> Turn:
        assert self.turn is not None
        assert self.turn.stands == "active"
        return self.turn

    def _attempt(self, event: Recorded) -> None:
        if event.data.aggregate != "model_attempt" or event.turn_id is None:
            return
        turn = self._active()
        if event.type == "model_request_started":
            assert turn.attempt not in ("started", "completed")
            assert turn.retryable
            turn.attempt, turn.attempts = "started", turn.attempts + 1
            assert turn.attempts <= 4
            return
        assert turn.attempt == "started"
        response = getattr(event.data, "response", None)
        if response is not None:
            turn.attempt, turn.stop = "completed", response.stop
            turn.calls = [Call() for _ in response.calls]
        else:
            turn.attempt = "ended"
            turn.retryable = getattr(event.data, "retryable", getattr(event.data, "outcome", "") != "failed")

    # --- calls --------------------------------------------------------------------------------

    def _call(self, event: Recorded) -> None:
        if event.data.aggregate not in ("tool", "permission"):
            return
        if (
            self.turn is None
            or self.turn.stands != "active"
            or event.turn_id != f"{self.request}.t{self.turn.number}"
        ):
            assert event.type == "tool_outcome_reconciled"  # of an unsettled effect
            return
        assert self.turn.attempt == "completed"
        call = self.turn.calls[int((event.tool_id or "").rpartition(".c")[2])]
        assert call.stands not in ENDED
        if event.data.aggregate == "permission":
            self._permission(call, event)
        else:
            self._tool(call, event)

    def _permission(self, call: Call, event: Recorded) -> None:
        assert call.stands in ("scheduled", "resumed")
        match event.type:
            case "permission_evaluated":
                assert not call.asked
                call.decision, call.policy = event.data.verdict, self.policy
            case "permission_requested":
                assert call.decision == "ask"
                assert not call.asked
                call.asked = True
            case "permission_resolved":
                assert call.asked
                call.asked, call.decision = False, event.data.verdict
            case "permission_cancelled":
                assert call.asked
                call.asked, call.decision = False, "none"

    def _tool(self, call: Call, event: Recorded) -> None:
        assert self.turn is not None
        name = event.type.removeprefix("tool_")
        match name:
            case "scheduled":
                assert call.stands == "declared"
                assert self.turn.stop not in CUT
            case "rejected":
                assert call.stands == "declared"
            case "started":
                self._started(call, event)
            case "outcome_unknown":
                assert call.stands == "started"
                name = "unknown"
            case "suspended":
                assert call.stands == "started"
            case "resumed":
                assert call.stands == "suspended"
                call.runs = 0
            case "outcome_reconciled":
                assert call.stands in ("started", "unknown")
                name = event.data.outcome
            case "completed":
                assert call.stands in ("started", "unknown", "resumed")
                assert call.stands != "resumed" or call.decision == "allow"
            case "failed":
                assert call.decision != "deny"
        assert not call.asked or name == "scheduled"
        call.stands = name

    def _started(self, call: Call, event: Recorded) -> None:
        if call.stands in ("started", "unknown"):
            assert call.side_effect in ("pure", "idempotent")
            assert event.data.idempotency_key == call.key
        else:
            assert call.stands in ("scheduled", "resumed")
            assert call.decision == "allow"
            assert call.policy == self.policy
        call.runs += 1
        assert event.data.run == call.runs <= 3
        assert not call.key or event.data.idempotency_key == call.key
        call.key, call.side_effect = event.data.idempotency_key, event.data.side_effect

    # --- the session -----------------------------------------------------------------------------

    def _session(self, event: Recorded) -> None:
        match event.type:
            case "session_created":
                self.policy = ("default", (), 0, event.data.tools_digest)
            case "permission_mode_changed":
                self.policy = (str(event.data.mode), *self.policy[1:])
            case "compaction_started":
                assert not self.compacting
                assert self.turn is None or self.turn.stands != "active"
                self.compacting = True
            case "compaction_completed" | "compaction_failed":
                self.compacting = False
            case "session_closed":
                assert not self.request
                assert not self.pending
                self.closed = True

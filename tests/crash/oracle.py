"""What the plan must say where a journal ends: the recovery table once more, by hand.

Reads events alone and shares nothing with `domain.next_steps` or its folds, so the
two can disagree. It knows what the application of these tests can get into; for
anything else it fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from domain.envelope import Recorded

#: (action, what it is about)
Item = tuple[str, str]

MAX_RUNS = 3
MAX_ATTEMPTS = 4
ASKED_AGAIN = ("model_request_failed", "model_request_aborted")
CALL_ENDS = ("tool_completed", "tool_failed", "tool_cancelled", "tool_rejected")
#: What the plan does not depend on.
NO_EFFECT = ("session_resumed", "notice_recorded", "lease_acquired", "lease_released", "handoff_completed")
REQUEST_ENDS = ("request_completed", "request_failed", "request_interrupted", "request_superseded")


@dataclass(slots=True)
class Call:
    """One call of the latest response.

    Args:
        stands: the last that was recorded of it.
        policy: the number of the policy under which it was last evaluated.
    """

    id: str
    parses: bool
    stands: str = "declared"
    verdict: str = ""
    policy: int = 0
    side_effect: str = ""
    interrupt: str = ""
    runs: int = 0


@dataclass(slots=True)
class Place:
    """Where a journal ends."""

    open: bool = False
    policy: int = 0
    pending: dict[str, str] = field(default_factory=dict)
    aimed: dict[str, str] = field(default_factory=dict)
    request: str = ""
    own_input: str = ""
    running: bool = False
    aborting: bool = False
    prepared: str = "nothing to prepare"
    turn: str = ""
    turn_ended: str = ""
    turns: int = 0
    most_turns: int = 0
    attempt: str = ""
    attempt_stands: str = ""
    attempts: int = 0
    retry_lost: bool = False
    calls: list[Call] = field(default_factory=list)


def expected(events: Iterable[Recorded]) -> list[Item]:
    """The plan's items, in order, for a journal of these events."""
    place = Place()
    for event in events:
        read(place, event)
    return items(place)


def read(place: Place, event: Recorded) -> None:
    """Take one more event in."""
    _read(place, event, event.data)


def items(place: Place) -> list[Item]:
    """The plan's items, in order, where a journal ends."""
    return list(_items(place))


# --- the table ----------------------------------------------------------------------------------


def _items(place: Place) -> Iterator[Item]:
    if not place.open:
        yield "none", ""
    elif place.aborting:
        yield "finish_abort", place.request
    elif not place.request:
        first = next(iter(place.pending), "")
        yield ("start_next_request", first) if first else ("none", "")
    elif not place.running:
        yield "resume_request", place.request
    elif not place.turn:
        yield _between_turns(place)
    elif place.attempt_stands != "answered":
        yield _without_answer(place)
    else:
        found = [item for call in place.calls for item in _of_call(place, call)]
        yield from found or [("complete_turn", place.turn)]


def _between_turns(place: Place) -> Item:
    if place.prepared == "begun":
        return "reconcile_request_inputs", place.request
    if place.aimed:
        now = [i for i, priority in place.aimed.items() if priority == "now"]
        return "apply_input", (now or list(place.aimed))[0]
    if place.prepared == "due":
        return "prepare_input", place.request
    if place.prepared == "done" or place.turn_ended in ("with calls", "steering"):
        return ("continue_request" if place.turns < place.most_turns else "fail_request"), place.request
    assert place.turn_ended == "final", place
    return "finalize_request", place.request


def _without_answer(place: Place) -> Item:
    if place.attempt_stands == "started":
        return "reconcile_model_outcome", place.attempt
    if "now" in place.aimed.values():
        return "abort_turn", place.turn
    if place.attempt_stands == "failed" or place.attempts == MAX_ATTEMPTS:
        return "fail_request", place.request
    return "next_attempt", place.turn


def _of_call(place: Place, call: Call) -> Iterator[Item]:
    now = "now" in place.aimed.values()
    match call.stands:
        case "declared":
            yield ("reject_call" if now or not call.parses else "schedule_call"), call.id
        case "scheduled" if now or call.verdict == "deny":
            yield "cancel_tool", call.id
        case "scheduled" if call.verdict == "allow" and call.policy != place.policy:
            yield "evaluate", call.id
        case "scheduled":
            action = {"": "evaluate", "ask": "ask", "pending": "resolve_permissions", "allow": "start_tool"}
            yield action[call.verdict], call.id
        case "started" | "unknown":
            again = call.side_effect in ("pure", "idempotent") and call.runs < MAX_RUNS
            given_up = again and now and (call.side_effect, call.interrupt) == ("pure", "cancel")
            safe = "cancel_tool" if given_up else "start_tool"
            yield (safe if again else "reconcile_tool_outcomes"), call.id
        case _:
            assert call.stands == "ended", call


# --- reading ------------------------------------------------------------------------------------


def _read(place: Place, event: Recorded, data: Any) -> None:
    match event.type:
        case "session_created":
            place.open = True
            place.retry_lost = data.settings.get("on_lost_attempt") == "retry"
        case "session_closed":
            place.open = False
        case "permission_mode_changed":
            place.policy += 1
        case "input_accepted" | "input_cancelled" | "input_applied":
            _read_input(place, event.type, data)
        case "input_preparation_started":
            place.prepared = "begun"
        case "input_prepared":
            place.prepared = "done"
        case "abort_requested":
            place.aborting = True
        case "request_accepted" | "request_started":
            _read_request(place, event, data)
        case "turn_started" | "turn_completed" | "turn_aborted":
            _read_turn(place, event, data)
        case _ if event.type in REQUEST_ENDS:
            place.request, place.running, place.aborting, place.turn_ended = "", False, False, ""
            place.aimed.clear()
            place.calls.clear()
        case _ if event.tool_id is not None:
            _read_tool(place, event, data)
        case _ if event.model_attempt_id is not None:
            _read_attempt(place, event, data)
        case _:
            assert event.type in NO_EFFECT, f"nobody foresaw {event.type}"


def _read_input(place: Place, type_: str, data: Any) -> None:
    if type_ == "input_accepted":
        place.pending[data.input_id] = data.priority
        if data.target_request_id is not None:
            place.aimed[data.input_id] = data.priority
        return
    place.pending.pop(data.input_id)
    place.aimed.pop(data.input_id, None)
    if type_ == "input_applied":
        place.prepared = "due"


def _read_request(place: Place, event: Recorded, data: Any) -> None:
    if event.type == "request_accepted":
        place.request, place.own_input = event.request_id or "", data.input_id
        place.prepared, place.turn_ended = "nothing to prepare", ""
        place.turns, place.most_turns = 0, data.max_turns
    else:
        place.running = True


def _read_turn(place: Place, event: Recorded, data: Any) -> None:
    place.attempt, place.attempt_stands, place.attempts = "", "", 0
    if event.type == "turn_started":
        place.turn, place.turn_ended, place.prepared = event.turn_id or "", "", "nothing to prepare"
        place.turns += 1
        return
    place.turn = ""
    if event.type == "turn_aborted":
        place.turn_ended = data.reason
    else:
        place.turn_ended = "with calls" if data.has_tool_calls else "final"


def _read_attempt(place: Place, event: Recorded, data: Any) -> None:
    response = getattr(data, "response", None)
    if event.type == "model_request_started":
        place.attempt, place.attempt_stands = event.model_attempt_id or "", "started"
        place.attempts += 1
    elif response is not None:
        place.attempt_stands = "answered"
        place.calls = [
            Call(f"{event.model_attempt_id}.c{i}", call.arguments != "{")
            for i, call in enumerate(response.calls)
        ]
    else:
        again = event.type in ASKED_AGAIN or data.outcome == "lost"
        again = again and getattr(data, "retryable", True)
        place.attempt_stands = "may be repeated" if again else "failed"


def _read_tool(place: Place, event: Recorded, data: Any) -> None:
    call = next((c for c in place.calls if c.id == event.tool_id), None)
    if call is None:
        assert event.type == "tool_outcome_reconciled", f"{event.type} of a call that nobody declared"
        return  # an effect of a request that has ended
    _read_call(call, event.type, data)
    if event.type == "permission_evaluated":
        call.policy = place.policy


def _read_call(call: Call, type_: str, data: Any) -> None:
    match type_:
        case "tool_scheduled":
            call.stands, call.side_effect, call.interrupt = "scheduled", data.side_effect, data.interrupt
        case "tool_started":
            call.stands, call.runs = "started", data.run
        case "tool_outcome_unknown":
            call.stands = "unknown"
        case "permission_evaluated" | "permission_resolved":
            call.verdict = data.verdict
        case "permission_requested":
            call.verdict = "pending"
        case "tool_outcome_reconciled":
            call.stands = "ended"
        case _ if type_ in CALL_ENDS:
            call.stands = "ended"
        case _:
            assert type_ == "permission_cancelled", f"nobody foresaw {type_}"

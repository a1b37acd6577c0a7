"""What must be durable before what, read off a journal's commits without any of our folds.

Every session test runs `check` over every journal that it leaves behind:

    1   an input is accepted before a request is about it
    2   its application, the request's start and its preparation are one commit
    3   nothing is applied inside a turn
    5   an attempt is on record before it is sent, so its end is in a later commit
    6   a response is on record before one of its calls is
    7   a call is scheduled before it starts
    8   a decision is on record before what follows from it; a deny ends the call, and an
        ask puts the question, in the same commit
    9   each run is on record before the tool's code begins, so its end is in a later commit
    11  an abort is on record first and nothing goes on after it; a turn that ends with its
        request ends in one commit with it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from domain.envelope import Recorded

Commit = tuple[Recorded, ...]

REQUEST_ENDS = {"request_completed", "request_failed", "request_interrupted", "request_superseded"}
ATTEMPT_ENDS = {
    "model_request_completed",
    "model_request_failed",
    "model_request_aborted",
    "model_outcome_reconciled",
}
RUN_ENDS = {
    "tool_completed",
    "tool_failed",
    "tool_cancelled",
    "tool_outcome_unknown",
    "tool_outcome_reconciled",
    "tool_suspended",
}
SEALED = {
    "input_applied",
    "request_started",
    "input_preparation_started",
    "turn_started",
    "model_request_started",
    "tool_scheduled",
    "tool_started",
    "request_completed",
}


def commits(events: Iterable[Recorded]) -> list[Commit]:
    """The events by the command that wrote them."""
    return [tuple(group) for _, group in groupby(events, key=lambda event: event.command_id)]


def types(commit: Iterable[Recorded]) -> list[str]:
    """The words of some events."""
    return [event.type for event in commit]


def check(events: Sequence[Recorded]) -> None:
    """Hold a whole journal against the contract."""
    made = commits(events)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert len({commit[0].command_id for commit in made}) == len(made), "a command is one commit"
    for commit in made:
        assert [event.command_index for event in commit] == list(range(len(commit)))
        assert {event.command_size for event in commit} == {len(commit)}
    problems = [*_inputs(made), *_attempts(made), *_calls(made), *_permissions(made), *_aborts(made)]
    assert not problems, "; ".join(problems)


def _at(made: Sequence[Commit]) -> Iterator[tuple[int, int, Recorded]]:
    """(number of the commit, position in it, event)."""
    for number, commit in enumerate(made):
        for position, event in enumerate(commit):
            yield number, position, event


def _inputs(made: Sequence[Commit]) -> Iterator[str]:
    pending: set[str] = set()
    in_turn = False
    for number, position, event in _at(made):
        match event.type:
            case "input_accepted":
                pending.add(event.data.input_id)
            case "request_accepted" if event.data.input_id not in pending:
                yield f"1: {event.sequence} accepts a request whose input was not accepted before"
            case "input_applied":
                pending.discard(event.data.input_id)
                following = types(made[number][position + 1 :])
                if in_turn:
                    yield f"3: {event.sequence} applies an input inside a turn"
                if event.data.turn == 1 and following[:2] != ["request_started", "input_prepared"]:
                    yield f"2: {event.sequence} is followed by {following[:2]} in its commit"
            case "turn_started":
                in_turn = True
            case "turn_completed" | "turn_aborted":
                in_turn = False


def _attempts(made: Sequence[Commit]) -> Iterator[str]:
    started: dict[str, int] = {}
    completed: set[str] = set()
    for number, _, event in _at(made):
        attempt = event.model_attempt_id
        if attempt is None:
            continue
        if event.type == "model_request_started":
            started[attempt] = number
        elif event.type in ATTEMPT_ENDS:
            if started.get(attempt, number) >= number:
                yield f"5: {event.sequence} ends an attempt that was not durable before it was sent"
            if event.type == "model_request_completed" or getattr(event.data, "response", None):
                completed.add(attempt)
        elif event.type in ("tool_scheduled", "tool_rejected") and attempt not in completed:
            yield f"6: {event.sequence} is about a call of an attempt that is not completed"


def _calls(made: Sequence[Commit]) -> Iterator[str]:
    known: set[str] = set()
    running: dict[str, int] = {}
    for number, _, event in _at(made):
        tool_id = event.tool_id
        if event.type == "tool_scheduled":
            known.add(str(tool_id))
        elif event.type == "tool_started":
            if tool_id not in known:
                yield f"7: {event.sequence} starts a call that was not scheduled"
            running[str(tool_id)] = number
        elif event.type in RUN_ENDS and tool_id in running and running.pop(tool_id) >= number:
            yield f"9: {event.sequence} ends a run that was not durable before it began"


def _permissions(made: Sequence[Commit]) -> Iterator[str]:
    verdicts: dict[str, str] = {}
    for number, position, event in _at(made):
        tool_id, rest = str(event.tool_id), made[number][position + 1 :]
        followed = {other.type for other in rest if other.tool_id == event.tool_id}
        match event.type:
            case "permission_evaluated":
                verdicts[tool_id] = event.data.verdict
                follows = {"deny": "tool_cancelled", "ask": "permission_requested"}.get(event.data.verdict)
                if follows is not None and follows not in followed:
                    yield f"8: {event.sequence} says {event.data.verdict} and no {follows} is in its commit"
            case "permission_resolved":
                verdicts[tool_id] = event.data.verdict
                if event.data.verdict == "deny" and "tool_cancelled" not in followed:
                    yield f"8: {event.sequence} denies and the call does not end in its commit"
            case "tool_started" if verdicts.get(tool_id) != "allow":
                yield f"8: {event.sequence} starts a call that is {verdicts.get(tool_id, 'not decided')}"


def _aborts(made: Sequence[Commit]) -> Iterator[str]:
    sealed: dict[str, int] = {}
    for number, _, event in _at(made):
        request_id = str(event.request_id)
        if event.type == "abort_requested":
            sealed[request_id] = number
        elif request_id in sealed and event.type in SEALED:
            yield f"11: {event.sequence} {event.type} follows an abort"
        elif request_id in sealed and event.type in REQUEST_ENDS and sealed[request_id] >= number:
            yield f"11: {event.sequence} ends a request in the commit that asks for it"
        if event.type == "turn_aborted" and event.data.reason != "steering":
            end = made[number][-1].type if made[number][-1].request_id == event.request_id else ""
            if not REQUEST_ENDS & set(types(made[number])):
                yield f"11: {event.sequence} ends a turn without its request ({end})"


def closing(commit: Commit) -> list[str]:
    """The types of a closing commit, those of calls without repetition, in order."""
    found: list[str] = []
    for event in commit:
        if not found or found[-1] != event.type:
            found.append(event.type)
    return found

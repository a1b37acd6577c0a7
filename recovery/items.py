"""The items of a plan: each step of `domain.next_steps` with its ids, its words and its commands.

Pure. Imported by `recovery.plan` alone. What the steps are is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from domain import session
from domain.next_steps import Action, Step, Who
from domain.permission import Decision
from domain.state import CallState, State
from recovery import rollover, wording
from recovery.facts import Facts
from recovery.problem import Blocked
from recovery.wording import Words

BLOCKED = "blocked"
ABANDON_REQUEST = "abandon_request"


@dataclass(frozen=True, slots=True)
class PlanItem:
    """One thing that comes next.

    Args:
        who: automatic, host, person, operator or nobody.
        subject: the id it is about.
        ids: the ids around it by name (request_id, turn_id, model_attempt_id, tool_id, ...).
        evidence: sequences of the events that call for it.
        word: a stable word for variants of an action; may be empty.
        reason: why, in one sentence.
        appends: event types that carrying it out appends, at most.
        python, shell: how to do it; empty where there is no such way.
        risk: what it may cost; empty if nothing.
    """

    action: str
    who: str
    subject: str
    ids: dict[str, str]
    evidence: tuple[int, ...]
    word: str
    reason: str
    appends: tuple[str, ...]
    python: str
    shell: str
    risk: str = ""


def item(state: State, step: Step, facts: Facts) -> PlanItem:
    """A step as an item of the plan."""
    words = wording.of(step)
    if step.action is Action.FAIL_REQUEST and state.active_turn is None:
        words = wording.without_turn(words)
    return _worded(
        step.action.value,
        step.who,
        step.subject,
        _ids(state, step),
        step.evidence,
        step.reason,
        words,
        _names(state, step.subject, step.index, facts),
    )


def blocked(state: State, facts: Facts, problem: Blocked) -> PlanItem:
    """The item that stands before all others: the journal cannot be followed."""
    evidence = (problem.sequence,) if problem.sequence else ()
    names = {**_names(state, state.session_id, None, facts), **problem.to_plain()}
    return _worded(
        BLOCKED, Who.OPERATOR, state.session_id, {}, evidence, problem.check, wording.BLOCKED, names
    )


def alternatives(state: State, facts: Facts) -> Iterator[PlanItem]:
    """What an operator may do at any time, whatever the plan says, and a rollover where one is allowed."""
    active = state.request
    if active is None or facts.problem is not None:
        return
    ways = [(ABANDON_REQUEST, wording.ABANDON)]
    choice = rollover.possible(state)
    if choice is not None:
        ways.append((choice.kind, wording.ROLLOVERS[choice.kind]))
    for action, words in ways:
        yield _worded(
            action,
            Who.OPERATOR,
            active.request_id,
            {"request_id": active.request_id},
            (active.accepted_sequence,),
            "",
            words,
            _names(state, active.request_id, None, facts),
        )


def _worded(
    action: str,
    who: Who,
    subject: str,
    ids: dict[str, str],
    evidence: tuple[int, ...],
    word: str,
    words: Words,
    names: dict[str, object],
) -> PlanItem:
    return PlanItem(
        action,
        who.value,
        subject,
        ids,
        evidence,
        word,
        wording.fill(words.why, names),
        words.appends,
        wording.fill(words.python, names),
        wording.fill_shell(words.shell, names),
        wording.fill(words.risk, names),
    )


# --- names and ids ----------------------------------------------------------------------


def _names(state: State, subject: str, index: int | None, facts: Facts) -> dict[str, object]:
    active, call = state.request, state.calls[index] if index is not None else None
    settings = active.settings if active is not None else None
    return {
        "subject": subject,
        "session": state.session_id,
        "journal": facts.journal,
        "model_of": settings.model if settings is not None else "unknown model",
        "found_by": _found_by(state),
        "next_attempt": (state.attempt.number if state.attempt else 0) + 1,
        "next_turn": (state.turn.number if state.turn else 0) + 1,
        "max_turns": active.max_turns if active is not None else "",
        "applied": list(active.unprepared) if active is not None else [],
        "applied_words": ",".join(active.unprepared) if active is not None else "",
        "nothing": _nothing(state),
        **(_call_names(call) if call is not None else {}),
    }


def _found_by(state: State) -> str:
    """What the provider can be asked by, about the latest attempt."""
    attempt = state.attempt
    if attempt is not None and attempt.response_id is not None:
        return f"the response's id {attempt.response_id}"
    return f"the attempt's key {attempt.attempt_key}" if attempt is not None else ""


def _call_names(call: CallState) -> dict[str, object]:
    running, asked = call.tool, call.permission
    return {
        "index": call.index,
        "tool": call.name,
        "side_effect": running.side_effect.value if running else "",
        "run": running.run if running else "",
        "permission": asked.question_id(call.call_id) if asked else "",
        "digest": asked.input_digest if asked else "",
    }


def _nothing(state: State) -> str:
    if state.session is None:
        return "There is no session yet."
    count = len(state.unsettled)
    unsettled = f"{count} effect{'s are' if count > 1 else ' is'} unsettled"
    if state.session.status is session.Status.CLOSED:
        what = "The session is closed for good."
    elif state.queue.pending and state.spending.is_spent:
        what = f"{len(state.queue.pending)} inputs wait; no request starts with the budget spent."
    elif state.queue.pending:
        return f"{len(state.queue.pending)} inputs wait; no request starts while {unsettled}."
    else:
        what = "No request is open and no input waits."
    return f"{what} {unsettled}." if count else what


def _ids(state: State, step: Step) -> dict[str, str]:
    found: dict[str, str] = {}
    if state.request is not None:
        found["request_id"] = state.request.request_id
    if state.active_turn is not None:
        found["turn_id"] = state.active_turn.turn_id
        if state.attempt is not None:
            found["model_attempt_id"] = state.attempt.attempt_id
    if step.index is not None:
        found.update(_call_ids(state.calls[step.index]))
    if step.action in (Action.START_NEXT_REQUEST, Action.APPLY_INPUT):
        found["input_id"] = step.subject
    if step.action is Action.FAIL_COMPACTION:
        found["compaction_id"] = step.subject
    return found


def _call_ids(call: CallState) -> dict[str, str]:
    found = {"tool_id": call.call_id, "provider_call_id": call.provider_call_id}
    if call.permission is not None and call.permission.decision is Decision.PENDING:
        found["permission_id"] = call.permission.question_id(call.call_id)
    return found

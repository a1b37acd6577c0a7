"""The plan in plain words: for each action why it is due, what it appends, how to do it, what it risks.

Pure text. Imported by `recovery.plan` alone; deciding what is due is
`domain.next_steps`' work and never happens here.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from domain import unattended
from domain.next_steps import Action, Step, Who

RESUME: Final = "await mb.resume_session({session!r}, config, store=store)"
APPLY: Final = "await coordinator.apply_automatic()"
AUTOMATIC: Final = "{reconcile} automatic"


@dataclass(frozen=True, slots=True)
class Words:
    """One action's wording. `why`, `python`, `shell` and `risk` are templates over a plan's names."""

    why: str
    appends: tuple[str, ...]
    python: str = RESUME
    shell: str = ""
    risk: str = ""


def of(step: Step) -> Words:
    """The wording of a step; automatic steps that need no code get the command that does them."""
    words = _BY_REASON.get((step.action, step.reason)) or _BY_ACTION[step.action]
    if step.who is not Who.AUTOMATIC or step.action not in unattended.ACTIONS:
        return words
    return replace(words, python=APPLY, shell=AUTOMATIC)


def without_turn(words: Words) -> Words:
    """The wording of a request's end between turns, where no turn ends with it."""
    return replace(words, appends=tuple(type_ for type_ in words.appends if type_ != "turn_aborted"))


def fill(template: str, names: Mapping[str, object]) -> str:
    """A template with its names replaced; names in a text are never looked at again."""
    return template.format_map(names)


def fill_shell(template: str, names: Mapping[str, object]) -> str:
    """A shell template with its names replaced by single words, whatever they hold."""
    quoted = {name: shlex.quote(str(value)) for name, value in names.items()}
    prefix = f"python -m recovery reconcile {quoted['journal']} {quoted['session']}"
    return template.format_map({**quoted, "reconcile": prefix})


_BILLED: Final = "The provider may have billed this attempt."
_CLOSING: Final = (
    "model_request_aborted",
    "tool_rejected",
    "permission_cancelled",
    "tool_cancelled",
    "tool_outcome_unknown",
    "turn_aborted",
    "input_cancelled",
)

_BY_ACTION: Final[dict[Action, Words]] = {
    Action.NONE: Words("{nothing}", (), "", ""),
    Action.FINISH_ABORT: Words(
        "An abort of request {subject} was requested and has not been carried out to the end.",
        (*_CLOSING, "request_interrupted"),
        risk="Calls that were started and are not pure keep an unknown outcome.",
    ),
    Action.FAIL_COMPACTION: Words(
        "Compaction {subject} was begun and not finished; the history stays as it was.",
        ("model_outcome_reconciled", "compaction_failed"),
        risk="The provider may have billed the compaction's attempt.",
    ),
    Action.START_NEXT_REQUEST: Words(
        "No request is open and input {subject} waits in the queue.", ("request_accepted",)
    ),
    Action.RESUME_REQUEST: Words(
        "Request {subject} was accepted and has not started; nothing of it has run.",
        ("input_applied", "request_started"),
    ),
    Action.RECONCILE_MODEL_OUTCOME: Words(
        "Attempt {subject} ({model_of}) was about to be sent, and its end is not on record.",
        ("model_outcome_reconciled",),
        'await coordinator.reconcile_model_outcome({subject!r}, outcome="lost", evidence="...")',
        "{reconcile} model {subject} --outcome lost --evidence '...'",
        f"{_BILLED} If it is called lost, the turn asks the model again.",
    ),
    Action.ABORT_TURN: Words(
        "An input asks to be taken in now, and turn {subject} has no response.",
        ("turn_aborted",),
    ),
    Action.NEXT_ATTEMPT: Words(
        "Turn {subject} has no response and may make attempt {next_attempt}.", ("model_request_started",)
    ),
    Action.FAIL_REQUEST: Words(
        "The last attempt of request {subject} failed and no further one is allowed.",
        ("turn_aborted", "request_failed"),
    ),
    Action.REJECT_CALL: Words(
        "The arguments of call {index} ({tool}) do not parse.",
        ("tool_rejected",),
    ),
    Action.SCHEDULE_CALL: Words(
        "The response declared call {index} ({tool}) and it has not been scheduled.",
        ("tool_scheduled",),
    ),
    Action.CANCEL_TOOL: Words(
        "An input asks to be taken in now, and call {index} ({tool}) is not running.",
        ("tool_cancelled",),
    ),
    Action.EVALUATE: Words(
        "Call {index} ({tool}) is scheduled and no decision stands for this input and policy.",
        ("permission_evaluated",),
    ),
    Action.ASK: Words(
        "The policy says that a person decides about call {index} ({tool}), and nobody was asked yet.",
        ("permission_requested",),
    ),
    Action.START_TOOL: Words(
        "Call {index} ({tool}) is allowed and has not started.",
        ("tool_started",),
    ),
    Action.RESOLVE_PERMISSIONS: Words(
        "Call {index} ({tool}, {side_effect}) waits for a person's decision.",
        ("permission_resolved",),
        'await coordinator.resolve_permission({permission!r}, "allow", digest={digest!r})',
        "{reconcile} permission {permission} --allow --digest {digest}",
        "An answer counts for exactly this input. Denying ends the call.",
    ),
    Action.ANSWER_SUSPENSIONS: Words(
        "Call {index} ({tool}) is suspended and waits for an answer.",
        ("tool_resumed",),
        "await coordinator.answer_suspension({subject!r}, answer)",
        "{reconcile} suspension {subject} --answer '...'",
        "The first answer wins.",
    ),
    Action.RECONCILE_TOOL_OUTCOMES: Words(
        "Call {index} ({tool}, {side_effect}) was started, run {run}, and its end is not on record.",
        ("tool_outcome_reconciled",),
        "await coordinator.reconcile_tool_outcome("
        '{subject!r}, outcome="completed", output="...", evidence="...")',
        "{reconcile} tool {subject} --outcome completed --output '...' --evidence '...'",
        "It may have taken effect. Nothing runs it again: look at what it did, then say so.",
    ),
    Action.COMPLETE_TURN: Words("Every call of turn {subject} has ended.", ("turn_completed",)),
    Action.RECONCILE_REQUEST_INPUTS: Words(
        "Hooks or attachments of request {subject} were running, and their end is not on record.",
        ("input_prepared",),
        'await coordinator.reconcile_request_inputs(evidence="...")',
        "{reconcile} inputs --evidence '...'",
        "A hook may have taken effect; it is not run again.",
    ),
    Action.APPLY_INPUT: Words("Input {subject} is next to be taken into the request.", ("input_applied",)),
    Action.PREPARE_INPUT: Words(
        "The applied inputs of request {subject} have not been prepared.", ("input_prepared",)
    ),
    Action.CONTINUE_REQUEST: Words(
        "Request {subject} has something to tell the model, and turn {next_turn} is due.",
        ("turn_started", "model_request_started"),
    ),
    Action.FINALIZE_REQUEST: Words(
        "The last response of request {subject} is final and on record.", ("request_completed",)
    ),
    Action.RECONCILE_REQUEST_OUTCOME: Words(
        "The journal does not say how request {subject} is to go on.",
        ("request_failed",),
        'await coordinator.reconcile_request_outcome("failed", message="...", evidence="...")',
        "{reconcile} request --outcome failed --message '...' --evidence '...'",
        "What the request did so far stays done.",
    ),
}

_BY_REASON: Final[dict[tuple[Action, str], Words]] = {
    (Action.RECONCILE_MODEL_OUTCOME, "lost"): Words(
        "Attempt {subject} ({model_of}) was about to be sent, its end is not on record, "
        "and the settings say to retry.",
        ("model_outcome_reconciled",),
        risk=f"{_BILLED} The turn asks the model again.",
    ),
    (Action.RECONCILE_MODEL_OUTCOME, "findable"): Words(
        "Attempt {subject} ({model_of}) was about to be sent, and its end is not on record. "
        "Its provider can be asked for it by {found_by}.",
        ("model_outcome_reconciled",),
        "await coordinator.look_up_model_outcome({subject!r}, provider)",
        "{reconcile} model {subject} --outcome lost --evidence '...'",
        f"{_BILLED} Asking costs nothing and changes nothing. "
        "If it is called lost, the turn asks the model again.",
    ),
    (Action.FAIL_REQUEST, "max_turns"): Words(
        "Request {subject} has used its {max_turns} turns and is not done.", ("request_failed",)
    ),
    (Action.FAIL_REQUEST, "budget"): Words(
        "The session's budget is spent, and request {subject} would have to ask the model again. "
        "Opening it with a higher budget lets it go on.",
        ("turn_aborted", "request_failed"),
        risk="What its calls did stays done; their results stay in the conversation.",
    ),
    (Action.REJECT_CALL, "truncated"): Words(
        "The response was cut or refused, so call {index} ({tool}) is not carried out.", ("tool_rejected",)
    ),
    (Action.REJECT_CALL, "interrupted"): Words(
        "An input asks to be taken in now, and call {index} ({tool}) was not scheduled.", ("tool_rejected",)
    ),
    (Action.CANCEL_TOOL, "permission_denied"): Words(
        "Call {index} ({tool}) was denied.", ("tool_cancelled",)
    ),
    (Action.START_TOOL, "again"): Words(
        "Call {index} ({tool}, {side_effect}) was started, run {run}, its end is not on record, "
        "and running it again is harmless.",
        ("tool_started",),
        risk="It runs again, with the same input and the same idempotency key.",
    ),
    (Action.RECONCILE_REQUEST_OUTCOME, "no_snapshot"): Words(
        "Request {subject} was accepted under settings that the journal does not hold.",
        ("request_failed",),
        'await coordinator.reconcile_request_outcome("failed", message="...", evidence="...")',
        "{reconcile} request --outcome failed --message '...' --evidence '...'",
        "It cannot be carried out as it was accepted; send its input again instead.",
    ),
}

ABANDON: Final = Words(
    "An operator may end the open request at any time.",
    (*_CLOSING, "request_interrupted"),
    'await coordinator.abandon_request(reason="...")',
    "{reconcile} abandon --reason '...'",
    "Calls that were started and are not pure keep an unknown outcome.",
)

_ROLLED: Final = ("request_superseded", "input_accepted", "request_accepted")
ROLLOVERS: Final = {
    "prepare_request_recovery": Words(
        "No turn has seen the inputs of request {subject}: a new request may take over with their "
        "final content.",
        ("input_cancelled", *_ROLLED),
        'await coordinator.prepare_request_recovery({applied!r}, evidence="...")',
        "{reconcile} rollover-request --applied {applied_words} --evidence '...'",
        "The new request prepares its input again; a hook may run twice.",
    ),
    "prepare_turn_recovery": Words(
        "Nothing of the open turn must not run twice: a new request may go on from here.",
        (*_CLOSING, *_ROLLED),
        'await coordinator.prepare_turn_recovery(evidence="...")',
        "{reconcile} rollover-turn --evidence '...'",
        "The model is asked again; started calls that are not pure keep an unknown outcome.",
    ),
}

SETTLE: Final = Words(
    "Its request has ended and nobody knows what it did.",
    ("tool_outcome_reconciled",),
    'await coordinator.reconcile_tool_outcome({subject!r}, outcome="completed", evidence="...")',
    "{reconcile} tool {subject} --outcome completed --output '...' --evidence '...'",
    "It may have taken effect.",
)

BLOCKED: Final = Words(
    "The journal cannot be followed from sequence {sequence} on ({check}): "
    "expected {expected}, found {found}.",
    (),
    "",
    "python -m recovery verify {journal} {session}",
    "Nothing is written to a journal that cannot be followed. Restore a backup, or use a newer minutebook.",
)

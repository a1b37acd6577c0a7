"""What must be true of a journal, whatever killed its writers: held against witness and pipe.

Each function gives sentences about what is wrong; none means it holds. Events are
read as they are stored; nothing here asks the code that wrote them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from domain.envelope import Recorded
from projections.transcript import Exchange, Transcript, UserItem

#: Visible word -> the events of which one has to be durable first, and the id it goes by.
DURABLE_FIRST = {
    "input_applied": (("input_applied",), "input"),
    "turn_start": (("turn_started",), "turn"),
    "turn_end": (("turn_completed",), "turn"),
    "turn_interrupted": (("turn_aborted",), "turn"),
    "attempt_discarded": (
        ("model_request_failed", "model_request_aborted", "model_outcome_reconciled"),
        "attempt",
    ),
    "tool_use": (("tool_scheduled",), "call"),
    "interaction_opened": (("permission_requested",), "question"),
    "result": (("request_completed",), "request"),
    "error": (("request_failed", "request_interrupted"), "request"),
}
OUTCOMES = {
    "tool_completed": "completed",
    "tool_failed": "failed",
    "tool_cancelled": "cancelled",
    "tool_rejected": "rejected",
    "tool_outcome_unknown": "unknown",
}
BEGINNINGS = {
    "request": ("request_accepted",),
    "turn": ("turn_started",),
    "attempt": ("model_request_started",),
    "call": ("tool_scheduled", "tool_rejected"),
}
ENDS = {
    "request": ("request_completed", "request_failed", "request_interrupted", "request_superseded"),
    "turn": ("turn_completed", "turn_aborted"),
    "attempt": (
        *("model_request_completed", "model_request_failed", "model_request_aborted"),
        "model_outcome_reconciled",
    ),
    "call": ("tool_completed", "tool_failed", "tool_cancelled", "tool_rejected", "tool_outcome_reconciled"),
}
NON_IDEMPOTENT = {"pay", "mail", "wipe", "ban"}
NEVER_ALLOWED = {"wipe", "ban"}


@dataclass(frozen=True, slots=True)
class Evidence:
    """A life so far: the journal's events, the witness's lines, what all processes told."""

    events: list[Recorded]
    witness: list[tuple[str, ...]]
    said: list[dict[str, Any]]

    def of(self, *types: str) -> list[Recorded]:
        """The events of these types."""
        return [event for event in self.events if event.type in types]

    @property
    def effects(self) -> list[tuple[str, ...]]:
        """(call, tool, run, key) of each effect."""
        return [line for line in self.witness if line[1] != "asked"]


def identity(event: Recorded, kind: str) -> str:
    """The id of an event by its kind."""
    match kind:
        case "input":
            return str(event.data.input_id)
        case "question":
            return str(event.data.permission_id)
        case "request":
            return event.request_id or ""
        case "turn":
            return event.turn_id or ""
        case "attempt":
            return event.model_attempt_id or ""
    return event.tool_id or ""


def no_input_is_lost(life: Evidence) -> Iterator[str]:
    """I1: a receipt's input is in the journal, once, and applied, cancelled or pending, never two of them."""
    accepted = Counter(e.data.input_id for e in life.of("input_accepted"))
    left = Counter(e.data.input_id for e in life.of("input_applied", "input_cancelled"))
    for line in life.said:
        if "receipt" in line and accepted[line["receipt"]] == 0:
            yield f"the receipt of {line['receipt']} was given, and it is not in the journal"
    for input_id, times in (accepted | left).items():
        if accepted[input_id] != 1 or times > 1:
            yield f"{input_id} came in {accepted[input_id]} times, it left {left[input_id]} times"


def visible_is_durable(life: Evidence) -> Iterator[str]:
    """I2: whatever was shown has its event in the journal."""
    known = {(e.sequence, e.type) for e in life.events}
    ends = {(e.tool_id, OUTCOMES.get(e.type) or e.data.outcome) for e in life.of(*OUTCOMES, ENDS["call"][-1])}
    for line in life.said:
        if "event" in line and (line["event"], line["type"]) not in known:
            yield f"event {line['event']} ({line['type']}) was shown, and it is not in the journal"
        elif line.get("visible") == "tool_result" and (line["id"], line["outcome"]) not in ends:
            yield f"{line['id']} was shown as {line['outcome']}, and its end is not in the journal"
        elif "visible" in line and line["visible"] in DURABLE_FIRST:
            types, kind = DURABLE_FIRST[line["visible"]]
            if line["id"] not in {identity(e, kind) for e in life.of(*types)}:
                yield f"{line['visible']} {line['id']} was shown, and there is no {' or '.join(types)}"
    yield from _returned_is_durable(life)


def _returned_is_durable(life: Evidence) -> Iterator[str]:
    promises: dict[str, tuple[tuple[str, ...], Callable[[Recorded], str]]] = {
        "answered": (("permission_resolved",), lambda e: identity(e, "question")),
        "aborted": (ENDS["request"], lambda e: identity(e, "request")),
        "closed": (("session_closed",), lambda e: ""),
    }
    for line in life.said:
        for word, (types, name) in promises.items():
            wanted = "" if word == "closed" else line.get(word)
            if word in line and wanted not in {name(e) for e in life.of(*types)}:
                yield f"{word} {line[word]} was returned, and there is no {' or '.join(types)}"


def effects_were_announced(life: Evidence) -> Iterator[str]:
    """I3: each effect has its `tool_started`, with its run and key; each send its `model_request_started`."""
    started = {(e.tool_id, str(e.data.run), e.data.idempotency_key) for e in life.of("tool_started")}
    for call, tool, run, key in life.effects:
        if (call, run, key) not in started:
            yield f"{tool} ({call}) had its effect in run {run}, and there is no tool_started for it"
    asked = {e.model_attempt_id for e in life.of("model_request_started")}
    for line in life.witness:
        if line[1] == "asked" and line[0] not in asked:
            yield f"the model was asked {line[0]}, and there is no model_request_started for it"


def effects_happen_once(life: Evidence) -> Iterator[str]:
    """I4: no effect twice that must not be repeated, none that was denied, one key for all runs."""
    times = Counter((call, tool) for call, tool, _, _ in life.effects)
    for (call, tool), count in times.items():
        if tool in NON_IDEMPOTENT and count > 1:
            yield f"{tool} ({call}) had its effect {count} times"
        if tool in NEVER_ALLOWED:
            yield f"{tool} ({call}) was denied, and it had its effect"
        keys = {key for c, _, _, key in life.effects if c == call}
        if len(keys) > 1:
            yield f"{tool} ({call}) ran under different keys: {sorted(keys)}"
    sends = Counter(line[0] for line in life.witness if line[1] == "asked")
    for attempt, count in sends.items():
        if count > 1:
            yield f"the model was asked {attempt} {count} times"


def one_end_each(life: Evidence) -> Iterator[str]:
    """I7: exactly one end for what has begun and ended, nothing of it after its end."""
    for kind, types in ENDS.items():
        ends = Counter(identity(e, kind) for e in life.of(*types))
        for name, count in ends.items():
            if count > 1:
                yield f"{kind} {name} ended {count} times"
        last = {identity(e, kind): e.sequence for e in life.of(*types)}
        starts = ("tool_started",) if kind == "call" else ()
        later = [e for e in life.of(*BEGINNINGS[kind], *starts) if identity(e, kind) in last]
        for event in later:
            if event.sequence > last[identity(event, kind)]:
                yield f"{kind} {identity(event, kind)} ended, and then there was {event.type}"


def everything_ended(life: Evidence) -> Iterator[str]:
    """I7, at the end of a life: nothing is left open, no input is left waiting."""
    for kind, types in ENDS.items():
        begun = {identity(e, kind) for e in life.of(*BEGINNINGS[kind])}
        ended = {identity(e, kind) for e in life.of(*types)}
        for name in sorted(begun - ended):
            yield f"{kind} {name} never ended"
    accepted = {e.data.input_id for e in life.of("input_accepted")}
    left = {e.data.input_id for e in life.of("input_applied", "input_cancelled")}
    for name in sorted(accepted - left):
        yield f"input {name} was left waiting"


def sequences_and_tokens(life: Evidence) -> Iterator[str]:
    """I6 and I8: sequences have no gap, commands are whole, tokens never fall."""
    token = 0
    for place, event in enumerate(life.events, 1):
        if event.sequence != place:
            yield f"event {place} has sequence {event.sequence}"
        found = event.recorded_by.token if event.recorded_by else 0
        if found < token:
            yield f"event {place} was written under token {found}, after {token}"
        token = max(token, found)
    if life.events and life.events[-1].command_index != life.events[-1].command_size - 1:
        yield "the journal ends inside a command"


ALWAYS = (
    no_input_is_lost,
    visible_is_durable,
    effects_were_announced,
    effects_happen_once,
    one_end_each,
    sequences_and_tokens,
)


def violations(life: Evidence, *, finished: bool) -> list[str]:
    """Everything that is wrong with a life; `finished`: it has been lived to its end."""
    checks = (*ALWAYS, everything_ended) if finished else ALWAYS
    return [f"{check.__name__}: {wrong}" for check in checks for wrong in check(life)]


def told_apart(wrong: Sequence[str]) -> dict[str, int]:
    """How many of these sentences there are, and how many are about something lost or done twice."""

    def with_one_of(*words: str) -> int:
        return sum(any(word in sentence for word in words) for sentence in wrong)

    return {
        "lost": with_one_of(no_input_is_lost.__name__, visible_is_durable.__name__, " is lost"),
        "doubled": with_one_of(effects_happen_once.__name__),
        "wrong": len(wrong),
    }


def conversation(events: list[Recorded]) -> list[Any]:
    """The transcript, without what differs between two lives that tell the same story.

    Those are the numbers of attempts, and how a call ended that somebody settled as
    cancelled because its effect had not happened.
    """
    transcript, settled = Transcript(), set[str]()
    for event in events:
        transcript.apply(event)
        if event.type == "tool_outcome_reconciled" and event.data.outcome == "cancelled":
            settled.add(event.tool_id or "")
    told: list[Any] = []
    for item in transcript.items:
        if isinstance(item, UserItem):
            told.append(["user", item.input_id, item.content])
        else:
            told.append(["model", item.turn_id, item.text, _calls(item, settled)])
    return told


def _calls(item: Exchange, settled: set[str]) -> list[list[str]]:
    return [
        [
            re.sub(r"\.a\d+\.", ".a.", call.tool_id),
            call.name,
            call.arguments,
            *(("settled",) if call.tool_id in settled else (call.outcome, call.output)),
        ]
        for call in item.calls
    ]


def same_story(one: list[Any], other: list[Any]) -> bool:
    """Whether two conversations agree, a settled call agreeing with any end of that call."""
    if len(one) != len(other):
        return False
    return all(_agree(a, b) for a, b in zip(one, other, strict=True))


def _agree(a: Any, b: Any) -> bool:
    if a[0] != "model" or b[0] != "model":
        return bool(a == b)
    pairs = zip(a[3], b[3], strict=True) if len(a[3]) == len(b[3]) else [(a, b)]
    same = all(x == y or (x[:3] == y[:3] and "settled" in (x[3], y[3])) for x, y in pairs)
    return a[1:3] == b[1:3] and same

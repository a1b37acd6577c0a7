"""What happened, for people: verification, timeline, replay.

Printing only; everything that a journal may hold is escaped on its way (see
`recovery.terminal`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from rich.console import Console
from rich.text import Text

from projections.transcript import Exchange, UserItem
from projections.usage import Sum
from projections.wire_parts import readable
from recovery.escape import brief, visible
from recovery.problem import Blocked
from recovery.replaying import Replay
from recovery.report import print_counts
from recovery.terminal import line, pairs, short, shown, table
from recovery.timeline import Moment
from recovery.verify import Result, Verification

_RESULTS: Final = {
    Result.PROVEN: ("proven", "bold green"),
    Result.CONSISTENT: ("consistent, not proven", "green"),
    Result.BROKEN: ("broken", "bold red"),
    Result.UNREADABLE: ("written by a newer version", "bold yellow"),
}
#: What verifying cannot show; said each time, so that nobody reads more into it.
LIMITS: Final = (
    "A chain shows every change by somebody who cannot also change the head that you compare with. "
    "Without a head from elsewhere (--expect-head) a journal that was rewritten or shortened as a whole "
    "looks consistent. Nothing here shows that the recorder told the truth, or that a tool's effect happened."
)


# --- verification -----------------------------------------------------------------------


def print_verification(found: Verification, to: Console) -> None:
    """One session's verification."""
    word, style = _RESULTS[found.result]
    line(to, Text("session ", "dim"), shown(found.session_id, "bold"), "  ", Text(word, style))
    to.print(pairs(_verified(found)))
    for problem in found.problems:
        print_problem(problem, to)
    for note in found.notes:
        line(to, Text("  note  ", "dim"), shown(note))
    to.print()


def _verified(found: Verification) -> list[tuple[str, Text]]:
    proven = f"up to event {found.proven_to}" if found.proven_to else "no"
    if 0 < found.proven_to < found.events:
        proven += f"; events {found.proven_to + 1} to {found.events} follow from it, unproven"
    rules = f"kept by events 1 to {found.rules_to}" if found.rules_to else "not checked"
    return [
        ("events", shown(f"{found.events} in an unbroken chain")),
        ("head", shown(found.head.hex())),
        ("proven", shown(proven)),
        ("rules", shown(rules)),
        ("snapshots", shown(f"{found.snapshots} folded again and equal")),
        ("redacted", shown(found.redacted)),
    ]


def print_results(results: Counter[Result], events: int, printed: int, journal: str, to: Console) -> None:
    """How many sessions of a journal came out how."""
    told = {_RESULTS[result][0]: results[result] for result in Result}
    print_counts(told, printed, journal, to, f", {events} events")


def print_problem(problem: Blocked, to: Console) -> None:
    """What is wrong, where."""
    line(to, Text("  wrong ", "bold red"), shown(problem))


# --- timeline ---------------------------------------------------------------------------

TIMELINE_HEAD: Final = f"{'event':>8}  {'time':<12}  {'took':>7}  {'cause':>7}  {'who':<18}  what"
_INDENT: Final = " " * 24


def timeline_lines(moment: Moment, date: datetime | None) -> Iterator[str]:
    """One moment as plain lines, what may be long at their ends.

    Plain, because a table of a million rows would take hours to lay out.

    Args:
        date: when the moment before it was; a new day gets a line of its own.
    """
    if date is None or moment.at.date() != date.date():
        yield f"{moment.at:%Y-%m-%d}"
    took = duration(moment.took) if moment.took is not None else ""
    who, subject = visible(moment.who), visible(moment.subject)
    time = f"{moment.at:%H:%M:%S}.{moment.at.microsecond // 1000:03d}"
    cause = moment.cause or ""
    yield f"{moment.sequence:>8}  {time}  {took:>7}  {cause:>7}  {who:<18}  {moment.type} {subject}"
    if moment.what:
        yield _INDENT + brief(moment.what)


def duration(took: timedelta) -> str:
    """A length of time in at most seven characters."""
    seconds = took.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


# --- replay -----------------------------------------------------------------------------


def print_replay(found: Replay, to: Console) -> None:
    """A rebuilt session."""
    facts = found.session.facts
    line(to, Text("session ", "dim"), shown(found.session_id, "bold"), f" as of event {found.sequence}")
    ended = ", ".join(f"{count} {how}" for how, count in facts.ended) or "none ended"
    counts = ", ".join(
        [
            _many(facts.inputs, "input"),
            f"{_many(facts.requests, 'request')} ({ended})",
            _many(facts.turns, "turn"),
            _many(facts.tool_runs, "tool run"),
        ]
    )
    to.print(
        pairs(
            [
                ("owner", shown(facts.owner_id)),
                ("model", shown(facts.model)),
                ("status", shown(facts.status + (f", in {facts.request_id}" if facts.request_id else ""))),
                ("counts", shown(counts)),
            ]
        )
    )
    to.print()
    _print_transcript(found, to)
    _print_open(found, to)
    _print_usage(found, to)
    if found.problem is not None:
        print_problem(found.problem, to)


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _print_transcript(found: Replay, to: Console) -> None:
    for item in found.transcript.items:
        if isinstance(item, UserItem):
            line(to, Text(f"[{item.sequence}] user ", "bold cyan"), shown(item.input_id))
            line(to, "  ", short(readable(item.content), 2000))
        else:
            _print_exchange(item, to)
    to.print()


def _print_exchange(item: Exchange, to: Console) -> None:
    line(
        to,
        Text(f"[{item.sequence}] model ", "bold green"),
        shown(f"{item.attempt_id} {item.model} ({item.stop})"),
    )
    if item.text:
        line(to, "  ", short(item.text, 2000))
    for call in item.calls:
        line(
            to,
            Text("  call ", "dim"),
            shown(f"{call.tool_id} "),
            shown(call.name, "bold"),
            " ",
            short(call.arguments),
        )
        line(to, Text(f"    {call.outcome}: ", "dim"), short(call.output, 400))


def _print_open(found: Replay, to: Console) -> None:
    for queued in found.pending_inputs.items:
        line(
            to,
            Text("pending ", "bold"),
            shown(queued.input_id),
            f" ({queued.priority.value}) ",
            short(readable(queued.content)),
        )
    for question in found.interactions.permissions:
        line(to, Text("asks ", "bold"), shown(question.permission_id), " ", short(question.summary))
    for waiting in found.interactions.suspensions:
        line(to, Text("suspended ", "bold"), shown(waiting.tool_id), " ", short(waiting.payload))


def _print_usage(found: Replay, to: Console) -> None:
    made = table("usage", "request", "attempts", "tokens", "maybe billed unseen", ratios=(0, 0, 1, 0))
    for request_id, sum_ in [*found.usage.requests.items(), ("session", found.usage.session)]:
        made.add_row(shown(request_id), *_sum(sum_))
    to.print(made)


def _sum(sum_: Sum) -> tuple[Text, Text, Text]:
    tokens = ", ".join(f"{name} {count}" for name, count in sorted(sum_.tokens.items()))
    return shown(sum_.attempts), shown(tokens), shown(sum_.maybe_billed or "")

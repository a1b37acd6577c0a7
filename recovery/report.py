"""A recovery plan for people: who holds what, what comes next, why, how, at what risk.

Printing only. Everything that a journal may hold is escaped on its way (see
`recovery.terminal`); nothing is decided here.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from rich.console import Console
from rich.text import Text

from projections.wire_parts import readable
from recovery.facts import LeaseFact
from recovery.items import PlanItem
from recovery.plan import Kind, RecoveryPlan
from recovery.terminal import line, pairs, short, shown, table

_SENTENCES: Final = {
    Kind.NOTHING: ("nothing to do", "green"),
    Kind.AUTOMATIC: ("goes on by itself when it is resumed", "green"),
    Kind.WAITING: ("waits for people", "yellow"),
    Kind.DECISION: ("somebody has to decide", "bold yellow"),
    Kind.BLOCKED: ("blocked: the journal cannot be followed", "bold red"),
}


def print_plan(plan: RecoveryPlan, to: Console) -> None:
    """One session: a heading, its facts, its plan, and everything that is open."""
    line(to, Text("session ", "dim"), shown(plan.session_id, "bold"))
    to.print(pairs(_facts(plan)))
    _print_items(plan, to)
    _print_how(plan, to)
    _print_pending(plan, to)
    _print_interactions(plan, to)
    _print_effects(plan, to)
    for note in plan.notes:
        line(to, Text("note  ", "dim"), shown(note))
    to.print()


def _facts(plan: RecoveryPlan) -> list[tuple[str, Text]]:
    sentence, style = _SENTENCES[plan.kind]
    return [
        ("owner", shown(plan.owner_id or "(nobody)")),
        ("status", shown(plan.status)),
        ("head", shown(f"{plan.head_sequence}  {plan.head_hash}")),
        ("verified", shown(verified_sentence(plan.verified, plan.snapshot_sequence))),
        ("lease", shown(lease_sentence(plan.lease))),
        ("plan", Text.assemble((sentence, style), f" ({plan.heading}{_shares(plan)})")),
    ]


def _shares(plan: RecoveryPlan) -> str:
    """How many items are whose, where there are several."""
    counts = Counter(item.who for item in plan.items)
    if len(plan.items) < 2:
        return ""
    return ": " + ", ".join(f"{count} {who}" for who, count in counts.items())


def verified_sentence(verified: tuple[int, int], snapshot_sequence: int) -> str:
    """What was proved and what was taken on trust."""
    first, last = verified
    if last < first:
        proved = "no link was read"
    elif first == last:
        proved = f"the link of event {first}"
    else:
        proved = f"the links of events {first} to {last}"
    return f"{proved}, from the snapshot at {snapshot_sequence} on" if snapshot_sequence else proved


def lease_sentence(lease: LeaseFact | None) -> str:
    """Who may write to the session."""
    if lease is None:
        return "never leased"
    if lease.holder is None:
        return f"free (last token {lease.token})"
    process = f", process {lease.process_id}" if lease.process_id is not None else ""
    lives = {True: "live", False: "dead or run out", None: "not checked"}[lease.lives]
    return f"{lease.holder}{process}, token {lease.token}, until {lease.expires_at}: {lives}"


# --- the plan ---------------------------------------------------------------------------


def _print_items(plan: RecoveryPlan, to: Console) -> None:
    if plan.kind is Kind.NOTHING:
        line(to, "  ", shown(plan.items[0].reason))
        return
    made = table(None, "#", "what next", "who", "why", "risk", ratios=(0, 0, 0, 5, 4))
    for number, item in enumerate(plan.items, 1):
        made.add_row(
            str(number),
            Text.assemble(shown(item.action, "bold"), "\n", shown(item.subject)),
            item.who,
            Text.assemble(
                shown(item.reason), (f" [{events(item.evidence)}]", "dim") if item.evidence else ""
            ),
            shown(item.risk),
        )
    to.print(made)
    if plan.kind is Kind.BLOCKED:
        line(
            to, "  From 2 on: the plan as of event ", shown(plan.head_sequence), ", the last whole command.\n"
        )


def events(evidence: tuple[int, ...]) -> str:
    """Sequences as a person writes them."""
    return f"event{'s' if len(evidence) > 1 else ''} {', '.join(map(str, evidence))}"


def _print_how(plan: RecoveryPlan, to: Console) -> None:
    """The commands on lines of their own, so that they can be copied whole."""
    items = plan.items[:1] if plan.kind is Kind.BLOCKED else plan.items
    ways = [(str(number), item) for number, item in enumerate(items, 1) if item.python or item.shell]
    ways += [("or", item) for item in plan.alternatives]
    if not ways:
        return
    line(to, Text("how", "bold"))
    for mark, item in _without_repeats(ways):
        _print_way(mark, item, to)


def _without_repeats(ways: list[tuple[str, PlanItem]]) -> list[tuple[str, PlanItem]]:
    """One entry for each way; the numbers of items that share it are joined."""
    marks: dict[tuple[str, str], tuple[str, PlanItem]] = {}
    for mark, item in ways:
        way = (item.python, item.shell)
        earlier = marks.get(way)
        marks[way] = (f"{earlier[0]}, {mark}", earlier[1]) if earlier else (mark, item)
    return list(marks.values())


def _print_way(mark: str, item: PlanItem, to: Console) -> None:
    width = max(len(mark), 2)
    if item.shell:
        line(to, f" {mark:>{width}}  ", Text("shell   ", "dim"), shown(item.shell))
    if item.python:
        line(to, f" {mark if not item.shell else '':>{width}}  ", Text("python  ", "dim"), shown(item.python))
    if item.action == "abandon_request":
        line(to, f" {'':>{width}}  ", Text("        " + item.reason, "dim"))


# --- what is open -----------------------------------------------------------------------


def _print_pending(plan: RecoveryPlan, to: Console) -> None:
    if not plan.pending_inputs:
        return
    to.print()
    made = table(
        "pending inputs", "#", "input", "priority", "event", "bytes", "content", ratios=(0, 5, 0, 0, 0, 12)
    )
    for item in plan.pending_inputs:
        content = short(readable(item.content)) if item.content is not None else Text("(not read)", "dim")
        made.add_row(
            str(item.ordinal),
            shown(item.input_id),
            item.priority,
            str(item.sequence),
            str(item.size_bytes),
            content,
        )
    to.print(made)


def _print_interactions(plan: RecoveryPlan, to: Console) -> None:
    if plan.permissions or plan.suspensions:
        to.print()
        line(to, Text("open interactions", "bold"))
    for question in plan.permissions:
        rows = [
            ("permission", shown(question.permission_id, "bold")),
            (
                "call",
                shown(f"{question.name} ({question.side_effect}), {events(question.evidence)}"),
            ),
            ("asks", short(question.summary) if question.summary is not None else Text("(not read)", "dim")),
            (
                "input",
                short(question.input, 400) if question.input is not None else Text("(not read)", "dim"),
            ),
            ("digest", shown(question.input_digest)),
        ]
        if question.expires_at:
            rows.append(("expires", shown(question.expires_at)))
        to.print(pairs(rows))
    for waiting in plan.suspensions:
        rows = [
            ("suspended", shown(waiting.tool_id, "bold")),
            ("call", shown(f"{waiting.name}, {events(waiting.evidence)}")),
            ("waits for", short(waiting.payload, 400)),
        ]
        if waiting.resume_schema:
            rows.append(("answer", short(waiting.resume_schema, 400)))
        to.print(pairs(rows))


def _print_effects(plan: RecoveryPlan, to: Console) -> None:
    if not plan.unsettled_effects:
        return
    to.print()
    made = table(
        "unsettled effects (they block nothing)",
        "call",
        "tool",
        "class",
        "request",
        "evidence",
        "idempotency key",
        ratios=(6, 6, 0, 0, 0, 8),
    )
    for effect in plan.unsettled_effects:
        made.add_row(
            shown(effect.tool_id),
            shown(effect.name),
            effect.side_effect,
            shown(effect.request_id),
            events(effect.evidence),
            shown(effect.idempotency_key),
        )
    to.print(made)
    line(to, " settle  ", shown(plan.unsettled_effects[0].shell))


def print_summary(kinds: Counter[Kind], printed: int, journal: str, to: Console) -> None:
    """How many sessions of a journal stand where."""
    print_counts({_SENTENCES[kind][0]: kinds[kind] for kind in Kind}, printed, journal, to)


def print_counts(told: dict[str, int], printed: int, journal: str, to: Console, more: str = "") -> None:
    """How many sessions of a journal are what, and how to see those that were not printed.

    Args:
        more: said of all of them, after their number.
    """
    count = sum(told.values())
    which = ", ".join(f"{number} {what}" for what, number in told.items() if number)
    line(
        to,
        shown(journal),
        f": {count} session{'' if count == 1 else 's'}{more}{': ' if which else ''}",
        which,
    )
    if printed < count:
        line(to, f"  shown: the {printed} that need somebody; --all shows the others too")

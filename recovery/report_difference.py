"""A difference between two points of a session, in print. Loaded by `recovery.looking`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.text import Text

from recovery.differing import Difference, ItemChange, Point
from recovery.report_history import print_problem
from recovery.terminal import line, pairs, short, shown

_MARKS: Final = {"added": ("+", "green"), "changed": ("~", "yellow"), "removed": ("-", "red")}


def print_difference(found: Difference, to: Console) -> None:
    """What changed, one thing a line."""
    old, new = found.before, found.after
    where = f" from event {old.sequence} to {new.sequence}"
    line(to, Text("session ", "dim"), shown(found.session_id, "bold"), where)
    events = ", ".join(f"{count} {type_}" for type_, count in sorted(found.events.items()))
    rows = [("events", shown(events or "none")), *_facts(found), *_points(old, new)]
    to.print(pairs(rows))
    for item in found.items:
        _print_item(item, to)
    if found.left_out:
        line(to, f"and {found.left_out} more items")
    if found.problem is not None:
        print_problem(found.problem, to)


def _facts(found: Difference) -> Iterator[tuple[str, Text]]:
    for name, (before, after) in found.facts.items():
        yield name, Text.assemble(short(before), " -> ", short(after))


def _points(old: Point, new: Point) -> Iterator[tuple[str, Text]]:
    for name in ("pending_inputs", "interactions"):
        before, after = getattr(old, name), getattr(new, name)
        marks = [*(f"-{n}" for n in before if n not in after), *(f"+{n}" for n in after if n not in before)]
        if marks:
            yield name, shown(" ".join(marks))
    tokens = {name: count - old.usage.tokens.get(name, 0) for name, count in new.usage.tokens.items()}
    spent = ", ".join(f"{name} +{count}" for name, count in sorted(tokens.items()) if count)
    if new.usage != old.usage:
        attempts = new.usage.attempts - old.usage.attempts
        yield "usage", shown(f"attempts +{attempts}{', ' + spent if spent else ''}")
    if _plan(old) != _plan(new):
        yield "plan", Text.assemble(shown(_plan(old)), " -> ", shown(_plan(new)))


def _plan(point: Point) -> str:
    items = point.plan.items if point.plan is not None else ()
    return "; ".join(f"{item.action} {item.subject}" for item in items)


def _print_item(item: ItemChange, to: Console) -> None:
    mark, style = _MARKS[item.change]
    head = Text(f"{mark} [{item.sequence}] {'user' if item.kind == 'user' else 'model'} ", style)
    line(to, head, shown(item.name), " ", short(item.text))
    for call in item.calls:
        was = f"{call.before} -> " if call.before is not None else ""
        line(to, "    ", shown(call.tool_id), " ", shown(call.name, "bold"), f" {was}{call.after}")

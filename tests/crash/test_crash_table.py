"""The crash table of recovery, row by row: killed after this, the plan must say that, and never the other.

The session puts each step into a commit of its own, so that every row has a
moment of its own; the process is killed right after that commit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from minutebook.testing.fork_server import ForkServer
from tests.crash.harness import Examination, Life, new_life
from tests.crash.invariants import same_story

FINE: dict[str, Any] = {"fine": True}
STEERED: dict[str, Any] = {"fine": True, "steered": True}
RETRY: dict[str, Any] = {"fine": True, "on_lost_attempt": "retry"}
AS_IT_IS: dict[str, Any] = {}

Plan = list[tuple[str, str]]
LOOK, PUT, PAY = "r1.t1.a1.c0", "r1.t1.a1.c1", "r1.t1.a1.c2"
MAIL, WIPE, BAN, TORN = "r1.t2.a1.c0", "r1.t2.a1.c1", "r1.t2.a1.c2", "r1.t2.a1.c3"


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Args:
        after: the last event of the commit after which the process dies, as type and id.
        plan: what the plan must say then.
        never: gives a sentence about what the table forbids, from the end of the life, or "".
        options: of `live`.
    """

    after: str
    plan: Plan
    never: Callable[[Examination, list[tuple[str, ...]]], str] = lambda end, witness: ""
    options: dict[str, Any] = field(default_factory=lambda: FINE)


def once(*events: str) -> Callable[[Examination, list[tuple[str, ...]]], str]:
    """These events are in the journal exactly once at the end."""

    def never(end: Examination, witness: list[tuple[str, ...]]) -> str:
        times = {event: end.events.count(event) for event in events}
        return "" if set(times.values()) == {1} else f"expected once, found {times}"

    return never


def asked_once(*attempts: str) -> Callable[[Examination, list[tuple[str, ...]]], str]:
    """The model was asked these attempts once, and none after them in their turns."""

    def never(end: Examination, witness: list[tuple[str, ...]]) -> str:
        turns = {attempt.rpartition(".")[0] for attempt in attempts}
        asked = [w[0] for w in witness if w[1] == "asked" and w[0].rpartition(".")[0] in turns]
        return "" if asked == list(attempts) else f"expected {attempts} to be asked, found {asked}"

    return never


def runs(tool_id: str, *expected: str) -> Callable[[Examination, list[tuple[str, ...]]], str]:
    """The call had its effect in these runs, all under one key."""

    def never(end: Examination, witness: list[tuple[str, ...]]) -> str:
        found = [w for w in witness if w[0] == tool_id]
        same = [w[2] for w in found] == list(expected) and len({w[3] for w in found}) <= 1
        return "" if same else f"expected runs {expected} under one key, found {found}"

    return never


ROWS = {
    "accepted": Row(
        "request_accepted r1", [("resume_request", "r1")], once("input_accepted s-crash", "input_applied")
    ),
}

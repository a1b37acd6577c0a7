"""The crash table of recovery, row by row: killed after this, the plan says that, and never the other.

A process is killed right after the commit that ends with a certain event. Most
rows need the session to put each step into a commit of its own (`fine`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from minutebook.testing.crash import Ended, Witness, every_kill
from minutebook.testing.fork_server import ForkServer
from tests.crash.harness import Examination, Life, new_life
from tests.crash.script import SESSION

ROOT = Path(__file__).parents[2]

FINE: Final[dict[str, Any]] = {"fine": True}
STEERED: Final[dict[str, Any]] = {"fine": True, "steered": True}
RETRY: Final[dict[str, Any]] = {"fine": True, "on_lost_attempt": "retry"}
AS_IT_IS: Final[dict[str, Any]] = {}

LOOK, PUT, PAY = "r1.t1.a1.c0", "r1.t1.a1.c1", "r1.t1.a1.c2"
WIPE, BAN, TORN, MAIL = "r1.t2.a1.c0", "r1.t2.a1.c1", "r1.t2.a1.c2", "r1.t2.a1.c3"
WATCH, PAY_AGAIN = "r2.t1.a1.c0", "r2.t1.a1.c1"
BEGINNINGS = ("input_applied", "turn_started", "model_request_started", "tool_scheduled", "tool_started")

Plan = list[tuple[str, str]]
#: What is wrong at the end of a life, in words; empty if nothing is.
Never = Callable[[Examination, list[tuple[str, ...]]], str]


def once(*events: str) -> Never:
    """These events are in the journal, each of them once."""

    def never(end: Examination, witness: list[tuple[str, ...]]) -> str:
        times = {event: end.events.count(event) for event in events}
        return "" if set(times.values()) == {1} else f"expected once, found {times}"

    return never


def asked(turn: str, *attempts: str) -> Never:
    """For this turn the model was asked by these attempts and no others."""

    def never(end: Examination, witness: list[tuple[str, ...]]) -> str:
        found = tuple(w[0] for w in witness if w[1] == "asked" and w[0].startswith(f"{turn}."))
        return "" if found == attempts else f"expected the model to be asked by {attempts}, found {found}"

    return never


def ran(tool_id: str, *runs: str) -> Never:
    """The call had its effect in these runs, all of them under the key of the first."""

    def never(end: Examination, witness: list[tuple[str, ...]]) -> str:
        found = [w for w in witness if w[0] == tool_id]
        wanted = [(tool_id, run, f"{SESSION}/{tool_id}") for run in runs]
        fits = [(w[0], w[2], w[3]) for w in found] == wanted
        return "" if fits else f"expected {wanted}, found {found}"

    return never


def in_order(*events: str) -> Never:
    """These events are in the journal, in this order."""

    def never(end: Examination, witness: list[tuple[str, ...]]) -> str:
        rest = iter(end.events)
        missing = [event for event in events if event not in rest]
        return "" if not missing else f"expected {events} in this order, missed {missing}"

    return never


def nothing_begins_after(event: str, prefix: str) -> Never:
    """After an event nothing of a request begins."""

    def never(end: Examination, witness: list[tuple[str, ...]]) -> str:
        later = end.events[end.events.index(event) :]
        begun = [e for e in later if e.startswith(BEGINNINGS) and f" {prefix}." in e]
        return "" if not begun else f"expected nothing of {prefix} after {event}, found {begun}"

    return never


@dataclass(frozen=True, slots=True)
class Row:
    """One row: the last event when the process dies, the plan then, what must never come of it."""

    after: str
    plan: Plan
    nevers: tuple[Never, ...]
    options: dict[str, Any] = field(default_factory=lambda: FINE)
    kind: str = "automatic"


ROWS = {
    "accepted": Row(
        "request_accepted r1",
        [("resume_request", "r1")],
        (once("input_accepted i-1", "request_accepted r1", "input_applied i-1"),),
    ),
    "input applied and started": Row(
        "request_started r1",
        [("prepare_input", "r1")],
        (once("input_applied i-1", "request_started r1", "input_prepared i-1"),),
    ),
    "input prepared": Row(
        "input_prepared i-1",
        [("continue_request", "r1")],
        (once("input_prepared i-1", "turn_started r1.t1"),),
    ),
    "turn_started": Row(
        "turn_started r1.t1",
        [("next_attempt", "r1.t1")],
        (once("turn_started r1.t1"), asked("r1.t1", "r1.t1.a1")),
    ),
    "model started": Row(
        "model_request_started r1.t1.a1",
        [("reconcile_model_outcome", "r1.t1.a1")],
        (
            in_order("model_outcome_reconciled r1.t1.a1", "model_request_started r1.t1.a2"),
            asked("r1.t1", "r1.t1.a2"),
        ),
        kind="decision",
    ),
    "model started, with the recorded retry": Row(
        "model_request_started r1.t1.a1",
        [("reconcile_model_outcome", "r1.t1.a1")],
        (once("model_outcome_reconciled r1.t1.a1"), asked("r1.t1", "r1.t1.a2")),
        RETRY,
    ),
    "model completed, calls not scheduled": Row(
        "model_request_completed r1.t1.a1",
        [("schedule_call", LOOK), ("schedule_call", PUT), ("schedule_call", PAY)],
        (once("model_request_completed r1.t1.a1"), asked("r1.t1", "r1.t1.a1")),
    ),
    "tool scheduled": Row(
        f"tool_scheduled {LOOK}",
        [("evaluate", LOOK), ("schedule_call", PUT), ("schedule_call", PAY)],
        (once(f"tool_scheduled {LOOK}"), ran(LOOK, "1")),
    ),
    "tool scheduled and allowed by the policy": Row(
        f"permission_evaluated {LOOK}",
        [("start_tool", LOOK), ("schedule_call", PUT), ("schedule_call", PAY)],
        (once(f"permission_evaluated {LOOK}"), ran(LOOK, "1")),
    ),
    "permission pending": Row(
        f"permission_requested {WIPE}",
        [
            ("resolve_permissions", WIPE),
            ("schedule_call", BAN),
            ("reject_call", TORN),
            ("schedule_call", MAIL),
        ],
        (
            once(f"permission_requested {WIPE}", f"permission_resolved {WIPE}", f"tool_cancelled {WIPE}"),
            ran(WIPE),
        ),
    ),
    "allowed, not started": Row(
        f"permission_resolved {MAIL}",
        [("start_tool", MAIL)],
        (once(f"permission_requested {MAIL}", f"permission_resolved {MAIL}"), ran(MAIL, "1")),
    ),
    "started, pure": Row(
        f"tool_started {LOOK}",
        [("start_tool", LOOK), ("schedule_call", PUT), ("schedule_call", PAY)],
        (ran(LOOK, "2"),),
    ),
    "started, idempotent": Row(
        f"tool_started {PUT}",
        [("start_tool", PUT), ("schedule_call", PAY)],
        (ran(PUT, "2"),),
    ),
    "started, non-idempotent": Row(
        f"tool_started {MAIL}",
        [("reconcile_tool_outcomes", MAIL)],
        (ran(MAIL), once(f"tool_started {MAIL}", f"tool_outcome_reconciled {MAIL}")),
        kind="decision",
    ),
    "one of three finished, two running": Row(
        f"tool_completed {LOOK}",
        [("start_tool", PUT), ("reconcile_tool_outcomes", PAY)],
        (ran(LOOK, "1"), ran(PUT, "2"), ran(PAY), once(f"tool_completed {LOOK}")),
        AS_IT_IS,
    ),
    "all tools terminal": Row(
        f"tool_completed {MAIL}",
        [("complete_turn", "r1.t2")],
        (once(f"tool_completed {MAIL}", "turn_completed r1.t2"), ran(MAIL, "1")),
    ),
    "turn completed with calls": Row(
        "turn_completed r1.t1",
        [("continue_request", "r1")],
        (once("turn_completed r1.t1", "turn_started r1.t2"),),
    ),
    "turn completed, final": Row(
        "turn_completed r1.t3",
        [("finalize_request", "r1")],
        (once("request_completed r1"), asked("r1.t3", "r1.t3.a1", "r1.t3.a2")),
    ),
    "turn aborted by steering": Row(
        "turn_aborted r2.t1",
        [("apply_input", "i-now")],
        (once("input_applied i-now"), in_order("input_applied i-now", "turn_started r2.t2")),
        STEERED,
    ),
    "abort requested": Row(
        "abort_requested r2",
        [("finish_abort", "r2")],
        (once("request_interrupted r2"), nothing_begins_after("abort_requested r2", "r2")),
    ),
    "terminal, inputs waiting": Row(
        "request_completed r1",
        [("start_next_request", "i-2")],
        (once("request_completed r1", "request_accepted r2"),),
    ),
    "terminal, nothing waiting": Row(
        "request_completed r3",
        [("none", "s-crash")],
        (once("request_completed r3", "session_closed"),),
        kind="nothing",
    ),
    "closed": Row("session_closed", [("none", "s-crash")], (once("session_closed"),), kind="nothing"),
}


@pytest.mark.parametrize("name", ROWS)
def test_killed_after(name: str, server: ForkServer) -> None:
    row = ROWS[name]
    with new_life(server, **row.options) as life:
        killed_after(life, row.after)
        found = life.examine()
        assert (found.wrong, found.events[-1]) == ([], row.after)
        assert (found.plan, found.kind) == (row.plan, row.kind)
        assert lived_to_its_end(life, row.nevers) == []


def test_the_command_line_says_the_same(server: ForkServer) -> None:
    with new_life(server, **FINE) as life:
        killed_after(life, f"tool_started {MAIL}")
        command = [sys.executable, "-m", "recovery", "inspect", life.files["journal"], SESSION, "--json"]
        inspected = subprocess.run(command, capture_output=True, cwd=ROOT, timeout=60, check=False)
        assert inspected.returncode == 1, inspected.stderr
        items = orjson.loads(inspected.stdout)["items"]
        assert [(item["action"], item["subject"]) for item in items] == life.examine().plan


# --- rows that take more than one kill --------------------------------------------------------


@pytest.mark.parametrize(
    ("started", "plan"),
    [(MAIL, [("complete_turn", "r1.t2")]), (PAY_AGAIN, [("start_tool", WATCH)])],
    ids=["alone", "with a sibling"],
)
def test_killed_after_the_unknown_call_was_reconciled(started: str, plan: Plan, server: ForkServer) -> None:
    with new_life(server, **FINE) as life:
        killed_after(life, f"tool_started {started}")
        killed_after(life, f"tool_outcome_reconciled {started}")
        found = life.examine()
        assert (found.wrong, found.plan) == ([], plan)
        assert lived_to_its_end(life, (ran(started), once(f"tool_started {started}"))) == []


def test_killed_while_a_hook_prepares_the_input(server: ForkServer) -> None:
    with new_life(server, **FINE) as life:
        killed_after(life, "request_started r1")
        with_hook = life.server.run("begin_hook", **life.files)
        assert with_hook.killed is not None
        found = life.examine()
        assert (found.wrong, found.plan) == ([], [("reconcile_request_inputs", "r1")])
        assert found.kind == "decision"
        once_each = once("input_preparation_started i-1", "input_prepared i-1", "turn_started r1.t1")
        assert lived_to_its_end(life, (once_each,)) == []


def test_killed_inside_the_closing_commit(server: ForkServer) -> None:
    """Before each statement of its transaction: it is never there in part."""
    before: list[list[str]] = []

    def run(statement: int) -> Ended:
        with new_life(server, **AS_IT_IS) as life:
            ended = life.start(kill_in=("abort_requested r2", statement))
            found = life.examine(finished=ended.returncode == os.EX_OK)
            assert found.wrong == []
            if ended.killed is not None:
                assert found.plan == [("finish_abort", "r2")]
                assert found.events[-1] == "abort_requested r2"
                before.append(found.commits[-1])
                assert lived_to_its_end(life, (once("request_interrupted r2"),)) == []
            return ended

    points = [ended.killed for ended in every_kill(run)]
    assert "COMMIT" in [point for _, point in (p for p in points if p)]
    assert len(before) >= 5


def test_killed_after_the_closing_commit(server: ForkServer) -> None:
    with new_life(server, **FINE) as life:
        killed_after(life, "request_interrupted r2")
        found = life.examine()
        assert (found.wrong, found.plan) == ([], [("start_next_request", "i-3")])
        assert found.commits[-1] == ["turn_aborted r2.t1", "request_interrupted r2"]
        assert lived_to_its_end(life, (nothing_begins_after("abort_requested r2", "r2"),)) == []


def test_an_unknown_effect_outlives_its_request(server: ForkServer) -> None:
    """It is not run again, it stops nobody, and it can still be settled when the session is closed."""
    with new_life(server, **FINE) as life:
        killed_after(life, f"tool_started {PAY_AGAIN}")
        life.server.run("abandon", **life.files).completed()
        found = life.examine()
        assert (found.wrong, found.plan) == ([], [("start_next_request", "i-3")])
        assert found.unsettled == [PAY_AGAIN]
        life.start().completed()
        closed = life.examine()
        assert (closed.wrong, closed.plan, closed.unsettled) == ([], [("none", SESSION)], [PAY_AGAIN])
        settled = life.server.run("settle", **life.files, tool_id=PAY_AGAIN).completed()
        assert settled.told("status") == ["committed", "replayed"]
        end = life.examine(finished=True)
        assert (end.wrong, end.unsettled) == ([], [])
        assert ran(PAY_AGAIN)(end, Witness(life.place / "witness").lines()) == ""


# --- an allowance is good for one policy --------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "call"),
    [(f"permission_evaluated {PUT}", PUT), (f"permission_resolved {MAIL}", MAIL)],
    ids=["by the policy", "by a person"],
)
def test_killed_after_allowing_what_the_new_policy_denies(
    allowed: str, call: str, server: ForkServer
) -> None:
    with new_life(server, **FINE) as life:
        killed_after(life, allowed)
        assert (f"start_tool {call}") in [f"{action} {subject}" for action, subject in life.examine().plan]
        life.options["permission_mode"] = "plan"
        nevers = (ran(call), in_order(allowed, f"permission_evaluated {call}", f"tool_cancelled {call}"))
        assert lived_to_its_end(life, nevers) == []


# --- words ------------------------------------------------------------------------------------


def killed_after(life: Life, event: str) -> None:
    """Start the application and see it die after the commit that ends with an event."""
    ended = life.start(kill_after=event)
    assert ended.killed is not None, f"expected a kill after {event}, found {ended}"
    ended.killed_at(ended.killed[0])


def lived_to_its_end(life: Life, nevers: tuple[Never, ...]) -> list[str]:
    """Go on until the session is closed; what is wrong then."""
    life.start().completed()
    end = life.examine(finished=True)
    witness = Witness(life.place / "witness").lines()
    inputs = [item[1] for item in end.story if item[0] == "user"]
    wanted = ["i-1", "i-2", *(["i-now"] if life.options.get("steered") else []), "i-3"]
    told = [] if inputs == wanted else [f"expected inputs {wanted}, found {inputs}"]
    return [*end.wrong, *told, *filter(None, (never(end, witness) for never in nevers))]

"""`python -m recovery reconcile` on real files: decisions, refusals, dry runs."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from adapters.sqlite_store import SqliteStore
from adapters.system import this_process
from domain.decider import CloseSession
from domain.ports import Holder
from minutebook.testing.scenario import Scenario
from tests.integration.command_line import actions, call, run, traces, write
from tests.journals import (
    HOSTILE,
    asking,
    failed_attempt,
    lost_attempt,
    lost_payment,
    suspended,
    unsettled,
)

CALL = "r1.t1.a1.c0"
EVIDENCE = ["--evidence", "ticket 4"]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Where a test keeps its journal."""
    directory = tmp_path / "kept"
    directory.mkdir(mode=0o700)
    return directory / "journal.db"


def plan(journal: Path, session_id: str) -> Any:
    return call("inspect", journal, session_id, "--json").document


DECISIONS: dict[str, tuple[Scenario, list[str], str]] = {
    "model lost": (
        lost_attempt("s-1"),
        ["model", "r1.t1.a1", "--outcome", "lost", *EVIDENCE],
        "next_attempt",
    ),
    "model failed": (
        lost_attempt("s-1"),
        ["model", "r1.t1.a1", "--outcome", "failed", "--message", "refused", *EVIDENCE],
        "fail_request",
    ),
    "tool completed": (
        lost_payment("s-1"),
        ["tool", CALL, "--outcome", "completed", "--output", "paid", "--value", '{"id":1}', *EVIDENCE],
        "complete_turn",
    ),
    "effect settled": (unsettled("s-1"), ["tool", CALL, "--outcome", "cancelled", *EVIDENCE], "none"),
    "effect settled after closing": (
        unsettled("s-1").given(CloseSession("done")),
        ["tool", CALL, "--outcome", "failed", *EVIDENCE],
        "none",
    ),
    "allowed": (asking("s-1"), ["permission", CALL, "--allow"], "start_tool"),
    "denied": (asking("s-1"), ["permission", f"{CALL}.p1", "--deny", "--message", "no"], "complete_turn"),
    "allowed with another input": (
        asking("s-1"),
        ["permission", CALL, "--allow", "--updated-input", '{"cents":1}'],
        "evaluate",
    ),
    "answered": (suspended("s-1"), ["suspension", CALL, "--answer", '"1234"'], "start_tool"),
    "abandoned": (lost_payment("s-1"), ["abandon", "--reason", "it hangs"], "none"),
    "automatic": (failed_attempt("s-1"), ["automatic"], "none"),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_is_carried_out_and_the_plan_goes_on(journal: Path, name: str) -> None:
    scenario, words, then = DECISIONS[name]
    write(journal, scenario)
    found = call("reconcile", journal, "s-1", *words, "--by", "ann")
    assert (found.code, found.err) == (0, "")
    assert "committed: event" in found.out
    assert actions(plan(journal, "s-1"))[0] == then
    assert call("verify", journal).code == 4


@pytest.mark.parametrize("name", DECISIONS)
def test_a_dry_run_says_what_it_would_append_and_writes_nothing(journal: Path, name: str) -> None:
    scenario, words, then = DECISIONS[name]
    write(journal, scenario)
    before = traces(journal)
    found = call("reconcile", journal, "s-1", *words, "--dry-run")
    assert (found.code, found.err) == (0, "")
    assert "would" in found.out
    assert then in found.out or name == "automatic"
    assert traces(journal) == before


def test_it_works_as_a_child_process_and_says_who_and_why(journal: Path) -> None:
    write(journal, lost_payment())
    found = run(
        "reconcile", journal, "s-pay", "tool", CALL, "--outcome", "completed", *EVIDENCE, "--by", "ann"
    )
    assert (found.code, found.err) == (0, "")
    minutes = call("timeline", journal, "s-pay", "--after", "12").out
    assert "tool_outcome_reconciled" in minutes
    assert "completed; ticket 4" in minutes
    assert "operator ann" in minutes


def test_a_whole_response_comes_from_a_file(journal: Path, tmp_path: Path) -> None:
    write(journal, lost_attempt())
    response = tmp_path / "response.json"
    kept = {"blocks": [{"kind": "text", "text": "hello"}], "stop": "end", "usage": {"input_tokens": 3}}
    response.write_bytes(orjson.dumps(kept))
    words = ["reconcile", str(journal), "s-lost", "model", "r1.t1.a1", "--outcome", "completed", *EVIDENCE]
    assert call(*words, "--response", response).code == 0
    assert actions(plan(journal, "s-lost"))[0] == "complete_turn"
    assert "hello" in call("replay", journal, "s-lost").out


REFUSALS: dict[str, tuple[Scenario, list[str], str]] = {
    "not due": (lost_payment("s-1"), ["model", "r1.t1.a1", "--outcome", "lost", *EVIDENCE], "INVALID_STATE"),
    "another call": (
        lost_payment("s-1"),
        ["tool", "r9.t9.a9.c9", "--outcome", "failed", *EVIDENCE],
        "INVALID_STATE",
    ),
    "another digest": (asking("s-1"), ["permission", CALL, "--allow", "--digest", "00"], "INVALID_STATE"),
    "no evidence": (
        lost_attempt("s-1"),
        ["model", "r1.t1.a1", "--outcome", "lost", "--evidence", " "],
        "evidence",
    ),
    "no response": (
        lost_attempt("s-1"),
        ["model", "r1.t1.a1", "--outcome", "completed", *EVIDENCE],
        "response",
    ),
    "no file": (
        lost_attempt("s-1"),
        ["model", "r1.t1.a1", "--outcome", "completed", "--response", "/none", *EVIDENCE],
        "No such file",
    ),
    "no JSON": (suspended("s-1"), ["suspension", CALL, "--answer", "{"], "--answer"),
    "no object": (asking("s-1"), ["permission", CALL, "--allow", "--updated-input", "[]"], "JSON object"),
    "no verdict": (asking("s-1"), ["permission", CALL], "required"),
    "no outcome": (lost_payment("s-1"), ["tool", CALL, *EVIDENCE], "--outcome"),
    "an unknown outcome": (lost_payment("s-1"), ["tool", CALL, "--outcome", "eaten", *EVIDENCE], "eaten"),
    "nothing to abandon": (unsettled("s-1"), ["abandon", "--reason", "x"], "no request"),
    "another session": (lost_payment("s-2"), ["abandon", "--reason", "x"], "SESSION_NOT_FOUND"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_decision_writes_nothing_and_says_why(journal: Path, name: str) -> None:
    scenario, words, told = REFUSALS[name]
    write(journal, scenario)
    head = [row["head"] for row in call("inspect", journal, "--json").document["plans"]]
    found = call("reconcile", journal, "s-1", *words)
    assert found.code in (2, 3)
    assert found.code == 2 or name == "no file"
    assert told in found.err
    assert [row["head"] for row in call("inspect", journal, "--json").document["plans"]] == head


def test_an_export_and_a_missing_file_take_no_decisions(tmp_path: Path, journal: Path) -> None:
    write(journal, lost_payment())
    export = tmp_path / "e.jsonl"
    assert call("export", journal, "--output", export).code == 0
    found = call("reconcile", export, "s-pay", "abandon", "--reason", "x")
    assert (found.code, "an export does not" in found.err) == (2, True)
    missing = call("reconcile", tmp_path / "missing.db", "s-pay", "abandon", "--reason", "x")
    assert missing.code == 3
    assert not (tmp_path / "missing.db").exists()


def test_the_same_command_again_changes_nothing(journal: Path) -> None:
    write(journal, lost_payment())
    words = [
        "reconcile",
        str(journal),
        "s-pay",
        "tool",
        CALL,
        "--outcome",
        "failed",
        *EVIDENCE,
        "--command-id",
        "d-1",
    ]
    assert "committed: event 13" in call(*words).out
    assert "replayed: event 13" in call(*words).out
    other = call(*words[:-2], "--command-id", "d-1", "--output", "something else")
    assert (other.code, "DURABLE_COMMAND_CONFLICT" in other.err) == (3, True)


def hold(journal: Path, session_id: str, holder: Holder) -> None:
    async def main() -> None:
        async with SqliteStore(journal).open() as opened:
            await opened.leases.acquire(session_id, holder, 60_000)

    anyio.run(main)


def test_a_live_holder_keeps_the_session(journal: Path) -> None:
    write(journal, lost_payment())
    us = this_process()
    hold(journal, "s-pay", Holder("worker-7", "l-1", us.boot_id, us.process_id, us.process_started))
    document = plan(journal, "s-pay")
    assert (document["lease"]["holder"], document["lease"]["lives"]) == ("worker-7", True)
    found = call("reconcile", journal, "s-pay", "abandon", "--reason", "x")
    assert (found.code, "DURABLE_EXECUTION_LEASE_CONFLICT" in found.err) == (3, True)
    assert "worker-7" in found.err
    assert "worker-7, process" in call("inspect", journal, "s-pay").out


def test_a_dead_holder_does_not(journal: Path) -> None:
    write(journal, lost_payment())
    us = this_process()
    hold(journal, "s-pay", Holder("worker-7", "l-1", us.boot_id, 2**22 + 1, "1"))
    assert plan(journal, "s-pay")["lease"]["lives"] is False
    assert call("reconcile", journal, "s-pay", "abandon", "--reason", "x").code == 0
    assert plan(journal, "s-pay")["lease"]["token"] == 2


def test_a_message_shows_no_hostile_text(journal: Path) -> None:
    write(journal, lost_payment())
    found = call(
        "reconcile", journal, "s-pay", "tool", HOSTILE.replace("\0", ""), "--outcome", "failed", *EVIDENCE
    )
    assert found.code == 2
    assert "\x1b" not in found.err
    assert "\\x1b[31mred" in found.err


def test_the_owner_of_the_session_is_found(journal: Path) -> None:
    write(journal, lost_payment(), owner_id="ann")
    assert call("reconcile", journal, "s-pay", "abandon", "--reason", "x", "--owner", "bob").code == 2
    assert call("reconcile", journal, "s-pay", "abandon", "--reason", "x").code == 0


def test_a_journal_that_cannot_be_followed_takes_no_decisions(journal: Path) -> None:
    write(journal, lost_payment())
    connection = sqlite3.connect(journal)
    with connection:
        connection.execute("UPDATE minutebook_events SET payload = x'7b7d' WHERE originator_version = 9")
    connection.close()
    for extra in ([], ["--dry-run"]):
        found = call("reconcile", journal, "s-pay", "abandon", "--reason", "x", *extra)
        assert found.code in (2, 3)
        assert "sequence 9" in found.err
    assert plan(journal, "s-pay")["lease"] is None


def test_a_dry_run_works_after_somebody_has_held_the_session(journal: Path) -> None:
    write(journal, lost_payment())
    settled = call("reconcile", journal, "s-pay", "tool", CALL, "--outcome", "completed", *EVIDENCE)
    assert settled.code == 0
    found = call("reconcile", journal, "s-pay", "abandon", "--reason", "enough", "--dry-run")
    assert (found.code, found.err) == (0, "")
    assert "request_interrupted" in found.out

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
from minutebook.testing.scenario import Scenario, responded
from tests.integration.command_line import actions, call, run, traces, write
from tests.journals import (
    BEGUN,
    HOSTILE,
    asking,
    failed_attempt,
    foreign,
    lost_attempt,
    lost_hooks,
    lost_payment,
    retryable,
    session_of,
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
    "prepared": (
        lost_hooks("s-1"),
        ["inputs", "--contents", '{"i-1":"hello!"}', *EVIDENCE],
        "continue_request",
    ),
    "ended": (
        foreign("s-1"),
        ["request", "--outcome", "interrupted", "--message", "moved", *EVIDENCE],
        "none",
    ),
    "a request rolled over": (
        lost_hooks("s-1"),
        ["rollover-request", "--applied", "i-1", "--content", "hello!", "--max-turns", "3", *EVIDENCE],
        "resume_request",
    ),
    "a turn rolled over": (
        retryable("s-1"),
        ["rollover-turn", "--parts", '[{"type":"text","text":"go on"}]', *EVIDENCE],
        "resume_request",
    ),
    "automatic": (failed_attempt("s-1"), ["automatic"], "none"),
    "automatic, several commits": (
        session_of(*BEGUN, responded(text="the answer"), session_id="s-1"),
        ["automatic"],
        "none",
    ),
    "nothing automatic": (lost_payment("s-1"), ["automatic"], "reconcile_tool_outcomes"),
}
#: What the minutes say of a decision besides who took it and under which command.
RECORDED = {
    "model lost": "lost; ticket 4",
    "model failed": "failed; ticket 4",
    "tool completed": "completed; ticket 4",
    "effect settled": "cancelled; ticket 4",
    "effect settled after closing": "failed; ticket 4",
    "allowed": "allow",
    "denied": "deny no",
    "allowed with another input": "allow",
    "answered": "answered 1234",
    "abandoned": "abandoned; it hangs",
    "prepared": "ticket 4",
    "ended": "moved; ticket 4",
    "a request rolled over": "by r2: request_recovery; ticket 4",
    "a turn rolled over": "by r2: turn_recovery; ticket 4",
}


def test_the_table_of_what_is_recorded_is_whole() -> None:
    assert set(DECISIONS) - set(RECORDED) == {"automatic", "automatic, several commits", "nothing automatic"}


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_is_carried_out_and_the_plan_goes_on(journal: Path, name: str) -> None:
    scenario, words, then = DECISIONS[name]
    write(journal, scenario)
    found = call("reconcile", journal, "s-1", *words, "--by", "ann", "--command-id", "d-1")
    assert (found.code, found.err) == (0, "")
    assert ("committed: event" in found.out) is (name != "nothing automatic")
    assert actions(plan(journal, "s-1"))[0] == then
    assert call("verify", journal).code == 4
    minutes = call("timeline", journal, "s-1", "--after", str(len(scenario.events))).out.splitlines()
    by_ann = [line for line in minutes if "operator ann / operator" in line]
    assert name == "nothing automatic" or "lease_acquired s-1" in by_ann[0]
    assert name not in RECORDED or any(f"{RECORDED[name]}; command d-1" in line for line in minutes), minutes


@pytest.mark.parametrize("name", DECISIONS)
def test_a_dry_run_writes_nothing_and_says_what_is_appended_then(journal: Path, name: str) -> None:
    scenario, words, then = DECISIONS[name]
    write(journal, scenario)
    before = traces(journal)
    found = call("reconcile", journal, "s-1", *words, "--dry-run")
    assert (found.code, found.err) == (0, "")
    assert "would" in found.out
    now, next_ = (line for line in found.out.splitlines() if line.startswith(("now: ", "next: ")))
    assert next_.startswith(f"next: {then} ")
    assert now.startswith(f"now: {actions(plan(journal, 's-1'))[0]} ")
    dry = call("reconcile", journal, "s-1", *words, "--dry-run", "--json").document
    assert traces(journal) == before
    real = call("reconcile", journal, "s-1", *words, "--json").document
    assert [d["format"] for d in (dry, real)] == ["minutebook.reconciliation/1"] * 2
    assert [d["dry_run"] for d in (dry, real)] == [True, False]
    told = [[(event["sequence"], event["type"]) for event in commit] for commit in dry["would_append"]]
    assert [(r["first_sequence"], r["last_sequence"]) for r in real["receipts"]] == [
        (commit[0][0], commit[-1][0]) for commit in told
    ]
    rows = orjson.loads(f"[{','.join(call('export', journal).out.splitlines()[2:-1])}]")
    added = [row["topic"].partition("@")[0] for row in rows if row.get("sequence", 0) > len(scenario.events)]
    assert [type_ for commit in told for _, type_ in commit] == added
    for moment in ("plan_before", "plan_after"):
        assert actions(dry[moment]) == actions(real[moment])
        assert dry[moment]["head"]["sequence"] == real[moment]["head"]["sequence"]


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
    "over a payment": (lost_payment("s-1"), ["rollover-turn", *EVIDENCE], "UNSAFE_ROLLOVER"),
    "other applied inputs": (lost_hooks("s-1"), ["rollover-request", *EVIDENCE], "['i-1'], got []"),
    "no parts": (retryable("s-1"), ["rollover-turn", "--parts", '["x"]', *EVIDENCE], "JSON list of objects"),
    "no turns": (retryable("s-1"), ["rollover-turn", "--max-turns", "201", *EVIDENCE], "max_turns"),
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
    dry = call("reconcile", journal, "s-1", *words, "--dry-run")
    assert (dry.code, dry.out, told in dry.err) == (found.code, "", True)


def test_an_export_and_a_missing_file_take_no_decisions(tmp_path: Path, journal: Path) -> None:
    write(journal, lost_payment())
    export = tmp_path / "e.jsonl"
    assert call("export", journal, "--output", export).code == 0
    for extra in ([], ["--dry-run"]):
        found = call("reconcile", export, "s-pay", "abandon", "--reason", "x", *extra)
        assert (found.code, "an export does not" in found.err) == (2, True)
        missing = call("reconcile", tmp_path / "missing.db", "s-pay", "abandon", "--reason", "x", *extra)
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
    assert "committed: events 13 to 14" in call(*words).out
    for extra in ([], ["--dry-run"]):
        assert "replayed: events 13 to 14" in call(*words, *extra).out
        assert call(*words, *extra, "--json").document["receipts"][0]["status"] == "replayed"
        other = call(*words[:-2], "--command-id", "d-1", "--output", "something else", *extra)
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
    before = traces(journal)
    for extra in ([], ["--dry-run"], ["--json"], ["--command-id", "d-1"]):
        found = call("reconcile", journal, "s-pay", "abandon", "--reason", "x", *extra)
        assert (found.code, "DURABLE_EXECUTION_LEASE_CONFLICT" in found.err, found.out) == (3, True, "")
        assert f"held by worker-7 until {document['lease']['expires_at'][:19]}" in found.err
    assert traces(journal).keys() == before.keys()
    assert plan(journal, "s-pay") == document
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
        assert (found.code, found.out) == (3, "")
        assert "sequence 9" in found.err
    assert plan(journal, "s-pay")["lease"] is None


def test_a_dry_run_works_after_somebody_has_held_the_session(journal: Path) -> None:
    write(journal, lost_payment())
    settled = call("reconcile", journal, "s-pay", "tool", CALL, "--outcome", "completed", *EVIDENCE)
    assert settled.code == 0
    found = call("reconcile", journal, "s-pay", "abandon", "--reason", "enough", "--dry-run")
    assert (found.code, found.err) == (0, "")
    assert "request_interrupted" in found.out

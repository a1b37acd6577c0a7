"""`python -m recovery inspect, verify, replay, timeline` on real files, as child processes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from domain import inputs, permission, session
from domain.values import Priority, Verdict
from minutebook.testing.scenario import (
    PAY,
    Called,
    Scenario,
    accepted,
    created,
    evaluated,
    in_call,
    responded,
    scheduled,
    started,
)
from tests.integration.command_line import ROOT, Ran, actions, call, run, traces, write
from tests.journals import (
    HOSTILE,
    asking,
    failed_attempt,
    long,
    lost_attempt,
    lost_payment,
    session_of,
    suspended,
    three_calls,
    unsettled,
)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Where a test keeps its journal."""
    directory = tmp_path / "kept"
    directory.mkdir(mode=0o700)
    return directory / "journal.db"


def damage(path: Path, statement: str) -> None:
    """Change a journal file behind everybody's back."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()


# --- inspect: exit codes ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "code", "first"),
    [
        (session_of(created()), 0, "none"),
        (failed_attempt("s-test"), 0, "fail_request"),
        (asking("s-test"), 1, "resolve_permissions"),
        (suspended("s-test"), 1, "answer_suspensions"),
        (lost_attempt("s-test"), 1, "reconcile_model_outcome"),
        (three_calls("s-test"), 1, "start_tool"),
        (unsettled("s-test"), 0, "none"),
    ],
)
def test_the_exit_code_says_whether_anybody_is_needed(
    journal: Path, scenario: Scenario, code: int, first: str
) -> None:
    found = call("inspect", write(journal, scenario), "s-test", "--json")
    assert (found.code, found.err) == (code, "")
    assert actions(found.document)[0] == first


def test_of_several_sessions_the_worst_counts(journal: Path) -> None:
    write(journal, session_of(created()), failed_attempt())
    assert call("inspect", journal).code == 0
    write(journal, asking())
    assert call("inspect", journal).code == 1
    damage(
        journal,
        "UPDATE minutebook_events SET payload = x'7b7d' WHERE originator_id = 's-failed' AND rowid > 5",
    )
    assert call("inspect", journal).code == 3


LOST = ["model", "r1.t1.a1", "--outcome", "completed", "--evidence", "the log"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect"],
        ["inspect", "{journal}", "s-none"],
        ["inspect", "{journal}", "../etc"],
        ["inspect", "{journal}", "--at", "3"],
        ["inspect", "{journal}", "s-lost", "--at", "99"],
        ["inspect", "{journal}", "s-lost", "--at", "0"],
        ["inspect", "{journal}", "s-lost", "--at", "soon"],
        ["inspect", "mysql://localhost/minutes"],
        ["inspect", "postgresql://localhost:many/minutes"],
        ["verify", "{journal}", "--expect-head", "beef"],
        ["replay", "{journal}"],
        ["timeline", "{journal}", "s-lost", "--after", "-1"],
        ["timeline", "{journal}", "s-lost", "--limit", "9" * 500],
        ["export", "{journal}", "--output", "{journal}/no/directory"],
        ["reconcile", "missing.jsonl", "s-lost", "automatic"],
        ["reconcile", "missing.jsonl", "s-lost", "automatic", "--dry-run"],
        ["reconcile", "{journal}", "s-lost", *LOST, "--response", "missing.json"],
        ["reconcile", "{journal}", "s-lost", *LOST, "--response", "{journal}"],
        ["guess", "{journal}"],
        [],
    ],
)
def test_wrong_usage_is_two_and_one_message(journal: Path, arguments: list[str]) -> None:
    write(journal, lost_attempt())
    found = call(*[a.format(journal=journal) for a in arguments])
    assert (found.code, found.out) == (2, "")
    assert found.err


def test_a_wrong_number_is_told_what_would_be_right(journal: Path) -> None:
    write(journal, lost_attempt())
    assert "expected a number, 1 or more, got '0'" in call("inspect", journal, "s-lost", "--at", "0").err
    assert "expected a head, 64 hexadecimal digits" in call("verify", journal, "--expect-head", "beef").err


def test_what_cannot_be_read_is_three(tmp_path: Path) -> None:
    prose = tmp_path / "prose.db"
    prose.write_text("this is not a journal " * 100)
    other = tmp_path / "other.db"
    sqlite3.connect(other).execute("CREATE TABLE t (x)").connection.close()
    for path in (tmp_path / "missing.db", prose, other, tmp_path):
        found = call("inspect", path)
        assert (found.code, found.out) == (3, "")
        assert "NOT_A_JOURNAL" in found.err


def test_the_codes_are_those_of_the_process(journal: Path) -> None:
    write(journal, lost_attempt())
    assert run("inspect", journal).code == 1
    assert run("inspect", journal, "s-none").code == 2
    assert run("inspect", journal.with_name("missing.db")).code == 3


# --- inspect: what it says ----------------------------------------------------------------


def test_a_person_finds_everything_in_the_report(journal: Path) -> None:
    found = call("inspect", write(journal, three_calls(), unsettled()))
    for text in (
        "session s-three",
        "local",
        "the links of events 1 to 17",
        "never leased",
        "resume_turn: 2 automatic, 1 person",
        "start_tool",
        "resolve_permissions",
        "pending inputs",
        "and then this",
        "open interactions",
        "pay 5 cents?",
        '{"cents":5}',
        "unsettled effects",
        "key-r1.t1.a1.c0",
        f"python -m recovery reconcile {journal} s-three permission r1.t1.a1.c1.p1 --allow --digest",
        "2 sessions: 1 nothing to do, 1 goes on by itself",
    ):
        assert text in found.out, text


def test_no_line_of_a_table_is_wider_than_a_hundred_columns(journal: Path) -> None:
    found = call("inspect", write(journal, three_calls(), unsettled(), suspended()))
    wide = [line for line in found.out.splitlines() if len(line) > 100]
    other = [line for line in wide if " reconcile " not in line and "coordinator." not in line]
    assert [line for line in other if "sessions: " not in line] == []
    assert wide  # commands are never broken, so that they can be copied


def test_the_document_is_versioned_and_holds_what_was_read(journal: Path) -> None:
    document = call("inspect", write(journal, three_calls()), "s-three", "--json").document
    assert document["format"] == "minutebook.recovery-plan/1"
    assert document["journal"] == str(journal)
    assert (document["kind"], document["heading"]) == ("automatic", "resume_turn")
    assert document["head"]["sequence"] == 17
    assert document["verified"] == {"first": 1, "last": 17, "from_snapshot": 0}
    assert document["pending_inputs"][0]["content"] == "and then this"
    assert document["permissions"][0]["input"] == {"cents": 5}
    assert document["lease"] is None


def test_the_document_of_a_whole_journal_is_a_list(journal: Path) -> None:
    document = call("inspect", write(journal, three_calls(), asking()), "--json").document
    assert document["format"] == "minutebook.recovery-plans/1"
    assert [plan["session_id"] for plan in document["plans"]] == ["s-ask", "s-three"]
    assert call("inspect", write(journal.with_name("empty.db")), "--json").document["plans"] == []


def test_a_session_as_it_was(journal: Path) -> None:
    write(journal, lost_payment())
    at_three = call("inspect", journal, "s-pay", "--at", "3", "--json").document
    assert (at_three["head"]["sequence"], actions(at_three)) == (3, ["resume_request"])
    inside = call("inspect", journal, "s-pay", "--at", "5")
    assert "Sequence 5 is inside command cmd-3; shown as of 3." in inside.out


def test_everything_can_be_checked_on_the_way(journal: Path) -> None:
    write(journal, long(300))
    found = call("inspect", journal, "s-long", "--verify", "--json")
    assert (found.code, found.document["verification"]["result"]) == (0, "consistent")
    assert found.document["verified"]["from_snapshot"] == 261
    damage(journal, "UPDATE minutebook_events SET payload = x'7b7d' WHERE originator_version = 7")
    assert call("inspect", journal, "s-long").code == 0  # it reads the snapshot and what follows
    assert call("inspect", journal, "s-long", "--verify").code == 3


def test_another_owners_session_is_not_found(journal: Path) -> None:
    write(journal, lost_attempt(), owner_id="ann")
    assert call("inspect", journal, "s-lost").code == 1
    assert call("inspect", journal, "s-lost", "--owner", "ann").code == 1
    found = call("inspect", journal, "s-lost", "--owner", "bob")
    assert (found.code, "SESSION_NOT_FOUND" in found.err) == (2, True)


# --- hostile text -------------------------------------------------------------------------


def hostile() -> Scenario:
    """A session with a hostile text wherever somebody else chooses one."""
    begin = (created(), accepted(HOSTILE, input_id="i-1"), started())
    called = Called(HOSTILE, '{"a":"' + "\\u001b[2J\\u202e" + '"}')
    question = permission.Ask(HOSTILE)
    return session_of(
        *begin,
        responded(called, PAY, text=HOSTILE),
        [scheduled(0, called), evaluated(0, Verdict.ASK), *in_call(0, question)],
        inputs.AcceptInput(HOSTILE, HOSTILE, Priority.LATER, 2),
        session.Note(HOSTILE, HOSTILE),
        session_id="s-evil",
    )


@pytest.mark.parametrize("command", ["inspect", "timeline", "replay", "verify"])
def test_no_hostile_text_reaches_the_terminal(journal: Path, command: str) -> None:
    found = call(command, write(journal, hostile()), "s-evil")
    assert found.out
    assert "\\x1b[31mred" in found.out or command == "verify"
    for character in found.out + found.err:
        category = unicodedata.category(character)
        assert character == "\n" or category not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"), repr(
            character
        )


@pytest.mark.parametrize("command", ["inspect", "replay"])
def test_documents_are_ascii_whatever_they_hold(journal: Path, command: str) -> None:
    found = call(command, write(journal, hostile()), "s-evil", "--json")
    assert found.document
    assert not any(ord(c) < 32 and c != "\n" for c in found.out)


# --- reading only -------------------------------------------------------------------------


LOOKING = [
    ["inspect", "{journal}"],
    ["inspect", "{journal}", "s-pay", "--verify", "--json"],
    ["verify", "{journal}"],
    ["replay", "{journal}", "s-pay"],
    ["timeline", "{journal}", "s-pay"],
    ["export", "{journal}"],
]


@pytest.mark.parametrize("arguments", LOOKING, ids=[" ".join(a[:1] + a[3:]) for a in LOOKING])
def test_looking_changes_no_byte_and_no_time(journal: Path, arguments: list[str]) -> None:
    write(journal, lost_payment())
    before = traces(journal)
    assert run(*[a.format(journal=journal) for a in arguments]).code in (0, 1, 4)
    assert traces(journal) == before


HOLD = """
import os, sys, anyio
from pathlib import Path
from adapters.sqlite_store import SqliteStore
from minutebook.testing.keeping import batches
from tests.journals import lost_payment

async def main():
    async with SqliteStore(sys.argv[1]).open() as journal:
        all_ = list(batches(lost_payment().entries))
        for batch in all_[:-1]:
            await journal.commit(batch)
        print("written", flush=True)
        if sys.stdin.readline() == "die\\n":
            os.kill(os.getpid(), 9)
        await journal.commit(all_[-1])
        print("committed", flush=True)
        sys.stdin.readline()

anyio.run(main)
"""


def writer(journal: Path) -> subprocess.Popen[str]:
    """A process that has the journal open, all but the last commit written."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(journal)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    hear(child, "written")
    return child


def hear(child: subprocess.Popen[str], line: str) -> None:
    assert child.stdout is not None
    assert child.stdout.readline() == line + "\n"


def tell(child: subprocess.Popen[str], line: str) -> None:
    assert child.stdin is not None
    child.stdin.write(line + "\n")
    child.stdin.flush()


def test_looking_works_while_another_process_writes(journal: Path) -> None:
    child = writer(journal)
    with child:
        assert actions(call("inspect", journal, "s-pay", "--json").document) == ["schedule_call"]
        assert call("verify", journal).code == 4
        tell(child, "go on")
        hear(child, "committed")
        assert actions(call("inspect", journal, "s-pay", "--json").document) == ["reconcile_tool_outcomes"]
        tell(child, "end")
    assert child.returncode == 0


def test_a_killed_writer_leaves_a_journal_that_can_be_read_without_a_trace(journal: Path) -> None:
    with writer(journal) as child:
        tell(child, "die")
        child.wait()
    before = traces(journal)
    found = run("inspect", journal, "s-pay", "--json")
    assert (found.code, actions(found.document)) == (0, ["schedule_call"])
    assert found.document["head"]["sequence"] == 9
    assert run("verify", journal).code == 4
    assert traces(journal) == before


# --- verify -------------------------------------------------------------------------------


def head_of(journal: Path, session_id: str) -> str:
    head: str = call("inspect", journal, session_id, "--json").document["head"]["hash"]
    return head


def test_verify_is_four_without_and_zero_with_a_head_from_elsewhere(journal: Path) -> None:
    write(journal, long(300))
    assert call("verify", journal).code == 4
    found = call("verify", journal, "--expect-head", head_of(journal, "s-long"))
    assert found.code == 0
    assert "proven" in found.out
    assert "4 folded again" not in found.out
    assert call("verify", journal, "--expect-head", "00" * 32).code == 1


def test_verify_names_the_first_bad_event(journal: Path) -> None:
    write(journal, long(300))
    damage(journal, "UPDATE minutebook_events SET payload = x'7b7d' WHERE originator_version = 77")
    found = call("verify", journal, "--json")
    (only,) = found.document["verifications"]
    assert (found.code, only["result"], only["events"]) == (1, "broken", 76)
    assert (only["problems"][0]["check"], only["problems"][0]["sequence"]) == ("payload", 77)
    text = call("verify", journal, "s-long")
    assert (text.code, "payload at sequence 77" in text.out) == (1, True)


@pytest.mark.parametrize(
    ("statement", "check"),
    [
        ("DELETE FROM minutebook_events WHERE originator_version = 9", "sequence"),
        ("UPDATE minutebook_events SET head = zeroblob(32) WHERE originator_version = 9", "chain"),
        ("DELETE FROM minutebook_events WHERE originator_version > 9", "sequence"),
        ("UPDATE minutebook_sessions SET head = zeroblob(32)", "head"),
        ("UPDATE minutebook_sessions SET sequence = 9", "head"),
        ("DELETE FROM minutebook_commands WHERE first_sequence = 9", "command"),
        ("UPDATE minutebook_sessions SET owner_id = 'mallory'", "owner"),
        ("UPDATE minutebook_events SET state = 'text' WHERE originator_version = 9", "event"),
    ],
)
def test_verify_finds_what_was_changed_in_the_file(journal: Path, statement: str, check: str) -> None:
    write(journal, lost_payment())
    damage(journal, statement)
    found = call("verify", journal, "s-pay", "--json")
    assert (found.code, found.document["result"]) == (1, "broken")
    assert check in [problem["check"] for problem in found.document["problems"]]
    assert call("inspect", journal, "s-pay").code in (1, 3)


def test_several_sessions_cannot_share_one_head(journal: Path) -> None:
    write(journal, asking(), lost_payment())
    found = call("verify", journal, "--expect-head", "00" * 32)
    assert (found.code, "SESSION" in found.err) == (2, True)


# --- replay and timeline ------------------------------------------------------------------


def test_replay_rebuilds_what_was_there(journal: Path) -> None:
    found = call("replay", write(journal, three_calls()), "s-three", "--json")
    document = found.document
    assert (found.code, document["format"], document["sequence"]) == (0, "minutebook.replay/1", 17)
    assert [item["kind"] for item in document["transcript"]] == ["user", "exchange"]
    assert [call["outcome"] for call in document["transcript"][1]["calls"]] == ["open", "open", "open"]
    assert document["usage"]["session"]["tokens"] == {"input_tokens": 3, "output_tokens": 2}
    assert [item["input_id"] for item in document["pending_inputs"]] == ["i-2"]
    assert [item["name"] for item in document["permissions"]] == ["pay"]
    assert document["session"]["status"] == "open"
    earlier = call("replay", journal, "s-three", "--at", "8", "--json").document
    assert [item["kind"] for item in earlier["transcript"]] == ["user"]


def test_replay_shows_the_good_part_and_then_the_problem(journal: Path) -> None:
    write(journal, three_calls())
    damage(journal, "UPDATE minutebook_events SET payload = x'7b7d' WHERE originator_version = 12")
    found = call("replay", journal, "s-three")
    assert found.code == 3
    assert "as of event 11" in found.out
    assert "payload at sequence 12" in found.out


def test_the_timeline_is_printed_event_by_event(journal: Path) -> None:
    found = call("timeline", write(journal, lost_payment()), "s-pay")
    assert found.code == 0
    for text in ("tool_started", "model_request_completed", "pay (non_idempotent)", "1.0 s", "host"):
        assert text in found.out, text
    part = call("timeline", journal, "s-pay", "--after", "8", "--limit", "1")
    assert "model_request_completed" in part.out
    assert "tool_scheduled" not in part.out


# --- the command itself -------------------------------------------------------------------


def test_a_closed_pipe_is_no_error_message(journal: Path) -> None:
    write(journal, long(600))
    child = subprocess.Popen(
        [sys.executable, "-m", "recovery", "timeline", str(journal), "s-long"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.readline()
    child.stdout.close()
    assert child.stderr.read() == ""
    child.stderr.close()
    assert child.wait() in (0, 141)


LISTEN = """
import socket, sys

def refuse(*arguments, **options):
    raise AssertionError("a socket")

socket.socket.connect = socket.create_connection = refuse
from recovery.cli import main

for words in (["replay", sys.argv[1], "s-pay"], ["inspect", sys.argv[1]], ["verify", sys.argv[1]]):
    main(words)
sdks = {"openai", "anthropic", "httpx", "httpx2", "google", "mcp", "psycopg"}
print("loaded", sorted(sdks & {name.partition(".")[0] for name in sys.modules}))
"""


def test_looking_loads_no_provider_and_opens_no_socket(journal: Path) -> None:
    write(journal, lost_payment())
    child = subprocess.run(
        [sys.executable, "-c", LISTEN, str(journal)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert child.stdout.endswith("loaded []\n")


def test_help_is_there_for_every_command() -> None:
    for words in ([], ["inspect"], ["reconcile"], ["reconcile", "j", "s", "tool"]):
        found = call(*words, "--help")
        assert (found.code, found.err) == (0, "")
        assert found.out.startswith("usage: python -m recovery")


def test_minutebook_is_the_same_command(journal: Path) -> None:
    write(journal, lost_attempt())
    code = "import sys; from minutebook.cli import main; sys.exit(main())"
    child = subprocess.run(
        [sys.executable, "-c", code, "inspect", str(journal), "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (child.returncode, child.stdout) == _as(call("inspect", journal, "--json"))


def _as(ran: Ran) -> tuple[int, str]:
    return ran.code, ran.out

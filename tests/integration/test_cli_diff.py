"""`python -m recovery diff`: what changed between two points, for people and for programs."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from domain import tool
from domain.decider import SettleEffect
from domain.session import Change
from minutebook.testing.scenario import Scenario
from tests.integration.command_line import call, run, traces, write
from tests.journals import HOSTILE, lost_payment, unsettled


def settled(output: str = "paid") -> Scenario:
    """An effect was settled after its request had been abandoned."""
    return unsettled("s-1").given(SettleEffect("r1.t1.a1.c0", tool.Reconcile("completed", "bank", output)))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return write(tmp_path / "journal.db", settled())


def test_people_see_what_changed(journal: Path) -> None:
    before = traces(journal)
    found = run("diff", journal, "s-1", "--from", "12", "--to", "16")
    assert (found.code, found.err) == (0, "")
    for told in (
        "session s-1 from event 12 to 16",
        "1 request_interrupted",
        "reconcile_tool_outcomes r1.t1.a1.c0 -> none s-1",
        "~ [9] model r1.t1.a1",
        "r1.t1.a1.c0 pay open -> completed",
    ):
        assert told in found.out
    assert traces(journal) == before


def test_programs_read_a_document(journal: Path) -> None:
    found = call("diff", journal, "s-1", "--from", "9", "--to", "12", "--json").document
    assert (found["format"], found["from"], found["to"]) == ("minutebook.difference/1", 9, 12)
    assert found["events"] == {"permission_evaluated": 1, "tool_scheduled": 1, "tool_started": 1}
    assert found["session"]["tool_runs"] == {"before": 0, "after": 1}
    assert found["plan"]["before"]["items"][0]["action"] == "schedule_call"


@pytest.mark.parametrize(
    "words",
    ["--from 12 --to 9", "--from 0 --to 9", "--from 1 --to 99", "--from 1", ""],
)
def test_points_that_make_no_sense_are_refused(journal: Path, words: str) -> None:
    found = call("diff", journal, "s-1", *words.split())
    assert (found.code, found.out) == (2, "")
    assert found.err


def test_other_sessions_and_damage_have_their_codes(journal: Path) -> None:
    assert call("diff", journal, "s-9", "--from", "1", "--to", "2").code == 2
    connection = sqlite3.connect(journal)
    with connection:
        connection.execute("UPDATE minutebook_events SET payload = x'7b7d' WHERE originator_version = 9")
    connection.close()
    found = call("diff", journal, "s-1", "--from", "2", "--to", "12")
    assert found.code == 3
    assert "from event 2 to 8" in found.out
    assert "wrong payload at sequence 9" in found.out


def test_an_export_is_as_good(journal: Path, tmp_path: Path) -> None:
    export = tmp_path / "e.jsonl"
    assert call("export", journal, "--output", export).code == 0
    words = ["s-1", "--from", "9", "--to", "16", "--json"]
    kept, exported = (call("diff", each, *words).document for each in (journal, export))
    assert exported["transcript"] == kept["transcript"]


def test_hostile_text_is_spelled_out(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    hostile = lost_payment("s-1").given(Change({"model": HOSTILE.replace("\0", "")}))
    path = write(tmp_path / "journal.db", hostile)
    found = call("diff", path, "s-1", "--from", "12", "--to", str(len(hostile.events)))
    assert (found.code, "\x1b" in found.out) == (0, False)
    assert "\\x1b[31mred" in found.out

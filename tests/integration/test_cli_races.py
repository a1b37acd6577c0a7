"""Several shells decide about one session at once: one of them does, the others are told."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.command_line import ROOT, Ran, call, write
from tests.journals import lost_payment, retryable

SHELLS = 3
CALL = "r1.t1.a1.c0"
TOOL = ["tool", CALL, "--outcome", "completed", "--output", "paid", "--evidence", "the bank"]


def at_once(commands: Sequence[Sequence[str | Path]]) -> list[Ran]:
    """Processes that are all started before the first one is waited for."""
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "recovery", "reconcile", *map(str, words)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for words in commands
    ]
    ended = [(each, *each.communicate(timeout=60)) for each in started]
    found = [Ran(each.returncode, out, err) for each, out, err in ended]
    assert not [ran.err for ran in found if "Traceback" in ran.err]
    return found


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path / "journal.db"


def told(ran: Ran) -> str:
    """How a shell ended, in a word; its exit code has to fit."""
    words = {
        "committed: ": 0,
        "replayed: ": 0,
        "DURABLE_EXECUTION_LEASE_CONFLICT: ": 3,
        "DURABLE_COMMAND_CONFLICT: ": 3,
        "DURABLE_RECOVERY_INVALID_STATE: ": 2,
        "UNSAFE_ROLLOVER: ": 2,
    }
    found = [word for word in words if (ran.out + ran.err).startswith(word)]
    assert [words[word] for word in found] == [ran.code], ran
    return found[0].rstrip(": ")


def test_of_many_that_say_the_same_one_does_it_and_the_others_are_told(journal: Path) -> None:
    write(journal, lost_payment("s-1"))
    words: list[str | Path] = [journal, "s-1", *TOOL, "--command-id", "d-1"]
    ends = Counter(told(ran) for ran in at_once([words] * SHELLS))
    assert ends["committed"] == 1
    assert set(ends) <= {"committed", "replayed", "DURABLE_EXECUTION_LEASE_CONFLICT"}
    assert "replayed: events 13 to 14" in call("reconcile", *words).out
    assert call("timeline", journal, "s-1").out.count("tool_outcome_reconciled") == 1
    assert call("verify", journal, "s-1").code == 4


def test_of_many_that_say_different_things_one_is_believed(journal: Path) -> None:
    """Two with the same command id, one with none."""
    write(journal, retryable("s-1"))
    rollover = ["rollover-turn", "--evidence", "ticket 4"]
    abandon = ["abandon", "--reason", "enough"]
    found = at_once(
        [
            [journal, "s-1", *rollover, "--command-id", "d-1"],
            [journal, "s-1", *abandon, "--command-id", "d-1"],
            [journal, "s-1", *rollover],
        ]
    )
    ends = Counter(told(ran) for ran in found)
    # Somebody is first; a second one may give up what the first one made, a rollover of which nothing ran.
    minutes = call("timeline", journal, "s-1").out
    ended = minutes.count("request_superseded") + minutes.count("request_interrupted")
    assert ended == ends["committed"] >= 1
    assert call("verify", journal, "s-1").code == 4

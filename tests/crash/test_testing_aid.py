"""The testing aid itself: a run that did not die where it was asked to is never taken for one that did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minutebook.testing.crash import NEVER, Ended, Witness, every_kill
from minutebook.testing.fork_server import INTERRUPTED, ForkServer

DYING = Path(__file__).with_name("dying.py")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(DYING) as server:
        yield server


def test_a_probe_kills_at_its_number_and_says_so_first(server: ForkServer) -> None:
    ended = server.run("count_to_three", kill_at=2)
    assert (ended.returncode, ended.killed) == (-signal.SIGKILL, (2, "two"))
    assert ended.killed_at(2) is ended


def test_a_probe_that_never_kills_counts(server: ForkServer) -> None:
    ended = server.run("count_to_three", kill_at=NEVER).completed()
    assert ended.told("passed") == [["one", "two", "three"]]
    assert ended.killed is None


def test_every_kill_goes_on_until_nothing_is_left_to_kill(server: ForkServer) -> None:
    killed = [ended.killed for ended in every_kill(lambda n: server.run("count_to_three", kill_at=n))]
    assert killed == [(1, "one"), (2, "two"), (3, "three")]


def test_every_kill_can_be_shared_out(server: ForkServer) -> None:
    def run(number: int) -> Ended:
        return server.run("count_to_three", kill_at=number)

    killed = [[e.killed for e in every_kill(run, first=first, step=2)] for first in (1, 2)]
    assert killed == [[(1, "one"), (3, "three")], [(2, "two")]]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("fail", {}),
        ("leave", {"code": 3}),
        ("die_otherwise", {}),
        ("count_to_three", {"kill_at": 2}),  # it died, but elsewhere
    ],
)
def test_every_kill_refuses_what_is_no_proof(
    function: str, arguments: dict[str, int], server: ForkServer
) -> None:
    with pytest.raises(AssertionError, match="expected a kill at point 1, found"):
        list(every_kill(lambda n: server.run(function, **arguments)))


def test_what_a_child_raises_is_told(server: ForkServer) -> None:
    ended = server.run("fail")
    assert ended.returncode == 1
    with pytest.raises(AssertionError, match="LookupError: on purpose"):
        ended.completed()


def test_an_exit_code_comes_through(server: ForkServer) -> None:
    assert server.run("leave", code=7).returncode == 7


def test_an_effect_is_on_file_whatever_comes_next(server: ForkServer, tmp_path: Path) -> None:
    witness = Witness(tmp_path / "witness")
    assert witness.lines() == []
    server.run("have_effects", witness=str(tmp_path / "witness"), kill_at=1).killed_at(1)
    assert witness.lines() == [("first", "7")]
    server.run("have_effects", witness=str(tmp_path / "witness"), kill_at=NEVER).completed()
    assert witness.lines() == [("first", "7"), ("first", "7"), ("second", "7")]


def test_the_loop_goes_on_before_a_kill_in_a_thread(server: ForkServer) -> None:
    ended = server.run("commit_slowly", turns=20)
    assert ended.killed == (1, "in a thread")
    before = ended.said[: ended.said.index({"killed": 1, "point": "in a thread"})]
    assert [line["shown"] for line in before if "shown" in line] == [0, 1, 2, 3, 4]


def test_a_running_child_can_be_listened_to_and_killed(server: ForkServer) -> None:
    running = server.start("wait_for_ever")
    assert running.wait_for("waiting") == running.process_id
    with pytest.raises(AssertionError, match="wait for the child"):
        server.start("fail")
    running.kill()
    assert running.ended().returncode == -signal.SIGKILL
    with pytest.raises(AssertionError, match="found the end"):
        running.wait_for("more")


def test_ctrl_c_has_an_exit_code_of_its_own(server: ForkServer) -> None:
    running = server.start("wait_for_ever")
    running.wait_for("waiting")
    running.kill(signal.SIGINT)
    assert running.ended().returncode == INTERRUPTED


def test_a_child_that_hangs_is_ended(capfd: pytest.CaptureFixture[str]) -> None:
    with ForkServer(DYING, silence_s=1.0) as server:
        ended = server.run("wait_for_ever")
    assert ended.returncode == -signal.SIGABRT
    assert "in wait_for_ever" in capfd.readouterr().err


def test_a_child_that_was_stopped_and_forgotten_is_ended() -> None:
    with ForkServer(DYING, silence_s=0.2) as server:
        assert server.run("stand_still").returncode == -signal.SIGABRT


def test_closing_ends_what_still_runs() -> None:
    with ForkServer(DYING) as server:
        running = server.start("wait_for_ever")
        running.wait_for("waiting")
    assert running.ended().returncode == -signal.SIGKILL


def test_nothing_is_left_when_the_test_process_dies() -> None:
    program = (
        "import sys, os, signal; from pathlib import Path\n"
        "from minutebook.testing.fork_server import ForkServer\n"
        f"running = ForkServer(Path({str(DYING)!r})).start('wait_for_ever')\n"
        "print(running.wait_for('waiting'), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    # The server and its child write their errors to the same pipe: its end is that of all three.
    asked = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, cwd=ROOT, timeout=60, check=False
    )
    assert asked.returncode == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(int(asked.stdout), 0)


def test_a_file_that_cannot_be_imported_is_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "broken.py"
    script.write_text("raise ImportError('broken on purpose')")
    with pytest.raises(AssertionError, match="the fork server ended"), ForkServer(script) as server:
        server.run("anything")
    assert "broken on purpose" in capfd.readouterr().err

"""Workers that are stopped for a while, by a signal, between a commit and what follows from it."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import anyio
import pytest

from adapters.sqlite_store import SqliteStore
from minutebook.testing.crash import Witness
from minutebook.testing.faulty_store import FaultyStore
from minutebook.testing.fork_server import ForkServer, Running
from tests.session.harness import Place

TTL_S = 1.0
#: After which commit it is stopped: the request's acceptance, its attempt's start, its tool's start.
COMMITS = {"accepted": 2, "attempt": 3, "tool": 4}


def stopped(process: Running) -> None:
    """Return once the process is stopped."""
    process.wait_for("stopping")
    end = time.monotonic() + 10
    while _state(process.process_id) != "T":
        assert time.monotonic() < end
        time.sleep(0.002)


def _state(process_id: int) -> str:
    return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]


def run(lease_servers: list[ForkServer], place: Path, commit: str, ttl_s: float) -> Running:
    """A worker that is stopped after a commit."""
    files = {"journal": str(place / "journal.db"), "witness": str(place / "witness")}
    process = lease_servers[0].start("run", **files, stop_at=COMMITS[commit], ttl_s=ttl_s)
    stopped(process)
    return process


def took_over(lease_servers: list[ForkServer], place: Path) -> tuple[int, str]:
    """The token of another worker, and where it came to."""
    files = {"journal": str(place / "journal.db"), "witness": str(place / "witness")}
    ended = lease_servers[1].run("go_on", **files).completed()
    tokens = ended.told("token")
    return (tokens[0] if tokens else 0), ended.told("ended")[0]


def effects(place: Path, process: Running | None = None) -> list[str]:
    """What was done, by this process or by any: "asked" a model, or "paid"."""
    lines = Witness(place / "witness").lines()
    done = [what for what, who in lines if process is None or who == str(process.process_id)]
    return [what if what == "asked" else "paid" for what in done]


async def _types(place: Path) -> list[str]:
    there = Place(FaultyStore(SqliteStore(place / "journal.db")))
    await there.check()
    return await there.types()


def types(place: Path) -> list[str]:
    """The words of the journal, which keeps to the rules."""
    return anyio.run(_types, place)


@pytest.mark.parametrize("commit", COMMITS)
def test_a_short_stop_changes_nothing(lease_servers: list[ForkServer], tmp_path: Path, commit: str) -> None:
    process = run(lease_servers, tmp_path, commit, 30.0)
    process.kill(signal.SIGCONT)
    assert process.ended().completed().told("ended") == ["idle"]
    assert effects(tmp_path) == ["asked", "paid", "asked"]
    assert types(tmp_path)[-1] == "request_completed"


@pytest.mark.parametrize("commit", COMMITS)
def test_after_a_stop_longer_than_the_lease_nothing_begins(
    lease_servers: list[ForkServer], tmp_path: Path, commit: str
) -> None:
    """Nobody took over: only the worker's own clock can tell."""
    process = run(lease_servers, tmp_path, commit, TTL_S)
    before = effects(tmp_path)
    time.sleep(TTL_S)  # that is the case
    process.kill(signal.SIGCONT)
    assert process.ended().completed().told("ended") == ["DURABLE_EXECUTION_LEASE_LOST"]
    assert effects(tmp_path) == before
    written = types(tmp_path)[-1]
    assert written == {"accepted": "request_accepted", "attempt": "model_request_started"}.get(
        commit, "tool_started"
    )
    token, ended = took_over(lease_servers, tmp_path)
    assert (token, ended) == ((2, "idle") if commit != "tool" else (0, "reconcile_tool_outcomes"))
    assert effects(tmp_path).count("paid") == (0 if commit == "tool" else 1)


@pytest.mark.parametrize("commit", COMMITS)
def test_a_worker_that_was_taken_over_while_it_was_stopped_does_no_harm(
    lease_servers: list[ForkServer], tmp_path: Path, commit: str
) -> None:
    process = run(lease_servers, tmp_path, commit, TTL_S)
    before = effects(tmp_path, process)
    taken = took_over(lease_servers, tmp_path)  # waits until the lease has run out
    there = types(tmp_path)
    process.kill(signal.SIGCONT)
    assert process.ended().completed().told("ended") == ["DURABLE_EXECUTION_LEASE_LOST"]
    assert effects(tmp_path, process) == before
    assert types(tmp_path) == there
    assert taken == ((2, "idle") if commit != "tool" else (0, "reconcile_tool_outcomes"))


def test_what_was_stopped_and_killed_is_followed_at_once(
    lease_servers: list[ForkServer], tmp_path: Path
) -> None:
    process = run(lease_servers, tmp_path, "attempt", 30.0)
    process.kill()
    assert process.ended().returncode == -signal.SIGKILL
    began = time.monotonic()
    assert took_over(lease_servers, tmp_path) == (2, "idle")
    assert time.monotonic() - began < 20  # its lease would have lasted longer

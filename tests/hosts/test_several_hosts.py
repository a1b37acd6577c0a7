"""Workers as processes, on one file and on several hosts: the examples, carried out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minutebook.testing.postgres_programs import HOW_TO_INSTALL, server_programs

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

sys.path.insert(0, str(EXAMPLES))
from hosts import can_have_namespaces  # noqa: E402  # the path is known only now


def carried_out(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run an example."""
    command = [sys.executable, str(EXAMPLES / name), *options]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=180, check=False, env=environment, cwd=EXAMPLES
    )


def acts_of(*options: str) -> list[dict[str, Any]]:
    """The acts of the example with several hosts, each of them good."""
    done = carried_out("several_hosts.py", "--json", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    acts: list[dict[str, Any]] = json.loads(done.stdout)["acts"]
    for act in acts:
        assert act["taken"] > 0
        assert (act["ended_once"], act["twice"], act["stale"], act["wrote_after"]) == (act["orders"], 0, 0, 0)
    return acts


def test_a_killed_worker_s_sessions_are_finished_by_the_other_one() -> None:
    done = carried_out("two_workers.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "anna is killed with SIGKILL" in done.stdout
    assert "Every order ended exactly once; nothing was paid twice." in done.stdout


@pytest.fixture
def programs() -> None:
    """Left out where there is no PostgreSQL."""
    if server_programs() is None:
        pytest.skip(f"no PostgreSQL server programs on this machine: {HOW_TO_INSTALL}")


@pytest.mark.usefixtures("programs")
def test_a_worker_that_stands_still_is_followed_and_changes_nothing_when_it_wakes() -> None:
    """On one machine without namespaces, so that it runs everywhere."""
    (act,) = acts_of("--plain", "--acts", "paused", "--ttl", "1")
    assert act["what"] == "paused"


@pytest.mark.usefixtures("programs")
@pytest.mark.skipif(not can_have_namespaces(), reason="network namespaces need root and iproute2")
def test_a_host_whose_cable_is_pulled_is_followed_and_changes_nothing_when_it_is_back() -> None:
    (act,) = acts_of("--acts", "cut off", "--ttl", "1")
    assert act["what"] == "cut off"

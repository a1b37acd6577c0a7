"""A handoff between real processes: one waits for it, and it may die at every point."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from minutebook.testing.fork_server import ForkServer
from tests.session.test_paused import effects, types

#: A handoff passes at least the two sides of its last commit.
LEAST_POINTS = 2


@pytest.mark.parametrize("what", ["idle", "model", "tool"])
def test_a_handoff_that_dies_anywhere_loses_nothing_and_repeats_nothing(
    lease_servers: list[ForkServer], tmp_path: Path, what: str
) -> None:
    points, number = 0, 1
    while True:
        place = tmp_path / str(number)
        place.mkdir()
        files = {"journal": str(place / "journal.db"), "witness": str(place / "witness")}
        ended = lease_servers[0].run("hand_over", **files, kill_at=number, what=what)
        assert ended.returncode in (0, -signal.SIGKILL), ended
        handed_over = types(place)[-1] == "lease_released"
        assert handed_over or ended.returncode != 0
        followed = lease_servers[1].run("go_on", **files).completed()
        assert followed.told("token") == [2] or followed.told("ended") == ["reconcile_tool_outcomes"]
        assert handed_over <= (followed.told("ended") == ["idle"])
        found = types(place)
        assert found.count("handoff_completed") == found.count("lease_released") == int(handed_over)
        assert effects(place).count("paid") <= 1
        if ended.returncode == 0:
            break
        points, number = points + 1, number + 1
    assert points >= LEAST_POINTS


def test_a_worker_that_waits_goes_on_at_once(lease_servers: list[ForkServer], tmp_path: Path) -> None:
    files = {"journal": str(tmp_path / "journal.db"), "witness": str(tmp_path / "witness")}
    first = lease_servers[0].start("hold", **files)
    first.wait_for("holding")
    second = lease_servers[1].start("go_on", **files)
    second.wait_for("waiting")
    began = time.monotonic()
    first.kill(signal.SIGUSR1)
    head = first.wait_for("handed_over")
    assert second.wait_for("token") == 2
    assert second.wait_for("ended") == "idle"
    assert time.monotonic() - began < 10  # its lease would have lasted three times as long
    first.ended().completed()
    second.ended().completed()
    found = types(tmp_path)
    assert found[head - 2 : head + 1] == ["handoff_completed", "lease_released", "lease_acquired"]
    assert found[-1] == "request_completed"
    assert effects(tmp_path).count("paid") == 1

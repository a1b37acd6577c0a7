"""Two processes on one journal file: one holds the session, and no effect happens twice."""

from __future__ import annotations

import os
import random
from itertools import takewhile
from pathlib import Path

import pytest

from minutebook.testing.crash import NEVER, Ended, Witness
from minutebook.testing.fork_server import ForkServer
from tests.crash.harness import Life, new_life
from tests.crash.matrix import in_parallel
from tests.crash.program import CONFLICT

SEEDS = range(4)
KILLS = 10
#: So often in a row a worker may be refused. The other one is quicker done, or dead and followed at once.
REFUSALS = 200


@pytest.mark.parametrize("moment", ["idle", "model", "tool", "question"])
def test_a_second_worker_is_refused_while_the_first_lives(moment: str, servers: list[ForkServer]) -> None:
    with new_life(servers[0]) as life:
        first = servers[0].start("stay", **life.files, moment=moment, how="stay")
        first.wait_for("at")
        before = life.seen_by(servers[1]).examine()
        second = servers[1].run("go_on", **life.files)
        assert second.returncode == CONFLICT
        assert f"process-{first.process_id} until" in second.told("conflict")[0]
        assert life.seen_by(servers[1]).examine().events == before.events
        first.kill()
        life.finish(first)


@pytest.mark.parametrize("hours_ahead", [-1.0, 1.0])
def test_a_worker_whose_wall_clock_is_wrong_is_refused_all_the_same(
    hours_ahead: float, servers: list[ForkServer]
) -> None:
    with new_life(servers[0]) as life:
        first = servers[0].start("stay", **life.files, moment="tool", how="stay")
        first.wait_for("at")
        second = servers[1].run("go_on", **life.files, hours_ahead=hours_ahead, wall_only=True)
        assert second.returncode == CONFLICT
        first.kill()
        life.finish(first)


@pytest.mark.parametrize("moment", ["idle", "model", "tool", "question"])
def test_a_killed_worker_is_followed_at_once(moment: str, servers: list[ForkServer]) -> None:
    with new_life(servers[0]) as life:
        first = servers[0].start("stay", **life.files, moment=moment, how="stay")
        first.wait_for("at")
        first.kill()
        life.finish(first)
        second = servers[1].run("go_on", **life.files).completed()  # a refusal would be another end
        assert second.told("lease")[0] >= 2
        end = life.examine(finished=True)
        assert (end.wrong, end.plan) == ([], [("none", "s-crash")])


def test_a_worker_that_was_taken_over_writes_nothing_and_starts_nothing(
    servers: list[ForkServer], tmp_path: Path
) -> None:
    """The other one has written nothing either, so that only the fence can tell."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with new_life(servers[0]) as life:
        first = servers[0].start("answer_late", **life.files, pipe=str(pipe))
        assert first.wait_for("lease") == 1
        second = servers[1].start("take_over", **life.files, hours_ahead=1.0)
        assert second.wait_for("lease") == 2
        pipe.write_bytes(b"now")
        ended = life.finish(first)
        second.kill()
        second.ended()
        assert ended.told("fenced") == ["DURABLE_EXECUTION_LEASE_LOST"]
        found = life.examine()
        assert (found.wrong, found.plan) == ([], [("reconcile_model_outcome", "r1.t1.a1")])
        assert Witness(life.place / "witness").lines() == []


@pytest.mark.parametrize("seed", SEEDS)
def test_two_workers_that_are_killed_at_random(seed: int, servers: list[ForkServer]) -> None:
    _, wrong = two_workers(seed, servers)
    assert wrong == []


def two_workers(seed: int, servers: list[ForkServer]) -> tuple[list[Ended], list[str]]:
    """Let two workers have a session to its end.

    Returns:
        How each of their lives ended, and everything that is wrong in the end.
    """
    with new_life(servers[0], on_lost_attempt="retry") as life:
        ends = in_parallel(2, lambda place: work_until_closed(life.seen_by(servers[place]), seed * 2 + place))
        end = life.examine(finished=True)
    wrong = [f"seed {seed}: {w}" for w in end.wrong]
    if end.plan != [("none", "s-crash")] or end.events.count("session_closed") != 1:
        wrong.append(f"seed {seed}: expected to be closed once, found the plan {end.plan} after {end.events}")
    return [ended for each in ends for ended in each], wrong


def work_until_closed(life: Life, seed: int) -> list[Ended]:
    """Start the application again and again, with a kill somewhere, until it finds the session closed."""
    chance = random.Random(seed)
    ends: list[Ended] = []
    while not ends or ends[-1].returncode != os.EX_OK:
        kills = sum(1 for ended in ends if ended.killed is not None)
        ended = life.start(chance.randint(1, 60) if kills < KILLS else NEVER)
        assert ended.killed is not None or ended.returncode in (os.EX_OK, CONFLICT), ended
        ends.append(ended)
        refused = takewhile(lambda e: e.returncode == CONFLICT, reversed(ends))
        assert sum(1 for _ in refused) < REFUSALS, ended
    return ends

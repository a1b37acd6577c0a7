"""COMMITs of a script fail once each: what is not durable is not shown and has no effect."""

from __future__ import annotations

import os
from itertools import count

import pytest

from minutebook.testing.fork_server import ForkServer
from tests.crash.harness import new_life
from tests.crash.invariants import same_story
from tests.crash.matrix import in_parallel, unharmed

#: So many COMMITs the script has at least.
FEWEST = 20


def test_a_commit_that_the_disk_has_no_room_for(servers: list[ForkServer]) -> None:
    """The process stops; another one goes on from what is durable."""
    story = unharmed(servers[0], "as it is").reference.story

    def failures(place: int) -> list[int]:
        failed = []
        for number in count(1 + place, len(servers)):
            with new_life(servers[place]) as life:
                ended = life.start(fail_at=(number, "full"))
                if ended.returncode == os.EX_OK:
                    break
                assert "nothing was written" in ended.told("traceback")[0]
                assert life.examine().wrong == [], number
                life.start().completed()
                end = life.examine(finished=True)
                assert (end.wrong, same_story(end.story, story)) == ([], True), number
                failed.append(number)
        return failed

    assert sum(map(len, in_parallel(len(servers), failures))) >= FEWEST


@pytest.mark.parametrize("how", ["unanswered", "undone"])
def test_a_commit_whose_outcome_is_unknown(how: str, servers: list[ForkServer]) -> None:
    """The process finds out what happened, and goes on."""
    story = unharmed(servers[0], "as it is").reference.story

    def settled(place: int) -> int:
        for number in range(2 + place, FEWEST, 2 * len(servers)):
            with new_life(servers[place]) as life:
                life.start(fail_at=(number, how)).completed()
                end = life.examine(finished=True)
                assert (end.wrong, same_story(end.story, story)) == ([], True), number
        return number

    assert min(in_parallel(len(servers), settled)) > FEWEST - 2 * len(servers)

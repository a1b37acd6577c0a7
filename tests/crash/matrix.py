"""Every point of a script: a life that is killed there, looked at, and lived to its end.

And further: the process that goes on is killed as well, at a point of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Final, TypeVar

from minutebook.testing.crash import NEVER, Ended, every_kill
from minutebook.testing.fork_server import ForkServer
from tests.crash.harness import Examination, Life, new_life
from tests.crash.invariants import same_story

T = TypeVar("T")

#: Options of `live`. As the library works; with each step in a commit of its own, and handlers
#: in place of people; where SQLite is too old for a WAL, with a snapshot that falls due.
VARIANTS: Final[dict[str, dict[str, Any]]] = {
    "as it is": {},
    "step by step": {"fine": True, "handlers": True, "on_lost_attempt": "retry", "backend": "trio"},
    "without a WAL": {"journal_mode": "truncate", "fillers": 75},
}


@dataclass(frozen=True, slots=True)
class Lived:
    """A life that was killed, perhaps more than once.

    Args:
        kills: number and name of each point at which a process died.
        after: what was found after each kill.
        ended: how the last process ended.
        at_last: what was found at the end.
    """

    kills: list[tuple[int, str]]
    after: list[Examination]
    ended: Ended
    at_last: Examination

    def wrong(self, story: list[Any]) -> list[str]:
        """Everything that was wrong, and where; `story` is that of a life that nothing happened to."""
        found = [f"after {k}: {w}" for k, x in zip(self.kills, self.after, strict=True) for w in x.wrong]
        found += [f"at the end: {w}" for w in self.at_last.wrong]
        if self.ended.returncode != os.EX_OK:
            found.append(f"end: the last process ended with {self.ended}")
        elif not same_story(self.at_last.story, story):
            found.append(f"story: it tells {self.at_last.story}")
        found += [f"again: {wrong}" for a, b in pairwise(self.after) for wrong in _changed(a, b)]
        return [f"killed at {self.kills}, {wrong}" for wrong in found]


def _changed(one: Examination, other: Examination) -> Iterator[str]:
    """I9: a recovery that wrote nothing, or only that it began, leaves the plan as it was."""
    added = other.commits[len(one.commits) :]
    if all(commit == ["session_resumed"] for commit in added) and one.plan != other.plan:
        yield f"the plan was {one.plan}, after a crash in recovery it is {other.plan}"


@dataclass(slots=True)
class Matrix:
    """The lives of one script. `reference` was never killed and passed `points`."""

    variant: str
    reference: Examination
    points: list[str]
    lives: list[Lived] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        """Everything that was wrong in any life."""
        return [w for lived in self.lives for w in lived.wrong(self.reference.story)]


def unharmed(server: ForkServer, variant: str) -> Matrix:
    """A matrix with no life but the one that nothing happens to."""
    with new_life(server, **VARIANTS[variant]) as life:
        ended = life.start().completed()
        return Matrix(variant, life.examine(finished=True), ended.told("points")[0])


def every_point(servers: list[ForkServer], variant: str) -> Matrix:
    """Kill a life at every point of the variant's script."""
    matrix = unharmed(servers[0], variant)

    def lives(place: int) -> list[Lived]:
        begun = partial(new_life, servers[place], **VARIANTS[variant])
        return list(_each_killed(begun, 1 + place, len(servers)))

    for found in in_parallel(len(servers), lives):
        matrix.lives += found
    matrix.lives.sort(key=lambda lived: lived.kills)
    return matrix


def some_points(servers: list[ForkServer], variant: str, numbers: Iterable[tuple[int, ...]]) -> Matrix:
    """Kill a life for each of `numbers`, as `killed` does."""
    matrix, asked = unharmed(servers[0], variant), list(numbers)

    def lives(place: int) -> list[Lived]:
        return [killed(servers[place], variant, *each) for each in asked[place :: len(servers)]]

    for found in in_parallel(len(servers), lives):
        matrix.lives += found
    return matrix


def killed(server: ForkServer, variant: str, *numbers: int) -> Lived:
    """A life killed at the given points, each counted from the start of a process of its own.

    A number beyond the end of a process kills nothing: that process is then the last.
    """
    with new_life(server, **VARIANTS[variant]) as life:
        ends: list[Ended] = []
        after: list[Examination] = []
        for number in numbers:
            ended = life.start(number)
            if ended.returncode == os.EX_OK:
                return Lived([e.killed or (0, "") for e in ends], after, ended, life.examine(finished=True))
            ends.append(ended.killed_at(number))
            after.append(life.examine())
        return _lived_on(life, ends, after)


def killed_again(server: ForkServer, variant: str, first: int, begin: int, step: int) -> list[Lived]:
    """Lives that are killed at point `first`, and again at every `step`th point of the process that goes on.

    They have the first kill in common: each goes on from a copy of what it left.

    Args:
        begin: the first of the points of the second kill.
    """
    with new_life(server, **VARIANTS[variant]) as life:
        ended, after = life.start(first).killed_at(first), life.examine()
        return list(_each_killed(life.copied, begin, step, [ended], [after]))


def in_parallel(count: int, work: Callable[[int], T]) -> list[T]:
    """What `work(0)`, `work(1)`, ... return. The threads only wait for processes."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def _each_killed(
    begun: Callable[[], AbstractContextManager[Life]],
    first: int,
    step: int,
    ends: Sequence[Ended] = (),
    after: Sequence[Examination] = (),
) -> Iterator[Lived]:
    """Lives that are killed once more than they have been: at point `first`, and so on."""
    lived: list[Lived] = []

    def run(number: int) -> Ended:
        with begun() as life:
            ended = life.start(number)
            if ended.killed is not None:
                lived.append(_lived_on(life, [*ends, ended.killed_at(number)], [*after, life.examine()]))
            return ended

    for _ in every_kill(run, first=first, step=step):
        yield lived.pop()


def _lived_on(life: Life, ends: list[Ended], after: list[Examination]) -> Lived:
    ended = life.start(NEVER)
    kills = [e.killed or (0, "") for e in ends]
    return Lived(kills, after, ended, life.examine(finished=ended.returncode == os.EX_OK))

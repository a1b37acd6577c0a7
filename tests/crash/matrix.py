"""Every point of a script: a life that is killed there, looked at, and lived to its end.

And pairs: the process that goes on is killed as well, at a point of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from minutebook.testing.crash import NEVER, Ended, every_kill
from minutebook.testing.fork_server import ForkServer
from tests.crash.harness import Examination, Life, new_life

T = TypeVar("T")

#: Options of `live`. As the library works, and with each step in a commit of its own.
VARIANTS: Final[dict[str, dict[str, Any]]] = {
    "as it is": {},
    "step by step": {"fine": True, "on_lost_attempt": "retry", "backend": "trio"},
}


@dataclass(frozen=True, slots=True)
class Lived:
    """A life that was killed.

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

    @property
    def wrong(self) -> list[str]:
        """Everything that was wrong, and where."""
        found = [(f"killed at {self.kills[: i + 1]}", w) for i, x in enumerate(self.after) for w in x.wrong]
        found += [(f"killed at {self.kills}, at the end", w) for w in self.at_last.wrong]
        return [f"{where}: {what}" for where, what in found]


@dataclass(slots=True)
class Matrix:
    """The lives of one script. `reference` was never killed; `points` is how many it passed."""

    name: str
    reference: Examination
    points: int
    lives: list[Lived] = field(default_factory=list)


def every_point(servers: list[ForkServer], variant: str) -> Matrix:
    """Kill a life of the variant at every point of its script."""
    matrix = unharmed(servers[0], variant)

    def lives(place: int) -> list[Lived]:
        killer = _Killer(servers[place], VARIANTS[variant])
        return list(killer.all(first=1 + place, step=len(servers)))

    for found in in_parallel(len(servers), lives):
        matrix.lives += found
    matrix.lives.sort(key=lambda lived: lived.kills)
    return matrix


def unharmed(server: ForkServer, variant: str) -> Matrix:
    """A matrix with no life but the one that nothing happens to."""
    with new_life(server, **VARIANTS[variant]) as life:
        ended = life.start().completed()
        return Matrix(variant, life.examine(finished=True), ended.told("points")[0])


def in_parallel(count: int, work: Callable[[int], T]) -> list[T]:
    """What `work(0)`, `work(1)`, ... return. The threads only wait for processes."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def killed(server: ForkServer, variant: str, *numbers: int) -> Lived:
    """A life killed at the given points, each counted from the start of a process of its own.

    A number beyond the end of a process kills nothing: that process is then the last.
    """
    killer = _Killer(server, VARIANTS[variant])
    with new_life(server, **VARIANTS[variant]) as life:
        ends, after = [], []
        for number in numbers:
            ended = life.start(number)
            if ended.returncode == os.EX_OK:
                return Lived([e.killed or (0, "") for e in ends], after, ended, life.examine(finished=True))
            ends.append(ended.killed_at(number))
            after.append(life.examine())
        return killer.go_on(life, ends, after)


class _Killer:
    """Kills lives one after the other, on one server."""

    def __init__(self, server: ForkServer, options: dict[str, Any]) -> None:
        self._server, self._options = server, options

    def all(self, first: int, step: int) -> Iterator[Lived]:
        """A life for each point, from `first` on, until one is not killed any more."""
        lived: list[Lived] = []

        def run(number: int) -> Ended:
            with new_life(self._server, **self._options) as life:
                ended = life.start(number)
                if ended.killed is not None:
                    lived.append(self.go_on(life, [ended.killed_at(number)], [life.examine()]))
                return ended

        for _ in every_kill(run, first=first, step=step):
            yield lived.pop()

    def go_on(self, life: Life, ends: list[Ended], after: list[Examination]) -> Lived:
        """Live a life to its end."""
        ended = life.start(NEVER)
        kills = [e.killed or (0, "") for e in ends]
        return Lived(kills, after, ended, life.examine(finished=ended.returncode == os.EX_OK))

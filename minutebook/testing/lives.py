"""An application killed at every point that it passes: one life for each, to be gone on with.

    for life in every_life("child.py", "work", tmp_path):
        life.run().completed()                      # the next process goes on
        assert len(bank(life.directory)) == 1       # what must hold whatever happened

`work(tell, directory, kill_at)` opens a session in `directory` with `KillAt(kill_at, tell)` as
its probe, and in its store. It has to be able to start and to go on: it is called for both.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from minutebook.testing.crash import NEVER, Ended
from minutebook.testing.fork_server import ForkServer


@dataclass(frozen=True, slots=True)
class Life:
    """One application, killed once.

    Args:
        number: which of its points it was killed at, from 1.
        point: that point's name, e.g. `before_commit`.
        directory: its own, with everything it has written.
        killed: what it told until then.
    """

    number: int
    point: str
    directory: Path
    killed: Ended
    _server: ForkServer = field(repr=False)
    _function: str = field(repr=False)
    _arguments: dict[str, Any] = field(repr=False)

    def run(self, function: str | None = None, *, kill_at: int = NEVER, **arguments: Any) -> Ended:
        """Start the next process of this life and wait for its end. Only until the next life begins.

        Args:
            function: another one of the same file; None: the same again.
            kill_at: as for the first one; not killed if left out.
            arguments: in place of those it was started with.
        """
        given = {**self._arguments, **arguments}
        name = function or self._function
        return self._server.run(name, directory=str(self.directory), kill_at=kill_at, **given)


def every_life(
    script: str | os.PathLike[str],
    function: str,
    directory: Path,
    *,
    first: int = 1,
    step: int = 1,
    **arguments: Any,
) -> Iterator[Life]:
    """Start an application again and again, each time killed one point later, until none is left.

    Args:
        script: a Python file, see `ForkServer`.
        function: of that file; called with `tell`, `directory`, `kill_at` and `arguments`.
        directory: in it each life gets one of its own.
        first, step: which points; every one if left out.

    Raises:
        AssertionError: a process neither died at its point nor ended well.
    """
    with ForkServer(Path(script), preload=("minutebook.testing.warm",)) as server:
        for number in count(first, step):
            place = directory / f"life-{number}"
            place.mkdir()
            ended = server.run(function, directory=str(place), kill_at=number, **arguments)
            if ended.returncode == 0 and ended.killed is None:
                return
            killed = ended.killed_at(number).killed
            assert killed is not None
            yield Life(number, killed[1], place, ended, server, function, arguments)

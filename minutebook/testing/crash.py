"""Killing a process at every point that it passes, and proving that it died there.

For crash tests of applications built on minutebook. An application's process is
a function in a file of its own, started again and again by a `ForkServer`; a
`KillAt` probe, given to the session and to its store, kills it from within:

    # child.py
    def work(tell: Tell, journal: str, witness: str, kill_at: int) -> None:
        probe = KillAt(kill_at, tell)
        config = mb.SessionConfig(..., tools=[pay(Witness(witness))], probe=probe)
        anyio.run(my_application, config, SqliteStore(journal, probe=probe))

    # test_child.py
    with ForkServer(Path(__file__).with_name("child.py")) as server:
        for ended in every_kill(lambda n: server.run("work", journal=..., kill_at=n)):
            server.run("work", journal=..., kill_at=NEVER).completed()
            ...  # read journal and witness; compare with ended.said

What a child lets people see goes to the pipe with `tell`; what its tools do to
the world goes to a `Witness`. Both are outside the journal, so a test can hold
the journal against them. Nothing here knows what a session is.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import anyio
import anyio.from_thread
import anyio.lowlevel

#: A `KillAt` of this number only counts.
NEVER: Final = 0

#: Writes one line of plain values to the pipe, at once. It is read even if the process dies next.
Tell = Callable[..., None]


class KillAt:
    """A `Probe` that kills its own process, as `kill -9` does, at the n-th point it is called at.

    Give the same one to the store and to the session, so that their points are counted
    together. An application may call it at points of its own.

    Args:
        number: counted from 1; `NEVER` only counts.
        tell: told `killed` (the number) and `point` (its name) immediately before the end.
        let_run: called before a kill in another thread than this one, where the event loop
            could go on while that thread is slow; see `loop_turns`.
    """

    def __init__(self, number: int, tell: Tell, let_run: Callable[[], None] | None = None) -> None:
        self.number, self.let_run = number, let_run
        #: The names of the points so far.
        self.passed: list[str] = []
        self._tell = tell
        self._lock = threading.Lock()
        self._home = threading.get_ident()

    def __call__(self, point: str) -> None:
        with self._lock:
            self.passed.append(point)
            number, due = len(self.passed), self.is_due(point)
        if due:
            self._die(number, point)

    def is_due(self, point: str) -> bool:
        """Whether to die at this point, the latest of `passed`. To be overridden for other rules."""
        return len(self.passed) == self.number

    def _die(self, number: int, point: str) -> None:
        if self.let_run is not None and threading.get_ident() != self._home:
            self.let_run()
        self._tell(killed=number, point=point)
        os.kill(os.getpid(), signal.SIGKILL)


def loop_turns(turns: int = 25) -> Callable[[], None]:
    """Make something for `KillAt.let_run`: it lets the running event loop go on for some turns.

    A store that is about to commit is killed only after everything that did not wait
    for the commit has happened. So what becomes visible too early does so every time.
    To be called in the event loop; what it returns, in any other thread.
    """
    token = anyio.lowlevel.current_token()

    async def pass_turns() -> None:
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()

    return lambda: anyio.from_thread.run(pass_turns, token=token)


class Witness:
    """A file that remembers effects: one line for each, on disk before `record` returns.

    Give it to the tools of a crash test in place of the world. It survives its process
    and knows nothing of the journal.

    Args:
        path: made if it does not exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path

    def record(self, *words: object) -> None:
        """Append one line. The words must not hold tabs or line ends."""
        line = "\t".join(str(word) for word in words) + "\n"
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())
            os.fsync(file)
        finally:
            os.close(file)

    def lines(self) -> list[tuple[str, ...]]:
        """Everything recorded so far, by any process."""
        try:
            with open(self._path, encoding="utf-8") as file:
                return [tuple(line.rstrip("\n").split("\t")) for line in file]
        except FileNotFoundError:
            return []


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child process ended.

    Args:
        returncode: what it returned; -9 if it was killed.
        said: what it told, in order, until its end.
    """

    returncode: int
    said: list[dict[str, Any]] = field(default_factory=list)

    @property
    def killed(self) -> tuple[int, str] | None:
        """The number and the name of the point at which `KillAt` ended it.

        What is told after it comes from threads that had a moment longer to live.
        """
        told = next((line for line in self.said if "killed" in line), None)
        return (told["killed"], told["point"]) if told else None

    def told(self, key: str) -> list[Any]:
        """The values told under a key, in order."""
        return [line[key] for line in self.said if key in line]

    def completed(self) -> Ended:
        """This, if the process ended by itself and well.

        Raises:
            AssertionError: it did not; with the last things it said.
        """
        assert self.returncode == 0, f"expected an end with 0, found {self._shown()}"
        return self

    def killed_at(self, number: int) -> Ended:
        """This, if the process was killed at the point of that number and nowhere else.

        Raises:
            AssertionError: it was not, so whatever is concluded from it is about something else.
        """
        proven = self.returncode == -signal.SIGKILL and self.killed is not None
        assert proven, f"expected a kill at point {number}, found {self._shown()}"
        assert self.killed is not None
        assert self.killed[0] == number, f"expected a kill at point {number}, found one at {self.killed}"
        return self

    def _shown(self) -> str:
        failed = "".join(self.told("traceback"))
        return f"return code {self.returncode}; it last said {self.said[-3:]}\n{failed}"


def every_kill(run: Callable[[int], Ended], *, first: int = 1, step: int = 1) -> Iterator[Ended]:
    """Kill at point `first`, then `step` further on, and so on, until a run ends by itself.

    So the number of points need not be known, and none is left out when code changes.

    Args:
        run: starts a fresh life that is to be killed at the point of that number, and waits.

    Returns:
        How each killed run ended, each proven to have died at its own point.

    Raises:
        AssertionError: a run ended in another way.
    """
    for number in count(first, step):
        ended = run(number)
        if ended.returncode == 0 and ended.killed is None:
            return
        yield ended.killed_at(number)

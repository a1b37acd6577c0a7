"""One schedule: a worker stands still at a moment, another one follows, the first one wakes, or not.

Real processes, real time (a lease of one second). What it left is judged in `outcomes.py`.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from domain.errors import LeaseLost
from minutebook.testing.crash import Ended, Witness
from minutebook.testing.fork_server import ForkServer, Running
from minutebook.testing.postgres_cluster import Cluster
from tests.crash.harness import IN_MEMORY
from tests.crash.matrix import in_parallel
from tests.hosts.outcomes import CLOCKS, Outcome, Schedule, examined

PROGRAM: Final = Path(__file__).with_name("stopping.py")
#: The server of the first worker, that of the second one.
Pair = tuple[ForkServer, ForkServer]
#: What a schedule may take. They take three seconds; on a busy machine ten.
LIMIT_S: Final = 60.0
LAST_WORDS_S: Final = 1.0
#: How often a schedule is begun, on a machine so busy that the first worker does not get to its moment.
MOST_BEGINNINGS: Final = 5
#: Lines of each process that are shown when something is wrong.
MOST_LINES: Final = 12


class NeverStopped(Exception):
    """The first worker had no processor for so long that its lease ran out before its moment came."""


@dataclass(slots=True)
class Stage:
    """Where a schedule is played: two fork servers, a journal, a witness, a pipe."""

    servers: Pair
    journal: str
    place: Path
    pipe: int
    children: list[Running] = field(default_factory=list)

    @property
    def witness(self) -> Witness:
        """What really happened."""
        return Witness(self.place / "witness")

    def first(self, schedule: Schedule) -> Running:
        """The worker that stops."""
        hours, _, step = CLOCKS[schedule.clocks]
        files = {"journal": self.journal, "witness": str(self.place / "witness")}
        return self._start(0, "stopped", **files, moment=schedule.moment, hours=hours, step_hours=step)

    def second(self, schedule: Schedule, pipe: bool = False) -> Running:
        """The worker that follows."""
        files = {"journal": self.journal, "witness": str(self.place / "witness")}
        name = str(self.place / "pipe") if pipe else ""
        return self._start(1, "follow", **files, hours=CLOCKS[schedule.clocks][1], pipe=name)

    def wait_free(self, schedule: Schedule) -> None:
        """Return once nobody holds the session any more, as the second worker sees it."""
        hours = CLOCKS[schedule.clocks][1]
        self._start(1, "wait_free", journal=self.journal, hours=hours).ended().completed()

    def _start(self, server: int, function: str, **arguments: Any) -> Running:
        self.children.append(self.servers[server].start(function, **arguments))
        return self.children[-1]

    def go_on(self) -> None:
        """Let the second worker go on after it has taken over; it may have ended by itself."""
        os.write(self.pipe, b"1")

    def end_all(self, over: threading.Event) -> None:
        """End what still runs, and have it say where it was; for another thread than the one that waits."""
        over.set()
        running = [server.running for server in self.servers if server.running is not None]
        for number in (signal.SIGABRT, signal.SIGCONT, signal.SIGKILL):
            for child in running:
                with suppress(ProcessLookupError):
                    os.kill(child.process_id, number)
            time.sleep(LAST_WORDS_S if number == signal.SIGCONT else 0)

    def clear(self) -> None:
        """Leave nothing running."""
        for server in self.servers:
            if (child := server.running) is not None:
                child.kill()
                child.ended()


@contextmanager
def pairs_of_servers(count: int) -> Iterator[list[Pair]]:
    """Pairs of servers that have imported the workers, and what a worker loads when it opens a session."""
    warm = ["minutebook.testing.warm", "adapters.postgres_store"]
    with ExitStack() as stack:
        servers = [stack.enter_context(ForkServer(PROGRAM, preload=warm)) for _ in range(2 * count)]
        yield list(zip(servers[::2], servers[1::2], strict=True))


@contextmanager
def stage(servers: Pair, engine: str, cluster: Cluster | None) -> Iterator[Stage]:
    """A stage of its own, gone afterwards."""
    place = Path(tempfile.mkdtemp(prefix="minutebook-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
    os.mkfifo(place / "pipe")
    pipe = os.open(place / "pipe", os.O_RDWR)  # both ways, so that opening it waits for nobody
    url = cluster.new_database() if engine == "postgres" and cluster is not None else ""
    try:
        yield Stage(servers, url or str(place / "journal.db"), place, pipe)
    finally:
        os.close(pipe)
        if url and cluster is not None:
            cluster.drop_database(url)
        shutil.rmtree(place)


def play_all(schedules: Sequence[Schedule], pairs: Sequence[Pair], cluster: Cluster | None) -> list[Outcome]:
    """Play many schedules, as many at a time as there are pairs of servers."""
    left = iter(enumerate(schedules))
    found: dict[int, Outcome] = {}

    def some(place: int) -> None:
        for number, schedule in left:  # whoever is free takes the next one
            found[number] = _played(schedule, pairs[place], cluster)

    in_parallel(len(pairs), some)
    return [found[number] for number in range(len(schedules))]


def _played(schedule: Schedule, pair: Pair, cluster: Cluster | None) -> Outcome:
    for _ in range(MOST_BEGINNINGS):
        with suppress(NeverStopped), stage(pair, schedule.engine, cluster) as on:
            return play(schedule, on)
    return Outcome(schedule, wrong=[f"the first worker was not stopped, {MOST_BEGINNINGS} times"])


def play(schedule: Schedule, on: Stage, limit_s: float = LIMIT_S) -> Outcome:
    """Play a schedule, and look at what it left. One that does not end is ended, and is wrong.

    Raises:
        NeverStopped: there was nothing to look at; play it again, on another stage.
    """
    over = threading.Event()
    limit = threading.Timer(limit_s, on.end_all, [over])
    limit.start()
    try:
        outcome = examined(schedule, on.journal, on.witness, *_PLAY[schedule.wake](schedule, on))
    except AssertionError as error:
        outcome = Outcome(schedule, wrong=[str(error).strip()])
    finally:
        limit.cancel()
        limit.join()
        on.clear()
    if over.is_set():
        outcome.wrong.append(f"it did not end within {limit_s} s")
    if outcome.wrong:
        outcome.wrong.append(f"what was told: {[child.said[-MOST_LINES:] for child in on.children]}")
    return outcome


def until_stopped(process_id: int) -> None:
    """Return once every thread of a process stands still: a SIGCONT that came before would be lost."""
    while Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.001)


#: How both ended.
Played = tuple[Ended, Ended]


def _stopped(schedule: Schedule, on: Stage) -> Running:
    first = on.first(schedule)
    try:
        first.wait_for("at")
    except AssertionError:
        if first.ended().told("refused") == [LeaseLost.code]:
            raise NeverStopped from None
        raise
    until_stopped(first.process_id)
    return first


def _in_time(schedule: Schedule, on: Stage) -> Played:
    first = _stopped(schedule, on)
    if schedule.holds_the_lock:
        return _woken(first), on.second(schedule).ended()
    second = on.second(schedule)
    second.wait_for("tried")  # on a busy machine the lease may have run out by then
    return _woken(first), second.ended()


def _too_late(schedule: Schedule, on: Stage) -> Played:
    first = _stopped(schedule, on)
    on.wait_free(schedule)
    return _woken(first), on.second(schedule).ended()


def _after_takeover(schedule: Schedule, on: Stage) -> Played:
    first = _stopped(schedule, on)
    second = on.second(schedule, pipe=True)
    if schedule.holds_the_lock:
        second.wait_for("timeout")
        ended = _woken(first)
        second.wait_for("taken")
    else:
        second.wait_for("taken")
        ended = _woken(first)
    on.go_on()
    return ended, second.ended()


def _after_the_end(schedule: Schedule, on: Stage) -> Played:
    first = _stopped(schedule, on)
    second = on.second(schedule)
    if schedule.holds_the_lock:
        second.wait_for("timeout")
        return _woken(first), second.ended()
    other = second.ended()
    return _woken(first), other


def _never(schedule: Schedule, on: Stage) -> Played:
    first = _stopped(schedule, on)
    second = on.second(schedule)
    if schedule.holds_the_lock:
        second.wait_for("timeout")
        return _woken(first, signal.SIGKILL), second.ended()
    other = second.ended()
    return _woken(first, signal.SIGKILL), other


def _woken(first: Running, by: signal.Signals = signal.SIGCONT) -> Ended:
    first.kill(by)
    return first.ended()


_PLAY: Final[dict[str, Callable[[Schedule, Stage], Played]]] = {
    "in time": _in_time,
    "too late": _too_late,
    "after takeover": _after_takeover,
    "after the end": _after_the_end,
    "never": _never,
}

"""One schedule: a worker stands still at a moment, another one follows, the first one wakes, or not.

Real processes, real time (a lease of one second). Everything is held against the journal,
verified, and against a witness outside of it.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Final

import anyio

import minutebook as mb
from domain.envelope import Recorded
from domain.errors import StoreTimeout
from domain.ports import StoreDescription
from minutebook.testing.crash import Ended, Witness
from minutebook.testing.fork_server import ForkServer, Running
from minutebook.testing.looking import journal_of
from minutebook.testing.postgres_cluster import Cluster
from tests.crash.harness import IN_MEMORY
from tests.crash.matrix import in_parallel
from tests.hosts.stopping import MOMENTS, SESSION, TTL_S

PROGRAM: Final = Path(__file__).with_name("stopping.py")
#: When the first worker is woken. "never": it is killed at the end.
WAKES: Final = ("in time", "too late", "after takeover", "after the end", "never")
#: (hours of the first worker's clock, of the second one's, what the first one's jumps by meanwhile).
CLOCKS: Final = {
    "right": (0.0, 0.0, 0.0),
    "first ahead": (1.0, 0.0, 0.0),
    "first behind": (-1.0, 0.0, 0.0),
    "second ahead": (0.0, 1.0, 0.0),
    "second behind": (0.0, -1.0, 0.0),
    "set back": (0.0, 0.0, -1.0),
}
#: The server of the first worker, that of the second one.
Pair = tuple[ForkServer, ForkServer]
ENDS: Final = ("request_completed", "request_failed", "request_interrupted", "request_superseded")
#: How long after the stop somebody may still be refused.
REFUSED_S: Final = TTL_S + 1.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """What happens. `engine`: sqlite or postgres."""

    engine: str
    moment: str
    wake: str
    clocks: str = "right"

    def __str__(self) -> str:
        return f"{self.engine}: stopped at {self.moment}, woken {self.wake}, clocks {self.clocks}"

    @property
    def holds_the_lock(self) -> bool:
        """Whether the first worker stands inside a transaction that keeps everybody else from writing."""
        return self.engine == "sqlite" and self.moment == "transaction"


def matrix(engine: str) -> list[Schedule]:
    """Every moment, every wake, every clock."""
    return [Schedule(engine, *each) for each in product(MOMENTS, WAKES, CLOCKS)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a schedule.

    Args:
        takeover_s: from the stop to the second worker's lease; None where that is not what is measured.
        refused_s: from the stop to the last look of the second worker that found the session held.
        refused: what the first one was told after it woke.
        timeouts: how often the second one's store said that it was busy.
        stale: events under a token lower than one before them. doubled: effects of one call twice.
    """

    schedule: Schedule
    takeover_s: float | None
    refused_s: float
    refused: list[str]
    timeouts: int
    stale: int
    doubled: int
    wrong: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Stage:
    """Where a schedule is played: two fork servers, a journal, a witness, a pipe."""

    servers: Pair
    journal: str
    place: Path
    pipe: int

    @property
    def witness(self) -> Witness:
        """What really happened."""
        return Witness(self.place / "witness")

    def first(self, schedule: Schedule) -> Running:
        """The worker that stops."""
        hours, _, step = CLOCKS[schedule.clocks]
        files = {"journal": self.journal, "witness": str(self.place / "witness")}
        return self.servers[0].start("stopped", **files, moment=schedule.moment, hours=hours, step_hours=step)

    def second(self, schedule: Schedule, pipe: bool = False) -> Running:
        """The worker that follows."""
        files = {"journal": self.journal, "witness": str(self.place / "witness")}
        name = str(self.place / "pipe") if pipe else ""
        return self.servers[1].start("follow", **files, hours=CLOCKS[schedule.clocks][1], pipe=name)

    def go_on(self) -> None:
        """Let the second worker go on after it has taken over; it may have ended by itself."""
        os.write(self.pipe, b"1")


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

    def some(place: int) -> list[Outcome]:
        outcomes = []
        for schedule in schedules[place :: len(pairs)]:
            with stage(pairs[place], schedule.engine, cluster) as on:
                outcomes.append(play(schedule, on))
        return outcomes

    found = in_parallel(len(pairs), some)
    return [found[n % len(pairs)][n // len(pairs)] for n in range(len(schedules))]


def play(schedule: Schedule, on: Stage) -> Outcome:
    """Play a schedule, and look at what it left."""
    first = on.first(schedule)
    first.wait_for("at")
    until_stopped(first.process_id)
    stopped_at = time.monotonic()
    play_it = {
        "in time": _in_time,
        "too late": _too_late,
        "after takeover": _after_takeover,
        "after the end": _after_the_end,
        "never": _never,
    }[schedule.wake]
    taken_at, ended, other = play_it(schedule, on, first)
    takeover_s = taken_at - stopped_at if taken_at is not None else None
    refused_s = max((began - stopped_at for began in other.told("conflict")), default=0.0)
    return _examined(schedule, on, takeover_s, refused_s, ended, other)


def until_stopped(process_id: int) -> None:
    """Return once every thread of a process stands still: a SIGCONT that came before would be lost."""
    while Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.001)


#: When the second one had the session (None: not measured), and how both ended.
Played = tuple[float | None, Ended, Ended]


def _in_time(schedule: Schedule, on: Stage, first: Running) -> Played:
    if schedule.holds_the_lock:
        first.kill(signal.SIGCONT)
        ended = first.ended()
        return None, ended, on.second(schedule).ended()
    second = on.second(schedule)
    second.wait_for("tried")  # on a busy machine the lease may have run out by then
    first.kill(signal.SIGCONT)
    return None, first.ended(), second.ended()


def _too_late(schedule: Schedule, on: Stage, first: Running) -> Played:
    on.servers[1].run("wait_free", journal=on.journal, hours=CLOCKS[schedule.clocks][1]).completed()
    first.kill(signal.SIGCONT)
    ended = first.ended()
    return None, ended, on.second(schedule).ended()


def _after_takeover(schedule: Schedule, on: Stage, first: Running) -> Played:
    second = on.second(schedule, pipe=True)
    if schedule.holds_the_lock:
        second.wait_for("timeout")
        first.kill(signal.SIGCONT)
        ended = first.ended()
        second.wait_for("taken")
        on.go_on()
        return None, ended, second.ended()
    second.wait_for("taken")
    taken_at = time.monotonic()
    first.kill(signal.SIGCONT)
    ended = first.ended()
    on.go_on()
    return taken_at, ended, second.ended()


def _after_the_end(schedule: Schedule, on: Stage, first: Running) -> Played:
    second = on.second(schedule)
    if schedule.holds_the_lock:
        second.wait_for("timeout")
        first.kill(signal.SIGCONT)
        return None, first.ended(), second.ended()
    second.wait_for("taken")
    taken_at = time.monotonic()
    other = second.ended()
    first.kill(signal.SIGCONT)
    return taken_at, first.ended(), other


def _never(schedule: Schedule, on: Stage, first: Running) -> Played:
    second = on.second(schedule)
    if schedule.holds_the_lock:
        second.wait_for("timeout")
        first.kill()
        return None, first.ended(), second.ended()
    second.wait_for("taken")
    taken_at = time.monotonic()
    other = second.ended()
    first.kill()
    return taken_at, first.ended(), other


# --- what it left ------------------------------------------------------------------------------


def _examined(
    schedule: Schedule, on: Stage, takeover_s: float | None, refused_s: float, ended: Ended, other: Ended
) -> Outcome:
    store: StoreDescription = mb.postgres(on.journal) if "://" in on.journal else mb.sqlite(on.journal)
    events = anyio.run(journal_of, store, SESSION)
    lines = on.witness.lines()
    effects = Counter(line[0] for line in lines if line[1] == "pay")
    outcome = Outcome(
        schedule,
        takeover_s,
        refused_s,
        ended.told("refused"),
        len(other.told("timeout")),
        stale_events(events),
        sum(times > 1 for times in effects.values()),
    )
    outcome.wrong.extend(_wrong(outcome, events, lines, ended, other))
    return outcome


def stale_events(events: Sequence[Recorded]) -> int:
    """Events under a token lower than one before them."""
    highest, found = 0, 0
    for event in events:
        token = event.recorded_by.token if event.recorded_by else 0
        found += token < highest
        highest = max(token, highest)
    return found


def _wrong(
    outcome: Outcome,
    events: Sequence[Recorded],
    lines: Sequence[tuple[str, ...]],
    ended: Ended,
    other: Ended,
) -> Iterator[str]:
    schedule = outcome.schedule
    if outcome.stale or outcome.doubled:
        yield f"{outcome.stale} stale events, {outcome.doubled} effects twice"
    # Not the takeover itself: on a busy machine the second worker may look too late by itself.
    if outcome.takeover_s is not None and outcome.refused_s > REFUSED_S:
        yield f"the session was still held {outcome.refused_s:.2f} s after its holder had stopped"
    if ended.returncode not in (0, -signal.SIGKILL if schedule.wake == "never" else 0):
        yield f"the first worker ended with {ended}"
    if other.returncode != 0:
        yield f"the second worker ended with {other}"
    if any(code != StoreTimeout.code for code in other.told("timeout")):
        yield f"a lock that was held was told as {other.told('timeout')}"
    if schedule.holds_the_lock and schedule.wake not in ("in time", "too late") and not outcome.timeouts:
        yield "nobody was told that the file is locked"
    yield from _wrong_inputs(events, ended)
    yield from _wrong_asks(lines)
    if schedule.wake in ("too late", "after takeover", "after the end"):
        yield from _wrong_after_waking(schedule, lines, ended)


def _wrong_inputs(events: Sequence[Recorded], ended: Ended) -> Iterator[str]:
    accepted = [e.data.input_id for e in events if e.type == "input_accepted"]
    requests = {e.request_id: e.data.input_id for e in events if e.type == "request_accepted"}
    ends = Counter(requests[e.request_id] for e in events if e.type in ENDS)
    if len(set(accepted)) != len(accepted) or not set(ended.told("receipt")) <= set(accepted):
        yield f"receipts {ended.told('receipt')}, accepted {accepted}"
    if ends != Counter(accepted):
        yield f"accepted {accepted}, ended {dict(ends)}"


def _wrong_asks(lines: Sequence[tuple[str, ...]]) -> Iterator[str]:
    for attempt, times in Counter(line[0] for line in lines if line[1] == "asked").items():
        if times > 1:
            yield f"the model was asked {attempt} {times} times"


def _wrong_after_waking(schedule: Schedule, lines: Sequence[tuple[str, ...]], ended: Ended) -> Iterator[str]:
    """Who wakes without authority writes nothing, and begins nothing: no model, no tool."""
    done = [line for line in lines if line[2:] == ("first", "awake")]
    # What had begun before cannot be called back: the tool stood right before its effect.
    allowed = 1 if schedule.moment == "before effect" else 0
    if len(done) > allowed:
        yield f"after it woke without authority, the first worker did {done}"
    if not ended.told("refused"):
        yield f"after it woke without authority, the first worker was told nothing: {ended}"

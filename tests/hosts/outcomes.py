"""What a schedule is, and whether what it left is right: held against the journal and a witness."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final

import anyio

import minutebook as mb
from domain.envelope import Recorded
from domain.errors import StoreTimeout
from domain.ports import StoreDescription
from minutebook.testing.crash import Ended, Witness
from minutebook.testing.looking import journal_of
from tests.hosts.stopping import MOMENTS, SESSION, TTL_S

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
ENDS: Final = ("request_completed", "request_failed", "request_interrupted", "request_superseded")
#: How long after the stop somebody may still be refused, and when at the latest another one has it.
TAKEN_S: Final = TTL_S + 1.0


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
        # On a server a commit is one statement: whoever stands still has not sent it, or has its answer.
        return self.engine == "sqlite" and self.moment == "transaction"

    @property
    def taken_from_a_sleeper(self) -> bool:
        """Whether the second worker has to have it while the first one stands still."""
        return self.wake in ("after takeover", "after the end", "never") and not self.holds_the_lock


def matrix(engine: str) -> list[Schedule]:
    """Every moment, every wake, every clock."""
    return [Schedule(engine, *each) for each in product(MOMENTS, WAKES, CLOCKS)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a schedule.

    Args:
        takeover_s: from the stop to the second worker's lease; None where that is not what is measured.
        load_s: how much of it the second worker waited for a processor, as the kernel counted.
        refused_s: from the stop to the last look of the second worker that found the session held.
        refused: what the first one was told after it woke.
        timeouts: how often the second one's store said that it was busy.
        stale: events under a token lower than one before them. doubled: effects of one call twice.
    """

    schedule: Schedule
    takeover_s: float | None = None
    load_s: float = 0.0
    refused_s: float = 0.0
    refused: list[str] = field(default_factory=list)
    timeouts: int = 0
    stale: int = 0
    doubled: int = 0
    wrong: list[str] = field(default_factory=list)


def examined(schedule: Schedule, journal: str, witness: Witness, ended: Ended, other: Ended) -> Outcome:
    """What came of a schedule, from what it left and what both workers told."""
    store: StoreDescription = mb.postgres(journal) if "://" in journal else mb.sqlite(journal)
    events = anyio.run(journal_of, store, SESSION)
    lines = witness.lines()
    effects = Counter(line[0] for line in lines if line[1] == "pay")
    stopped_at = ended.told("stopped")[0]
    taken = other.told("taken") if schedule.taken_from_a_sleeper else []
    outcome = Outcome(
        schedule,
        taken[0] - stopped_at if taken else None,
        max(other.told("kept_waiting"), default=0.0),
        max((began - stopped_at for began in other.told("conflict")), default=0.0),
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
    if schedule.taken_from_a_sleeper:
        yield from wrong_takeover(outcome)
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


def wrong_takeover(outcome: Outcome) -> Iterator[str]:
    """Whether the second worker was kept out for longer than a lease of somebody who stands still."""
    if outcome.refused_s > TAKEN_S:
        yield f"the session was still held {outcome.refused_s:.2f} s after its holder had stopped"
    if outcome.takeover_s is None:
        yield "nobody took the session"
    elif outcome.takeover_s > TAKEN_S + outcome.load_s:
        yield f"taken after {outcome.takeover_s:.2f} s, expected {TAKEN_S} s, {outcome.load_s:.2f} s of load"


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

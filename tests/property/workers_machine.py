"""One machine for two workers of a session, an operator, and a world that does what the machine says.

Run over every store by `test_workers_at_random.py`, and for long by `every_pair_of_workers.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from itertools import product
from typing import Any

from anyio.from_thread import start_blocking_portal
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from domain.ports import StoreDescription
from domain.values import Priority
from minutebook.testing.clock import ManualClock
from minutebook.testing.faulty_store import FATAL_ABSENT, PASSING, Fault
from tests.property import workers
from tests.property.shared import Counts, Place, Stop
from tests.property.workers import SAYS, Worker
from tests.property.workers_scene import LATE_S, Scene

HOUR_S = 3600

WHICH = [0, 1]
BOTH = [True, False]
MOSTLY = [True, True, False]
WORDS = [*SAYS, "pay", "pay", "two", "look", "watch"]
FAULTS = [*PASSING, *FATAL_ABSENT, Fault.LOST_FOUND]
#: Before or after which of a worker's next calls of the store it stands still.
STOPS = [*product(BOTH, range(10)), *[None] * 20]
LEASES = ["its own", "its own", "its own", "the holder's", "wrong", "a former one"]

Holds = Callable[["Workers"], bool]


@dataclass(frozen=True, slots=True)
class Move:
    """One thing that may happen: when, with which options, and what it does."""

    when: Holds
    options: dict[str, list[Any]]
    carry_out: Callable[..., None]


#: By name.
MOVES: dict[str, Move] = {}


def move(when: Holds = lambda machine: True, **options: list[Any]) -> Callable[[Callable[..., None]], Any]:
    """A rule, counted with what comes next where it is carried out."""

    def decorate(function: Callable[..., None]) -> Any:
        @wraps(function)
        def counted(machine: Workers, **chosen: Any) -> None:
            machine.counts.cells[machine.books.frontier, function.__name__] += 1
            function(machine, **chosen)

        MOVES[function.__name__] = Move(when, options, counted)
        strategies: Any = {name: st.sampled_from(values) for name, values in options.items()}
        made: Callable[[Any], Any] = rule(**strategies)
        return precondition(when)(made(counted))

    return decorate


def there_is(holds: Callable[[Worker], bool]) -> Holds:
    """It holds of a worker that does not stand still."""
    return lambda machine: bool(machine.those(holds))


def one_stands(machine: Workers) -> bool:
    """A worker stands still."""
    return any(machine.workers[each].way.stands for each in machine.opened)


class Workers(Scene, RuleBasedStateMachine):
    """The machine."""

    @initialize(says=st.sampled_from(WORDS), allow=st.sampled_from(MOSTLY), stop=st.sampled_from(STOPS))
    def begin(self, says: str, allow: bool, stop: tuple[bool, int] | None) -> None:
        """A request is on its way. Stop: its worker stands still somewhere on it."""
        self.comes(0, "its own")
        if stop is not None:
            self.workers[0].way.stop = self.call(Stop, *stop)
        self.sends(0, Priority.NEXT)
        self.model_answers(0, says)
        if 0 in self.those(workers.is_asked):
            self.answers(0, self.first_question(0), allow)

    # --- life and death -------------------------------------------------------------------

    @move(lambda self: len(self.opened) < 2, number=WHICH, late=MOSTLY, lease=LEASES)
    def open(self, number: int, late: bool, lease: str) -> None:
        """Late: whoever has the lease was not heard of for so long that it ran out."""
        if late:
            self.passes(LATE_S)
        self.comes(number if number not in self.opened else 1 - number, lease)

    @move(there_is(workers.exists), number=WHICH)
    def leave(self, number: int) -> None:
        self.goes(self.one(number, workers.exists), "leaves")

    @move(lambda self: bool(self.opened), number=WHICH)
    def crash(self, number: int) -> None:
        """Without a word, wherever it is, standing still or not."""
        number = number if number in self.opened else 1 - number
        self.call(self.workers[number].die)
        self.goes(number, "crashes")

    @move(there_is(workers.exists), number=WHICH, before=BOTH, calls=[0, 1, 2, 3])
    def stand_still(self, number: int, before: bool, calls: int) -> None:
        """From before or after one of the next calls of the store, until it is woken."""
        way = self.workers[self.one(number, workers.exists)].way
        way.stop = self.call(Stop, before, calls)

    @move(one_stands, number=WHICH, late=BOTH)
    def wake(self, number: int, late: bool) -> None:
        """Late: it stood for longer than its lease."""
        standing = [each for each in self.opened if self.workers[each].way.stands]
        worker = self.workers[number if number in standing else standing[0]]
        if late:
            self.passes(LATE_S)
        self.call(worker.way.go_on)
        self.settle()
        self.collect(worker)
        self.note("wake", "lost" if worker.held.error else "in time")

    @move(seconds=[1, 11, LATE_S])
    def time_passes(self, seconds: int) -> None:
        self.passes(seconds)

    @move(seconds=[-HOUR_S, HOUR_S])
    def the_wall_clock_is_set(self, seconds: int) -> None:
        self.call(self.clock.step, seconds)

    @move(there_is(workers.exists), number=WHICH)
    def heart_beats(self, number: int) -> None:
        number = self.one(number, workers.exists)
        held = self.workers[number].held
        self.tell("heartbeat", number, lambda session: held.beat())

    @move(there_is(workers.exists), number=WHICH, fault=FAULTS)
    def the_next_commit_fails(self, number: int, fault: Fault) -> None:
        self.workers[self.one(number, workers.exists)].fail_next(fault)

    # --- what people do -------------------------------------------------------------------

    @move(there_is(workers.exists), number=WHICH, priority=list(Priority))
    def send(self, number: int, priority: Priority) -> None:
        self.sends(self.one(number, workers.exists), priority)

    @move(there_is(workers.is_asked), number=WHICH, allow=MOSTLY, twice=BOTH)
    def answer(self, number: int, allow: bool, twice: bool) -> None:
        """Twice: the second answer is late, and changes nothing."""
        number = self.one(number, workers.is_asked)
        asked = self.first_question(number)
        self.answers(number, asked, allow)
        if twice and number in self.those(workers.exists):
            self.answers(number, asked, False)

    @move(there_is(workers.exists), number=WHICH)
    def abort(self, number: int) -> None:
        self.tell("abort", self.one(number, workers.exists), lambda session: session.abort(wait=False))

    @move(there_is(workers.exists), number=WHICH, follow=BOTH)
    def hand_over(self, number: int, follow: bool) -> None:
        """Follow: the other one waited for it, and has it at once."""
        number = self.one(number, workers.exists)
        self.killed_are_gone(self.workers[number])
        self.tell("hand over", number, lambda session: session.suspend_for_handoff(), self.was_handed_over)
        if follow and not self.opened:
            self.comes(1 - number, "its own")

    @move(there_is(workers.exists), number=WHICH, final=[True, False, False, False])
    def close(self, number: int, final: bool) -> None:
        """Final: the end of the session; only once it has had a life."""
        final = final and self.inputs > 5
        what = "close for good" if final else "close"
        number = self.one(number, workers.exists)
        self.tell(what, number, lambda session: session.close(final=final), self.was_closed)

    @move(there_is(workers.watches), number=WHICH)
    def the_watch_is_over(self, number: int) -> None:
        self.watch_ends(self.workers[self.one(number, workers.watches)])

    @move(late=MOSTLY, what=["settle", "settle", "automatic", "abandon"])
    def decide(self, late: bool, what: str) -> None:
        if late:
            self.passes(LATE_S)
        self.note("decide", self.call(self.decides, what))
        self.settle()

    # --- what the world does ----------------------------------------------------------------

    @move(there_is(workers.thinks), number=WHICH, says=WORDS)
    def the_model_answers(self, number: int, says: str) -> None:
        self.model_answers(self.one(number, workers.thinks), says)

    @move(there_is(workers.works), number=WHICH, how=["returns", "returns", "raises"])
    def a_tool_ends(self, number: int, how: str) -> None:
        self.tool_ends(self.one(number, workers.works), how)

    # --- what holds all the time ------------------------------------------------------------

    @invariant()
    def everything_holds(self) -> None:
        self.holds()

    def teardown(self) -> None:
        self.ends()


@contextmanager
def place_for(store: StoreDescription, clock: ManualClock, counts: Counts) -> Iterator[Place]:
    """A store that stays open for all machines of a run."""
    with start_blocking_portal() as portal, ExitStack() as kept:
        reader = kept.enter_context(portal.wrap_async_context_manager(store.open()))
        yield Place(portal, store, reader, clock, counts)


def run(place: Place, how: settings) -> None:
    """Run machines as Hypothesis does."""
    made: Any = partial(Workers, place)  # what gives machines is as good as their class
    run_state_machine_as_test(made, settings=how)


def play(place: Place, moves: int, seed: str) -> None:
    """Run one machine, by lot, preferring what was tried least where the session stands.

    The same seed and the same counts, the same run. AssertionError with everything that was done.
    """
    dice = random.Random(seed)
    machine = Workers(place)
    done: list[str] = []
    try:
        with ExitStack() as ending:
            ending.callback(machine.ends)
            done.append(str(began := (dice.choice(WORDS), dice.choice(MOSTLY), dice.choice(STOPS))))
            machine.begin(*began)
            for _ in range(moves):
                machine.holds()
                name = least_tried(machine, dice)
                chosen = {each: dice.choice(values) for each, values in MOVES[name].options.items()}
                done.append(f"{name} {chosen}")
                MOVES[name].carry_out(machine, **chosen)
            machine.holds()
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error!r} after:\n" + "\n".join(done)) from error


def least_tried(machine: Workers, dice: random.Random) -> str:
    """A move that is possible; of three, the one that was tried least."""
    possible = [name for name, each in MOVES.items() if each.when(machine)]
    some = [dice.choice(possible) for _ in range(3)]
    return min(some, key=lambda name: machine.counts.cells[machine.books.frontier, name])

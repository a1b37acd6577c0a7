"""One machine for two workers of a session, an operator, and a world that does what the machine says.

Run over every store by `test_workers_at_random.py`, and for long by `every_pair_of_workers.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial, wraps
from typing import Any

from anyio.from_thread import start_blocking_portal
from hypothesis import seed as seeded
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
from tests.property import workers_scene as scene
from tests.property.shared import Stop
from tests.property.workers import SAYS, Worker
from tests.property.workers_scene import LATE_S, Counts, Place, Scene

HOUR_S = 3600

which = st.sampled_from([0, 1])
says = st.sampled_from([*SAYS, "pay", "pay", "two", "look"])
faults = st.sampled_from([*PASSING, *FATAL_ABSENT, Fault.LOST_FOUND])
mostly = st.sampled_from([True, True, False])
leases = st.sampled_from(["its own", "its own", "its own", "the holder's", "wrong", "a former one"])
#: Before or after which of a worker's next calls of the store.
stops = st.none() | st.tuples(st.booleans(), st.integers(0, 9))
decisions = st.sampled_from(["settle", "settle", "automatic", "abandon"])


#: The names of the machine's moves.
MOVES: list[str] = []


def move(**chosen: Any) -> Callable[[Callable[..., None]], Any]:
    """A rule, counted with what comes next where it is carried out."""

    def decorate(function: Callable[..., None]) -> Any:
        MOVES.append(function.__name__)

        @wraps(function)
        def counted(machine: Workers, **options: Any) -> None:
            machine.counts.cells[machine.books.frontier, function.__name__] += 1
            function(machine, **options)

        made: Callable[[Any], Any] = rule(**chosen)
        return made(counted)

    return decorate


def there_is(holds: Callable[[Worker], bool]) -> Callable[[Any], Any]:
    """Only where it holds of a worker that does not stand still."""
    return precondition(lambda machine: bool(machine.those(holds)))


class Workers(Scene, RuleBasedStateMachine):
    """The machine."""

    @initialize(says=says, allow=mostly, stop=stops)
    def begin(self, says: str, allow: bool, stop: tuple[bool, int] | None) -> None:
        """A request is on its way. Stop: its worker stands still somewhere on it."""
        self.comes(0, "its own")
        if stop is not None:
            self.workers[0].way.stop = self.call(Stop, *stop)
        self.sends(0, Priority.NEXT)
        self.model_answers(0, says)
        if 0 in self.those(scene.is_asked):
            self.answers(0, self.first_question(0), allow)

    # --- life and death -------------------------------------------------------------------

    @precondition(lambda self: len(self.opened) < 2)
    @move(number=which, late=mostly, lease=leases)
    def open(self, number: int, late: bool, lease: str) -> None:
        """Late: whoever has the lease was not heard of for so long that it ran out."""
        if late:
            self.passes(LATE_S)
        self.comes(number if number not in self.opened else 1 - number, lease)

    @there_is(scene.exists)
    @move(number=which)
    def leave(self, number: int) -> None:
        self.goes(self.one(number, scene.exists), "leaves")

    @precondition(lambda self: bool(self.opened))
    @move(number=which)
    def crash(self, number: int) -> None:
        """Without a word, wherever it is, standing still or not."""
        number = number if number in self.opened else 1 - number
        self.call(self.workers[number].die)
        self.goes(number, "crashes")

    @there_is(scene.exists)
    @move(number=which, before=st.booleans(), calls=st.integers(0, 3))
    def stand_still(self, number: int, before: bool, calls: int) -> None:
        """From before or after one of the next calls of the store, until it is woken."""
        way = self.workers[self.one(number, scene.exists)].way
        way.stop = self.call(Stop, before, calls)

    @precondition(lambda self: any(self.workers[each].way.stands for each in self.opened))
    @move(number=which, late=st.booleans())
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

    @move(seconds=st.sampled_from([1, 11, LATE_S]))
    def time_passes(self, seconds: int) -> None:
        self.passes(seconds)

    @move(seconds=st.sampled_from([-HOUR_S, HOUR_S]))
    def the_wall_clock_is_set(self, seconds: int) -> None:
        self.call(self.clock.step, seconds)

    @there_is(scene.exists)
    @move(number=which)
    def heart_beats(self, number: int) -> None:
        number = self.one(number, scene.exists)
        held = self.workers[number].held
        self.tell("heartbeat", number, lambda session: held.beat())

    @there_is(scene.exists)
    @move(number=which, fault=faults)
    def the_next_commit_fails(self, number: int, fault: Fault) -> None:
        self.workers[self.one(number, scene.exists)].fail_next(fault)

    # --- what people do -------------------------------------------------------------------

    @there_is(scene.exists)
    @move(number=which, priority=st.sampled_from(list(Priority)))
    def send(self, number: int, priority: Priority) -> None:
        self.sends(self.one(number, scene.exists), priority)

    @there_is(scene.is_asked)
    @move(number=which, allow=mostly, twice=st.booleans())
    def answer(self, number: int, allow: bool, twice: bool) -> None:
        """Twice: the second answer is late, and changes nothing."""
        number = self.one(number, scene.is_asked)
        asked = self.first_question(number)
        self.answers(number, asked, allow)
        if twice and number in self.those(scene.exists):
            self.answers(number, asked, False)

    @there_is(scene.exists)
    @move(number=which)
    def abort(self, number: int) -> None:
        self.tell("abort", self.one(number, scene.exists), lambda session: session.abort(wait=False))

    @there_is(scene.exists)
    @move(number=which, follow=st.booleans())
    def hand_over(self, number: int, follow: bool) -> None:
        """Follow: the other one waited for it, and has it at once."""
        number = self.one(number, scene.exists)
        self.killed_are_gone(self.workers[number])
        self.tell("hand over", number, lambda session: session.suspend_for_handoff(), self.was_handed_over)
        if follow and not self.opened:
            self.comes(1 - number, "its own")

    @there_is(scene.exists)
    @move(number=which, final=st.sampled_from([True, False, False, False]))
    def close(self, number: int, final: bool) -> None:
        """Final: the end of the session; only once it has had a life."""
        final = final and self.inputs > 5
        what = "close for good" if final else "close"
        number = self.one(number, scene.exists)
        self.tell(what, number, lambda session: session.close(final=final), self.was_closed)

    @there_is(scene.watches)
    @move(number=which)
    def the_watch_is_over(self, number: int) -> None:
        self.watch_ends(self.workers[self.one(number, scene.watches)])

    @move(late=mostly, what=decisions)
    def decide(self, late: bool, what: str) -> None:
        if late:
            self.passes(LATE_S)
        self.note("decide", self.call(self.decides, what))
        self.settle()

    # --- what the world does ----------------------------------------------------------------

    @there_is(scene.thinks)
    @move(number=which, says=says)
    def the_model_answers(self, number: int, says: str) -> None:
        self.model_answers(self.one(number, scene.thinks), says)

    @there_is(scene.works)
    @move(number=which, how=st.sampled_from(["returns", "returns", "raises"]))
    def a_tool_ends(self, number: int, how: str) -> None:
        self.tool_ends(self.one(number, scene.works), how)

    # --- what holds all the time ------------------------------------------------------------

    @invariant()
    def everything_holds(self) -> None:
        self.holds()

    def teardown(self) -> None:
        self.ends()


def run(
    store: StoreDescription, clock: ManualClock, how: settings, counts: Counts, seed: int | None = None
) -> None:
    """Run machines over one store, which stays open for all of them. The same seed, the same run."""
    with start_blocking_portal() as portal, ExitStack() as kept:
        reader = kept.enter_context(portal.wrap_async_context_manager(store.open()))
        place = Place(portal, store, reader, clock, counts)
        made: Any = partial(Workers, place)  # what gives machines is as good as their class
        run_state_machine_as_test(made if seed is None else seeded(seed)(made), settings=how)

"""Workers that crash, pause, lose their lease and take over, in any order: nothing lost, nothing twice.

One session, two workers in one process, an operator; a model, tools, a clock and a store that do
what the machine says. The model beside it is a few sets: what was accepted, what the world saw.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from adapters.memory_journal import MemoryStore
from domain import catalogue
from domain.envelope import Recorded
from domain.errors import LeaseConflict, MinutebookError
from domain.ports import Holder
from domain.values import Priority
from minutebook.interactions import Approve, Deny
from minutebook.testing.clock import ManualClock
from minutebook.testing.faulty_store import FATAL_ABSENT, PASSING, Fault
from minutebook.testing.looking import journal_of
from recovery.coordinator import RecoveryCoordinator
from recovery.plan import RecoveryPlan, RecoveryRequired, plan_of
from recovery.reading import load
from tests.property.workers import ABORT_S, SAYS, SESSION, TTL_S, Effects, Ids, Worker
from tests.session import order

FIXED = settings(
    max_examples=60,
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
#: Never reached; what reaches it hangs.
LONG_S = 20
#: A session that gets everything it asks for is at rest after so many rounds.
ROUNDS = 300
NON_IDEMPOTENT = "pay"
INPUT_ENDS = ("input_applied", "input_cancelled")

which = st.sampled_from([0, 1])
says = st.sampled_from([*SAYS, "pay", "two"])
faults = st.sampled_from([*PASSING, *FATAL_ABSENT, Fault.LOST_FOUND])


def is_open(machine: Workers) -> bool:
    return bool(machine.opened)


def is_busy(machine: Workers) -> bool:
    return is_thinking(machine) or is_working(machine)


def is_asked(machine: Workers) -> bool:
    return bool(machine.those(_asks))


def is_thinking(machine: Workers) -> bool:
    return bool(machine.those(lambda worker: bool(worker.attempts)))


def is_working(machine: Workers) -> bool:
    return bool(machine.those(lambda worker: bool(worker.calls)))


def _asks(worker: Worker) -> bool:
    return worker.session is not None and bool(worker.session.interactions)


class Workers(RuleBasedStateMachine):
    """The machine. `seen` counts what every rule came to."""

    def __init__(self, portal: BlockingPortal, seen: Counter[str]) -> None:
        super().__init__()
        self.portal, self.seen = portal, seen
        self.inner, self.clock, self.ids = self.call(_made)
        self._reading = portal.wrap_async_context_manager(self.inner.open())
        self.reader = self._reading.__enter__()
        self.effects = Effects(self.reader)
        self.workers: list[Worker] = [self.worker(number) for number in (0, 1)]
        self.opened: dict[int, Future[None]] = {}
        self.accepted: dict[str, str] = {}
        self.inputs = 0
        self.read: list[Recorded] = []

    @initialize(says=says)
    def begin(self, says: str) -> None:
        self.open(0)
        self.send(0, Priority.NEXT)
        self.the_model_answers(0, says)

    # --- life and death -------------------------------------------------------------------

    @precondition(lambda self: len(self.opened) < 2)
    @rule(number=which, late=st.sampled_from([True, True, False]))
    def open(self, number: int, late: bool = False) -> None:
        """Late: whoever has the lease was not heard of for so long that it ran out."""
        number = number if number not in self.opened else 1 - number
        if late:
            self.call(self.clock.advance, TTL_S + 5)
        self.workers[number] = self.worker(number)
        self.note("open", self._open(number))

    def _open(self, number: int) -> str:
        worker = self.workers[number]
        resume = self.call(self.reader.session, SESSION) is not None
        try:
            living, _ = self.portal.start_task(partial(worker.live, resume=resume))
        except RecoveryRequired as required:
            self.call(self._says_the_same, required.plan)
            return "somebody has to decide"
        except MinutebookError as refusal:
            return refusal.code
        self.opened[number] = living
        self.portal.start_task_soon(worker.listen)
        self.portal.start_task_soon(worker.drive)
        self.settle()
        return "resumed" if resume else "created"

    async def _says_the_same(self, plan: RecoveryPlan) -> None:
        """I5 and I9: whoever reads the journal comes to the same plan, as often as it is read."""
        read = plan_of(await load(self.reader, SESSION, use_snapshot=False))
        assert [(i.action, i.subject) for i in plan.items] == [(i.action, i.subject) for i in read.items]

    @precondition(is_open)
    @rule(number=which, how=st.sampled_from(["leaves", "crashes", "crashes"]))
    def go(self, number: int, how: str) -> None:
        number = self.one(number, lambda worker: True)
        living = self.opened.pop(number)
        if how == "crashes":
            self.workers[number].die()
        self.call(self.workers[number].leaving.set)
        self.settle()
        if not living.done():  # for a tool that does not look
            self.call(self.clock.advance, 2 * ABORT_S)
        try:
            living.result(LONG_S)
            self.note(how, "gone")
        except MinutebookError as refusal:
            self.note(how, refusal.code)

    @rule(seconds=st.sampled_from([1, 10, TTL_S + 5]))
    def time_passes(self, seconds: int) -> None:
        self.call(self.clock.advance, seconds)
        self.settle()

    @rule(seconds=st.sampled_from([-3600, 3600]))
    def the_wall_clock_is_set(self, seconds: int) -> None:
        self.call(self.clock.step, seconds)

    @precondition(is_open)
    @rule(number=which)
    def heart_beats(self, number: int) -> None:
        held = self.workers[self.one(number, lambda worker: True)].keeper.held
        assert held is not None
        self.call(held.beat)
        self.settle()
        self.note("heartbeat", "lost" if held.error else "renewed")

    @precondition(is_open)
    @rule(number=which, fault=faults)
    def the_next_commit_fails(self, number: int, fault: Fault) -> None:
        self.workers[self.one(number, lambda worker: True)].fail_next(fault)

    # --- what people do -------------------------------------------------------------------

    @precondition(is_open)
    @rule(number=which, priority=st.sampled_from(list(Priority)))
    def send(self, number: int, priority: Priority) -> None:
        self.inputs += 1
        input_id, text = f"i{self.inputs}", f"text {self.inputs}"
        self.ask(
            "send", number, lambda s: s.send(text, input_id=input_id, priority=priority), self._was_accepted
        )

    def _was_accepted(self, receipt: Any) -> None:
        self.accepted[receipt.input_id] = "accepted"

    @precondition(is_asked)
    @rule(number=which, allow=st.sampled_from([True, True, False]), late=st.booleans())
    def answer(self, number: int, allow: bool, late: bool) -> None:
        number = self.one(number, _asks)
        session = self.workers[number].session
        assert session is not None
        asked = session.interactions[0]
        chosen = Approve() if allow else Deny()
        if late:  # somebody was first; the second answer changes nothing
            self.ask("answer", number, lambda s: s.respond(asked.id, chosen, digest=asked.digest))
            chosen = Deny()
        self.ask("answer", number, lambda s: s.respond(asked.id, chosen, digest=asked.digest))

    @precondition(is_busy)
    @rule(number=which)
    def abort(self, number: int) -> None:
        self.ask("abort", number, lambda s: s.abort(wait=False))

    @precondition(lambda self: not self.opened)
    @rule(late=st.sampled_from([True, True, False]))
    def decide(self, late: bool) -> None:
        if late:
            self.call(self.clock.advance, TTL_S + 5)
        self.note("decide", self.call(self._decide))

    async def _decide(self) -> str:
        if await self.reader.session(SESSION) is None:
            return "nothing there"
        try:
            async with RecoveryCoordinator.open(
                self.reader,
                SESSION,
                clock=self.clock,
                ids=self.ids,
                holder=Holder("operator", "", boot_id=self.clock.boot_id),
            ) as coordinator:
                return await self._decided(coordinator)
        except LeaseConflict:
            return "a worker has it"

    async def _decided(self, coordinator: RecoveryCoordinator) -> str:
        for item in coordinator.plan.items:
            if item.action == "reconcile_model_outcome" and item.who == "host":
                await coordinator.reconcile_model_outcome(item.subject, outcome="lost", evidence="no answer")
                return "a model's outcome"
            if item.action == "reconcile_tool_outcomes":
                did = item.subject in self.effects.done
                outcome, output = ("completed", "did it") if did else ("cancelled", "")
                await coordinator.reconcile_tool_outcome(
                    item.subject, outcome=outcome, evidence="the bank says so", output=output
                )
                return "a tool's outcome"
        return "nothing to decide"

    # --- what the world does ----------------------------------------------------------------

    @precondition(is_thinking)
    @rule(number=which, says=says)
    def the_model_answers(self, number: int, says: str) -> None:
        waiting = self.workers[self.one(number, lambda worker: bool(worker.attempts))].attempts
        self.call(waiting.pop(0).end, SAYS[says])
        self.settle()
        self.note("model", says)

    @precondition(is_thinking)
    @rule(number=which)
    def a_payment_begins(self, number: int) -> None:
        number = self.one(number, lambda worker: bool(worker.attempts))
        self.the_model_answers(number, "pay")
        if _asks(self.workers[number]):
            self.answer(number, allow=True, late=False)

    @precondition(is_working)
    @rule(number=which, how=st.sampled_from(["returns", "returns", "raises"]))
    def a_tool_ends(self, number: int, how: str) -> None:
        waiting = self.workers[self.one(number, lambda worker: bool(worker.calls))].calls
        self.call(waiting.pop(0).end, how)
        self.settle()
        self.note("tool", how)

    # --- what holds all the time ------------------------------------------------------------

    @invariant()
    def the_journal_holds(self) -> None:
        """I1 to I4, I6 and I8, as far as the journal has grown."""
        if not self.call(self._grew):
            return
        events = self.read
        assert [e.sequence for e in events] == list(range(1, len(events) + 1))
        tokens = [e.recorded_by.token for e in events if e.recorded_by is not None]
        assert len(tokens) == len(events), "a leased session is written under a lease only"
        assert tokens == sorted(tokens), "no event of a former holder after one of the next"
        recorded = {e.data.input_id for e in events if e.type == "input_accepted"}
        assert set(self.accepted) <= recorded, "what was acknowledged is on record"
        applied = Counter(e.data.input_id for e in events if e.type in INPUT_ENDS)
        assert all(times == 1 for times in applied.values()), "an input is taken off the queue once"

    @invariant()
    def the_world_saw_nothing_twice(self) -> None:
        assert self.effects.early == [], "an effect whose start was not on record"
        pays = {e.tool_id for e in self.read if e.type == "tool_scheduled" and e.data.name == NON_IDEMPOTENT}
        done = Counter(each for each in self.effects.done if each in pays)
        assert all(times == 1 for times in done.values()), done
        for worker in self.workers:
            assert all(sequence <= len(self.read) for sequence, _ in worker.told), "told, and not on record"

    async def _grew(self) -> bool:
        before = len(self.read)
        while rows := await self.reader.read(SESSION, after=len(self.read)):
            self.read += [catalogue.open_stored(row) for row in rows]
        return len(self.read) > before

    def teardown(self) -> None:
        try:
            for number in list(self.opened):
                self.go(number, "crashes")
            self._finish()
        finally:
            for living in self.opened.values():
                living.cancel()
            self._reading.__exit__(None, None, None)

    def _finish(self) -> None:
        """One more worker, to whom nothing happens: the session comes to rest, and everything has an end."""
        self.call(self.clock.advance, TTL_S + 5)
        if self.call(self.reader.session, SESSION) is None:
            return
        for _ in range(ROUNDS):
            if 0 not in self.opened:
                self.workers[0] = self.worker(0)
                self.note("open", self._open(0))
                if 0 not in self.opened:
                    self.note("decide", self.call(self._decide))
                    continue
            if not self._goes_on(self.workers[0]):
                break
        self.the_journal_holds()
        self.the_world_saw_nothing_twice()
        if 0 in self.opened:
            self.go(0, "leaves")
        assert self.call(journal_of, self.inner, SESSION) == self.read  # it verifies what it reads
        ended = {e.request_id for e in self.read if e.type in order.REQUEST_ENDS}
        assert {e.request_id for e in self.read if e.type == "request_accepted"} == ended
        gone = {e.data.input_id for e in self.read if e.type in INPUT_ENDS}
        assert {e.data.input_id for e in self.read if e.type == "input_accepted"} == gone
        order.check(self.read)

    def _goes_on(self, worker: Worker) -> bool:
        """Give the session the next thing it asks for. False: it asks for nothing."""
        assert worker.session is not None
        if worker.session.interactions:
            self.answer(0, allow=True, late=False)
        elif worker.attempts:
            self.the_model_answers(0, "text")
        elif worker.calls:
            self.a_tool_ends(0, "returns")
        else:
            return self._moves(worker)
        return True

    def _moves(self, worker: Worker) -> bool:
        """Whether time makes it go on. Where somebody has to decide, the next opening says so."""
        before = len(worker.store.batches)
        held = worker.keeper.held
        assert held is not None
        self.call(held.beat)
        self.call(self.clock.advance, 10)
        self.settle()
        if worker.attempts or worker.calls or len(worker.store.batches) > before:
            return True
        if self.call(self._rests):
            return False
        self.go(0, "leaves")
        return True

    async def _rests(self) -> bool:
        plan = plan_of(await load(self.reader, SESSION))
        return [item.action for item in plan.items if item.who != "nobody"] == []

    # --- helpers ------------------------------------------------------------------------------

    def those(self, holds: Callable[[Worker], bool]) -> list[int]:
        """The open workers of which something holds."""
        return [number for number in self.opened if holds(self.workers[number])]

    def one(self, number: int, holds: Callable[[Worker], bool]) -> int:
        """The wanted one of those, else the other."""
        found = self.those(holds)
        return number if number in found else found[0]

    def worker(self, number: int) -> Worker:
        return Worker(f"worker-{number}", self.inner, self.clock, self.ids, self.effects)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.portal.call(_within, function, *arguments)

    def settle(self) -> None:
        """Let everybody do what there is to do."""
        self.portal.call(anyio.wait_all_tasks_blocked)

    def ask(
        self,
        what: str,
        number: int,
        call: Callable[[Any], Any],
        then: Callable[[Any], None] = lambda answer: None,
    ) -> None:
        session = self.workers[self.one(number, lambda worker: True)].session
        try:
            then(self.call(call, session))
            self.note(what, "done")
        except MinutebookError as refusal:
            self.note(what, refusal.code)
        self.settle()

    def note(self, what: str, came_of_it: str) -> None:
        self.seen[f"{what}: {came_of_it}"] += 1
        event(f"{what}: {came_of_it}")


async def _made() -> tuple[MemoryStore, ManualClock, Ids]:
    clock = ManualClock()
    return MemoryStore(clock=clock), clock, Ids()


async def _within(function: Callable[..., Any], *arguments: Any) -> Any:
    with anyio.fail_after(LONG_S):
        answer = function(*arguments)
        return await answer if hasattr(answer, "__await__") else answer


#: What a run has to come to at least once.
COMES_TO = [
    "abort: done",
    "answer: done",
    "crashes: gone",
    "decide: a model's outcome",
    "decide: a tool's outcome",
    "heartbeat: lost",
    "heartbeat: renewed",
    "leaves: gone",
    "open: created",
    "open: resumed",
    "open: somebody has to decide",
    "send: DURABLE_EXECUTION_LEASE_LOST",
    "send: done",
    "tool: raises",
    "tool: returns",
]


def test_two_workers_at_random() -> None:
    seen: Counter[str] = Counter()
    with start_blocking_portal() as portal:
        made: Any = partial(Workers, portal, seen)  # what gives machines is as good as their class
        run_state_machine_as_test(made, settings=FIXED)
    print("\n".join(f"{times:>6} {what}" for what, times in sorted(seen.items())))
    assert [each for each in COMES_TO if not seen[each]] == []

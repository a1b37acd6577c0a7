"""Two workers of one session on a stage: they come and go, are told something, and are looked at.

What a machine's rules are made of (`workers_machine.py`), and what has to hold after each of them.
That is kept by a model that shares no code with the library: `books.py` for what the journal says,
`store_model.py` for what the store answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

import anyio

from domain import catalogue
from domain.envelope import Recorded
from domain.errors import LeaseConflict, MinutebookError
from domain.ports import Holder
from domain.values import Priority
from minutebook.interactions import Approve, Deny, Interaction
from minutebook.leaving import HandoffResult
from minutebook.testing.looking import journal_of
from projections.transcript import Transcript
from recovery.coordinator import RecoveryCoordinator
from recovery.plan import RecoveryPlan, RecoveryRequired, plan_of
from recovery.reading import load
from tests.property.books import Books
from tests.property.shared import Place, Shared, Way
from tests.property.workers import ABORT_S, NON_IDEMPOTENT, SAYS, Effects, Ids, Worker, is_asked
from tests.property.workers_operator import decided
from tests.session import order

#: Never reached; what reaches it hangs.
LONG_S = 20
POLL_S = 0.002
#: A session that gets everything it asks for is at rest after so many rounds.
ROUNDS = 300
#: Longer than a lease.
LATE_S = 35


class Scene:
    """The stage."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.portal, self.store, self.reader = place.portal, place.store, place.reader
        self.clock, self.counts = place.clock, place.counts
        self.counts.examples += 1
        self.session_id = f"s{next(place.numbers)}"
        self.ids, self.books = Ids(), Books()
        self.accepted: list[str] = []
        self.shared: Shared = self.call(Shared, place.store, self.clock)
        self.effects = Effects(self.reader, self.session_id)
        self.workers: list[Worker] = [self.worker(number) for number in (0, 1)]
        self.opened: dict[int, Future[None]] = {}
        self.lease_ids: list[str] = []
        self.inputs = 0

    # --- coming and going -------------------------------------------------------------------

    def worker(self, number: int, lease: str = "its own") -> Worker:
        """A new process, perhaps with a lease id that is not its own."""
        name, lease_id = f"worker-{number}", None
        kept = self.shared.model.sessions.get(self.session_id)
        if kept is not None and kept.lease is not None:
            match lease:
                case "the holder's":
                    name, lease_id = kept.lease.worker, kept.lease.lease_id
                case "wrong":
                    name = kept.lease.worker
                case "a former one" if self.lease_ids:
                    lease_id = self.lease_ids[0]
        made: Worker = self.call(Worker, name, self.shared, self.clock, self.ids, self.effects, lease_id)
        return made

    def comes(self, number: int, lease: str) -> None:
        """A worker opens the session, or is told why not."""
        self.workers[number] = self.worker(number, lease)
        self.note("open", self._opens(number))

    def _opens(self, number: int) -> str:
        worker = self.workers[number]
        resume = bool(self.books.events)
        try:
            living, _ = self.portal.start_task(partial(worker.live, resume=resume))
        except RecoveryRequired as required:
            self.is_the_plan(required.plan)
            return "somebody has to decide"
        except MinutebookError as refusal:
            return refusal.code
        self.opened[number] = living
        self.lease_ids.append(worker.held.fence.lease_id)
        worker.waits = [self.portal.start_task_soon(each) for each in (worker.listen, worker.drive)]
        self.settle()
        return "resumed" if resume else "created"

    def goes(self, number: int, how: str) -> None:
        """A worker leaves its block; one that is dead does so without a word."""
        worker, living = self.workers[number], self.opened.pop(number)
        self.call(worker.way.go_on)
        self.call(worker.leaving.set)
        self._gives_time(worker)
        try:
            living.result(LONG_S)
            self.note(how, "gone")
        except MinutebookError as refusal:
            self.note(how, refusal.code)
        self.collect(worker)
        for waiting in worker.waits:  # whoever waits for a session that was left is told so
            waiting.result(LONG_S)

    def passes(self, seconds: float) -> None:
        """Time goes on, for everybody."""
        self.call(self.clock.advance, seconds)
        self.settle()
        self.call(self.reads_on)

    def _gives_time(self, worker: Worker) -> None:
        """For a tool that does not look."""
        self.settle()
        if worker.calls:
            self.passes(2 * ABORT_S)

    # --- telling ------------------------------------------------------------------------------

    def tell(
        self,
        what: str,
        number: int,
        call: Callable[[Any], Any],
        then: Callable[[Worker, Any], None] = lambda worker, answer: None,
    ) -> None:
        """Have a worker do something. What comes of it is known once it does not stand still."""
        worker = self.workers[number]
        assert worker.session is not None
        worker.asked.append((what, self.portal.start_task_soon(call, worker.session), then))
        self.settle()
        self.collect(worker)

    def collect(self, worker: Worker) -> None:
        """Hear what came of what a worker was told."""
        while worker.asked:
            what, future, then = worker.asked[0]
            if not future.done() and not worker.way.stands:
                self._gives_time(worker)
            while not future.done() and worker.watching and not worker.way.stands:
                wait([future], POLL_S)  # for the kernel to end a process
            if not future.done() and worker.way.stands:
                return
            worker.asked.pop(0)
            try:
                answer = future.result(LONG_S)
            except MinutebookError as refusal:
                self.note(what, refusal.code)
            else:
                self.note(what, "done")
                then(worker, answer)

    def sends(self, number: int, priority: Priority) -> None:
        """A person sends an input."""
        self.inputs += 1
        input_id, text = f"i{self.inputs}", f"text {self.inputs}"

        def was_accepted(worker: Worker, receipt: Any) -> None:
            self.accepted.append(receipt.input_id)

        self.tell("send", number, lambda s: s.send(text, input_id=input_id, priority=priority), was_accepted)

    def first_question(self, number: int) -> Interaction:
        """What a worker asks people first."""
        session = self.workers[number].session
        assert session is not None
        return session.interactions[0]

    def answers(self, number: int, asked: Interaction, allow: bool) -> None:
        """A person answers a question."""
        chosen = Approve() if allow else Deny()
        self.tell("answer", number, lambda s: s.respond(asked.id, chosen, digest=asked.digest))

    def model_answers(self, number: int, says: str) -> None:
        """The model ends the oldest attempt of a worker, if it has one."""
        if attempts := self.workers[number].attempts:
            self.call(attempts.pop(0).end, SAYS[says])
            self.settle()
            self.note("model", says)

    def tool_ends(self, number: int, how: str) -> None:
        """The oldest call of a worker has its effect."""
        self.call(self.workers[number].calls.pop(0).end, how)
        self.settle()
        self.note("tool", how)

    def was_handed_over(self, worker: Worker, result: HandoffResult) -> None:
        """The last two events say so; nothing went on behind it."""
        self.was_closed(worker, None)
        self.call(self.reads_on)
        last = [e.type for e in self.books.events[result.head_sequence - 2 : result.head_sequence]]
        assert last == ["handoff_completed", "lease_released"]
        assert result.fenced
        assert not worker.watching

    def was_closed(self, worker: Worker, nothing: None) -> None:
        """Its handle is of no use any more; it may have died meanwhile."""
        number = self.workers.index(worker)
        if number in self.opened:
            self.goes(number, "leaves")

    def watch_ends(self, worker: Worker) -> None:
        """The processes behind a worker are stopped."""
        assert worker.session is not None
        for each in worker.session.background.list():
            self.call(worker.session.background.stop, each.id)
        worker.watching = 0

    def killed_are_gone(self, worker: Worker) -> None:
        """What was killed with a lost session has ended: how long the kernel takes must not decide."""
        assert worker.session is not None
        if worker.watching and worker.session._parts.book.fenced is not None:
            self.watch_ends(worker)

    # --- deciding -------------------------------------------------------------------------------

    async def decides(self, what: str) -> str:
        """An operator takes the session, if it is to be had, and decides one thing."""
        if not self.books.events:
            return "nothing there"
        holder = Holder("operator", "", boot_id=self.clock.boot_id)
        try:
            async with (
                Way(self.shared).open() as journal,
                RecoveryCoordinator.open(
                    journal, self.session_id, clock=self.clock, ids=self.ids, holder=holder
                ) as coordinator,
            ):
                self.is_the_plan(coordinator.plan)
                return await decided(coordinator, what, self.books, self.effects)
        except LeaseConflict:
            return "a worker has it"

    # --- what has to hold ---------------------------------------------------------------------

    def is_the_plan(self, plan: RecoveryPlan) -> None:
        """I5 and I9: whoever reads the journal comes to the plan of the table."""
        found = [(str(i.action), i.subject if i.action != "none" else "") for i in plan.items]
        if found != self.books.plan:
            self.books.wrong.append(f"the plan is {found}, expected {self.books.plan}")
        if {effect.tool_id for effect in plan.unsettled_effects} != self.books.unsettled:
            self.books.wrong.append(f"unsettled: {plan.unsettled_effects}, expected {self.books.unsettled}")

    def holds(self) -> None:
        """Everything that has to hold as far as the journal has grown."""
        self.call(self.reads_on)
        assert not self.books.wrong, self.books.wrong
        assert not self.shared.wrong, f"the store: {self.shared.wrong}"
        assert set(self.accepted) <= set(self.books.accepted), "what was acknowledged is on record"
        self._the_world_saw_nothing_twice()
        for number in self.opened:
            worker = self.workers[number]
            assert all(sequence <= len(self.books.events) for sequence, _ in worker.told), "told too early"
            session = worker.session
            if session is not None and session.head_sequence == len(self.books.events):
                self.is_the_plan(session.recovery_plan())

    def _the_world_saw_nothing_twice(self) -> None:
        """I3 and I4."""
        assert not self.effects.early, f"begun, and not on record: {self.effects.early}"
        assert not self.effects.stale, f"begun without a lease: {self.effects.stale}"
        unknown = set(self.effects.sent) - self.books.begun
        assert not unknown, f"sent, and not on record: {unknown}"
        assert len(set(self.effects.sent)) == len(self.effects.sent), "an attempt that was sent twice"
        begun = Counter(each for each in self.effects.begun if self.books.names[each] == NON_IDEMPOTENT)
        assert all(times == 1 for times in begun.values()), begun

    async def reads_on(self) -> None:
        """Take in what the journal has grown by."""
        read: list[Recorded] = []
        while rows := await self.reader.read(self.session_id, after=len(self.books.events) + len(read)):
            read += [catalogue.open_stored(row) for row in rows]
        self.books.read(read)

    # --- the end ------------------------------------------------------------------------------

    def ends(self) -> None:
        """Everybody dies. One more worker, to whom nothing happens: then everything has an end."""
        try:
            for number in list(self.opened):
                self.workers[number].die()
                self.goes(number, "crashes")
            self.passes(LATE_S)
            if self.books.events:
                self._comes_to_rest()
                self._is_whole()
        finally:  # or the event loop would wait for them
            for worker in self.workers:
                self.call(worker.way.cut)
                for _, future, _ in worker.asked:
                    future.cancel()
            for living in self.opened.values():
                living.cancel()

    def _comes_to_rest(self) -> None:
        for _ in range(ROUNDS):
            self.holds()
            if self.books.place.open and 0 not in self.opened:
                self.comes(0, "its own")
            if 0 not in self.opened:
                if not self.books.place.open or self.call(self.decides, "settle") == "nothing to decide":
                    return
            elif not self._goes_on(self.workers[0]):
                self._is_told_the_same(self.workers[0])
                self.goes(0, "leaves")
                return

    def _goes_on(self, worker: Worker) -> bool:
        """Give the session the next thing it asks for. False: it asks for nothing."""
        if is_asked(worker):
            self.answers(0, self.first_question(0), allow=True)
        elif worker.attempts:
            self.model_answers(0, "text")
        elif worker.calls:
            self.tool_ends(0, "returns")
        else:
            return self._moves(worker)
        return True

    def _moves(self, worker: Worker) -> bool:
        """Whether time makes it go on. Where somebody has to decide, the next opening says so."""
        before = len(worker.store.batches)
        self.call(worker.held.beat)
        self.passes(10)
        self.holds()
        if worker.attempts or worker.calls or len(worker.store.batches) > before:
            return True
        if self.books.frontier == "none":
            return False
        self.goes(0, "leaves")
        return True

    def _is_told_the_same(self, worker: Worker) -> None:
        """I6: what grew event by event is what one gets from the whole."""
        fresh = Transcript()
        for each in self.books.events:
            fresh.apply(each)
        assert worker.session is not None
        assert tuple(fresh.items) == worker.session.messages

    def _is_whole(self) -> None:
        self.holds()
        # It verifies the chain as it reads; the bytes are those that the model was given.
        assert self.call(journal_of, self.store, self.session_id) == self.books.events
        self.is_the_plan(plan_of(self.call(load, self.reader, self.session_id)))
        assert self.books.frontier == "none"
        assert self.books.accepted == self.books.left, "every input was applied or cancelled"
        assert not self.books.open_calls
        order.check(self.books.events)

    # --- the machine's own --------------------------------------------------------------------

    def those(self, holds: Callable[[Worker], bool]) -> list[int]:
        """The open workers that do not stand still and of which something holds."""
        return [
            each for each in self.opened if not self.workers[each].way.stands and holds(self.workers[each])
        ]

    def one(self, number: int, holds: Callable[[Worker], bool]) -> int:
        """The wanted one of those, else the other."""
        found = self.those(holds)
        return number if number in found else found[0]

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call something in the event loop."""
        return self.portal.call(_within, function, *arguments)

    def settle(self) -> None:
        """Let everybody do what there is to do."""
        self.call(self.shared.settled)

    def note(self, what: str, came_of_it: str) -> None:
        """Count it."""
        self.counts.seen[f"{what}: {came_of_it}"] += 1


async def _within(function: Callable[..., Any], *arguments: Any) -> Any:
    with anyio.fail_after(LONG_S):
        answer = function(*arguments)
        return await answer if hasattr(answer, "__await__") else answer

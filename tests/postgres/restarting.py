"""Workers, customers and an operator on a server that is stopped and started again and again.

Workers are processes of their own. Customers and the operator are in this one, and meet the same
restarts. What is right in the end is said by the journals and by a witness outside.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Final

import anyio

import minutebook as mb
from domain.envelope import Recorded
from domain.errors import SessionExists, StoreFailure
from domain.ports import SessionRow
from minutebook.testing.crash import Witness
from minutebook.testing.looking import journal_of
from tests.postgres.errands import ERRANDS, config

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from bills import settle  # the path is known only now

ROOT: Final = Path(__file__).parents[2]
#: Until a worker that is asked to stop has handed back what it has; the server is there.
STOP_S: Final = 60.0
#: Until every order of a session is answered: many times what the server is away and any lease lasts.
STILL_S: Final = 120.0
#: For how long a customer that is silent keeps a session.
CUSTOMER_S: Final = 1.0
#: How often a customer and the operator ask again.
AGAIN_S: Final = 0.25
ENDS: Final = ("request_completed", "request_failed", "request_interrupted", "request_superseded")


@dataclass(slots=True)
class Shop:
    """A database with sessions, everybody who is at work on them, and what they were told.

    Args:
        place: where the witness and what the workers say are kept.
        accepted: of each session, how many orders its customer knows to be accepted.
        settled: calls that the operator decided.
    """

    url: str
    place: Path
    inputs: int
    accepted: Counter[str] = field(default_factory=Counter)
    settled: int = 0

    @property
    def witness(self) -> Witness:
        """What really happened."""
        return Witness(self.place / "witness")

    @property
    def errors(self) -> Counter[str]:
        """In which errors sessions ended in a worker, and how often."""
        lines = (self.place / "errors").read_text().splitlines()
        return Counter(line.partition(":")[0] for line in lines)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Shop]:
        """An operator is there until the end of the block; all in this process share connections."""
        async with mb.postgres(self.url).open(), anyio.create_task_group() as tasks:
            tasks.start_soon(self._operate)
            yield self
            tasks.cancel_scope.cancel()

    # --- workers ------------------------------------------------------------------------

    @contextmanager
    def workers(self, ttls_s: Sequence[float]) -> Iterator[None]:
        """Workers, one for each length of a lease; at the end of the block they are asked to stop."""
        with ExitStack() as stack, (self.place / "errors").open("ab") as errors:
            started = [
                stack.enter_context(self._started(f"worker-{n}", ttl_s, errors.fileno()))
                for n, ttl_s in enumerate(ttls_s)
            ]
            yield
            for each in started:
                each.send_signal(signal.SIGTERM)
            # One that was asked while it was still importing has nothing to hand back.
            assert {each.wait(STOP_S) for each in started} <= {0, -signal.SIGTERM}

    @contextmanager
    def _started(self, name: str, ttl_s: float, errors: int) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "tests.postgres.errands", self.url, name, str(ttl_s)]
        with subprocess.Popen(command, cwd=ROOT, stderr=errors) as process:
            try:
                yield process
            finally:
                process.kill()

    # --- customers ----------------------------------------------------------------------

    async def order(self, session_id: str) -> None:
        """Make a session, give it its orders until it has accepted them all, and wait for the answers.

        Raises:
            AssertionError: nothing happens in it; says what would come next.
        """
        store, options, made = mb.postgres(self.url), config("customer", CUSTOMER_S), False
        while self.accepted[session_id] < self.inputs:
            try:
                await self._order(
                    mb.resume_session(session_id, options, store=store)
                    if made
                    else mb.create_session(options, store=store, session_id=session_id)
                )
            except SessionExists:
                made = True
            except mb.MinutebookError:  # the server is away, or a worker has the session already
                await anyio.sleep(AGAIN_S)
        await self._until_answered(session_id)

    async def _order(self, opening: AbstractAsyncContextManager[mb.Session]) -> None:
        async with opening as session:
            for number in range(self.inputs):
                content = f"{session.id}/{number} {self.place / 'witness'}"
                await session.send(content, input_id=f"order-{number}")
                self.accepted[session.id] = max(self.accepted[session.id], number + 1)

    async def _until_answered(self, session_id: str) -> None:
        row: SessionRow | None = None
        with anyio.move_on_after(STILL_S):
            while row is None or row.listing.next_action != mb.Action.NONE:
                await anyio.sleep(AGAIN_S)
                with suppress(StoreFailure):  # the server is away; it is asked again
                    async with mb.postgres(self.url).open() as journal:
                        row = await journal.session(session_id)
            return
        raise AssertionError(f"nothing happens in {session_id}: {row}")

    # --- the operator -------------------------------------------------------------------

    async def _operate(self) -> None:
        """Decide what workers cannot know, until cancelled."""
        store = mb.postgres(self.url)
        while True:
            with suppress(mb.MinutebookError):  # the server is away; it is asked again
                async with store.open() as journal:
                    waiting = await journal.leases.free({mb.Action.RECONCILE_TOOL_OUTCOMES})
                    for row in waiting:
                        self.settled += len(await settle(store, row.session_id, self.place / "witness"))
            await anyio.sleep(AGAIN_S)

    # --- what came of it ----------------------------------------------------------------

    async def examined(self) -> Sums:
        """Hold every journal against what its customer was told and against the witness."""
        sums = Sums(settled=self.settled)
        store, effects = mb.postgres(self.url), _effects(self.witness)
        async with store.open():  # once for all
            for session_id, accepted in self.accepted.items():
                events = await journal_of(store, session_id)
                orders = [f"{session_id}/{number}" for number in range(accepted)]
                sums.count(orders, events, effects)
        return sums


@dataclass(slots=True)
class Sums:
    """What came of many orders.

    Args:
        lost: accepted orders without an answer of their own, or with an errand that nobody did.
        doubled: answers and payments beyond the first one, and bookings under another key.
        slowest_s: the longest time from the beginning of a request to its end.
    """

    orders: int = 0
    settled: int = 0
    lost: int = 0
    doubled: int = 0
    slowest_s: float = 0.0

    def count(
        self, orders: Sequence[str], events: Sequence[Recorded], effects: Mapping[tuple[str, str], set[str]]
    ) -> None:
        """Add one session's orders."""
        answers = Counter(each.data.output for each in events if each.type == "request_completed")
        ends = [each for each in events if each.type in ENDS]
        self.orders += len(orders)
        for order in orders:
            done = [len(effects[order, errand]) for errand in ERRANDS]
            self.lost += answers[f"done: {order}"] == 0 or 0 in done
        self.doubled += max(0, len(ends) - len(orders))
        for order, errand in product(orders, ("book", "pay")):
            self.doubled += max(0, len(effects[order, errand]) - 1)
        began = {each.request_id: each.recorded_at for each in events if each.type == "request_accepted"}
        took = [(end.recorded_at - began[end.request_id]).total_seconds() for end in ends]
        self.slowest_s = max([self.slowest_s, *took])


def _effects(witness: Witness) -> dict[tuple[str, str], set[str]]:
    """For each order and errand what was done: a booking once under each key, everything else each time."""
    effects = defaultdict[tuple[str, str], set[str]](set)
    for number, (_, _, errand, order, key) in enumerate(witness.lines()):
        effects[order, errand].add(key if errand == "book" else str(number))
    return effects

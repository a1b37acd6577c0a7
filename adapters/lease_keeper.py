"""Keeping leases renewed, on one thread of the process that no application can hold up.

Imported by `minutebook.compose`. The thread has an event loop of its own, is shared by all
sessions of the process, and ends when nobody needs it. Renewing knows nothing of what a
session is doing: a long model call, or an application that blocks its own loop, loses no
lease. What a loss means is decided by whoever holds the lease.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import anyio
from anyio.abc import TaskGroup
from anyio.from_thread import BlockingPortal

from adapters.answers import Answer, wake
from adapters.system import SystemClock
from adapters.threads import in_thread
from domain.envelope import Fence
from domain.errors import LeaseLost, MinutebookError, StoreTimeout
from domain.ports import HeldLease, Holder, LeaseRow, LeaseStore, LeaseTimes, Timer

T = TypeVar("T")

#: Authority ends this much before the lease can run out at the store, at most: for clocks that
#: run at different rates, and for what begins right after a check.
MAX_MARGIN_S: Final = 1.0
MARGIN_PART: Final = 10
#: A renewal that failed is tried again after this part of the lease's length.
RETRY_PART: Final = 10
#: How long the end of the thread is waited for; a store that hangs in it is left alone.
JOIN_S: Final = 5.0

log = logging.getLogger("minutebook")


class ThreadLeaseKeeper:
    """`domain.ports.LeaseKeeper` with a thread.

    Args:
        clock: what leases are measured by; it must count while the machine sleeps, and be
            usable from any thread.
    """

    def __init__(self, clock: Timer | None = None) -> None:
        self._clock = clock if clock is not None else SystemClock()
        self._door = threading.Lock()
        self._thread: _Thread | None = None

    async def hold(self, leases: LeaseStore, session_id: str, holder: Holder, times: LeaseTimes) -> HeldLease:
        """Acquire a session's lease and keep it; see the port."""
        thread = await in_thread(self._enter)
        try:
            asked = self._clock.monotonic()
            with anyio.CancelScope(shield=True):  # what was taken has to be given back
                taking = leases.acquire(session_id, holder, times.ttl_ms)
                row = await _within(times.store_timeout_s, taking, session_id)
            fence = Fence(holder.worker_id, holder.lease_id, row.token)
            held = ThreadHeldLease(leases, session_id, fence, times, self._clock, lambda: self._leave(thread))
            held.renewed(asked, row)
            held.task = thread.begin(held.keep)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await in_thread(lambda: self._leave(thread))
            raise
        return held

    def forget(self) -> None:
        """Be as new, in a process that was forked: the thread is the parent's."""
        self._door, self._thread = threading.Lock(), None

    def _enter(self) -> _Thread:
        with self._door:
            if self._thread is None or not self._thread.runs:
                self._thread = _Thread()
            self._thread.users += 1
            return self._thread

    def _leave(self, thread: _Thread) -> None:
        with self._door:
            thread.users -= 1
            last = thread.users == 0
            if last and self._thread is thread:
                self._thread = None
        if last:
            thread.end()


class _Thread:
    """One thread with an event loop, from its making to `end`."""

    def __init__(self) -> None:
        self.users = 0
        self._portal: Future[BlockingPortal] = Future()
        self._thread = threading.Thread(target=self._run, name="keeps leases", daemon=True)
        self._thread.start()
        self._portal.result()

    @property
    def runs(self) -> bool:
        """Whether it can be given something to do."""
        return self._thread.is_alive()

    def begin(self, work: Callable[[], Awaitable[None]]) -> Future[None]:
        """Run something on the loop; cancelling what is returned ends it."""
        return self._portal.result().start_task_soon(work)

    def end(self) -> None:
        """End everything on the loop, and the thread."""
        with suppress(RuntimeError):  # it has ended already, which nobody asked for
            self._portal.result().call(self._portal.result().stop, True)
        self._thread.join(JOIN_S)

    def _run(self) -> None:
        anyio.run(self._serve)

    async def _serve(self) -> None:
        async with BlockingPortal() as portal:
            self._portal.set_result(portal)
            await portal.sleep_until_stopped()


@dataclass(slots=True, eq=False)
class ThreadHeldLease:
    """`domain.ports.HeldLease`. Everything but `keep` may be called from any thread.

    Args:
        leave: called in a thread when this one needs the keeper no more.
    """

    leases: LeaseStore
    session_id: str
    fence: Fence
    times: LeaseTimes
    clock: Timer
    leave: Callable[[], None]
    task: Future[None] | None = None
    _row: LeaseRow | None = None
    _good_until: float = 0.0
    _asked: float = 0.0
    _failure: BaseException | None = None
    _end: LeaseLost | None = None
    _released: bool = False
    _process_id: int = field(default_factory=os.getpid)
    _door: threading.Lock = field(default_factory=threading.Lock)
    _waiting: set[Answer[MinutebookError]] = field(default_factory=set)

    # --- for whoever holds it ---------------------------------------------------------------

    @property
    def row(self) -> LeaseRow:
        """The lease as last renewed; without its id once it was given back."""
        assert self._row is not None
        return self._row

    def check(self) -> None:
        """Return if it is ours at this moment. Raises LeaseLost."""
        if self._process_id != os.getpid():
            raise LeaseLost(self.session_id, "the lease is held by the process that this one was forked from")
        if self._end is None and self.clock.monotonic() >= self._good_until:
            self._lose(self._ran_out())
        if self._end is not None:
            raise self._end.with_traceback(None)

    async def lost(self) -> MinutebookError:
        """Return once it is lost or given back, with the reason."""
        answer: Answer[MinutebookError] = Answer()
        with self._door:
            if self._end is not None:
                return self._end
            self._waiting.add(answer)
        try:
            return await answer.wait()
        finally:
            with self._door:
                self._waiting.discard(answer)

    async def release(self) -> None:
        """Stop renewing it and give it back. Once; in a forked process nothing happens."""
        if not self._stop("the lease was given back"):
            return
        with anyio.CancelScope(shield=True):
            try:
                giving_back = self.leases.release(self.session_id, self.fence)
                await _within(self.times.store_timeout_s, giving_back, self.session_id)
            except MinutebookError as error:
                log.warning("the lease of session %s runs out by itself: %s", self.session_id, error)
            finally:
                self._row = replace(self.row, lease_id=None)
                await in_thread(self.leave)

    async def let_run_out(self) -> None:
        """Stop renewing it, and leave it to its time."""
        if self._stop("the lease is not renewed any more"):
            with anyio.CancelScope(shield=True):
                await in_thread(self.leave)

    def _stop(self, why: str) -> bool:
        if self._released or self._process_id != os.getpid():
            return False
        self._released = True
        self._finish(LeaseLost(self.session_id, why))
        if self.task is not None:
            self.task.cancel()
        return True

    # --- on the keeper's loop ---------------------------------------------------------------

    async def keep(self) -> None:
        """Renew it for as long as it is ours."""
        try:
            async with anyio.create_task_group() as tries:
                tries.start_soon(self._watch)
                due = self._asked + self.times.heartbeat_s
                while self._end is None:
                    await self.clock.sleep_until(due)
                    due = await self._renew(tries)
                tries.cancel_scope.cancel()
        finally:  # also where the thread is ended by somebody else: what nobody renews is not ours
            self._lose(LeaseLost(self.session_id, "nothing renews it any more"))

    async def _renew(self, tries: TaskGroup) -> float:
        """Try to renew it, and say at which moment to do so again.

        A try that the store does not answer is not waited for beyond half of the time that is
        left: there must be time for another one. What it says later still counts.
        """
        asked, answered = self.clock.monotonic(), anyio.Event()
        tries.start_soon(self._try, asked, answered)
        left = max(0.0, self._good_until - asked)
        with anyio.move_on_after(min(self.times.store_timeout_s, left / 2)):
            await answered.wait()
        if self._asked >= asked:
            return asked + self.times.heartbeat_s
        return self.clock.monotonic() + self.times.ttl_s / RETRY_PART

    async def _try(self, asked: float, answered: anyio.Event) -> None:
        try:
            renewing = self.leases.renew(self.session_id, self.fence, self.times.ttl_ms)
            self.renewed(asked, await _within(self.times.store_timeout_s, renewing, self.session_id))
        except LeaseLost as error:
            self._lose(error)
        except Exception as error:  # whatever it is: authority ends at its time unless a try succeeds
            self._failure = error
        finally:
            answered.set()

    def renewed(self, asked: float, row: LeaseRow) -> None:
        """Take the store's answer to what it was asked at a moment of the clock."""
        if asked < self._asked:
            return
        margin = min(MAX_MARGIN_S, self.times.ttl_s / MARGIN_PART)
        self._row, self._asked, self._good_until = row, asked, asked + self.times.ttl_s - margin

    async def _watch(self) -> None:
        """Tell of the loss when the time is over, also where nobody asks."""
        while self._end is None:
            until = self._good_until
            await self.clock.sleep_until(until)
            if self.clock.monotonic() >= self._good_until:
                self._lose(self._ran_out())

    # --- the end ----------------------------------------------------------------------------

    def _ran_out(self) -> LeaseLost:
        told = f"it was not renewed for {self.clock.monotonic() - self._asked:.1f} seconds"
        if self._failure is not None:
            told += f"; the last try failed: {self._failure}"
        lost = LeaseLost(self.session_id, told)
        lost.__cause__ = self._failure
        return lost

    def _lose(self, error: LeaseLost) -> None:
        if self._finish(error):
            log.warning("the lease of session %s is lost: %s", self.session_id, error)

    def _finish(self, error: LeaseLost) -> bool:
        """End it, once, and tell whoever waits without waiting for them."""
        with self._door:
            if self._end is not None:
                return False
            self._end = error
            waiting, self._waiting = self._waiting, set()
        for answer in waiting:
            answer.put(error)
        wake(waiting)
        return True


async def _within(timeout_s: float, call: Awaitable[T], session_id: str) -> T:
    """What a call of the store gives, in time.

    Raises:
        StoreTimeout: it was cancelled; whether it has had its effect is not known.
    """
    with anyio.move_on_after(timeout_s):
        return await call
    raise StoreTimeout("leases", f"no answer for session {session_id!r} in {timeout_s} seconds")


#: The keeper of this process.
KEEPER: Final = ThreadLeaseKeeper()
os.register_at_fork(after_in_child=KEEPER.forget)

"""A worker: goes on with every session of a journal that has work, beside any number of its like.

    python examples/worker.py --journal journal.db --agent my_agent:config
    python examples/worker.py --journal postgresql://user@host/database --agent my_agent:config

`my_agent.config()` gives the `SessionConfig` that sessions are resumed with. Start as many workers as
you like, where you like; kill any of them at any time. Each session has one of them at a time, and
what a dead one held goes to another one: at once on the same machine, when its lease has run out on
another. SIGTERM hands every session back first; a second one does not wait for that. One that comes
while the program is still loading ends it at once, as it would any other: it holds no session yet.
"""

from __future__ import annotations

import argparse
import logging
import signal
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import anyio
from anyio.abc import TaskGroup

import minutebook as mb
from domain.ports import StoreDescription

log = logging.getLogger("worker")


class Worker:
    """Looks for sessions with work, again and again, and drives some of them at a time.

    Args:
        config: called for each session.
        name: of this worker, for the log.
        most: how many sessions at a time; what is beyond waits, or goes to another worker.
        every_s: how long to wait before looking again.
        pause_s: how long a session that could not be served is left alone.
    """

    def __init__(
        self,
        store: StoreDescription,
        config: Callable[[], mb.SessionConfig],
        *,
        name: str = "this worker",
        most: int = 8,
        every_s: float = 1.0,
        pause_s: float = 30.0,
    ) -> None:
        self._store, self._config, self._name = store, config, name
        self._most, self._every_s, self._pause_s = most, every_s, pause_s
        self._serving: dict[str, anyio.CancelScope] = {}
        self._left_alone_until: dict[str, float] = {}
        self._stopping = anyio.Event()

    async def run(self) -> None:
        """Work until `stop`; return when every session was handed back."""
        async with anyio.create_task_group() as tasks:
            while not self._stopping.is_set():
                try:
                    async with self._store.open():  # kept open, so that everything below shares it
                        log.info("%s looks for work", self._name)
                        await self._look_for_work(tasks)
                except mb.errors.StoreFailure as failure:  # a database that does not answer is asked again
                    log.warning("no look for work: %s", failure)
                    await self._wait()

    async def _look_for_work(self, tasks: TaskGroup) -> None:
        while not self._stopping.is_set():
            for session_id in await mb.due_sessions(self._store):
                if len(self._serving) < self._most and self._may_serve(session_id):
                    self._serving[session_id] = anyio.CancelScope()
                    tasks.start_soon(self._serve, session_id)
            await self._wait()

    def _may_serve(self, session_id: str) -> bool:
        now = anyio.current_time()
        return session_id not in self._serving and self._left_alone_until.get(session_id, now) <= now

    async def _wait(self) -> None:
        with anyio.move_on_after(self._every_s):
            await self._stopping.wait()

    def stop(self) -> None:
        """Begin nothing more, and hand back what is being worked on."""
        self._stopping.set()
        for scope in self._serving.values():
            scope.cancel()

    async def _serve(self, session_id: str) -> None:
        try:
            async with mb.resume_session(session_id, self._config(), store=self._store) as session:
                log.info("session %s: going on at %d", session_id, session.head_sequence)
                await self._drive(session)
                log.info("session %s: left at %d", session_id, session.head_sequence)
        except mb.errors.LeaseConflict as conflict:  # somebody was quicker: as it should be
            log.debug("session %s: %s", session_id, conflict)
        except mb.MinutebookError as error:  # a decision is due, the lease was lost, the database is gone
            log.warning("session %s: %s", session_id, error)
            self._left_alone_until[session_id] = anyio.current_time() + self._pause_s
        finally:
            del self._serving[session_id]

    async def _drive(self, session: mb.Session) -> None:
        """Let it run until nothing happens by itself any more, or until we are to stop."""
        with self._serving[session.id]:
            await session.wait_idle()
        if self._stopping.is_set():
            await session.suspend_for_handoff()


def store_of(journal: str) -> StoreDescription:
    """A journal by its file's path or its database's address."""
    return mb.postgres(journal) if "://" in journal else mb.sqlite(journal)


def agent_of(name: str) -> Callable[[], mb.SessionConfig]:
    """What `module:function` names."""
    module, _, function = name.partition(":")
    found: Callable[[], mb.SessionConfig] = getattr(import_module(module), function)
    return found


async def serve(worker: Worker) -> None:
    """Run a worker until SIGTERM or Ctrl-C."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_on, signals, worker, tasks.cancel_scope)
            await worker.run()
            tasks.cancel_scope.cancel()


async def _stop_on(signals: object, worker: Worker, scope: anyio.CancelScope) -> None:
    async for _ in signals:  # type: ignore[attr-defined]  # anyio has no public name for its type
        if worker._stopping.is_set():
            scope.cancel()
        worker.stop()


def main() -> None:
    """Parse the options and serve."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--journal", required=True, help="a file, or postgresql://...")
    parser.add_argument("--agent", required=True, help="module:function that gives a SessionConfig")
    parser.add_argument("--most", type=int, default=8, help="sessions at a time")
    seconds: dict[str, Any] = {"type": float, "metavar": "SECONDS"}
    parser.add_argument("--every", default=1.0, help="between two looks", **seconds)
    parser.add_argument("--pause", default=30.0, help="before one that failed is tried again", **seconds)
    parser.add_argument("--ttl", default=30.0, help="for how long a silent worker keeps a session", **seconds)
    parser.add_argument("--name", help="of this worker, in leases and messages")
    parser.add_argument("--quiet", action="store_true", help="say nothing but errors")
    options = parser.parse_args()
    level = logging.ERROR if options.quiet else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(name)s %(message)s")
    agent = agent_of(options.agent)
    lease = mb.LeaseConfig(ttl_s=options.ttl, worker_id=options.name)
    worker = Worker(
        store_of(options.journal),
        lambda: replace(agent(), lease=lease),
        name=options.name or "this worker",
        most=options.most,
        every_s=options.every,
        pause_s=options.pause,
    )
    anyio.run(serve, worker)


if __name__ == "__main__":
    main()

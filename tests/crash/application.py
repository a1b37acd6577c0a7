"""What the fork server imports: the functions that become processes.

Everything is imported here, before the fork; a process opens and starts its own.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import anyio
import anyio._backends._asyncio
import anyio._backends._trio

import minutebook as mb
from adapters.sqlite_store import SqliteStore
from adapters.system import SystemClock, SystemIds, this_process
from domain import inputs
from domain.entry import Entry, to_batch
from domain.envelope import Fence
from domain.lease import AcquireLease
from domain.ports import Holder
from minutebook import compose as compose
from minutebook.testing.crash import NEVER, KillAt, Tell, Witness, loop_turns
from recovery.reading import load
from tests.crash.examination import examine as examine
from tests.crash.killers import KillAfter, cut_finely, dying_connection, failing_connection
from tests.crash.program import CONFLICT, Program, Story
from tests.crash.script import SESSION, World, worlds
from tests.crash.staying import answer_late as answer_late
from tests.crash.staying import go_on as go_on
from tests.crash.staying import stay as stay
from tests.crash.staying import take_over as take_over


def live(
    tell: Tell,
    journal: str,
    witness: str,
    kill_at: int = NEVER,
    kill_after: str = "",
    kill_in: tuple[str, int] | None = None,
    fail_at: tuple[int, str] | None = None,
    journal_mode: str = "auto",
    fine: bool = False,
    backend: str = "asyncio",
    **story: Any,
) -> None:
    """Start the application, for the first time or again.

    Args:
        kill_at: number of the point to die at.
        kill_after: the event to die after, as `killers.label` gives it; in place of `kill_at`.
        kill_in: the last event before a transaction, and the statement of it to die before.
        fail_at: which COMMIT fails, and how, as for `killers.failing_connection`.
        journal_mode: of SQLite, see `SqliteStore`.
        fine: see `killers.cut_finely`.
        story: fields of `program.Story`.
    """
    if fine:
        cut_finely()

    async def main() -> None:
        let_run = loop_turns()
        probe = (
            KillAfter(kill_after, journal, tell, let_run) if kill_after else KillAt(kill_at, tell, let_run)
        )
        store = SqliteStore(journal, probe=probe, journal_mode=journal_mode)
        if kill_in is not None:
            store = replace(store, connection_class=dying_connection(*kill_in, journal, tell))
        if fail_at is not None:
            store = replace(store, connection_class=failing_connection(*fail_at))
        world = World(Witness(witness), probe)
        worlds.append(world)
        try:
            await Program(tell, store, world, Story(**story)).run()
        except (mb.errors.Conflict, mb.errors.SessionExists) as conflict:
            tell(conflict=str(conflict))
            sys.exit(CONFLICT)
        tell(points=probe.passed)

    anyio.run(main, backend=backend)


def begin_hook(tell: Tell, journal: str, witness: str) -> None:
    """Begin a hook of the first input, as a session with hooks will, and die when that is on record."""

    async def main() -> None:
        probe = KillAfter("input_preparation_started i-1", journal, tell, loop_turns())
        ids, process = SystemIds(), this_process()
        async with SqliteStore(journal, probe=probe).open() as opened:
            holder = Holder(
                "hooks", ids.new("l"), process.boot_id, process.process_id, process.process_started
            )
            lease = await opened.leases.acquire(SESSION, holder, 30_000)
            loaded = await load(opened, SESSION)
            fence = Fence(holder.worker_id, holder.lease_id, lease.token)
            entry = Entry(loaded.state, ids.new("c"), SystemClock().now(), fence)
            entry.add(AcquireLease(30_000))
            entry.add(inputs.BeginPreparation(("i-1",), ("classify",)))
            entry.finish()
            await opened.commit(to_batch(entry, loaded.head, ids.salt, "local", "hook", {}))

    anyio.run(main)


def abandon(tell: Tell, journal: str, witness: str) -> None:
    """Give the open request up."""

    async def main() -> None:
        async with mb.open_coordinator(SESSION, store=SqliteStore(journal)) as coordinator:
            await coordinator.abandon_request(reason="it takes too long")

    anyio.run(main)


def settle(tell: Tell, journal: str, witness: str, tool_id: str) -> None:
    """Say what became of an effect whose request has ended, twice under one command id."""

    async def main() -> None:
        async with mb.open_coordinator(SESSION, store=SqliteStore(journal)) as coordinator:
            for _ in range(2):
                receipt = await coordinator.reconcile_tool_outcome(
                    tool_id, outcome="cancelled", evidence="the bank says so", command_id="settle-1"
                )
                tell(status=receipt.status)

    anyio.run(main)

"""An operator's process that dies at any moment around a decision; run by a `ForkServer`.

Around every call of the store that writes there is a point, besides those of the store itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from adapters.sqlite_store import SqliteStore
from adapters.system import SystemClock, SystemIds, this_process
from domain.ports import Holder, Probe
from minutebook.testing.crash import KillAt, Tell
from recovery.coordinator import RecoveryCoordinator

COMMAND = "decision-1"
WRITES = frozenset({"acquire", "renew", "commit", "settle", "release"})


class Pointed:
    """Something whose methods that write have a point before and after each call."""

    def __init__(self, inner: Any, probe: Probe) -> None:
        self._inner, self._probe = inner, probe

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name == "leases":
            return Pointed(found, self._probe)
        return self._around(name, found) if name in WRITES else found

    def _around(self, name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def called(*arguments: Any, **named: Any) -> Any:
            self._probe(f"before {name}")
            result = await method(*arguments, **named)
            self._probe(f"after {name}")
            return result

        return called


@asynccontextmanager
async def operator(path: str, session_id: str, probe: Probe) -> AsyncIterator[RecoveryCoordinator]:
    """A coordinator of this process, which names itself, so that its death is noticed."""
    us = this_process()
    async with SqliteStore(path, probe=probe).open() as journal:
        pointed: Any = Pointed(journal, probe)
        async with RecoveryCoordinator.open(
            pointed,
            session_id,
            clock=SystemClock(),
            ids=SystemIds(),
            holder=Holder("operator", "", us.boot_id, us.process_id, us.process_started),
            actor_id="ann",
        ) as coordinator:
            yield coordinator


async def _decide(tell: Tell, path: str, session_id: str, kind: str, kill_at: int) -> None:
    async with operator(path, session_id, KillAt(kill_at, tell)) as coordinator:
        match kind:
            case "request":
                receipt = await coordinator.prepare_request_recovery(
                    ["i-1"], evidence="ticket 4", command_id=COMMAND
                )
            case _:
                receipt = await coordinator.prepare_turn_recovery(evidence="ticket 4", command_id=COMMAND)
        tell(status=receipt.status.value, action=coordinator.plan.items[0].action)


def decide(tell: Tell, **arguments: Any) -> None:
    """One life of the process."""
    anyio.run(lambda: _decide(tell, **arguments))

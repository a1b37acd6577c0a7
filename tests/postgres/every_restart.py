"""A thousand orders while the server is stopped and started every few seconds. Takes up to ten minutes.

Not part of the suite, because of its name; `make chaos` names it. The same seed stops the server after
the same times, in the same ways; what it meets is another thing each time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final, Literal

import anyio
import anyio.to_thread
import pytest

from minutebook.testing.postgres_cluster import Cluster
from tests.long_runs import Numbers
from tests.postgres.restarting import Shop

pytestmark = pytest.mark.anyio

SEED: Final = 1
#: It is through when so many orders are answered and the server was stopped so often, or time is up.
ORDERS, RESTARTS, LONGEST_S = 1000, 40, 600.0
INPUTS: Final = 5
CUSTOMERS: Final = 12
#: One worker for each. The server is away for longer than the first ones last.
LEASES_S: Final = (1.0, 2.0, 5.0, 15.0)
UP_S, DOWN_S = (2.0, 5.0), (0.0, 2.0)
MODES: Final[tuple[Literal["immediate", "fast"], ...]] = ("immediate", "fast")
TOLD_EVERY_S: Final = 10.0


@dataclass(slots=True)
class Run:
    """How far it is."""

    shop: Shop
    began: float = field(default_factory=time.monotonic)
    restarts: int = 0
    answered: int = 0

    @property
    def through(self) -> bool:
        """Whether no more is to be ordered."""
        enough = self.answered >= ORDERS and self.restarts >= RESTARTS
        return enough or time.monotonic() - self.began > LONGEST_S

    async def buy(self, sessions: Iterator[int]) -> None:
        """Be a customer: one session after the other."""
        while not self.through:
            await self.shop.order(f"s-{next(sessions)}")
            self.answered += INPUTS

    async def disturb(self, cluster: Cluster, dice: random.Random) -> None:
        """Stop the server and start it, until cancelled."""
        while True:
            await anyio.sleep(dice.uniform(*UP_S))
            await anyio.to_thread.run_sync(cluster.stop, dice.choice(MODES))
            await anyio.sleep(dice.uniform(*DOWN_S))
            await anyio.to_thread.run_sync(cluster.start)
            self.restarts += 1

    async def tell(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Show how far it is, until cancelled."""
        while True:
            await anyio.sleep(TOLD_EVERY_S)
            with capsys.disabled():
                print(f"{time.monotonic() - self.began:.0f} s: {self}", flush=True)

    def __str__(self) -> str:
        errors = ", ".join(f"{times} {name}" for name, times in sorted(self.shop.errors.items()))
        return (
            f"{self.answered} orders answered, {self.restarts} restarts; workers met {errors or 'no error'}"
        )


async def test_a_thousand_orders_through_restarts(
    own_cluster: Cluster, own_url: str, tmp_path: Path, numbers: Numbers, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop(own_url, tmp_path, INPUTS)
    run, sessions = Run(shop), count()
    with shop.workers(LEASES_S):
        async with shop.open(), anyio.create_task_group() as tasks:
            tasks.start_soon(run.disturb, own_cluster, random.Random(SEED))
            tasks.start_soon(run.tell, capsys)
            async with anyio.create_task_group() as customers:
                for _ in range(CUSTOMERS):
                    customers.start_soon(run.buy, sessions)
            tasks.cancel_scope.cancel()
        own_cluster.start()
    found = await shop.examined()
    note = f"{run}; {found.settled} payments nobody knew of, settled; slowest answer {found.slowest_s:.1f} s"
    counts = {"cases": found.orders, "lost": found.lost, "doubled": found.doubled}
    numbers.add("server restarts", counts, seed=SEED, note=note)
    assert (found.lost, found.doubled) == (0, 0)
    assert run.restarts > 0

"""Workers go on through restarts of the server: a small version of `every_restart.py`, and why they can."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from adapters.postgres_store import PostgresStore
from domain.cursor import Cursor
from domain.errors import OutcomeUnknown
from domain.ports import CommitStatus, Receipt
from minutebook.testing.batches import dummy_batch
from minutebook.testing.postgres_cluster import Cluster
from tests.postgres.cutting import COMMIT
from tests.postgres.proxy import Place, Proxy
from tests.postgres.restarting import AGAIN_S, Shop, Sums
from tests.store.waiting import until

pytestmark = pytest.mark.anyio

SESSIONS, INPUTS, RESTARTS = 6, 4, 3
ERRANDS = 3 * SESSIONS * INPUTS
LEASES_S = (2.0, 3.0)


async def test_every_order_is_answered_once_through_restarts(
    own_cluster: Cluster, own_url: str, tmp_path: Path
) -> None:
    shop = Shop(own_url, tmp_path, INPUTS)

    async def restart_again_and_again() -> None:
        for number in range(1, RESTARTS + 1):
            while len(shop.witness.lines()) < ERRANDS * number // (RESTARTS + 1):  # noqa: ASYNC110  # a file
                await anyio.sleep(AGAIN_S / 5)
            await anyio.to_thread.run_sync(own_cluster.restart, "immediate" if number % 2 else "fast")

    with shop.workers(LEASES_S):
        async with shop.open(), anyio.create_task_group() as everybody:
            everybody.start_soon(restart_again_and_again)
            for number in range(SESSIONS):
                everybody.start_soon(shop.order, f"s-{number}")
    assert "OutcomeUnknown" not in shop.errors
    found = await shop.examined()
    assert found == Sums(SESSIONS * INPUTS, found.settled, slowest_s=found.slowest_s)


async def test_settling_waits_for_a_server_that_is_away(proxy: Proxy) -> None:
    batch, settled = dummy_batch(Cursor.start("session-1"), "c1"), list[Receipt | None]()
    async with PostgresStore(proxy.url, connections=1).open() as journal:
        cut = proxy.arm(Place.COMMITTED, COMMIT)
        with pytest.raises(OutcomeUnknown):
            await journal.commit(batch)
        await anyio.to_thread.run_sync(cut.wait)
        proxy.refuse()

        async def settle() -> None:
            settled.append(await journal.settle(batch))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(settle)
            await until(lambda: proxy.refused > 0)
            proxy.accept()
    assert [receipt and receipt.status for receipt in settled] == [CommitStatus.RECONCILED]

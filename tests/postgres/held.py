"""Statements that are held up on their way and delivered when everybody has gone on without them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio

from domain.errors import Fenced
from minutebook.testing.postgres_cluster import Cluster
from tests.postgres.cutting import COMMIT
from tests.postgres.proxy import Cut, Place, Proxy
from tests.postgres.test_cut_sessions import (
    Sessions,
    error_of,
    let_leases_run_out,
    open_all_the_time,
    place_of,
)
from tests.session.harness import Hands
from tests.session.test_store_faults import check_ended, finish, play
from tests.store.waiting import until

#: What the statement contains that settles a commit, and no other.
SETTLE = "minutebook_commands AS c"
#: Never reached: what breaks here breaks at once.
TIMEOUT_S = 10.0


@contextmanager
def cannot_end_backends(cluster: Cluster, url: str) -> Iterator[str]:
    """The same database for somebody who may not end server processes: then only what is in it decides."""
    database = url.rpartition("/")[2]
    role = f"writer_{database}"
    signature = "pg_terminate_backend(integer, bigint)"
    cluster.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'only-writes'")
    cluster.execute(f'GRANT CREATE ON DATABASE "{database}" TO {role}')
    cluster.execute(f"REVOKE EXECUTE ON FUNCTION {signature} FROM PUBLIC", url=url)
    yield cluster.url(database, user=role, password="only-writes")
    cluster.execute(f"DROP OWNED BY {role} CASCADE", url=url)
    cluster.execute(f"DROP ROLE {role}")


async def deliver(cut: Cut) -> None:
    """Let the server have what was held, and return once it has answered."""
    cut.go_on.set()
    await anyio.to_thread.run_sync(cut.wait)


async def session_with_a_held_commit(
    cluster: Cluster, url: str, boundary: int, sessions: Sessions, *, at_once: bool
) -> int:
    """A session whose n-th commit is held up: it settles it and commits it again. How often it settled.

    Args:
        at_once: whether what was held is delivered as soon as it is settled, or at the very end.
    """
    with cannot_end_backends(cluster, url) as theirs, Proxy(cluster, theirs) as proxy:
        place, hands, told = place_of(proxy.url, timeout_s=TIMEOUT_S), Hands(), list[Any]()
        async with open_all_the_time(place):
            cut = proxy.arm(Place.LEFT_BEHIND, COMMIT, skip=boundary - 1)

            async def let_go() -> None:
                await until(lambda: cut.reached.is_set() and _settled(proxy) > 0)
                await deliver(cut)

            async with anyio.create_task_group() as tasks:
                if at_once:
                    tasks.start_soon(let_go)
                await play(place, hands, told)
            before = await place.events()
            await deliver(cut)
            assert cut.answered, "nobody was left to carry the late statement out"
            after = await place.events()
            sessions.add(after, hands, resumed=False)
            assert after == before
            check_ended(before, hands)
            await place.check()
        return _settled(proxy)


async def session_that_ended_with_a_held_commit(
    cluster: Cluster, url: str, boundary: int, sessions: Sessions
) -> None:
    """It cannot be settled, the session ends, another worker goes on; what was held comes after all that."""
    with cannot_end_backends(cluster, url) as theirs, Proxy(cluster, theirs) as proxy:
        place, hands = place_of(proxy.url, timeout_s=TIMEOUT_S), Hands()
        async with open_all_the_time(place):
            cut = proxy.arm(Place.LEFT_BEHIND, COMMIT, skip=boundary - 1)

            async def cut_settling() -> None:
                await until(cut.reached.is_set)
                proxy.arm(Place.BEFORE, SETTLE)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cut_settling)
                error = await error_of(play(place, hands, []))
            assert isinstance(error, Fenced), repr(error)
            await let_leases_run_out(cluster, url)
            another = place_of(theirs, timeout_s=TIMEOUT_S)
            await finish(another, hands)
            before = await another.events()
            await deliver(cut)
            assert cut.answered, "nobody was left to carry the late statement out"
            after = await another.events()
            sessions.add(after, hands, resumed=True)
            assert after == before
            check_ended(before, hands)
            await another.check()


def _settled(proxy: Proxy) -> int:
    return sum(SETTLE in text for text in proxy.texts)

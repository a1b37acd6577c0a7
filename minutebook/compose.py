"""Puts the library together: the only module of the package that names adapters.

Adapters are imported when something is opened, so that `import minutebook` needs
neither an engine nor an SDK.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from domain import ids
from domain.errors import InvalidOptions, SessionNotFound
from domain.limits import STORE_TIMEOUT_S
from domain.model_ports import ModelProvider
from domain.ports import Clock, Holder, Probe, StoreDescription
from minutebook.acquired_lease import AcquiredLease
from minutebook.config import SessionConfig
from minutebook.lease_config import LeaseConfig
from minutebook.opening import OpenSession, World
from minutebook.provider_config import ProviderConfig
from minutebook.provider_registry import ProviderRegistry
from recovery.coordinator import RecoveryCoordinator

if TYPE_CHECKING:
    from adapters.memory_journal import MemoryStore
    from adapters.postgres_store import PostgresStore
    from adapters.sqlite_store import SqliteStore


def memory(*, clock: Clock | None = None) -> MemoryStore:
    """A journal in this process's memory, gone with it. For tests and trials.

    Args:
        clock: by which its leases run out; the machine's own if not given.
    """
    from adapters.memory_journal import MemoryStore

    return MemoryStore(clock=clock) if clock is not None else MemoryStore()


def sqlite(
    path: str | os.PathLike[str],
    *,
    store_timeout_s: float = STORE_TIMEOUT_S,
    probe: Probe | None = None,
) -> SqliteStore:
    """A journal in one SQLite file, made (readable by its owner only) if it does not exist.

    This only describes it: opening a session opens the file.

    Args:
        store_timeout_s: how long a call waits for another process's lock, at most 30.
        probe: called at before_commit and after_commit; for crash tests.
    """
    from adapters.sqlite_store import SqliteStore

    store = SqliteStore(path, store_timeout_s=store_timeout_s)
    return replace(store, probe=probe) if probe is not None else store


def postgres(
    url: str,
    *,
    schema: str = "minutebook",
    connections: int = 4,
    store_timeout_s: float = STORE_TIMEOUT_S,
    probe: Probe | None = None,
) -> PostgresStore:
    """A journal in a PostgreSQL database, for sessions that several hosts may drive.

    This only describes it: opening a session connects, and makes the tables if they do
    not exist. Needs the extra `postgres`.

    Args:
        url: `postgresql://user:password@host:port/database`; the database exists. Credentials are
            shown nowhere. What the URL does not say is not looked up in the environment.
        schema: the PostgreSQL schema for the tables: a-z, 0-9 and _.
        connections: how many commits of this process may be under way at once, at most 64.
        store_timeout_s: how long a call waits for the server or for a lock, at most 30.
        probe: called at before_commit and after_commit; for crash tests.

    Raises:
        InvalidOptions: psycopg is not installed.
    """
    try:
        from adapters.postgres_store import PostgresStore
    except ImportError as e:
        raise InvalidOptions("store", "psycopg (pip install 'minutebook[postgres]')", e.name) from e
    store = PostgresStore(url, schema=schema, connections=connections, store_timeout_s=store_timeout_s)
    return replace(store, probe=probe) if probe is not None else store


def create_session(
    config: SessionConfig,
    *,
    store: StoreDescription | None = None,
    session_id: str | None = None,
    providers: ProviderRegistry | None = None,
) -> OpenSession:
    """`async with create_session(config, store=...) as session`: a new session.

    Args:
        store: `sqlite(path)`, `postgres(url)`, or `memory()`, which is also the default.
        session_id: one path segment; minted if not given.
        providers: provider types of your own, for `ProviderConfig(type=...)`.

    Raises:
        InvalidId, InvalidOptions: at once. What entering raises: see `OpenSession`.
    """
    return OpenSession(
        config, _world(memory() if store is None else store, providers), session_id, resume=False
    )


def resume_session(
    session_id: str,
    config: SessionConfig,
    *,
    store: StoreDescription,
    providers: ProviderRegistry | None = None,
) -> OpenSession:
    """`async with resume_session(id, config, store=...) as session`: go on where it stood.

    Entering executes nothing; the first `stream`, `run`, `send`, `respond` or
    `wait_idle` does. Settings that differ from the journal's are recorded and count
    from the next request on.

    Raises:
        InvalidId, InvalidOptions: at once. What entering raises: see `OpenSession`.
    """
    return OpenSession(config, _world(store, providers), session_id, resume=True)


@asynccontextmanager
async def open_coordinator(
    session_id: str,
    *,
    store: StoreDescription,
    owner_id: str = "local",
    actor_id: str | None = None,
    lease: LeaseConfig | None = None,
) -> AsyncIterator[RecoveryCoordinator]:
    """`async with open_coordinator(id, store=...) as coordinator`: decide what happened.

    Args:
        actor_id: who decides, for the record.
        lease: its length and its names; it is renewed before each decision and at no other
            time, so who thinks for longer than `ttl_s` is refused with LeaseLost.
    """
    from adapters.system import SystemClock, SystemIds

    held = lease or LeaseConfig()
    async with (
        store.open(owner_id=owner_id) as journal,
        RecoveryCoordinator.open(
            journal,
            session_id,
            clock=SystemClock(),
            ids=SystemIds(),
            ttl_ms=held.times().ttl_ms,
            holder=_holder(held.worker_id or actor_id, held.lease_id or ""),
            actor_id=actor_id,
        ) as coordinator,
    ):
        yield coordinator


@asynccontextmanager
async def acquire_lease(
    session_id: str,
    *,
    store: StoreDescription,
    owner_id: str = "local",
    lease: LeaseConfig | None = None,
) -> AsyncIterator[AcquiredLease]:
    """`async with acquire_lease(id, store=...) as lease`: keep every worker away from a session.

    For work on what belongs to a session, outside of it: no worker opens the session and nothing
    is written to it until the block ends. The lease is renewed meanwhile and given back at the end.

    Raises:
        SessionNotFound: this owner has no such session.
        LeaseConflict: another live worker has it; says who, until when.
        InvalidId, StoreFailure: nothing was taken.
    """
    ids.session_id(session_id)
    config, world = lease or LeaseConfig(), _world(store, None)
    async with store.open(owner_id=owner_id) as journal:
        if await journal.session(session_id) is None:
            raise SessionNotFound(session_id, journal.name)
        holder = world.holder(config.worker_id, config.lease_id or world.ids.new("l"))
        held = await world.keeper.hold(journal.leases, session_id, holder, config.times())
        try:
            yield AcquiredLease(held)
        finally:
            await held.release()


def built_in_provider(config: ProviderConfig) -> ModelProvider:
    """The adapter of a built-in type. `ProviderRegistry.make` is the way to it.

    Raises:
        InvalidOptions: its SDK is not installed, or it cannot do without a credential.
    """
    from adapters.providers import make_provider

    return make_provider(config)


def warm_up() -> None:
    """Import at once what opening a session in a file or in memory imports. Opens nothing."""
    import adapters.lease_keeper
    import adapters.memory_journal
    import adapters.sqlite_store
    import adapters.system  # noqa: F401


def _world(store: StoreDescription, providers: ProviderRegistry | None) -> World:
    from adapters.apart import begin_apart
    from adapters.lease_keeper import KEEPER
    from adapters.system import SystemClock, SystemIds

    if not callable(getattr(store, "open", None)):
        raise InvalidOptions("store", "mb.sqlite(path), mb.postgres(url) or mb.memory()", store)
    registry = ProviderRegistry() if providers is None else providers
    if not isinstance(registry, ProviderRegistry):
        raise InvalidOptions("providers", "an mb.ProviderRegistry, or None", providers)
    return World(
        store,
        lambda given: _provider(given, registry),
        SystemClock(),
        SystemIds(),
        _holder,
        KEEPER,
        begin_apart,
    )


def _provider(given: ProviderConfig | ModelProvider, registry: ProviderRegistry) -> ModelProvider:
    return registry.make(given) if isinstance(given, ProviderConfig) else given


def _holder(worker_id: str | None, lease_id: str) -> Holder:
    from adapters.system import this_process

    process = this_process()
    return Holder(
        worker_id or f"process-{process.process_id}",
        lease_id,
        process.boot_id,
        process.process_id,
        process.process_started,
    )

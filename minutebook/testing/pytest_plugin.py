"""Fixtures for tests of applications. pytest loads this where minutebook is installed.

The only module of the package that pytest is needed for, besides the contract suites.
Fixtures make things and close them; what they make is documented where it is defined.
Asynchronous tests need a plugin that runs them; anyio, which is always there, brings one:
mark them `pytest.mark.anyio`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from domain.envelope import Recorded
    from domain.ports import StoreDescription
    from minutebook.session import Session
    from minutebook.testing.fake_server import FakeServer
    from minutebook.testing.lives import Life
    from minutebook.testing.scripted import Attempt

#: `scripted_session(*attempts, ...)`; see the fixture.
OpenScripted = Callable[..., AbstractAsyncContextManager["Session"]]


@pytest.fixture
def memory_store() -> StoreDescription:
    """An empty journal in memory, for as long as the test."""
    import minutebook as mb

    return mb.memory()


@pytest.fixture
def sqlite_store(tmp_path: Path) -> StoreDescription:
    """An empty journal in a file of the test's own directory: `tmp_path / "journal.db"`."""
    import minutebook as mb

    return mb.sqlite(tmp_path / "journal.db")


@pytest.fixture
def scripted_session(memory_store: StoreDescription) -> OpenScripted:
    """Opens sessions whose model does as it is told.

        async with scripted_session(reply("hello"), tools=[...]) as session:

    Arguments are attempts of a `ScriptedProvider`, then options of `SessionConfig`, and:
    `session_id` ("s1"), `resume` (False), `store` (the test's `memory_store`).
    """

    @asynccontextmanager
    async def open_session(
        *attempts: Attempt,
        session_id: str = "s1",
        resume: bool = False,
        store: StoreDescription | None = None,
        **options: Any,
    ) -> AsyncIterator[Session]:
        import minutebook as mb
        from minutebook.testing.scripted import ScriptedProvider

        given: dict[str, Any] = {"provider": ScriptedProvider(attempts), "model": "scripted", **options}
        config, place = mb.SessionConfig(**given), store or memory_store
        opening = (
            mb.resume_session(session_id, config, store=place)
            if resume
            else mb.create_session(config, store=place, session_id=session_id)
        )
        async with opening as session:
            yield session

    return open_session


@pytest.fixture
def journal_of() -> Callable[..., Awaitable[list[Recorded]]]:
    """`await journal_of(session)`: its events, verified; see `minutebook.testing.journal_of`."""
    from minutebook.testing import looking

    return looking.journal_of


@pytest.fixture
def fake_model_server() -> Iterator[Callable[..., FakeServer]]:
    """Starts servers on loopback that answer as told, in threads of their own.

        server = fake_model_server(chat_reply("hello"))
        ProviderConfig("openai-compatible", base_url=server.url, api_key="none")

    Arguments are replies in order, or one function from a request to its reply.
    """
    from minutebook.testing.fake_server import serve_in_thread

    with ExitStack() as servers:

        def start(*replies: Any) -> FakeServer:
            given: Any = replies[0] if len(replies) == 1 and callable(replies[0]) else replies
            return servers.enter_context(serve_in_thread(given))

        yield start


@pytest.fixture
def crash_probe(tmp_path: Path) -> Callable[..., Iterator[Life]]:
    """`for life in crash_probe(script, "work")`: killed at every point; see `every_life`."""
    from minutebook.testing.lives import every_life

    def lives(script: str | Path, function: str = "work", **options: Any) -> Iterator[Life]:
        return every_life(script, function, tmp_path, **options)

    return lives

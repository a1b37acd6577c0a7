"""What the fork server imports: a session whose process dies while a response comes."""

from __future__ import annotations

import anyio
import anyio._backends._asyncio
import anyio._backends._trio
import openai  # here, before the fork: it takes most of a second

import minutebook as mb
from domain.cursor import Cursor
from minutebook.stream_events import Result
from minutebook.testing.crash import Tell

assert openai.VERSION


def config(url: str, api: str) -> mb.SessionConfig:
    """A session with a server that keeps what it answers."""
    kept = mb.ProviderConfig(type="openai", base_url=url, api_key="sk-test-key", api=api, store=True)
    return mb.SessionConfig(provider=kept, model="gpt-5.5")


def begin(tell: Tell, url: str, api: str, journal: str) -> None:
    """Ask something, say what became durable, and wait for an end that does not come."""

    async def run() -> None:
        async with mb.create_session(config(url, api), store=mb.sqlite(journal), session_id="s1") as session:
            await session.send("hello")
            async for event in session.events(after=Cursor.start(session.id)):
                tell(type=event.type)

    anyio.run(run)


def go_on(tell: Tell, url: str, api: str, journal: str) -> None:
    """Go on with the session, and say what came of it."""

    async def run() -> None:
        async with mb.resume_session("s1", config(url, api), store=mb.sqlite(journal)) as session:
            async for event in session.stream():
                if isinstance(event, Result):
                    tell(content=event.content)

    anyio.run(run)

"""Processes of a session with an image, for `test_media`: one is killed, the next goes on."""

from __future__ import annotations

import anyio
import anyio._backends._asyncio

import minutebook as mb
from minutebook import compose as compose
from minutebook.testing.crash import Tell
from tests.media import PNG


def begin(tell: Tell, journal: str, url: str) -> None:
    """Send an image, and wait for an answer that does not come."""
    anyio.run(_begin, tell, journal, url)


def go_on(tell: Tell, journal: str, url: str) -> None:
    """Resume, and let the request end; then ask something without an image."""
    anyio.run(_go_on, tell, journal, url)


def _config(url: str) -> mb.SessionConfig:
    provider = mb.ProviderConfig(type="openai-compatible", base_url=url, api_key="none")
    return mb.SessionConfig(provider, model="fake-model", on_lost_attempt=mb.OnLostAttempt.RETRY)


async def _begin(tell: Tell, journal: str, url: str) -> None:
    async with mb.create_session(_config(url), store=mb.sqlite(journal), session_id="s1") as session:
        await session.send(["what is this?", mb.ImagePart(PNG, "image/png")])
        tell(sent=session.head_sequence)
        await session.wait_idle()


async def _go_on(tell: Tell, journal: str, url: str) -> None:
    async with mb.resume_session("s1", _config(url), store=mb.sqlite(journal)) as session:
        async for event in session.stream():
            if isinstance(event, mb.Result):
                tell(answer=event.content)
        tell(second=(await session.run("and now?")).content)

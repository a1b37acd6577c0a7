"""A process that is killed while a real model answers it."""

from __future__ import annotations

import anyio

import minutebook as mb
from minutebook.testing.crash import Tell


def ask(tell: Tell, journal: str, **provider: str) -> None:
    """Send a question and tell of each piece of the answer."""
    anyio.run(_ask, tell, journal, provider)


async def _ask(tell: Tell, journal: str, provider: dict[str, str]) -> None:
    config = mb.SessionConfig(
        mb.ProviderConfig(**provider),  # type: ignore[arg-type]
        model="smollm2",
        max_output_tokens=60,
        on_lost_attempt=mb.OnLostAttempt.RETRY,
    )
    async with mb.create_session(config, store=mb.sqlite(journal), session_id="s1") as session:
        await session.send("Tell me a long story about a lighthouse.")
        async for event in session.stream():
            if isinstance(event, mb.ContentDelta):
                tell(delta=event.delta)

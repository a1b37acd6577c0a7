"""A process with a session over the real adapter, killed by a piece of an answer that arrives.

Everything is imported here, before the fork; a process opens and starts its own.
"""

from __future__ import annotations

import anyio
import anyio._backends._asyncio

import adapters.anthropic_messages as _sdk  # before the fork: it takes most of a second
import minutebook as mb
from adapters.sqlite_store import SqliteStore
from minutebook.testing.crash import NEVER, KillAt, Tell, Witness

SESSION = "s-killed"


class KillInAnswer(KillAt):
    """Dies when the first piece of the n-th answer arrives."""

    def is_due(self, point: str) -> bool:
        sent = self.passed.count("before_send")
        return point == "mid_stream" and sent == self.number


def live(tell: Tell, journal: str, witness: str, url: str, kill_in: int = NEVER) -> None:
    """Create the session or resume it, and go on until its request has ended.

    Args:
        kill_in: the answer to die in, counted from 1.
    """
    probe = KillInAnswer(kill_in, tell)
    config = mb.SessionConfig(
        provider=mb.ProviderConfig("anthropic", url, "sk-ant-test"),
        model="claude-test",
        tools=[_note(Witness(witness))],
        permission_mode=mb.PermissionMode.YOLO,
        on_lost_attempt=mb.OnLostAttempt.RETRY,
        thinking=mb.Thinking(budget=1024),
        probe=probe,
    )
    anyio.run(_live, tell, config, SqliteStore(journal))


async def _live(tell: Tell, config: mb.SessionConfig, store: SqliteStore) -> None:
    assert _sdk.CAPABILITIES.thinking
    try:
        async with mb.resume_session(SESSION, config, store=store) as session:
            await session.wait_idle()
            tell(messages=len(session.messages))
    except mb.errors.SessionNotFound:
        async with mb.create_session(config, store=store, session_id=SESSION) as session:
            await session.run("note something", input_id="i-1")


def _note(witness: Witness) -> mb.ToolDefinition:
    @mb.tool(side_effect=mb.SideEffect.NON_IDEMPOTENT)
    async def note(what: str) -> str:
        """Note something."""
        witness.record("note", what)
        return f"noted {what}"

    return note

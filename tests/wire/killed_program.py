"""A process with a session over the real adapters of one or several providers, killed at any point.

Everything is imported here, before the fork; a process opens and starts its own.
"""

from __future__ import annotations

from typing import Any

import anyio
import anyio._backends._asyncio

import adapters.anthropic_messages as _messages  # before the fork: each takes most of a second
import adapters.openai_chat as _chat
import adapters.openai_responses as _responses
import minutebook as mb
from adapters.http_client import trust
from adapters.sqlite_store import SqliteStore
from minutebook.testing.crash import NEVER, KillAt, Tell, Witness

SESSION = "s-killed"
IMPORTED = (_messages, _chat, _responses)
trust()  # likewise


def live(
    tell: Tell, journal: str, witness: str, providers: list[dict[str, Any]], kill_at: int = NEVER
) -> None:
    """Create the session or resume it, and ask one question at each provider after another."""
    probe = KillAt(kill_at, tell)
    first, *others = [mb.ProviderConfig(id=f"p{i}", **options) for i, options in enumerate(providers)]
    config = mb.SessionConfig(
        provider=first,
        providers={other.name: other for other in others},
        model="m0",
        tools=[_pay(Witness(witness), probe), _look()],
        permission_mode=mb.PermissionMode.YOLO,
        on_lost_attempt=mb.OnLostAttempt.RETRY,
        probe=probe,
    )
    anyio.run(_live, tell, config, SqliteStore(journal, probe=probe), len(providers))


async def _live(tell: Tell, config: mb.SessionConfig, store: SqliteStore, questions: int) -> None:
    try:
        async with mb.resume_session(SESSION, config, store=store) as session:
            await _ask(session, questions)
    except mb.errors.SessionNotFound:
        async with mb.create_session(config, store=store, session_id=SESSION) as session:
            await _ask(session, questions)
    except mb.RecoveryRequired as required:
        unknown = [item for item in required.plan.items if item.action == mb.Action.RECONCILE_TOOL_OUTCOMES]
        tell(undecided=[item.ids["tool_id"] for item in unknown])


async def _ask(session: mb.Session, questions: int) -> None:
    await session.wait_idle()
    asked = sum(isinstance(item, mb.UserItem) for item in session.messages)
    for number in range(asked, questions):
        await session.model.switch(mb.ModelBinding(f"p{number}", f"m{number}"))
        await session.run(f"job {number}", input_id=f"i-{number}")


def decide(tell: Tell, journal: str, tool_id: str, happened: bool) -> None:
    """Say what somebody who looked at the world knows of a call."""
    anyio.run(_decide, SqliteStore(journal), tool_id, happened)


async def _decide(store: SqliteStore, tool_id: str, happened: bool) -> None:
    async with mb.open_coordinator(SESSION, store=store) as coordinator:
        outcome, output = ("completed", "paid") if happened else ("cancelled", "")
        await coordinator.reconcile_tool_outcome(
            tool_id, outcome=outcome, output=output, evidence="looked at the witness"
        )


def _pay(witness: Witness, probe: KillAt) -> mb.ToolDefinition:
    @mb.tool(side_effect=mb.SideEffect.NON_IDEMPOTENT)
    async def pay(what: str) -> str:
        """Pay for something."""
        witness.record("paid", what)
        probe("paid")
        return "paid"

    return pay


def _look() -> mb.ToolDefinition:
    @mb.tool(side_effect=mb.SideEffect.PURE)
    async def look(what: str) -> str:
        """Look at something."""
        return f"saw {what}"

    return look

"""pydantic-ai with DBOS for durability, as its documentation shows it.

The library has no store of sessions: the history is handed to each workflow and the
new messages are its result. Modes: dbos (SQLite system database), none.
"""

from __future__ import annotations

from collections.abc import AsyncIterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dbos import DBOS
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from bench.chat_calls import sdk_client
from bench.peers.sqlite_facts import kept_by
from bench.workload import PROMPT, TOOL_NAME, TOOL_RESULT, TOOL_TEXT, Conversation, model_name


async def _take(context: Any, events: AsyncIterable[Any]) -> None:
    async for _ in events:
        pass


async def _look_up(what: str) -> str:
    return TOOL_RESULT


class Talk:
    """One list of messages."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._messages: list[Any] = []

    async def request(self, number: int) -> str:
        """One workflow, or one bare run."""
        new, output = await self._run(PROMPT, self._messages)
        self._messages = [*self._messages, *new]
        return str(output)

    async def close(self) -> None:
        """Nothing is held."""


class PydanticAI:
    """pydantic-ai as a system."""

    async def open(self, mode: str, directory: Path, url: str) -> None:
        """The agents have to be there before DBOS is launched: one for each number of tools."""
        self._mode, self._file, self._client = mode, directory / "dbos.db", sdk_client(url)
        if mode == "dbos":
            DBOS(
                config={
                    "name": "bench",
                    "system_database_url": f"sqlite:///{self._file}",
                    "log_level": "ERROR",
                    "run_admin_server": False,
                }
            )
        self._runs = {tools: self._made(tools) for tools in (1, 4)}
        if mode == "dbos":
            DBOS.launch()

    async def begin(self, session_id: str, tools: int) -> Conversation:
        """An empty list of messages."""
        return Talk(self._runs[tools])

    async def close(self) -> None:
        """End DBOS."""
        if self._mode == "dbos":
            DBOS.destroy()
        await self._client.close()

    def facts(self) -> dict[str, str]:
        """How the workflows are kept."""
        kept = kept_by(self._file) if self._mode == "dbos" else "none"
        versions = f"pydantic-ai {version('pydantic-ai-slim')}, dbos {version('dbos')}"
        return {"journal": kept, "version": versions}

    def _made(self, tools: int) -> Any:
        model = OpenAIChatModel(model_name(tools), provider=OpenAIProvider(openai_client=self._client))
        durable = self._mode == "dbos"
        kept: dict[str, Any] = {}
        if durable:
            kept = {"capabilities": [DBOSDurability(event_stream_handler=_take)]}
        agent = Agent(model, name=f"agent-{tools}", **kept)
        tool = DBOS.step(name=f"{TOOL_NAME}-{tools}")(_look_up) if durable else _look_up
        agent.tool_plain(tool, name=TOOL_NAME, description=TOOL_TEXT)
        given: dict[str, Any] = {} if durable else {"event_stream_handler": _take}

        async def run(prompt: str, messages: list[Any]) -> tuple[list[Any], str]:
            result = await agent.run(prompt, message_history=messages, **given)
            return result.new_messages(), result.output

        return DBOS.workflow(name=f"request-{tools}")(run) if durable else run

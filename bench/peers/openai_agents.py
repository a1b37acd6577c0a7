"""openai-agents: `Runner.run_streamed` over chat completions, with its SQLiteSession.

Modes: sqlite (a file), none (the caller keeps the list).
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)

from bench.chat_calls import sdk_client
from bench.peers.sqlite_facts import kept_by
from bench.workload import PROMPT, TOOL_NAME, TOOL_RESULT, TOOL_TEXT, Conversation, model_name

set_tracing_disabled(True)


async def _look_up(what: str) -> str:
    return TOOL_RESULT


TOOL = function_tool(_look_up, name_override=TOOL_NAME, description_override=TOOL_TEXT)


class Talk:
    """One session."""

    def __init__(self, agent: Any, session: Any) -> None:
        self._agent, self._session = agent, session
        self._kept: list[Any] = []

    async def request(self, number: int) -> str:
        """Run one input and take every event."""
        given: Any = PROMPT
        if self._session is None:
            given = [*self._kept, {"role": "user", "content": PROMPT}]
        run = Runner.run_streamed(
            self._agent, given, session=self._session, run_config=RunConfig(tracing_disabled=True)
        )
        async for _ in run.stream_events():
            pass
        if self._session is None:
            self._kept = run.to_input_list()
        return str(run.final_output)

    async def close(self) -> None:
        """Close the session's connection."""
        if self._session is not None:
            self._session.close()


class OpenAIAgents:
    """openai-agents as a system."""

    async def open(self, mode: str, directory: Path, url: str) -> None:
        """A client for the fake model."""
        self._mode, self._file = mode, directory / "agents.db"
        self._client = sdk_client(url)

    async def begin(self, session_id: str, tools: int) -> Conversation:
        """A new session."""
        model = OpenAIChatCompletionsModel(model_name(tools), self._client)
        settings = ModelSettings(include_usage=True)
        return Talk(
            Agent(name="agent", model=model, tools=[TOOL], model_settings=settings), self._session(session_id)
        )

    async def close(self) -> None:
        """Close the client."""
        await self._client.close()

    def facts(self) -> dict[str, str]:
        """How the items are kept: the library sets WAL and leaves `synchronous` as SQLite has it."""
        kept = kept_by(self._file) if self._mode == "sqlite" else "none"
        return {"journal": kept, "version": f"openai-agents {version('openai-agents')}"}

    async def build(self, requests: int) -> None:
        """The items of so many requests."""
        session = self._session("long")
        for number in range(requests):
            call = {"call_id": f"call-{number}", "name": TOOL_NAME, "arguments": '{"what": "this"}'}
            said = {"type": "output_text", "text": "x" * 440, "annotations": []}
            await session.add_items(
                [
                    {"role": "user", "content": PROMPT},
                    {"type": "function_call", "id": "f", **call},
                    {"type": "function_call_output", "call_id": f"call-{number}", "output": TOOL_RESULT},
                    {
                        "type": "message",
                        "role": "assistant",
                        "id": "m",
                        "status": "completed",
                        "content": [said],
                    },
                ]
            )
        session.close()

    async def resume(self) -> int:
        """All items of the session."""
        session = self._session("long")
        items = await session.get_items()
        session.close()
        return len(items)

    def _session(self, session_id: str) -> Any:
        return SQLiteSession(session_id, self._file) if self._mode == "sqlite" else None

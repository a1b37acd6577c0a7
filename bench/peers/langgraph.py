"""LangGraph's prebuilt agent over ChatOpenAI, its documented way to an agent with tools and memory.

Modes: sqlite (its default durability, "async"), sqlite-exit (one checkpoint at the
end of a request), memory (its in-memory saver).
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.prebuilt import create_react_agent

from bench.workload import PROMPT, TOOL_NAME, TOOL_RESULT, TOOL_TEXT, Conversation, model_name


async def _look_up(what: str) -> str:
    return TOOL_RESULT


class Talk:
    """One thread."""

    def __init__(self, graph: Any, thread: str, options: dict[str, Any]) -> None:
        self.graph, self._options = graph, options
        self.config = {"configurable": {"thread_id": thread}, "recursion_limit": 50}

    async def request(self, number: int) -> str:
        """Stream one input through the graph."""
        last: Any = None
        shown = ["messages", "values"]
        given = {"messages": [HumanMessage(PROMPT)]}
        async for kind, value in self.graph.astream(given, self.config, stream_mode=shown, **self._options):
            if kind == "values":
                last = value
        return str(last["messages"][-1].content)

    async def close(self) -> None:
        """Nothing is held."""


class LangGraph:
    """LangGraph as a system."""

    async def open(self, mode: str, directory: Path, url: str) -> None:
        """Open the checkpointer."""
        self._mode, self._url = mode, url
        self._options: dict[str, Any] = {"durability": "exit"} if mode == "sqlite-exit" else {}
        self._opened = AsyncSqliteSaver.from_conn_string(str(directory / "langgraph.db"))
        self._saver = InMemorySaver() if mode == "memory" else await self._opened.__aenter__()
        self._kept = await self._pragmas()

    async def begin(self, session_id: str, tools: int) -> Conversation:
        """A new thread."""
        return self._talk(session_id, tools)

    async def close(self) -> None:
        """Close the checkpointer."""
        if self._mode != "memory":
            await self._opened.__aexit__(None, None, None)

    def facts(self) -> dict[str, str]:
        """How the checkpoints are kept."""
        return {"journal": self._kept, "version": f"langgraph {version('langgraph')}"}

    async def build(self, requests: int) -> None:
        """One state update with the whole conversation."""
        talk, messages = self._talk("long", 1), []
        for number in range(requests):
            call = {"name": TOOL_NAME, "args": {"what": "this"}, "id": f"call-{number}"}
            messages += [
                HumanMessage(PROMPT),
                AIMessage("", tool_calls=[call]),
                ToolMessage(TOOL_RESULT, tool_call_id=f"call-{number}"),
                AIMessage("x" * 440),
            ]
        await talk.graph.aupdate_state(talk.config, {"messages": messages})

    async def resume(self) -> int:
        """The thread's state."""
        talk = self._talk("long", 1)
        return len((await talk.graph.aget_state(talk.config)).values["messages"])

    def _talk(self, thread: str, tools: int) -> Talk:
        model = ChatOpenAI(
            model=model_name(tools),
            base_url=f"{self._url}/v1",
            api_key="not-a-key",
            streaming=True,
            stream_usage=True,
            max_retries=0,
        )
        tool = StructuredTool.from_function(coroutine=_look_up, name=TOOL_NAME, description=TOOL_TEXT)
        return Talk(create_react_agent(model, [tool], checkpointer=self._saver), thread, self._options)

    async def _pragmas(self) -> str:
        if self._mode == "memory":
            return "none"
        await self._saver.setup()
        mode = (await (await self._saver.conn.execute("PRAGMA journal_mode")).fetchone())[0]
        level = (await (await self._saver.conn.execute("PRAGMA synchronous")).fetchone())[0]
        return f"SQLite {mode.upper()}, {('OFF', 'NORMAL', 'FULL')[level]}"

"""DBOS alone around the bare loop: a workflow for each request, a step for each call and tool.

Its best case: the history stays outside of the workflow, so DBOS by itself could not
resume the conversation. Mode: sqlite (its system database).
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from dbos import DBOS

from bench.chat_calls import SdkChat
from bench.peers.sqlite_facts import kept_by
from bench.workload import PROMPT, TOOL_RESULT, Conversation

Message = dict[str, Any]


class Talk:
    """One list of messages; steps take their arguments from here, so DBOS does not store them."""

    def __init__(self, chat: SdkChat, tools: int) -> None:
        self.messages: list[Message] = []
        self._chat, self._tools = chat, tools

    async def ask(self) -> Message:
        """One model call."""
        return await self._chat.ask(self._tools, self.messages)

    async def request(self, number: int) -> str:
        """One workflow."""
        return str(await _request(_Handle.given(self)))

    async def close(self) -> None:
        """Nothing is held."""


class _Handle:
    """Conversations by number: what a workflow is given has to be a plain value."""

    all: list[Talk] = []  # noqa: RUF012  # shared on purpose

    @classmethod
    def given(cls, talk: Talk) -> int:
        if talk not in cls.all:
            cls.all.append(talk)
        return cls.all.index(talk)


async def _ask(number: int) -> Message:
    return await _Handle.all[number].ask()


async def _look_up(call_id: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": TOOL_RESULT}


_ask_step = DBOS.step(name="ask")(_ask)
_look_up_step = DBOS.step(name="look_up")(_look_up)


async def _talked(number: int) -> str:
    messages = _Handle.all[number].messages
    messages.append({"role": "user", "content": PROMPT})
    asked = await _ask_step(number)
    messages.append(asked)
    for call in asked["tool_calls"]:
        messages.append(await _look_up_step(call["id"]))
    answer = await _ask_step(number)
    messages.append(answer)
    return str(answer["content"])


_request = DBOS.workflow(name="request")(_talked)


class Dbos:
    """DBOS as a system."""

    async def open(self, mode: str, directory: Path, url: str) -> None:
        """Launch it over a file."""
        self._file, self._chat = directory / "dbos.db", SdkChat(url)
        DBOS(
            config={
                "name": "bench",
                "system_database_url": f"sqlite:///{self._file}",
                "log_level": "ERROR",
                "run_admin_server": False,
            }
        )
        DBOS.launch()

    async def begin(self, session_id: str, tools: int) -> Conversation:
        """An empty list of messages."""
        return Talk(self._chat, tools)

    async def close(self) -> None:
        """End it."""
        DBOS.destroy()
        await self._chat.close()

    def facts(self) -> dict[str, str]:
        """How the workflows are kept."""
        return {"journal": kept_by(self._file), "version": f"dbos {version('dbos')}"}

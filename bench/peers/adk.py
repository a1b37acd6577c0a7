"""google-adk: its Runner over its own session services. It needs a model class for OpenAI's dialect.

Modes: sqlite (SqliteSessionService), memory.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.events import Event
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from bench.chat_calls import sdk_client
from bench.peers.sqlite_facts import kept_by
from bench.workload import PROMPT, TOOL_NAME, TOOL_RESULT, TOOL_SPEC, Conversation, model_name

APP, USER = "bench", "somebody"
CLIENTS: dict[str, Any] = {}


async def look_up(what: str) -> dict[str, str]:
    """Looks something up."""
    return {"result": TOOL_RESULT}


class ChatModel(BaseLlm):  # type: ignore[misc]  # the library is not there when types are checked
    """The fake model, asked through the openai SDK."""

    url: str

    async def generate_content_async(self, request: Any, stream: bool = False) -> AsyncIterator[Any]:
        """One call; a partial response for each piece, then the whole one."""
        messages = [message for content in request.contents for message in _messages(content)]
        text, calls = "", dict[int, list[str]]()
        opened = await CLIENTS[self.url].chat.completions.create(
            model=self.model, messages=messages, tools=[TOOL_SPEC], stream=True
        )
        async for chunk in opened:
            delta = chunk.choices[0].delta if chunk.choices else None
            if delta is not None and delta.content:
                text += delta.content
                piece = types.Content(role="model", parts=[types.Part(text=delta.content)])
                yield LlmResponse(content=piece, partial=True)
            for part in (delta.tool_calls if delta is not None else None) or ():
                call = calls.setdefault(part.index, [part.id, part.function.name, ""])
                call[2] += part.function.arguments or ""
        parts = [types.Part(text=text)] if text else []
        parts += [
            types.Part(function_call=types.FunctionCall(id=i, name=n, args=json.loads(a)))
            for i, n, a in calls.values()
        ]
        yield LlmResponse(content=types.Content(role="model", parts=parts), partial=False)


def _messages(content: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    calls = [part.function_call for part in content.parts if part.function_call]
    if calls:
        functions = [{"name": c.name, "arguments": json.dumps(c.args)} for c in calls]
        shown = [
            {"id": c.id, "type": "function", "function": f} for c, f in zip(calls, functions, strict=True)
        ]
        return [{"role": "assistant", "content": None, "tool_calls": shown}]
    for part in content.parts:
        if part.function_response:
            answer = json.dumps(part.function_response.response)
            found.append({"role": "tool", "tool_call_id": part.function_response.id, "content": answer})
        elif part.text:
            found.append({"role": "assistant" if content.role == "model" else "user", "content": part.text})
    return found


class Talk:
    """One session of the Runner."""

    def __init__(self, runner: Any, session_id: str) -> None:
        self._runner, self._id = runner, session_id

    async def request(self, number: int) -> str:
        """Run one input and take every event."""
        given = types.Content(role="user", parts=[types.Part(text=PROMPT)])
        text = ""
        streamed = RunConfig(streaming_mode=StreamingMode.SSE)
        async for event in self._runner.run_async(
            user_id=USER, session_id=self._id, new_message=given, run_config=streamed
        ):
            if event.is_final_response() and not event.partial and event.content:
                text = event.content.parts[0].text or text
        return text

    async def close(self) -> None:
        """Nothing is held."""


class Adk:
    """google-adk as a system."""

    async def open(self, mode: str, directory: Path, url: str) -> None:
        """Open the session service."""
        self._mode, self._url, self._file = mode, url, directory / "adk.db"
        CLIENTS[url] = sdk_client(url)
        self._service: Any = (
            InMemorySessionService() if mode == "memory" else SqliteSessionService(str(self._file))
        )

    async def begin(self, session_id: str, tools: int) -> Conversation:
        """A new session."""
        model = ChatModel(model=model_name(tools), url=self._url)
        agent = LlmAgent(name="agent", model=model, tools=[look_up])
        await self._service.create_session(app_name=APP, user_id=USER, session_id=session_id)
        return Talk(Runner(app_name=APP, agent=agent, session_service=self._service), session_id)

    async def close(self) -> None:
        """Close the client."""
        await CLIENTS.pop(self._url).close()

    def facts(self) -> dict[str, str]:
        """How the events are kept."""
        kept = "none" if self._mode == "memory" else kept_by(self._file)
        return {"journal": kept, "version": f"google-adk {version('google-adk')}"}

    async def build(self, requests: int) -> None:
        """The events of so many requests, one by one: the service has no other way."""
        session = await self._service.create_session(app_name=APP, user_id=USER, session_id="long")
        for number in range(requests):
            call = types.FunctionCall(id=f"call-{number}", name=TOOL_NAME, args={"what": "this"})
            result = types.FunctionResponse(
                id=f"call-{number}", name=TOOL_NAME, response={"result": TOOL_RESULT}
            )
            for role, part in (
                ("user", types.Part(text=PROMPT)),
                ("model", types.Part(function_call=call)),
                ("user", types.Part(function_response=result)),
                ("model", types.Part(text="x" * 440)),
            ):
                said = types.Content(role=role, parts=[part])
                author = "user" if role == "user" else "agent"
                await self._service.append_event(
                    session, Event(author=author, invocation_id=f"i-{number}", content=said)
                )

    async def resume(self) -> int:
        """The session with all of its events."""
        session = await self._service.get_session(app_name=APP, user_id=USER, session_id="long")
        return len(session.events)

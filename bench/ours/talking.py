"""minutebook as a system of the conversation: a session, its store, the model path.

Modes, in two parts: `sqlite`, `postgres` or `memory` is the store; `-create` replaces the model
path by the SDK's `create()`, which the peers use, so that a win on the way to the
model is not counted as a win of the journal.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, Final

import orjson

import minutebook as mb
from adapters.sqlite_driver import sqlite_version
from bench.chat_calls import sdk_client
from bench.limits.postgres import fresh_database
from bench.workload import PROMPT, TOOL_RESULT, Conversation, model_name, piece
from domain.model_ports import EVERYTHING, Block, DeclaredCall, Response, Signal, Text
from domain.ports import StoreDescription
from projections.openai_chat_wire import API, encode_item, request_body

_KEPT: Final = {"sqlite": "SQLite WAL, FULL", "postgres": "PostgreSQL, defaults", "memory": "none"}
_STOPS: Final = {"stop": mb.Stop.END, "tool_calls": mb.Stop.TOOL_CALLS}


@mb.tool(side_effect=mb.SideEffect.PURE)
async def look_up(what: str) -> str:
    """Looks something up."""
    return TOOL_RESULT


class ChatDialect:
    """The wire form of the shipped provider, for providers that send in another way."""

    provider = "openai-compatible"
    api = API
    capabilities = EVERYTHING

    def encode(self, item: Any) -> bytes:
        """One item, once."""
        return encode_item(item, self.provider)

    def body(self, items: Sequence[bytes], tools: Sequence[mb.ToolSpec], parameters: mb.Parameters) -> bytes:
        """The whole body."""
        return request_body(items, tools, parameters)

    async def aclose(self) -> None:
        """Nothing is held."""


class CreateProvider(ChatDialect):
    """Asks the model through the SDK's `create()`."""

    def __init__(self, url: str) -> None:
        self._client = sdk_client(url)

    async def send(self, body: bytes, *, attempt_id: str) -> AsyncIterator[Signal]:
        """One call; `create()` wants values, so the body is decoded again."""
        text: list[str] = []
        calls: dict[int, list[str]] = {}
        finish = ""
        async for chunk in await self._client.chat.completions.create(**orjson.loads(body)):
            if not chunk.choices:
                continue
            delta, finish = chunk.choices[0].delta, chunk.choices[0].finish_reason or finish
            if delta.content:
                text.append(delta.content)
                yield Text(delta.content)
            for part in delta.tool_calls or ():
                call = calls.setdefault(part.index, [part.id, part.function.name, ""])
                call[2] += part.function.arguments or ""
        declared = tuple(DeclaredCall(*call) for call in calls.values())
        yield Response((Block("text", "".join(text)),) if text else (), declared, _STOPS[finish])

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


class OfflineProvider(ChatDialect):
    """A model that is a function: no server, no socket. `pieces` for each answer."""

    def __init__(self, pieces: int = 1, tools: int = 1) -> None:
        self._pieces, self._tools = pieces, tools
        self._calls = 0

    async def send(self, body: bytes, *, attempt_id: str) -> AsyncIterator[Signal]:
        """Calls first, text after their results."""
        if self._tools and not _answers_a_call(body):
            self._calls += 1
            ids = [f"call-{self._calls}-{n}" for n in range(self._tools)]
            calls = tuple(DeclaredCall(call_id, "look_up", '{"what": "this"}') for call_id in ids)
            yield Response((), calls, mb.Stop.TOOL_CALLS)
            return
        for number in range(self._pieces):
            yield Text(piece(number))
        yield Response((Block("text", "".join(map(piece, range(self._pieces)))),), (), mb.Stop.END)


def _answers_a_call(body: bytes) -> bool:
    """Whether the last message is a tool's result."""
    return b'"tool"' in body[body.rfind(b'"role"') :][:16]


def config(provider: Any, tools: int = 1) -> mb.SessionConfig:
    """A session's configuration: one harmless tool that nobody has to allow."""
    return mb.SessionConfig(
        provider=provider, model=model_name(tools), tools=[look_up], permission_mode=mb.PermissionMode.YOLO
    )


class Talk:
    """One session, streamed to its end by one reader."""

    def __init__(self, session: mb.Session, left: AsyncExitStack) -> None:
        self._session, self._left = session, left

    async def request(self, number: int) -> str:
        """Send, and take everything that the stream shows."""
        await self._session.send(PROMPT)
        text: list[str] = []
        async for event in self._session.stream():
            if isinstance(event, mb.ContentDelta):
                text.append(event.delta)
        return "".join(text)

    async def close(self) -> None:
        """Leave the session."""
        await self._left.aclose()


class Ours:
    """minutebook as a system."""

    async def open(self, mode: str, directory: Path, url: str) -> None:
        """Modes: sqlite, postgres, memory, sqlite-create, memory-create."""
        self._mode, self._url = mode, url
        self._server = ExitStack()
        self._store: StoreDescription = self._described(mode.partition("-")[0], directory)

    def _described(self, store: str, directory: Path) -> StoreDescription:
        if store == "postgres":
            return mb.postgres(self._server.enter_context(fresh_database()))
        return mb.sqlite(directory / "journal.db") if store == "sqlite" else mb.memory()

    async def begin(self, session_id: str, tools: int) -> Conversation:
        """A new session."""
        left = AsyncExitStack()
        opened = mb.create_session(config(self.provider(), tools), store=self._store, session_id=session_id)
        return Talk(await left.enter_async_context(opened), left)

    async def close(self) -> None:
        """Every session was left by itself."""
        self._server.close()

    def facts(self) -> dict[str, str]:
        """How the journal is kept."""
        store = self._mode.partition("-")[0]
        version = {} if store == "postgres" else {"version": f"SQLite {sqlite_version}"}
        return {"journal": _KEPT[store], **version}

    def provider(self) -> Any:
        """The model path of the mode."""
        if self._mode.endswith("-create"):
            return CreateProvider(self._url)
        return mb.ProviderConfig("openai-compatible", base_url=f"{self._url}/v1", api_key="not-a-key")

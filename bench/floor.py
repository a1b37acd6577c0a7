"""The same conversation in a bare loop, without any framework: what cannot be undercut by much.

Modes, in two parts. How the model is asked: through the SDK's `create()`, as every
peer asks, or (`raw-`) with httpx2 and orjson alone. How it is kept: `memory`,
`full4` (four durable commits for each request, SQLite, WAL, synchronous FULL), or
`group4` (the same through one writing thread that commits all that waits).
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from bench.chat_calls import RawChat, SdkChat
from bench.workload import PROMPT, TOOL_RESULT, Conversation

Event = dict[str, Any]
Rows = list[tuple[str, int, str, bytes]]

SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS events(position INTEGER PRIMARY KEY, stream TEXT NOT NULL, "
    "version INTEGER NOT NULL, type TEXT NOT NULL, body BLOB NOT NULL);"
    "CREATE UNIQUE INDEX IF NOT EXISTS by_stream ON events(stream, version)"
)
INSERT: Final = "INSERT INTO events(stream, version, type, body) VALUES (?, ?, ?, ?)"


def durable(path: Path) -> sqlite3.Connection:
    """A file with the events table, opened so that COMMIT waits for the disk."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(SCHEMA)
    return connection


class Memory:
    """Keeps nothing."""

    async def commit(self, stream: str, events: Sequence[Event]) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Nothing to close."""


class Sqlite:
    """One transaction for each commit, on the event loop."""

    def __init__(self, path: Path) -> None:
        self._connection = durable(path)
        self._versions: dict[str, int] = {}

    async def commit(self, stream: str, events: Sequence[Event]) -> None:
        """Write the events and wait for the disk."""
        self._write([self._rows(stream, events)])

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _rows(self, stream: str, events: Sequence[Event]) -> Rows:
        after = self._versions.get(stream, 0)
        self._versions[stream] = after + len(events)
        return [(stream, n, e["type"], orjson.dumps(e)) for n, e in enumerate(events, after + 1)]

    def _write(self, commits: Sequence[Rows]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for rows in commits:
            self._connection.executemany(INSERT, rows)
        self._connection.execute("COMMIT")


class Group(Sqlite):
    """One writing thread; whatever waits shares a transaction."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._loop = asyncio.get_running_loop()
        self._waiting: queue.SimpleQueue[tuple[Rows, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    async def commit(self, stream: str, events: Sequence[Event]) -> None:
        """Hand the events over and wait for the disk."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._waiting.put((self._rows(stream, events), done))
        await done

    def close(self) -> None:
        """End the thread and close the file."""
        self._waiting.put(None)
        self._thread.join()
        super().close()

    def _run(self) -> None:
        while (first := self._waiting.get()) is not None:
            jobs = [first]
            while not self._waiting.empty():
                job = self._waiting.get()
                if job is None:
                    self._waiting.put(None)
                    break
                jobs.append(job)
            self._write([rows for rows, _ in jobs])
            self._loop.call_soon_threadsafe(_tell, [done for _, done in jobs])


def _tell(waiting: list[asyncio.Future[None]]) -> None:
    for done in waiting:
        done.set_result(None)


class Keeper(Protocol):
    """What keeps the events of a conversation."""

    async def commit(self, stream: str, events: Sequence[Event]) -> None:
        """Keep them; return when they are kept."""

    def close(self) -> None:
        """Let go."""


def _keeper(kind: str, file: Path) -> Keeper:
    if kind == "memory":
        return Memory()
    return Sqlite(file) if kind == "full4" else Group(file)


Ask = Callable[[int, list[Event]], Awaitable[Event]]


class Talk:
    """One session of the floor: a list of messages, and events beside it."""

    def __init__(self, ask: Ask, keeper: Keeper, session_id: str, tools: int) -> None:
        self._ask, self._keeper, self._id, self._tools = ask, keeper, session_id, tools
        self._messages: list[Event] = []
        self._number = 0

    async def request(self, number: int) -> str:
        """One request in four commits."""
        self._number = number
        user: Event = {"role": "user", "content": PROMPT}
        self._messages.append(user)
        await self._commit(("accepted", user), ("turn_started", number), ("attempt_started", 0))
        asked = await self._ask(self._tools, self._messages)
        calls = [call["id"] for call in asked["tool_calls"]]
        begun = [(what, call) for call in calls for what in ("tool_requested", "tool_started")]
        self._messages.append(asked)
        await self._commit(("attempt_completed", asked), *begun)
        results: list[Event] = [{"role": "tool", "tool_call_id": c, "content": TOOL_RESULT} for c in calls]
        self._messages += results
        await self._commit(*(("tool_completed", each) for each in results), ("attempt_started", 1))
        answer = await self._ask(self._tools, self._messages)
        self._messages.append(answer)
        await self._commit(("attempt_completed", answer), ("turn_completed", 0), ("request_completed", 0))
        return str(answer["content"])

    async def close(self) -> None:
        """Nothing is held."""

    async def _commit(self, *events: tuple[str, Any]) -> None:
        request = f"{self._id}-{self._number:06d}"
        head = {"version": 1, "session": self._id, "request": request, "at": "2030-01-01T00:00:00.000000Z"}
        await self._keeper.commit(self._id, [{**head, "type": kind, "data": data} for kind, data in events])


class Floor:
    """The bare loop as a system."""

    async def open(self, mode: str, directory: Path, url: str) -> None:
        """Modes: memory, full4, raw-memory, raw-full4, raw-group4."""
        self._mode, self._directory = mode, directory
        self._keeper = _keeper(mode.removeprefix("raw-"), directory / "floor.db")
        self._chat = RawChat(url) if mode.startswith("raw-") else SdkChat(url)

    async def begin(self, session_id: str, tools: int) -> Conversation:
        """A new list of messages."""
        return Talk(self._chat.ask, self._keeper, session_id, tools)

    async def close(self) -> None:
        """Close the file and the connections."""
        self._keeper.close()
        await self._chat.close()

    def facts(self) -> dict[str, str]:
        """How the floor keeps."""
        kept = "none" if self._mode.endswith("memory") else "SQLite WAL, FULL"
        return {"journal": kept, "version": f"SQLite {sqlite3.sqlite_version}"}

    async def build(self, requests: int) -> None:
        """A session whose model is a function."""
        talk = Talk(offline, self._keeper, "long", 1)
        for number in range(requests):
            await talk.request(number)

    async def resume(self) -> int:
        """Read every row, decode it, keep the messages."""
        connection = durable(self._directory / "floor.db")
        rows = connection.execute("SELECT body FROM events WHERE stream = 'long' ORDER BY version")
        events = (orjson.loads(body) for (body,) in rows)
        messages = [e["data"] for e in events if isinstance(e["data"], dict)]
        connection.close()
        return len(messages)


async def offline(tools: int, messages: list[Event]) -> Event:
    """A model that is a function: calls first, text after their results."""
    if messages[-1]["role"] == "tool":
        return {"role": "assistant", "content": "x" * 440}
    function = {"name": "look_up", "arguments": '{"what": "this"}'}
    call = {"id": f"call-{len(messages)}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}

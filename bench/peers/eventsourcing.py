"""The eventsourcing library around the bare loop: an aggregate for each session, its own recorder.

Modes: sqlite, memory (its plain-object recorder).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate

from bench.chat_calls import SdkChat
from bench.floor import Event, Talk, offline
from bench.peers.sqlite_facts import kept_by
from bench.workload import Conversation


class Session(Aggregate):
    """A session: it keeps its messages."""

    class Noted(Aggregate.Event):
        """Something happened."""

        note: dict[str, Any]

        def apply(self, aggregate: Any) -> None:
            """Keep the message, if it is one."""
            if isinstance(self.note["data"], dict):
                aggregate.messages.append(self.note["data"])

    def __init__(self, name: str) -> None:
        self.messages: list[Event] = []

    @staticmethod
    def create_id(name: str) -> UUID:
        """The same for the same name."""
        return uuid5(NAMESPACE_URL, name)


class _Keeper:
    def __init__(self, application: Any) -> None:
        self._application = application
        self._sessions: dict[str, Any] = {}

    async def commit(self, stream: str, events: Sequence[Event]) -> None:
        session = self._sessions.get(stream)
        if session is None:
            session = self._sessions[stream] = Session(stream)
        for event in events:
            session.trigger_event(Session.Noted, note=event)
        self._application.save(session)

    def close(self) -> None:
        self._application.close()


class Eventsourcing:
    """The eventsourcing library as a system."""

    async def open(self, mode: str, directory: Path, url: str) -> None:
        """Open its application."""
        self._mode, self._file = mode, directory / "eventsourcing.db"
        settings: dict[str, str] = {}
        if mode == "sqlite":
            settings = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(self._file)}
        self._application: Any = Application(settings)
        self._keeper, self._chat = _Keeper(self._application), SdkChat(url)

    async def begin(self, session_id: str, tools: int) -> Conversation:
        """A new aggregate."""
        return Talk(self._chat.ask, self._keeper, session_id, tools)

    async def close(self) -> None:
        """Close the application."""
        self._keeper.close()
        await self._chat.close()

    def facts(self) -> dict[str, str]:
        """How the events are kept."""
        kept = kept_by(self._file) if self._mode == "sqlite" else "none"
        return {"journal": kept, "version": f"eventsourcing {version('eventsourcing')}"}

    async def build(self, requests: int) -> None:
        """A session whose model is a function."""
        talk = Talk(offline, self._keeper, "long", 1)
        for number in range(requests):
            await talk.request(number)

    async def resume(self) -> int:
        """The aggregate, from its events."""
        return len(self._application.repository.get(Session.create_id("long")).messages)

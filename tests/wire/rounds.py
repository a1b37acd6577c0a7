"""Recorded exchanges as rounds of a conversation: what the next request says of what came before.

A recording's provider is made from a configuration whose address is the recorded path,
so that what is sent goes where the recorded request went.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from adapters.providers import make_provider
from domain import events as ev
from domain.envelope import Recorded
from domain.model_ports import ModelProvider, Parameters, Response
from minutebook.provider_config import ProviderConfig
from minutebook.testing.attempts import Attempted, attempt
from minutebook.testing.chat_replies import recorded_reply
from minutebook.testing.fake_server import FakeServer, Reply, serve
from minutebook.testing.histories import Walk
from minutebook.testing.scenario import response
from minutebook.testing.wire_rules import CHECKS
from minutebook.testing.world import World
from projections.transcript import Exchange, Item, Transcript, UserItem
from tests.property.scripts import Place, Script, play

Recording = dict[str, Any]

#: The dialect of each `api` word of the recordings, and the path that its adapter adds.
DIALECTS: Final = {
    "chat": ("openai-chat", "/chat/completions"),
    "responses": ("openai-responses", "/responses"),
    "messages": ("anthropic-messages", "/v1/messages"),
}

_TYPES: Final = {
    "anthropic": "anthropic",
    "azure": "azure-openai",
    "deepseek": "deepseek",
    "google-openai": "gemini",
    "openai": "openai",
}


def config_of(recording: Recording, port: int) -> ProviderConfig:
    """A configuration of the recorded provider, at a server on this machine."""
    api = recording["api"]
    kind = "anthropic" if api == "messages" else _TYPES.get(recording["provider"], "openai-compatible")
    base = recording["request"]["path"].partition(DIALECTS[api][1])[0]
    query = recording["request"]["query"] if kind == "azure-openai" else ""
    if "/deployments/" in base and "api-version" not in query:
        query = "api-version=2024-10-21"  # it was not recorded, and nothing is sent without
    address = f"http://127.0.0.1:{port}{base}" + (f"?{query}" if query else "")
    return ProviderConfig(kind, address, "key-of-nobody", api="responses" if api == "responses" else None)


@dataclass(slots=True)
class Rounds:
    """A conversation with one provider, each of its answers a recorded one."""

    provider: ModelProvider
    server: FakeServer
    model: str
    items: list[Item] = field(default_factory=lambda: [UserItem(1, "i-1", "hello")])
    taken: list[Attempted] = field(default_factory=list)

    async def next(self) -> Attempted:
        """Send the conversation so far, hold what arrives against the rules, take the answer."""
        encoded = [self.provider.encode(item) for item in self.items]
        body = self.provider.body(encoded, [], Parameters(self.model))
        found = await attempt(self.provider, body)
        CHECKS[self.provider.api](self.sent)
        self.taken.append(found)
        if found.response is not None:
            answers = [taken.response for taken in self.taken if taken.response is not None]
            self.items = conversation(answers, self.provider, self.model)
        return found

    @property
    def sent(self) -> dict[str, Any]:
        """The latest request as the server got it."""
        parsed: dict[str, Any] = self.server.requests[-1].parsed
        return parsed

    def body(self, *items: Item) -> dict[str, Any]:
        """What a request with these items (or all so far) would say."""
        encoded = [self.provider.encode(item) for item in items or self.items]
        parsed: dict[str, Any] = orjson.loads(self.provider.body(encoded, [], Parameters(self.model)))
        CHECKS[self.provider.api](parsed)
        return parsed


@asynccontextmanager
async def rounds(recordings: Sequence[Recording], replies: Sequence[Reply] = ()) -> AsyncIterator[Rounds]:
    """The recorded provider in front of a server that gives the recorded answers, one after another."""
    async with serve(replies or [recorded_reply(recording) for recording in recordings]) as server:
        provider = make_provider(config_of(recordings[0], server.port))
        try:
            asked = recordings[0]["request"]["body"] or {}  # not every recording has it
            yield Rounds(provider, server, asked.get("model", "a-model"))
        finally:
            await provider.aclose()


def conversation(answers: Sequence[Response], provider: ModelProvider, model: str) -> list[Item]:
    """Answers as a journal would keep them: the turns of one request. Its calls are of tools
    that nobody has, so each is answered by its rejection."""
    places: dict[Place, Response] = {(1, turn): answer for turn, answer in enumerate(answers, 1)}
    world = World(responses=(*answers, response()), tools=(), hooks=False, max_turns=len(answers) + 2)
    transcript = Transcript()
    for event in play(Script(places, {}, {}, (), world), Walk(world)).events:
        transcript.apply(spoken(event, (provider.provider, provider.api, model)))
    return transcript.items


def spoken(event: Recorded, speaker: tuple[str, str, str]) -> Recorded:
    """The event, with another provider, dialect and model if it begins an attempt."""
    if not isinstance(event.data, ev.ModelRequestStarted):
        return event
    named = dict(zip(("provider", "api", "model"), speaker, strict=True))
    return replace(event, data=event.data.model_copy(update=named))


def exchanges(items: Sequence[Item]) -> list[Exchange]:
    """The model's part of a conversation."""
    return [item for item in items if isinstance(item, Exchange)]

"""A server that keeps what it answered, in both OpenAI dialects, and what it was asked for."""

from __future__ import annotations

import itertools
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio

from adapters.openai_chat import OpenAIChatProvider
from adapters.openai_responses import OpenAIResponsesProvider
from domain.cursor import Cursor
from domain.model_ports import DeclaredCall
from minutebook.testing.chat_replies import chat_reply, error_reply
from minutebook.testing.fake_server import NO_FAULTS, FakeServer, Faults, Received, Reply
from minutebook.testing.responses_replies import (
    document_reply,
    events_reply,
    output_items,
    response_document,
    response_events,
)
from projections.openai_chat_body import Server
from tests.session.harness import Place

KEY = "metadata[minutebook_attempt]"


@dataclass
class Storing:
    """Replies for `fake_server`: POSTs in order, and what is kept of them.

    Args:
        texts: the answers; the first one is cut short in the way of `first`.
        first: the faults of the first answer.
        status: what the server says of a stored response.
        background: whether responses run on without us; then they can be resumed.
        looked: the replies to questions, in place of the truth.
    """

    texts: list[str] = field(default_factory=lambda: ["found again", "asked again"])
    first: Faults = NO_FAULTS
    status: str = "completed"
    background: bool = False
    calls: tuple[DeclaredCall, ...] = ()
    looked: Callable[[str], Reply] | None = None
    posts: list[dict[str, Any]] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)

    def __call__(self, request: Received) -> Reply:
        if request.method == "POST":
            self.posts.append(request.parsed)
            self.asked.set()
            return self.answered(request.path, len(self.posts) - 1)
        self.questions.append(request.path)
        if self.looked is not None:
            return self.looked(request.path)
        return self._kept(request.path)

    # --- answers --------------------------------------------------------------------------

    def answered(self, path: str, number: int) -> Reply:
        faults = self.first if number == 0 else Faults()
        if path.endswith("/chat/completions"):
            reply = chat_reply(self.texts[number], self._calls(number))
            body = reply.body.replace(b'"chatcmpl-fake"', b'"chatcmpl-%d"' % number)
            return Reply(body, reply.status, reply.headers, faults)
        return events_reply(self.events(number), faults)

    def _calls(self, number: int) -> tuple[DeclaredCall, ...]:
        return self.calls if number == 0 else ()

    def output(self, number: int) -> list[dict[str, Any]]:
        """The output items of a response."""
        return output_items(self.texts[number], self._calls(number), reasoning="hm")

    def events(self, number: int = 0) -> list[dict[str, Any]]:
        """The events of a response."""
        named: dict[str, Any] = {"response_id": f"resp_{number}", "store": True}
        return response_events(self.output(number), background=self.background, **named)

    # --- what is kept ----------------------------------------------------------------------

    def _kept(self, path: str) -> Reply:
        parts = urlsplit(path)
        query = parse_qs(parts.query)
        if parts.path == "/v1/chat/completions":
            return document_reply({"object": "list", "data": self._listed(query[KEY][0])})
        number = int(parts.path.rpartition("_" if "resp_" in path else "-")[2])
        if number >= len(self.posts):
            return error_reply(404, {"message": "no such thing"})
        if "chat" in parts.path:
            return document_reply(self._completion(number))
        if "stream" in query:
            return events_reply(self.events(number)[int(query["starting_after"][0]) + 1 :])
        output = self.output(number)
        if "include[]" not in query:
            output = [{k: v for k, v in item.items() if k != "encrypted_content"} for item in output]
        named: dict[str, Any] = {"response_id": f"resp_{number}", "store": True, "status": self.status}
        return document_reply(response_document(output, background=self.background, **named))

    def _listed(self, key: str) -> list[dict[str, Any]]:
        sent = enumerate(self.posts)
        kept = [n for n, body in sent if body["store"] and body["metadata"].get("minutebook_attempt") == key]
        return [self._completion(number) for number in kept]

    def _completion(self, number: int) -> dict[str, Any]:
        message = {"role": "assistant", "content": self.texts[number]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"id": f"chatcmpl-{number}", "object": "chat.completion", "choices": [choice]}


def responses(url: str, **options: Any) -> OpenAIResponsesProvider:
    """A provider of the Responses dialect whose server keeps responses."""
    given: dict[str, Any] = {"provider": "openai", "base_url": url, "api_key": "sk-test-key", "store": True}
    return OpenAIResponsesProvider(**(given | options))


def chat(url: str, stores: bool = True) -> OpenAIChatProvider:
    """A provider of the chat dialect whose server keeps completions."""
    server = Server("max_completion_tokens", "reasoning_effort", stores=stores)
    return OpenAIChatProvider(provider="openai", base_url=url, api_key="sk-test-key", server=server)


# --- sessions that die --------------------------------------------------------------------


def stall_after(storing: Storing, events: int) -> Storing:
    """The same server, whose first answer stands still after so many events."""
    whole = storing.answered("/v1/responses", 0).body
    ends = [place + 2 for place, two in enumerate(itertools.pairwise(whole)) if two == (10, 10)]
    storing.first = Faults(stall_after=ends[events - 1] if events else 0)
    return storing


@asynccontextmanager
async def lost(
    place: Place, server: FakeServer, make: Any, *, identified: bool, **options: Any
) -> AsyncIterator[Place]:
    """What a worker leaves that dies while its first attempt is under way."""
    async with place.create(make(server.url), **options) as session:
        await session.send("hello")
        async for event in session.events(after=Cursor.start(session.id)):
            if event.type == ("model_response_identified" if identified else "model_request_started"):
                break
        if not identified:
            while not server.requests:  # it was sent
                await anyio.lowlevel.checkpoint()
        yield await place.killed_after(len(place.store.batches))

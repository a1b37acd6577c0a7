"""The dialects in which hostile answers are sent, and how each is read without a socket."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from adapters.answer_stream import AnswerStream
from adapters.anthropic_accumulator import MessageAccumulator, read_event
from adapters.anthropic_messages import AnthropicProvider
from adapters.openai_chat import OpenAIChatProvider
from adapters.openai_chat_accumulator import ChatAccumulator
from adapters.openai_responses import OpenAIResponsesProvider
from adapters.openai_responses_accumulator import ResponsesAccumulator
from domain.errors import ModelFailed
from domain.model_ports import CallInput, ModelProvider, Response, Signal, Text, Thinking
from minutebook.testing.anthropic_replies import message_reply
from minutebook.testing.chat_replies import chat_reply
from minutebook.testing.fake_server import Reply
from minutebook.testing.responses_replies import response_reply
from tests.corpus import anthropic_stream, chat_stream, responses_stream
from tests.corpus.streams import STREAMS, HostileStream, Render

_IDLE_MS: Final = 5000


@dataclass(frozen=True, slots=True)
class Dialect:
    """One dialect.

    Args:
        render: steps to the bytes of a stream.
        only: hostile answers that only this dialect can give.
        provider: the real adapter for a server at a URL.
        answer: a good answer with that text.
        reader: what the adapter reads an answer with.
    """

    render: Render
    only: Mapping[str, HostileStream]
    provider: Callable[[str], ModelProvider]
    answer: Callable[[str], Reply]
    reader: Callable[[], AnswerStream]

    @property
    def streams(self) -> dict[str, HostileStream]:
        """Every hostile answer of this dialect, by its name."""
        return {**STREAMS, **self.only}

    def body(self, stream: HostileStream) -> bytes:
        """What is sent."""
        return self.render(stream.steps) if stream.body is None else stream.body

    def reply(self, stream: HostileStream) -> Reply:
        """The HTTP reply."""
        types = (("content-type", stream.content_type),) if stream.content_type else ()
        return Reply(self.body(stream), stream.status, types, stream.faults)

    def read(self, pieces: Sequence[bytes]) -> Came:
        """What the adapter makes of these bytes. Every exception but ModelFailed goes through."""
        answer = self.reader()
        signals: list[Signal] = []
        for piece in pieces:
            if answer.finished or answer.failure:
                break
            signals += answer.feed(piece)
        if not answer.finished and answer.failure is None:
            signals += answer.end()
        return _came(answer, tuple(signals))


@dataclass(frozen=True, slots=True)
class Came:
    """Live pieces, then a response or the kind of a failure."""

    pieces: tuple[Signal, ...]
    response: Response | None
    kind: str = ""

    @property
    def shown(self) -> str:
        """The visible text of the pieces."""
        return "".join(piece.text for piece in self.pieces if isinstance(piece, Text))

    @property
    def kept(self) -> str:
        """The visible text of the response."""
        blocks = self.response.blocks if self.response else ()
        return "".join(block.text for block in blocks if block.kind == "text")


def _came(answer: AnswerStream, pieces: tuple[Signal, ...]) -> Came:
    assert all(isinstance(piece, Text | Thinking | CallInput) for piece in pieces)
    if answer.failure is not None:
        return Came(pieces, None, answer.failure.kind)
    try:
        return Came(pieces, answer.response(None))
    except ModelFailed as failure:
        return Came(pieces, None, failure.kind)


def splittings(body: bytes, seed: str) -> Iterator[list[bytes]]:
    """The same bytes in pieces: byte by byte where they are few, and at places of no meaning."""
    yield [body[at : at + 1] for at in range(len(body))] if len(body) < 3000 else _split(body, 50, seed)
    yield _split(body, 7, seed)


def _split(body: bytes, pieces: int, seed: str) -> list[bytes]:
    places = random.Random(seed).choices(range(len(body) + 1), k=pieces - 1)
    return [body[start:end] for start, end in pairwise([0, *sorted(places), len(body)])]


def _chat(url: str) -> ModelProvider:
    return OpenAIChatProvider(
        provider="openai-compatible", base_url=url, api_key="", stream_idle_timeout_ms=_IDLE_MS
    )


def _responses(url: str) -> ModelProvider:
    return OpenAIResponsesProvider(
        provider="openai", base_url=url, api_key="", stream_idle_timeout_ms=_IDLE_MS
    )


def _anthropic(url: str) -> ModelProvider:
    return AnthropicProvider(provider="anthropic", base_url=url, api_key="", stream_idle_timeout_ms=_IDLE_MS)


DIALECTS: Final[Mapping[str, Dialect]] = {
    "chat": Dialect(
        chat_stream.render,
        chat_stream.STREAMS,
        _chat,
        chat_reply,
        lambda: AnswerStream(ChatAccumulator()),
    ),
    "responses": Dialect(
        responses_stream.render,
        responses_stream.STREAMS,
        _responses,
        response_reply,
        lambda: AnswerStream(ResponsesAccumulator()),
    ),
    "anthropic": Dialect(
        anthropic_stream.render,
        anthropic_stream.STREAMS,
        _anthropic,
        message_reply,
        lambda: AnswerStream(MessageAccumulator(), parse=read_event),
    ),
}

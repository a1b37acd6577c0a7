"""Asking OpenAI's servers what became of a lost attempt: stored responses and completions.

Only reads there. A response is asked for by its id; one that still runs in the
background is waited for. A completion is found by its id, or by the attempt's key in
its metadata. Whatever goes wrong with the question leaves the outcome unknown.
Imported by the adapters of both dialects.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final, cast
from urllib.parse import quote

from openai import AsyncOpenAI

from adapters.answer_stream import Accumulator, AnswerStream
from adapters.connection import Connection
from adapters.exchange import Exchange
from adapters.model_failures import failed
from adapters.openai_chat_accumulator import ChatAccumulator
from adapters.openai_client import get
from adapters.openai_responses_accumulator import ResponsesAccumulator
from domain.errors import ModelFailed
from domain.model_ports import Found, LostAttempt, Response, Signal
from projections.openai_chat_body import ATTEMPT_METADATA

#: How long the answer to a question may take; it is no model at work.
ANSWER_TIMEOUT_S: Final = 30.0

_RUNNING: Final = ("queued", "in_progress")


@dataclass(slots=True)
class StoredDocument:
    """An `Accumulator` of an answer that is one JSON document, kept as it is."""

    document: dict[str, Any] | None = None
    finished: bool = False

    def add(self, chunk: dict[str, Any], event: str = "message") -> list[Signal]:
        """Refuses: nothing here is a stream. Raises ModelFailed."""
        raise failed("invalid_response", f"expected a JSON document, got a stream with {event!r}")

    def add_document(self, document: dict[str, Any]) -> list[Signal]:
        """Take the document."""
        self.document, self.finished = document, True
        return []

    def done(self) -> None:
        """Nothing."""

    def response(self, request_id: str | None = None) -> Response:
        """An empty response: what counts is the document."""
        return Response((), (), "unknown")


@dataclass(frozen=True, slots=True)
class Shelf:
    """One provider's stored answers, and how to ask for them.

    Args:
        provider, api: the name and the dialect, as recorded with attempts.
    """

    client: AsyncOpenAI
    connection: Connection
    provider: str
    api: str

    def keeps(self, lost: LostAttempt) -> bool:
        """Whether the attempt was sent to this provider."""
        return (lost.provider, lost.api) == (self.provider, self.api)

    async def document(self, path: str, query: dict[str, object] | None = None) -> dict[str, Any]:
        """One stored thing. Raises ModelFailed."""
        stored = StoredDocument()
        usual = self.connection.exchange
        exchange = replace(usual, request_timeout_s=min(ANSWER_TIMEOUT_S, usual.request_timeout_s))
        await self._read(exchange, path, query or {}, stored)
        return stored.document or {}

    async def answer(self, path: str, query: dict[str, object], into: Accumulator) -> Response:
        """An answer that is streamed again. Raises ModelFailed."""
        return await self._read(self.connection.exchange, path, query, into)

    async def _read(
        self, exchange: Exchange, path: str, query: dict[str, object], into: Accumulator
    ) -> Response:
        def ask(_: bytes) -> Any:
            return get(self.client, path, query, self.connection.headers_of())

        async with aclosing(cast(Any, exchange.run(ask, b"", AnswerStream(into)))) as signals:
            async for signal in signals:
                if isinstance(signal, Response):
                    return signal
        raise failed("empty_response", "expected an answer, got none")

    def said(self, what: str, answer: str) -> str:
        """The evidence: who was asked for what, and what it said."""
        return f"looked up: asked {self.provider} ({self.api}) for {what}; {answer}"


# --- responses ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResponsesLookup:
    """Looks up responses by their ids."""

    shelf: Shelf

    def finds(self, lost: LostAttempt) -> bool:
        """Whether the attempt was sent here and its response's id is known."""
        return self.shelf.keeps(lost) and lost.response_id is not None

    async def look_up(self, lost: LostAttempt) -> Found:
        """Ask for the response; wait for one that runs in the background."""
        what = f"response {lost.response_id}"
        if not self.finds(lost):
            return Found("unknown", self.shelf.said(what, "that was not sent there or has no id"))
        path = f"/responses/{quote(lost.response_id or '', safe='')}"
        try:
            document = await self._retrieved(path)
            status = document.get("status")
            if status in _RUNNING and document.get("background") is True:
                return await self._resumed(path, what)
        except ModelFailed as e:
            return Found("unknown", self.shelf.said(what, f"that failed: {e}"))
        return self._judged(document, str(status), what)

    async def _retrieved(self, path: str) -> dict[str, Any]:
        document = await self.shelf.document(path)
        if _lacks_reasoning(document):  # asked for only where there is some: other models refuse it
            include: dict[str, object] = {"include": ["reasoning.encrypted_content"]}
            return await self.shelf.document(path, include)
        return document

    async def _resumed(self, path: str, what: str) -> Found:
        """The events again, from behind the first one, to the end."""
        query: dict[str, object] = {"stream": "true", "starting_after": 0}
        response = await self.shelf.answer(path, query, ResponsesAccumulator())
        return Found("completed", self.shelf.said(what, "it ran to its end in the background"), response)

    def _judged(self, document: dict[str, Any], status: str, what: str) -> Found:
        accumulator = ResponsesAccumulator()
        try:
            accumulator.add_document(document)
            response = accumulator.response()
        except ModelFailed as e:
            return self._not_answered(status, what, e)
        return Found("completed", self.shelf.said(what, f"it is {status}"), response)

    def _not_answered(self, status: str, what: str, error: ModelFailed) -> Found:
        outcome = {"failed": "failed", "cancelled": "cancelled"}.get(status)
        if status in _RUNNING:
            outcome = "running"
        answer = f"it is {status}" if outcome else f"what came is no response: {error}"
        message = str(error) if outcome == "failed" else ""
        return Found(outcome or "unknown", self.shelf.said(what, answer), message=message)


def _lacks_reasoning(document: dict[str, Any]) -> bool:
    output = document.get("output")
    items = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
    return any(i.get("type") == "reasoning" and not i.get("encrypted_content") for i in items)


# --- chat completions --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChatLookup:
    """Looks up stored completions by their ids, or by the attempt's key in their metadata."""

    shelf: Shelf

    def finds(self, lost: LostAttempt) -> bool:
        """Whether the attempt was sent here and there is something to ask by."""
        return self.shelf.keeps(lost) and bool(lost.response_id or lost.attempt_key)

    async def look_up(self, lost: LostAttempt) -> Found:
        """Ask for the completion. A server that has none may still be about to store it: unknown."""
        what = f"completion {lost.response_id}" if lost.response_id else f"attempt {lost.attempt_key}"
        if not self.finds(lost):
            return Found("unknown", self.shelf.said(what, "that was not sent there or has no key"))
        try:
            named = lost.response_id or await self._named(lost.attempt_key or "")
            if named is None:
                return Found("unknown", self.shelf.said(what, "it does not have exactly one of it"))
            document = await self.shelf.document(f"/chat/completions/{quote(named, safe='')}")
        except ModelFailed as e:
            return Found("unknown", self.shelf.said(what, f"that failed: {e}"))
        return self._judged(document, what)

    async def _named(self, attempt_key: str) -> str | None:
        """The id of the one completion that carries the key, or None."""
        query: dict[str, object] = {"metadata": {ATTEMPT_METADATA: attempt_key}, "limit": 2}
        listed = (await self.shelf.document("/chat/completions", query)).get("data")
        ids = [entry.get("id") for entry in listed] if isinstance(listed, list) else []
        return ids[0] if len(ids) == 1 and isinstance(ids[0], str) and ids[0] else None

    def _judged(self, document: dict[str, Any], what: str) -> Found:
        accumulator = ChatAccumulator()
        try:
            accumulator.add_document(document)
            response = accumulator.response()
        except ModelFailed as e:
            return Found("unknown", self.shelf.said(what, f"what came is no completion: {e}"))
        if not _has_ended(document):
            return Found("running", self.shelf.said(what, "it has no end yet"))
        return Found("completed", self.shelf.said(what, "it is stored"), response)


def _has_ended(document: dict[str, Any]) -> bool:
    choices = document.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return isinstance(first, dict) and bool(first.get("finish_reason"))

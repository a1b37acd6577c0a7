"""The bytes of an answer read as they come: an event stream, or one JSON document.

Pure: bytes in, live pieces and the end of the attempt out; no SDK, no I/O. What the
events mean is the dialect's accumulator's business. An answer is finished only by
the dialect's terminal marker in a stream, by the closing of the object in a
document. Whatever else ends the bytes is a failure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import orjson

from adapters.model_failures import failed
from adapters.sse import EventReader, ServerEvent
from domain.errors import ModelFailed
from domain.model_ports import Response, Signal

#: More than this in one answer is refused. A token costs about 300 bytes of stream.
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024

_DONE: Final = b"[DONE]"
_MARK: Final = b"\xef\xbb\xbf"


class Accumulator(Protocol):
    """A dialect's events put together into one `Response`."""

    @property
    def finished(self) -> bool:
        """Whether the dialect's terminal marker has come."""

    def add(self, chunk: dict[str, Any], event: str) -> list[Signal]:
        """Take one event of a stream (`event` is its name, "message" where it has none);
        return the live pieces it brought. Raises ModelFailed."""

    def add_document(self, document: dict[str, Any]) -> list[Signal]:
        """Take a whole answer that was not streamed. Raises ModelFailed."""

    def done(self) -> None:
        """The line `[DONE]` came."""

    def response(self, request_id: str | None) -> Response:
        """The answer, once finished. Raises ModelFailed where it is none."""


@dataclass(slots=True, repr=False)
class AnswerStream:
    """One answer being read.

    `failure` is set when the attempt has failed, `finished` when the terminal marker
    was seen; after either, further bytes change nothing. `parse` makes an event's data
    (or a document) an object; a dialect that needs its exact text gives its own.

    Guarantees: the pieces, the response and the kind of a failure do not depend on
    where the bytes were cut.
    """

    accumulator: Accumulator
    parse: Callable[[bytes], dict[str, Any]] | None = None
    failure: ModelFailed | None = None
    finished: bool = False
    document: bool = False
    received_bytes: int = 0
    _head: bytes = b""
    _started: bool = False
    _body: bytearray = field(default_factory=bytearray)
    _events: EventReader = field(default_factory=EventReader)
    _digest: Any = field(default_factory=hashlib.sha256)

    def __repr__(self) -> str:  # never what it holds: that may be private, or repeat a credential
        return f"AnswerStream(finished={self.finished}, received_bytes={self.received_bytes})"

    def feed(self, data: bytes) -> list[Signal]:
        """Take the next bytes; return the live pieces they complete, those before a failure too."""
        signals: list[Signal] = []
        self._digest.update(data)
        self.received_bytes += len(data)
        try:
            self._check_size()
            self._read(data, signals)
        except ModelFailed as failure:
            self.failure = failure
        return signals

    def end(self) -> list[Signal]:
        """Take the end of the bytes; return the live pieces of a document."""
        signals: list[Signal] = []
        try:
            if self.document:
                signals += self.accumulator.add_document(self._whole_document())
                self.finished = True
            elif (last := self._events.pending()) is not None and self._is_whole(last):
                self._take(last, signals)
            if not self.finished:
                raise failed("stream_cut", "expected the rest of the answer, got the end of the stream")
        except ModelFailed as failure:
            self.failure = failure
        return signals

    def response(self, request_id: str | None) -> Response:
        """The answer. Call it only once `finished` is set.

        Raises:
            ModelFailed: the marker came, an answer did not.
        """
        return self.accumulator.response(request_id)

    def digest(self) -> str | None:
        """SHA-256 (hex) of the bytes so far, or None if there were none."""
        return str(self._digest.hexdigest()) if self.received_bytes else None

    def _check_size(self) -> None:
        if self.received_bytes > MAX_ANSWER_BYTES:
            message = f"expected at most {MAX_ANSWER_BYTES} bytes of answer, got more"
            raise failed("response_too_large", message)

    def _read(self, data: bytes, signals: list[Signal]) -> None:
        if not self._started:
            data = self._start(data)
        if self.document:
            self._body += data
            return
        for event in self._events.feed(data):
            if self.finished:
                return
            self._take(event, signals)

    def _start(self, data: bytes) -> bytes:
        """Tell from the first byte what it is: labels are wrong too often to go by them."""
        self._head += data
        text = self._head.removeprefix(_MARK).lstrip()
        if not text or _MARK.startswith(self._head):
            return b""
        if text.startswith(b"<"):
            message = f"expected an event stream or JSON, got {text[:80]!r}"
            raise failed("unexpected_content", message)
        self._started, self._head = True, b""
        self.document = text.startswith((b"{", b"["))
        return text

    def _object(self, data: bytes) -> dict[str, Any]:
        return (self.parse or parsed)(data)

    def _take(self, event: ServerEvent, signals: list[Signal]) -> None:
        if _is_done(event):
            self.accumulator.done()
        else:
            signals += self.accumulator.add(self._object(event.data), event.name)
        self.finished = self.accumulator.finished

    def _is_whole(self, event: ServerEvent) -> bool:
        """Whether an event that lacks its empty line is all there: some streams end like that."""
        if _is_done(event):
            return True
        try:
            return bool(self._object(event.data))
        except ModelFailed:
            return False

    def _whole_document(self) -> Any:
        try:
            return self._object(bytes(self._body))
        except ModelFailed:
            raise failed("stream_cut", "expected a whole JSON document, got a part of one") from None


def _is_done(event: ServerEvent) -> bool:
    return event.data.strip() == _DONE


def parsed(data: bytes) -> dict[str, Any]:
    """A JSON object; lone surrogate escapes and NaN, which only the slower parser takes, are let in.

    Raises:
        ModelFailed: it is none.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        value = _parsed_leniently(data)
    if isinstance(value, list) and value:  # an error may be wrapped in a list
        value = value[0]
    if not isinstance(value, dict):
        raise failed("invalid_response", f"expected a JSON object, got {data[:80]!r}")
    return value


def _parsed_leniently(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise failed("invalid_response", f"expected JSON, got {data[:80]!r}") from None

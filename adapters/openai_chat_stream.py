"""The bytes of a chat answer read as they come: an event stream, or one JSON document.

Pure: bytes in, live pieces and the end of the attempt out; no SDK, no I/O. An
answer is finished only by its terminal marker, `[DONE]` in a stream, the closing
of the object in a document. Whatever else ends the bytes is a failure.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from adapters.openai_chat_accumulator import ChatAccumulator
from adapters.openai_chat_errors import failed
from adapters.sse import EventReader, ServerEvent
from domain.errors import ModelFailed
from domain.ports import Response, Signal

#: More than this in one answer is refused. A token costs about 300 bytes of stream.
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024

_DONE: Final = b"[DONE]"
_MARK: Final = b"\xef\xbb\xbf"


@dataclass(slots=True, repr=False)
class ChatAnswer:
    """One answer being read.

    `failure` is set when the attempt has failed, `finished` when the terminal marker
    was seen; after either, further bytes change nothing.

    Guarantees: the pieces, the response and the kind of a failure do not depend on
    where the bytes were cut.
    """

    failure: ModelFailed | None = None
    finished: bool = False
    document: bool = False
    received_bytes: int = 0
    _head: bytes = b""
    _started: bool = False
    _body: bytearray = field(default_factory=bytearray)
    _events: EventReader = field(default_factory=EventReader)
    _accumulator: ChatAccumulator = field(default_factory=ChatAccumulator)
    _digest: Any = field(default_factory=hashlib.sha256)

    def __repr__(self) -> str:  # never what it holds: that may be private, or repeat a credential
        return f"ChatAnswer(finished={self.finished}, received_bytes={self.received_bytes})"

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
                self._chunk(self._whole_document(), "message", signals)
                self.finished = True
            elif not self._is_done(self._events.pending()):
                raise failed("stream_cut", f"expected {_DONE.decode()}, got the end of the stream")
        except ModelFailed as failure:
            self.failure = failure
        return signals

    def response(self, request_id: str | None) -> Response:
        """The answer. Call it only once `finished` is set.

        Raises:
            ModelFailed: the marker came, an answer did not.
        """
        return self._accumulator.response(request_id)

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
            if self.finished or self._is_done(event):
                return
            self._chunk(_parsed(event.data), event.name, signals)

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

    def _is_done(self, event: ServerEvent | None) -> bool:
        self.finished = event is not None and event.data.strip() == _DONE
        return self.finished

    def _chunk(self, chunk: Any, event: str, signals: list[Signal]) -> None:
        signals += self._accumulator.add(chunk, event)

    def _whole_document(self) -> Any:
        try:
            return _parsed(bytes(self._body))
        except ModelFailed:
            raise failed("stream_cut", "expected a whole JSON document, got a part of one") from None


def _parsed(data: bytes) -> Any:
    """A JSON value; lone surrogate escapes and NaN, which only the slower parser takes, are let in."""
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

"""Events of an Anthropic message put together into one `Response`.

Pure: parsed objects in, live pieces and the response out; no SDK, no I/O. The SDK's
own accumulator is not used: it takes a cut message for a finished one, repairs
cut-off arguments, and merges two messages that a proxy sent as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from adapters.answer_facts import check_number_of_calls, note_ids, provider_ids
from adapters.answer_stream import parsed
from adapters.anthropic_blocks import PartialBlock, raw_members, read_block, read_elements, read_members
from adapters.anthropic_usage import counts
from adapters.model_failures import error_of, failed, from_error
from domain.model_ports import Block, Response, Signal
from domain.values import CUT_STOPS, Stop
from projections.anthropic_wire import ENDING
from projections.raw_json import joined
from projections.wire_order import without_last_marks

_STOPS: Final[Mapping[str, Stop]] = {
    "end_turn": Stop.END,
    "stop_sequence": Stop.END,
    "tool_use": Stop.TOOL_CALLS,
    "max_tokens": Stop.LENGTH,
    "model_context_window_exceeded": Stop.LENGTH,
    "pause_turn": Stop.PAUSE,
    "refusal": Stop.REFUSAL,
}

#: Reasons that `Stop` says whole.
_PLAIN: Final = frozenset({"end_turn", "tool_use", "max_tokens", "pause_turn"})

#: Where `read_event` leaves an event's text.
RAW: Final = "minutebook:raw"


def read_event(data: bytes) -> dict[str, Any]:
    """An event's data as an object, with its exact text beside it (for `AnswerStream.parse`).

    Raises:
        ModelFailed: it is no object.
    """
    text = data.decode("utf-8-sig", "replace")
    return parsed(text.encode()) | {RAW: text}  # parsed from the same text: a name is a name in both


@dataclass(slots=True)
class MessageAccumulator:
    """Collects one answer.

    Guarantees: the response does not depend on how the answer was cut into events'
    pieces; nothing comes of a message that did not end, or that is not one message.
    """

    _blocks: dict[int, PartialBlock] = field(default_factory=dict)
    _calls: int = 0
    _ids: dict[str, str] = field(default_factory=dict)
    _usage: dict[str, Any] = field(default_factory=dict)
    _stop: str = ""
    _ending: dict[str, str] = field(default_factory=dict)
    _started: bool = False
    finished: bool = False

    def done(self) -> None:
        """`[DONE]` means nothing in this dialect; some proxies send it all the same."""

    def add(self, chunk: dict[str, Any], event: str = "message") -> list[Signal]:
        """Take one event; return the pieces it brought. Kinds nobody here knows are passed over.

        Raises:
            ModelFailed: the event is an error, or cannot be of one whole message.
        """
        error = error_of(chunk) or (chunk if event == "error" else None)
        if error is not None:
            raise from_error(error)
        match chunk.get("type") or event:
            case "message_start":
                self._start(chunk)
            case "content_block_start":
                return self._begin(chunk)
            case "content_block_delta":
                return self._extend(chunk)
            case "content_block_stop":
                known = self._blocks.get(_index(chunk))
                return known.close() if known and not known.closed else []
            case "message_delta":
                self._end(chunk)
            case "message_stop":
                self._finish()
        return []

    def add_document(self, document: dict[str, Any]) -> list[Signal]:
        """Take a whole message that was not streamed. Raises ModelFailed."""
        error = error_of(document)
        if error is not None:
            raise from_error(error)
        if document.get("type") != "message" or not isinstance(document.get("content"), list):
            raise failed("empty_response", "expected a message, got JSON without one")
        self._note(document)
        raw = read_members(document[RAW])
        signals: list[Signal] = []
        for index, text in enumerate(read_elements(raw["content"])):
            signals += self._put(index, text)
            signals += self._blocks[index].close()
        self._note_ending({name: raw[name] for name in _ENDING_FIELDS if name in raw}, document)
        self._finish()
        return signals

    def response(self, request_id: str | None = None) -> Response:
        """The answer, once it is finished.

        Raises:
            ModelFailed: a call that should run did not end.
        """
        called = [block for block in self._blocks.values() if block.call is not None]
        stop = _stop(self._stop, has_calls=bool(called))
        if stop is Stop.TOOL_CALLS and not all(block.closed for block in called):
            raise failed("invalid_response", "expected every call to end, got one that did not")
        return Response(
            blocks=self._kept(),
            calls=tuple(block.declared() for block in called),
            stop=stop,
            usage=counts(self._usage),
            provider_ids=provider_ids(self._ids, request_id),
        )

    def _start(self, chunk: dict[str, Any]) -> None:
        message = chunk.get("message")
        if not isinstance(message, dict):
            raise failed("invalid_response", "expected a message to begin, got nothing of one")
        same = not self._blocks and message.get("id") == self._ids.get("response_id")
        if self._started and not same:
            raise failed("invalid_response", "expected one message, got the beginning of another within it")
        self._started = True
        self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        note_ids(self._ids, message)
        self._note_usage(message.get("usage"))

    def _note_usage(self, usage: Any) -> None:
        if isinstance(usage, dict):  # counts are cumulative: the last ones are right
            self._usage |= {name: value for name, value in usage.items() if value is not None}

    def _begin(self, chunk: dict[str, Any]) -> list[Signal]:
        index = _index(chunk)
        if not self._started or index in self._blocks or self._stop:
            raise failed("invalid_response", f"expected no block {index} to begin here")
        return self._put(index, read_members(chunk[RAW]).get("content_block", ""))

    def _put(self, index: int, text: str) -> list[Signal]:
        block = self._blocks[index] = read_block(text)
        if block.kind == "tool_use":
            block.call = self._calls
            self._calls += 1
        check_number_of_calls(self._calls)
        return block.begin()

    def _extend(self, chunk: dict[str, Any]) -> list[Signal]:
        block, delta = self._blocks.get(_index(chunk)), chunk.get("delta")
        if block is None or not isinstance(delta, dict):
            message = f"expected a piece of a block that began, got one of {chunk.get('index')!r}"
            raise failed("invalid_response", message)
        return block.add(delta, chunk[RAW])

    def _end(self, chunk: dict[str, Any]) -> None:
        self._note_usage(chunk.get("usage"))
        if isinstance(chunk.get("delta"), dict):
            self._note_ending(raw_members(chunk[RAW], "delta"), chunk["delta"])

    def _note_ending(self, raw: Mapping[str, str], ending: dict[str, Any]) -> None:
        cut = _STOPS.get(self._stop) in CUT_STOPS  # nothing that is told later makes it whole
        told = {name: text for name, text in raw.items() if text != "null"}
        self._ending |= told | ({"stop_reason": self._ending["stop_reason"]} if cut else {})
        reason = ending.get("stop_reason")
        self._stop = reason if isinstance(reason, str) and reason and not cut else self._stop

    def _finish(self) -> None:
        if not self._stop:
            raise failed("invalid_response", "expected a reason for the end of the message, got none")
        self.finished = True

    def _kept(self) -> tuple[Block, ...]:
        blocks = [kept for block in self._blocks.values() for kept in block.kept()]
        says_more = self._stop not in _PLAIN or len(self._ending) > 1
        ending = [Block("opaque", joined(self._ending), ENDING)] if says_more else []
        return (*without_last_marks(blocks), *ending)


#: What a document says about its end; in a stream it is what `message_delta` says.
_ENDING_FIELDS: Final = ("stop_reason", "stop_sequence", "stop_details", "container")


def _stop(reason: str, *, has_calls: bool) -> Stop:
    """Calls run only where the model stopped for them; after any other reason they count as cut."""
    stop = _STOPS.get(reason, Stop.UNKNOWN)
    if not has_calls:
        return Stop.END if stop is Stop.TOOL_CALLS else stop
    return stop if stop is Stop.TOOL_CALLS or stop in CUT_STOPS else Stop.LENGTH


def _index(chunk: dict[str, Any]) -> int:
    index = chunk.get("index")
    if type(index) is not int:
        raise failed("invalid_response", f"expected the number of a block, got {index!r}")
    return index

"""Events of a Responses answer put together into one `Response`.

Pure: parsed objects in, live pieces and the response out; no SDK, no I/O. Raw
events are read because the SDK's helper raises where servers leave out indexes,
change ids or end a usable answer with `response.incomplete`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from adapters.answer_facts import given_counts, note_ids, provider_ids, within
from adapters.model_failures import error_of, failed, from_error
from adapters.openai_responses_items import CALLS, OutputItem, OutputItems
from domain.model_ports import Block, Identified, Response, Signal
from domain.values import Stop
from projections.openai_responses_wire import API, CUSTOM_CALL
from projections.wire_order import call_mark, without_last_marks

#: Events with a piece of text: the kind of part, and the field that says which part.
_PIECES: Final[Mapping[str, tuple[str, str]]] = {
    "response.output_text": ("output_text", "content_index"),
    "response.refusal": ("refusal", "content_index"),
    "response.reasoning_text": ("reasoning_text", "content_index"),
    "response.reasoning_summary_text": ("summary_text", "summary_index"),
}
#: Events with a piece of a call: the field that holds the whole of it at the end.
_ARGUMENTS: Final[Mapping[str, str]] = {
    "response.function_call_arguments": "arguments",
    "response.custom_tool_call_input": "input",
}
#: Statuses after which nothing follows.
_ENDED: Final = frozenset({"completed", "incomplete", "failed", "cancelled"})
_INCOMPLETE: Final[Mapping[str, Stop]] = {"content_filter": Stop.REFUSAL}


@dataclass(slots=True)
class ResponsesAccumulator:
    """Collects one answer.

    Args:
        stored: whether we asked the server to keep the response. Its id is told
            (`Identified`) as soon as it is known, if the server says that it keeps it.

    Guarantees: the response does not depend on how the answer was cut into pieces.
    """

    stored: bool = False
    finished: bool = False
    _items: OutputItems = field(default_factory=OutputItems)
    _ids: dict[str, str] = field(default_factory=dict)
    _usage: dict[str, int] = field(default_factory=dict)
    _status: str = ""
    _why_incomplete: str = ""
    _identified: bool = False

    def done(self) -> None:
        """`[DONE]` means nothing in this dialect."""

    def add_document(self, document: dict[str, Any]) -> list[Signal]:
        """Take one whole response object; return the pieces it brought. Raises ModelFailed."""
        error = error_of(document)
        if error is not None and document.get("status") not in _ENDED:
            raise from_error(error)
        signals = self._about(document)
        self._end(document, str(document.get("status") or ""), signals)
        return signals

    def add(self, chunk: dict[str, Any], event: str = "message") -> list[Signal]:
        """Take one event; return the pieces it brought.

        Raises:
            ModelFailed: the event is an error or says that the response failed or was
                cancelled, or it holds more than a response may.
        """
        name = str(chunk.get("type") or event)
        if name == "error" or error_of(chunk) is not None:
            raise from_error(error_of(chunk) or chunk)
        response = chunk.get("response")
        signals = self._about(response) if isinstance(response, dict) else []
        what, _, step = name.rpartition(".")
        if what == "response.output_item":
            signals += self._items.close(chunk) if step == "done" else self._begin(chunk)
        elif what in _PIECES:
            signals += self._text(chunk, *_PIECES[what], step)
        elif what in _ARGUMENTS:
            signals += self._arguments(chunk, _ARGUMENTS[what], step)
        elif what == "response" and step in _ENDED:
            whole = response if isinstance(response, dict) else {}
            # Some servers end every response with the same event, and say in it how it ended.
            self._end(whole, said if (said := whole.get("status")) in _ENDED else step, signals)
        return signals

    def response(self, request_id: str | None = None) -> Response:
        """The answer, once its terminal event was seen.

        Raises:
            ModelFailed: there was no answer, or a call whose end never came.
        """
        items = self._items.items
        if not items and self._status == "completed":
            raise failed("empty_response", "expected an answer, got an end without one")
        if self._status == "completed" and any(item.cut_call for item in items):
            raise failed("invalid_response", "expected the end of each call, got an answer without one")
        return Response(
            blocks=without_last_marks(tuple(self._blocks())),
            calls=tuple(item.declared() for item in items if item.type in CALLS),
            stop=self._stop(),
            usage=dict(self._usage),
            provider_ids=provider_ids(self._ids, request_id),
        )

    def _about(self, response: dict[str, Any]) -> list[Signal]:
        """Note what an event says of the response as a whole."""
        note_ids(self._ids, response)
        if isinstance(usage := response.get("usage"), dict):
            self._usage |= _usage(usage)
        kept = response.get("background") is True or (self.stored and response.get("store") is True)
        if not kept or self._identified or not self._ids.get("response_id"):
            return []
        self._identified = True
        return [Identified(self._ids["response_id"])]

    def _begin(self, chunk: dict[str, Any]) -> list[Signal]:
        self._items.begin(chunk)
        return []

    def _text(self, chunk: dict[str, Any], kind: str, place_in: str, step: str) -> list[Signal]:
        item, place = self._items.of(chunk), chunk.get(place_in)
        at = place if type(place) is int else 0
        if step == "delta" and isinstance(piece := chunk.get("delta"), str):
            return item.add_text(kind, at, piece)
        whole = chunk.get("refusal" if kind == "refusal" else "text")
        return item.set_text(kind, at, whole) if step == "done" and isinstance(whole, str) else []

    def _arguments(self, chunk: dict[str, Any], whole_in: str, step: str) -> list[Signal]:
        item = self._items.of(chunk)
        if step == "delta" and isinstance(piece := chunk.get("delta"), str):
            return item.add_arguments(piece)
        return item.set_arguments(chunk.get(whole_in)) if step == "done" else []

    def _end(self, response: dict[str, Any], status: str, signals: list[Signal]) -> None:
        """Take the terminal state, from the event that says so or from a document."""
        if status in ("failed", "cancelled"):
            raise _not_answered(response, status)
        if status not in _ENDED:
            message = f"expected a response that has ended, got one that is {status or 'of no status'}"
            raise failed("invalid_response", message)
        output = response.get("output")
        signals += self._items.fill(output if isinstance(output, list) else [])
        details = response.get("incomplete_details")
        self._why_incomplete = str(details.get("reason") or "") if isinstance(details, dict) else ""
        self._status, self.finished = status, True

    def _blocks(self) -> Iterator[Block]:
        for item in self._items.items:
            if item.call_index is not None:
                yield call_mark(API, item.call_index, CUSTOM_CALL if item.type == CUSTOM_CALL else "")
            else:
                yield from (block for block in item.blocks() if block.text)

    def _stop(self) -> Stop:
        items: list[OutputItem] = self._items.items
        if self._status == "incomplete":  # whatever the reason: nothing of a cut answer runs
            return _INCOMPLETE.get(self._why_incomplete, Stop.LENGTH)
        calls = [item for item in items if item.type in CALLS]
        if calls:
            return (
                Stop.LENGTH
                if any(call.plain.get("status") == "incomplete" for call in calls)
                else Stop.TOOL_CALLS
            )
        return Stop.REFUSAL if any(item.refused for item in items) else Stop.END


def _not_answered(response: dict[str, Any], status: str) -> Exception:
    if error := response.get("error"):
        return from_error(error)
    return failed("provider_error", f"expected an answer, the response was {status} at the server")


def _usage(usage: dict[str, Any]) -> dict[str, int]:
    came = usage.get("input_tokens_details")
    named = {
        "input_tokens": usage.get("input_tokens"),
        "output_tokens": usage.get("output_tokens"),
        "total_tokens": usage.get("total_tokens"),
        "cached_input_tokens": within(came, "cached_tokens"),
        "cache_write_tokens": within(came, "cache_write_tokens"),
        "reasoning_tokens": within(usage.get("output_tokens_details"), "reasoning_tokens"),
    }
    return given_counts(named)

"""Chunks of a chat completion put together into one `Response`.

Pure: parsed objects in, live pieces and the response out; no SDK, no I/O. The
SDK's own accumulator is not used: it takes a cut stream for a finished one.

Only the first choice counts. We never ask for more, and where a server sends more
the rest is dropped (their tokens are in the usage all the same).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from adapters.answer_facts import given_counts, note_ids, provider_ids, within
from adapters.joined_text import JoinedText
from adapters.model_failures import error_of, failed, from_error
from adapters.openai_chat_calls import CallCollector
from adapters.openai_chat_text import ReasoningDetails, merged, text_of
from domain.errors import ValueRefused
from domain.model_ports import Block, CallInput, Identified, Response, Signal, Text, Thinking
from domain.values import CUT_STOPS, Stop
from projections.openai_chat_wire import FORMAT_PREFIX
from projections.wire_text import wire_json

_STOPS: Final[Mapping[str, Stop]] = {
    "stop": Stop.END,
    "eos": Stop.END,
    "end_turn": Stop.END,
    "stop_sequence": Stop.END,
    "tool_calls": Stop.TOOL_CALLS,
    "function_call": Stop.TOOL_CALLS,
    "tool_use": Stop.TOOL_CALLS,
    "length": Stop.LENGTH,
    "max_tokens": Stop.LENGTH,
    "model_length": Stop.LENGTH,
    "model_context_window_exceeded": Stop.LENGTH,
    "content_filter": Stop.REFUSAL,
    "sensitive": Stop.REFUSAL,
    "refusal": Stop.REFUSAL,
}

#: Finish reasons that say the server gave up: what came is not an answer.
_GAVE_UP: Final[Mapping[str, str]] = {
    "insufficient_system_resource": "overloaded",
    "network_error": "server_error",
    "abort": "server_error",
    "error": "provider_error",
}


@dataclass(slots=True)
class ChatAccumulator:
    """Collects one answer.

    Args:
        stored: whether the server keeps the completion; then its id is told (`Identified`)
            as soon as it is known.

    Guarantees: the response does not depend on how the answer was cut into chunks.
    """

    stored: bool = False
    _text: JoinedText = field(default_factory=JoinedText)
    _refusal: JoinedText = field(default_factory=JoinedText)
    _reasoning: dict[str, JoinedText] = field(default_factory=dict)
    _details: ReasoningDetails = field(default_factory=ReasoningDetails)
    _extra: Any = None
    _calls: CallCollector = field(default_factory=CallCollector)
    _finish: str = ""
    _usage: dict[str, int] = field(default_factory=dict)
    _ids: dict[str, str] = field(default_factory=dict)
    _answered: bool = False
    finished: bool = False

    def done(self) -> None:
        """`[DONE]` is this dialect's terminal marker."""
        self.finished = True

    def add_document(self, document: dict[str, Any]) -> list[Signal]:
        """Take one whole completion; return the pieces it brought. Raises ModelFailed."""
        return self.add(document)

    def add(self, chunk: dict[str, Any], event: str = "message") -> list[Signal]:
        """Take one chunk; return the pieces it brought.

        Raises:
            ModelFailed: the chunk is an error, or holds more than a response may.
        """
        error = error_of(chunk) or (chunk if event == "error" else None)
        if error is not None:
            raise from_error(error)
        signals = self._note(chunk)
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and not choice.get("index"):
                signals += self._choice(choice)
        return signals

    def response(self, request_id: str | None = None) -> Response:
        """The answer, once its terminal marker was seen.

        Raises:
            ModelFailed: there was no answer, or the server says it gave up.
        """
        if not self._answered:
            raise failed("empty_response", "expected an answer, got an end without one")
        if self._finish in _GAVE_UP:
            message = f"expected an answer, the server stopped with {self._finish!r}"
            raise failed(_GAVE_UP[self._finish], message)
        return Response(
            blocks=self._blocks(),
            calls=self._calls.declared(),
            stop=self._stop(),
            usage=dict(self._usage),
            provider_ids=provider_ids(self._ids, request_id),
        )

    def _note(self, chunk: dict[str, Any]) -> list[Signal]:
        known = self._ids.get("response_id")
        note_ids(self._ids, chunk)
        usage = chunk.get("usage") or within(chunk.get("x_groq"), "usage")
        if isinstance(usage, dict):  # counts are cumulative: the last chunk that has them is right
            self._usage |= _usage(usage)
        found = self._ids.get("response_id")
        return [Identified(found)] if self.stored and found and not known else []

    def _choice(self, choice: dict[str, Any]) -> list[Signal]:
        self._answered = True
        if error := choice.get("error"):
            raise from_error(error)
        finish = choice.get("finish_reason")
        if isinstance(finish, str) and finish and _STOPS.get(self._finish) not in CUT_STOPS:
            self._finish = finish.lower()
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            delta = choice.get("message")
        return self._delta(delta) if isinstance(delta, dict) else []

    def _delta(self, delta: dict[str, Any]) -> list[Signal]:
        signals: list[Signal] = []
        if thought := self._thinking(delta):
            signals.append(Thinking(thought))
        for joined, key in ((self._text, "content"), (self._refusal, "refusal")):
            if piece := joined.add(text_of(delta.get(key))):
                signals.append(Text(piece))
        self._extra = merged(self._extra, delta.get("extra_content"))
        entries = delta.get("tool_calls")
        for entry in entries if isinstance(entries, list) else ():
            if brought := self._calls.add(entry):
                signals.append(CallInput(brought.index, brought.text))
        return signals

    def _thinking(self, delta: dict[str, Any]) -> str:
        """The piece of reasoning to show; servers repeat it in up to three fields."""
        shown = ""
        for key in ("reasoning_content", "reasoning"):
            if text := text_of(delta.get(key)):
                piece = self._reasoning.setdefault(key, JoinedText()).add(text)
                shown = shown or piece
        detailed = self._details.add(delta.get("reasoning_details"))
        return shown or detailed

    def _blocks(self) -> tuple[Block, ...]:
        opaque = [(key, joined.text()) for key, joined in self._reasoning.items()]
        opaque.append(("reasoning_details", _json_text(self._details.items())))
        opaque.append(("extra_content", _json_text(self._extra)))
        opaque += [
            (f"tool_calls/{call.position}/extra_content", _json_text(call.extra))
            for call in self._calls.calls
        ]
        blocks = [Block("opaque", text, FORMAT_PREFIX + key) for key, text in opaque if text]
        texts = (
            Block("text", self._text.text()),
            Block("text", self._refusal.text(), f"{FORMAT_PREFIX}refusal"),
        )
        return (*blocks, *(block for block in texts if block.text))

    def _stop(self) -> Stop:
        if not self._finish:
            return Stop.UNKNOWN
        stop = _STOPS.get(self._finish, Stop.UNKNOWN)
        if stop is Stop.END and self._refusal.text():
            return Stop.REFUSAL
        if stop in (Stop.END, Stop.TOOL_CALLS):  # some servers say "stop" after calls
            return Stop.TOOL_CALLS if self._calls.calls else Stop.END
        # After a reason that nobody here knows calls count as cut: they may be.
        return Stop.LENGTH if stop is Stop.UNKNOWN and self._calls.calls else stop


def _json_text(value: Any) -> str:
    try:
        return wire_json(value, "provider material").decode() if value else ""
    except ValueRefused as e:
        raise failed("invalid_response", f"expected JSON values, got others ({e})") from None


def _usage(usage: dict[str, Any]) -> dict[str, int]:
    cached = within(usage.get("prompt_tokens_details"), "cached_tokens")
    named = {
        "input_tokens": usage.get("prompt_tokens"),
        "output_tokens": usage.get("completion_tokens"),
        "total_tokens": usage.get("total_tokens"),
        "cached_input_tokens": usage.get("prompt_cache_hit_tokens") if cached is None else cached,
        "reasoning_tokens": within(usage.get("completion_tokens_details"), "reasoning_tokens"),
    }
    return given_counts(named)

"""The calls of a chat answer, collected from pieces that servers cut in many ways.

Pure. Kept apart from the rest of the accumulator because which piece belongs to
which call is where servers differ most:

    OpenAI                 pieces by index; id and name in the first one only
    vLLM, Mistral          later pieces with `id: null`, `name: ""`, `arguments: null`
    xAI, Ollama, Groq      a whole call in one piece, some without an index
    Gemini's endpoint      several whole calls, all of them with index 0 and id ""

A call's identity is its position here. What the provider calls it is kept beside.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from adapters.answer_facts import check_number_of_calls
from adapters.joined_text import JoinedText
from adapters.openai_chat_text import merged
from domain.model_ports import CallInput, DeclaredCall
from projections.wire_text import scrub, wire_json


@dataclass(slots=True)
class PartialCall:
    """A call so far. `extra` is provider material that belongs to this call."""

    position: int
    id: str = ""
    name: str = ""
    arguments: JoinedText = field(default_factory=JoinedText)
    extra: Any = None

    def is_again(self, call_id: str, name: str, arguments: str) -> bool:
        """Whether a piece is the whole call once more: some servers end with a summary of it."""
        if not call_id or (call_id, name) != (self.id, self.name) or not arguments.lstrip().startswith("{"):
            return False
        return arguments == self.arguments.text() and self.is_whole()

    def is_whole(self) -> bool:
        """Whether the arguments are a complete object, so that nothing can follow."""
        if not self.arguments.ends_with("}"):  # asked for each piece where a server repeats the name
            return False
        try:
            return isinstance(orjson.loads(scrub(self.arguments.text())), dict)
        except orjson.JSONDecodeError:
            return False


@dataclass(slots=True)
class CallCollector:
    """Puts the pieces of calls together."""

    calls: list[PartialCall] = field(default_factory=list)
    _by_index: dict[int, PartialCall] = field(default_factory=dict)

    def add(self, entry: Any) -> CallInput | None:
        """Take one element of `tool_calls`; return the argument text it brought, if any.

        Raises:
            ModelFailed: more calls than a response may have.
        """
        if not isinstance(entry, dict):
            return None
        function = entry.get("function")
        named = function if isinstance(function, dict) else {}
        call_id, name = _text(entry.get("id")), _text(named.get("name"))
        arguments = _raw(named.get("arguments"))
        call = self._call(entry.get("index"), call_id, name, arguments)
        if call.is_again(call_id, name, arguments):
            return None
        call.id, call.name = call.id or call_id, call.name or name
        call.extra = merged(call.extra, entry.get("extra_content"))
        piece = call.arguments.add(arguments)
        return CallInput(call.position, piece) if piece else None

    def declared(self) -> tuple[DeclaredCall, ...]:
        """The calls in the order in which they began."""
        return tuple(DeclaredCall(call.id, call.name, call.arguments.text()) for call in self.calls)

    def _call(self, index: Any, call_id: str, name: str, arguments: str) -> PartialCall:
        """The call that a piece belongs to: a known one, or a new one."""
        if type(index) is not int:
            return self.calls[-1] if self.calls and not name else self._new()
        known = self._by_index.get(index)
        if known is None or _starts_another(known, call_id, name, arguments):
            known = self._by_index[index] = self._new()
        return known

    def _new(self) -> PartialCall:
        check_number_of_calls(len(self.calls) + 1)
        call = PartialCall(len(self.calls))
        self.calls.append(call)
        return call


def _starts_another(known: PartialCall, call_id: str, name: str, arguments: str) -> bool:
    """Whether a piece at a used index is the beginning of a further call.

    A name is needed, because some servers give every piece an id of its own.
    """
    if not name or known.is_again(call_id, name, arguments):
        return False
    other_id = bool(call_id and known.id and call_id != known.id)
    return other_id or (arguments.lstrip().startswith("{") and known.is_whole())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _raw(arguments: Any) -> str:
    """Argument text; some servers send the object itself."""
    if isinstance(arguments, dict):
        return wire_json(arguments, "arguments").decode()
    return _text(arguments)

"""A model provider that does as it is told, for tests of sessions and for demos.

It speaks the OpenAI chat dialect's bytes (the encoder is the adapter's own) and
opens no socket. One script entry is one attempt: a list of pieces, gates and an
end. Must never import an adapter or an SDK.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import orjson

from domain.errors import ModelFailed
from domain.model_ports import (
    EVERYTHING,
    Block,
    CallInput,
    Capabilities,
    DeclaredCall,
    Identified,
    Parameters,
    Response,
    Signal,
    Text,
    Thinking,
    ToolSpec,
)
from domain.values import Stop
from projections.openai_chat_wire import API, encode_item, request_body
from projections.transcript import Item


class Gate:
    """A place in a script where the provider waits until the test lets it go on."""

    def __init__(self) -> None:
        self._reached, self._opened = anyio.Event(), anyio.Event()

    async def reached(self) -> None:
        """Return once the provider stands at the gate."""
        await self._reached.wait()

    def open(self) -> None:
        """Let the provider pass, now or when it comes."""
        self._opened.set()

    async def pass_through(self) -> None:
        """What the provider does here."""
        self._reached.set()
        await self._opened.wait()


#: What an attempt does, in order. A `Response` or a failure ends it.
Step = Text | Thinking | CallInput | Identified | Response | ModelFailed | Gate
Attempt = Sequence[Step]


@dataclass(frozen=True, slots=True)
class Sent:
    """One request that the provider got: its position in the script, its bytes."""

    number: int
    attempt_id: str
    body: bytes

    @property
    def parsed(self) -> dict[str, Any]:
        """The body as plain values."""
        parsed: dict[str, Any] = orjson.loads(self.body)
        return parsed

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The body's messages."""
        messages: list[dict[str, Any]] = self.parsed["messages"]
        return messages


#: Attempts in order, by attempt id, or chosen by looking at the request.
Script = Iterable[Attempt] | Mapping[str, Attempt] | Callable[[Sent], Attempt]


@dataclass(slots=True)
class Counts:
    """What a scripted provider was asked for so far."""

    encoded: int = 0
    bodies: int = 0
    started: int = 0
    finished: int = 0
    cancelled: int = 0


@dataclass(slots=True, eq=False)
class ScriptedProvider:
    """A `ModelProvider` that plays a script.

    Args:
        script: attempts in order, or by attempt id (a process that starts again
            finds its place), or a function from the request to the attempt.

    Guarantees: `sent` holds every request in order; an attempt beyond the script
    fails with kind `script_exhausted`, not retryable; nothing was sent.
    """

    script: Script
    provider: str = "scripted"
    api: str = API
    capabilities: Capabilities = EVERYTHING
    sent: list[Sent] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    closed: bool = False
    _choose: Callable[[Sent], Attempt | None] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._choose = _chooser(self.script)

    def encode(self, item: Item) -> bytes:
        """One transcript item in the OpenAI chat dialect."""
        self.counts.encoded += 1
        return encode_item(item, self.provider)

    def body(self, items: Sequence[bytes], tools: Sequence[ToolSpec], parameters: Parameters) -> bytes:
        """A request body in the OpenAI chat dialect."""
        self.counts.bodies += 1
        return request_body(items, tools, parameters)

    async def send(self, body: bytes, *, attempt_id: str) -> AsyncIterator[Signal]:
        """Play the next attempt.

        Raises:
            ModelFailed: the script says so, or it has no such attempt.
        """
        request = Sent(len(self.sent), attempt_id, body)
        self.sent.append(request)
        attempt = self._choose(request)
        if attempt is None:
            raise _exhausted(request)
        self.counts.started += 1
        ended = False
        try:
            for step in attempt:
                if isinstance(step, Gate):
                    await step.pass_through()
                    continue
                if isinstance(step, ModelFailed):
                    ended = True
                    raise step.with_traceback(None)
                ended = isinstance(step, Response)
                yield step
        finally:
            self.counts.finished += ended
            self.counts.cancelled += not ended

    async def aclose(self) -> None:
        """Remember that it was closed."""
        self.closed = True


def reply(
    text: str = "",
    *calls: DeclaredCall,
    stop: Stop | None = None,
    thinking: str = "",
    usage: Mapping[str, int] | None = None,
    pieces: int = 1,
) -> Attempt:
    """An attempt that answers with `text`, then asks for `calls`.

    Args:
        stop: None takes what fits: `tool_calls` with calls, otherwise `end`.
        pieces: into how many pieces the text is cut for the live stream.
    """
    response = Response(
        blocks=(Block("text", text),) if text else (),
        calls=calls,
        stop=stop or (Stop.TOOL_CALLS if calls else Stop.END),
        usage=dict(usage or {}),
        provider_ids={"model": "scripted"},
    )
    return [*([Thinking(thinking)] if thinking else []), *_pieces(text, pieces), *_inputs(calls), response]


def call(name: str, arguments: Mapping[str, Any] | str | None = None, call_id: str = "") -> DeclaredCall:
    """A declared call; `arguments` as values, or as raw text to be taken as it is."""
    raw = arguments if isinstance(arguments, str) else orjson.dumps(dict(arguments or {})).decode()
    return DeclaredCall(call_id, name, raw)


def fail(
    kind: str = "overloaded",
    *,
    retryable: bool = True,
    retry_after_s: float | None = None,
    after: Sequence[Step] = (),
) -> Attempt:
    """An attempt that ends with `ModelFailed`, after the given steps.

    Args:
        retry_after_s: how long the provider asks to wait; 0 spares a test the usual wait.
    """
    return [*after, ModelFailed(kind, "scripted failure", retryable=retryable, retry_after_s=retry_after_s)]


def _chooser(script: Script) -> Callable[[Sent], Attempt | None]:
    if callable(script):
        return script
    if isinstance(script, Mapping):
        by_id = dict(script)
        return lambda request: by_id.get(request.attempt_id)
    in_order = dict(enumerate(script))
    return lambda request: in_order.get(request.number)


def _pieces(text: str, count: int) -> list[Step]:
    size = max(1, -(-len(text) // max(1, count)))
    return [Text(text[i : i + size]) for i in range(0, len(text), size)]


def _inputs(calls: Sequence[DeclaredCall]) -> list[Step]:
    return [CallInput(i, declared.arguments) for i, declared in enumerate(calls) if declared.arguments]


def _exhausted(request: Sent) -> ModelFailed:
    return ModelFailed(
        "script_exhausted",
        f"the script has no attempt {request.number} ({request.attempt_id}); give it one more",
        bytes_sent=False,
    )

"""A model provider that repeats what a journal holds. It opens no socket.

Attempts are found by their identity, never by what was asked: two equal questions
keep their two answers. Must never import an adapter or an SDK.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from domain.errors import ModelFailed, ReplayMiss
from domain.model_ports import (
    EVERYTHING,
    CallInput,
    Capabilities,
    Parameters,
    Response,
    Signal,
    Text,
    ToolSpec,
)
from projections.openai_chat_wire import API, encode_item, request_body
from projections.transcript import Item


@dataclass(slots=True, eq=False)
class ReplayProvider:
    """A `ModelProvider` over recorded attempts.

    Args:
        attempts: how each attempt ended, by attempt id.

    Guarantees: the live pieces of a response are its blocks and arguments, whole;
    the same attempt gives the same answer as often as it is asked for.
    """

    attempts: Mapping[str, Response | ModelFailed]
    provider: str = "replay"
    api: str = API
    capabilities: Capabilities = EVERYTHING
    asked: list[str] = field(default_factory=list)

    def encode(self, item: Item) -> bytes:
        """One transcript item in the OpenAI chat dialect."""
        return encode_item(item, self.provider)

    def body(self, items: Sequence[bytes], tools: Sequence[ToolSpec], parameters: Parameters) -> bytes:
        """A request body in the OpenAI chat dialect. Nobody reads it."""
        return request_body(items, tools, parameters)

    async def send(self, body: bytes, *, attempt_id: str) -> AsyncIterator[Signal]:
        """Repeat the attempt.

        Raises:
            ReplayMiss: the recording holds no such attempt. Record it with a real provider.
            ModelFailed: the recorded attempt failed like this.
        """
        self.asked.append(attempt_id)
        recorded = self.attempts.get(attempt_id)
        if recorded is None:
            raise ReplayMiss(attempt_id)
        if isinstance(recorded, ModelFailed):
            raise recorded.with_traceback(None)
        for signal in _pieces(recorded):
            yield signal
        yield recorded

    async def aclose(self) -> None:
        """Nothing is open."""


def _pieces(response: Response) -> list[Signal]:
    texts: list[Signal] = [Text(block.text) for block in response.blocks if block.kind == "text"]
    return texts + [CallInput(i, call.arguments) for i, call in enumerate(response.calls) if call.arguments]

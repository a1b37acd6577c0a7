"""Running one model attempt to its end, whatever the end is."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from domain.errors import ModelFailed
from domain.model_ports import CallInput, ModelProvider, Response, Signal, Text, Thinking


@dataclass(frozen=True, slots=True)
class Attempted:
    """What an attempt gave: live pieces, then a response or a failure, never both."""

    pieces: tuple[Signal, ...]
    response: Response | None
    failure: ModelFailed | None

    @property
    def text(self) -> str:
        """The visible text of the live pieces."""
        return "".join(piece.text for piece in self.pieces if isinstance(piece, Text))

    @property
    def thinking(self) -> str:
        """The reasoning of the live pieces."""
        return "".join(piece.text for piece in self.pieces if isinstance(piece, Thinking))

    @property
    def inputs(self) -> dict[int, str]:
        """The argument text of the live pieces, by the position of the call."""
        inputs: dict[int, str] = {}
        for piece in self.pieces:
            if isinstance(piece, CallInput):
                inputs[piece.index] = inputs.get(piece.index, "") + piece.text
        return inputs


async def attempt(provider: ModelProvider, body: bytes = b"{}", *, attempt_id: str = "r1.t1.a1") -> Attempted:
    """Send one request and collect everything until it ends.

    Raises:
        AssertionError: the provider broke the port's promise: something came after
            the response, or the attempt ended without one.
    """
    pieces: list[Signal] = []
    try:
        # The port promises an iterator; every adapter's is a generator, which can be closed.
        async with aclosing(cast(Any, provider.send(body, attempt_id=attempt_id))) as signals:
            async for signal in signals:
                pieces.append(signal)
    except ModelFailed as failure:
        assert not _responses(pieces), "a response came, and then a failure"
        return Attempted(tuple(pieces), None, failure)
    assert _responses(pieces) == pieces[-1:], "the response is not the last and only one"
    return Attempted(tuple(pieces[:-1]), cast(Response, pieces[-1]), None)


def _responses(pieces: list[Signal]) -> list[Signal]:
    return [piece for piece in pieces if isinstance(piece, Response)]

"""What a model provider is given and what it gives: its port, and the values that pass through it.

Adapters and the offline providers of `minutebook.testing` implement it. A response
exists only whole; everything less is a `ModelFailed`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

from domain.values import ThinkingSettings


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of visible model text."""

    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """A piece of the model's visible reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class CallInput:
    """A piece of the raw argument text of the call at `index`."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Identified:
    """The provider's own id of the response that is under way; shown to nobody.

    Yielded only where the provider can be asked for a response by that id later.
    """

    response_id: str


@dataclass(frozen=True, slots=True)
class DeclaredCall:
    """A call the model asked for. `arguments` is the raw text as received."""

    provider_call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a response, as the strings that were accumulated.

    kind "text" (`text` is the content) or "opaque": provider material that goes
    back unchanged within its own dialect (`format` names it, `text` is the string).
    """

    kind: str
    text: str
    format: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """A finished model response. It exists only with the dialect's terminal marker.

    stop: a value of `domain.values.Stop`; usage: token counts by name
    (input_tokens, output_tokens, total_tokens, cached_input_tokens, reasoning_tokens),
    those the provider gave; provider_ids: e.g. response_id, request_id, model.
    """

    blocks: tuple[Block, ...]
    calls: tuple[DeclaredCall, ...]
    stop: str
    usage: dict[str, int] = field(default_factory=dict)
    provider_ids: dict[str, str] = field(default_factory=dict)


#: What an attempt yields: any number of pieces, then exactly one Response.
Signal = Text | Thinking | CallInput | Identified | Response


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it. `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a request body says besides the messages. None: left out.

    output_schema: a JSON Schema object that the final text has to match; only for a
    provider whose `capabilities.structured_output` is True.
    attempt_key: `session/attempt`, for bodies by which a lost attempt can be found again.
    """

    model: str
    system_prompt: str | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    thinking: ThinkingSettings | None = None
    output_schema: dict[str, Any] | None = None
    attempt_key: str = ""


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """How much of images and files a provider takes. ADR 0061 names the sources of the numbers.

    The defaults are what every hosted API takes. A single part beyond them is refused when
    it is sent; what a conversation gathers beyond them is left out, the oldest first.

    Args:
        count: images and files in one request; with more than 20 images Anthropic takes
            none whose edge is longer than 2000 pixels.
        request_bytes: of all of them, before base64 (which adds a third).
        image_bytes, file_bytes: of one, before base64.
        image_edge: pixels of an image's longer edge.
    """

    count: int = 20
    request_bytes: int = 14_000_000
    image_bytes: int = 3_932_160
    file_bytes: int = 10_000_000
    image_edge: int = 8000


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a provider's API has, as far as a session has to know before it sends.

    Args:
        structured_output: answers forced into a JSON Schema.
        thinking: reasoning that can be asked for.
        images, files: which parts of an input besides text it takes.
        media: how much of these.
    """

    structured_output: bool = False
    thinking: bool = False
    images: bool = False
    files: bool = False
    media: MediaLimits = MediaLimits()


#: What the offline providers say: nothing is refused in tests.
EVERYTHING: Final = Capabilities(structured_output=True, thinking=True, images=True, files=True)


class ModelProvider(Protocol):
    """A model behind one dialect. One HTTP send per `send`; no retries of its own.

    `provider` and `api` are recorded with every attempt, e.g. "openai-compatible"
    and "openai-chat".
    """

    provider: str
    api: str
    capabilities: Capabilities

    def encode(self, item: Any) -> bytes:
        """One transcript item (`projections.transcript.Item`) in this dialect's wire
        form: JSON array elements joined by commas, possibly none. Depends on the
        item alone, so that each is encoded once however long the session gets."""

    def body(self, items: Sequence[bytes], tools: Sequence[ToolSpec], parameters: Parameters) -> bytes:
        """The whole request body from items already encoded."""

    def send(self, body: bytes, *, attempt_id: str) -> AsyncIterator[Signal]:
        """Send one request and yield what comes back, the `Response` last.

        Raises:
            ModelFailed: the attempt ended without a usable response.
        """

    async def aclose(self) -> None:
        """Release connections."""


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """A model attempt whose end nobody recorded, as a provider can be asked about it.

    Args:
        provider, api: whom it was sent to, as recorded with it.
        response_id: the provider's id of the response, if it was recorded.
        attempt_key: `session/attempt`, if it was sent to a server that keeps it.
    """

    provider: str
    api: str
    response_id: str | None = None
    attempt_key: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What a provider says about a lost attempt.

    Args:
        outcome: completed (with its `response`), failed (`message` says why), cancelled
            (the server gave it up: there is no response and none will come), running,
            or unknown.
        evidence: who was asked for what and what it said, in a sentence; no secrets.
    """

    outcome: str
    evidence: str
    response: Response | None = None
    message: str = ""


@runtime_checkable
class RunsTools(Protocol):
    """What a provider has beside `ModelProvider` if tools may run at the server.

    `runs_tools`: some are enabled in every request of it. An attempt that was lost may
    then have acted, so nobody repeats it without being told to.
    """

    runs_tools: bool


@runtime_checkable
class AttemptLookup(Protocol):
    """What a provider has beside `ModelProvider` if it can be asked about a lost attempt.

    `sends_attempt_key`: its bodies carry `Parameters.attempt_key` and the server can be
    asked by it, so that an attempt is found even if no byte of its response came.
    """

    sends_attempt_key: bool

    def finds(self, lost: LostAttempt) -> bool:
        """Whether there is anything to ask by. Asks nobody."""

    async def look_up(self, lost: LostAttempt) -> Found:
        """Ask, and change nothing there. A failure to ask is the outcome unknown."""

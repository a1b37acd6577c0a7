"""What the library needs from the world, as protocols. Adapters implement them.

Kept by contract suites in `minutebook.testing`, run over every implementation.
All methods may be cancelled; a cancelled `commit` is settled by its command.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol, runtime_checkable

from domain.envelope import Fence, Stored
from domain.values import ThinkingSettings

# --- the journal ----------------------------------------------------------------


class CommitStatus(StrEnum):
    """How a commit came to be in the journal."""

    COMMITTED = "committed"
    REPLAYED = "replayed"  # the same command was there already
    RECONCILED = "reconciled"  # found there after its outcome had been unknown


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that a command's events are durable: sequences inclusive, `head` after the last."""

    status: CommitStatus
    first_sequence: int
    last_sequence: int
    head: bytes


@dataclass(frozen=True, slots=True)
class Blob:
    """Content-addressed bytes; `digest` is SHA-256 in hex."""

    digest: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Control state at `sequence`, written in the commit that crossed the boundary."""

    session_id: str
    sequence: int
    version: int
    head: bytes
    state: bytes


@dataclass(frozen=True, slots=True)
class Listing:
    """What a listing of sessions shows; a hint, the journal decides.

    status: none, open, closed; next_action: headline of the plan at the head.
    """

    status: str
    next_action: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything one commit writes, already stamped and encoded.

    Args:
        command_id: unique in the session; every event of the batch carries it.
        fingerprint: SHA-256 over the command's kind and arguments (32 bytes).
        events: 1 to `MAX_EVENTS_PER_COMMIT` rows, contiguous from `expected_sequence + 1`.
        expected_sequence, expected_head: where the session has to stand.
        owner_id: the session's owner, written with the first event.
        blobs: written (if absent) before the events, in the same transaction or an earlier one.
    """

    session_id: str
    command_id: str
    fingerprint: bytes
    events: tuple[Stored, ...]
    expected_sequence: int
    expected_head: bytes
    owner_id: str
    listing: Listing
    fence: Fence | None = None
    snapshot: Snapshot | None = None
    blobs: tuple[Blob, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A session's lease as the store knows it. Times are the store's clock, aware UTC.

    `host` fields name the process that holds it, so that a dead one on the same
    host can be told from a slow one elsewhere.
    """

    token: int
    lease_id: str | None
    holder_id: str
    acquired_at: datetime
    renewed_at: datetime
    expires_at: datetime
    boot_id: str | None = None
    process_id: int | None = None
    process_started: str | None = None


@dataclass(frozen=True, slots=True)
class SessionRow:
    """The row beside a session's events. `sequence`/`head` always equal the last event's."""

    session_id: str
    owner_id: str
    sequence: int
    head: bytes
    created_at: datetime
    updated_at: datetime
    listing: Listing
    lease: LeaseRow | None = None


class JournalReader(Protocol):
    """Reading a journal. Never writes; pages; never holds the whole journal."""

    @property
    def name(self) -> str:
        """What to call this store in a message (no credentials)."""

    async def session(self, session_id: str) -> SessionRow | None:
        """One session's row, or None (also where it belongs to another owner)."""

    async def sessions(self, *, after: str = "", limit: int = 100) -> Sequence[SessionRow]:
        """Session rows by id, those after `after`."""

    async def read(
        self, session_id: str, *, after: int = 0, upto: int | None = None, limit: int = 256
    ) -> Sequence[Stored]:
        """Rows with `after < sequence <= upto`, in order, at most `limit`."""

    async def snapshot(self, session_id: str, *, upto: int | None = None) -> Snapshot | None:
        """The latest snapshot at or before `upto`."""

    async def blob(self, digest: str) -> bytes | None:
        """A blob's bytes, or None."""

    async def command(self, session_id: str, command_id: str) -> tuple[bytes, Receipt] | None:
        """The fingerprint and receipt of a command that is in the journal, or None."""

    async def commands(
        self, session_id: str, command_ids: Sequence[str]
    ) -> Mapping[str, tuple[bytes, Receipt]]:
        """What `command` gives, for a page's worth of commands at once; those that are there."""


class Journal(JournalReader, Protocol):
    """The append-only journal."""

    async def commit(self, batch: Batch) -> Receipt:
        """Append a batch, all of it or nothing.

        In one transaction: the command is looked up first (same fingerprint:
        `replayed`; other: CommandConflict), then the fence is checked, then the
        head is compared, then everything is written.

        Raises:
            CommandConflict, HeadConflict, LeaseLost, LeaseRequired: nothing written.
            StoreTimeout, StoreWriteFailed: nothing written.
            OutcomeUnknown: it may be there. The session is refused by this store
                until `settle` says which.
        """

    async def settle(self, batch: Batch) -> Receipt | None:
        """Decide an unknown outcome by contending for the command on a new connection.

        Returns the receipt (`reconciled`) if the batch is there, None if it is
        not and cannot come any more; either way the session takes events again.

        Raises:
            OutcomeUnknown: still undecided.
        """

    def subscribe(self, session_id: str, *, after: int = 0) -> AsyncIterator[Stored]:
        """Rows after `after`, from the store first, then as they are committed by
        any process; strictly in order, no hole, none dropped. Ends when closed."""

    @property
    def leases(self) -> LeaseStore:
        """The leases of this journal's sessions."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who asks for a lease. `lease_id` is random per run; the host fields are optional."""

    worker_id: str
    lease_id: str
    boot_id: str | None = None
    process_id: int | None = None
    process_started: str | None = None


class LeaseStore(Protocol):
    """Leases: each call is one statement or one transaction of the store."""

    async def acquire(self, session_id: str, holder: Holder, ttl_ms: int) -> LeaseRow:
        """Take a session's lease; the session need not exist yet.

        Another live holder: LeaseConflict. A holder on this host that is provably
        dead, or one whose lease ran out by the store's clock: taken over with
        token + 1. Same worker and lease id: the same token again, renewed.
        """

    async def renew(self, session_id: str, fence: Fence, ttl_ms: int) -> LeaseRow:
        """Extend a live lease. Raises LeaseLost."""

    async def validate(self, session_id: str, fence: Fence) -> LeaseRow:
        """Return the row if the fence is the live lease. Raises LeaseLost."""

    async def release(self, session_id: str, fence: Fence) -> None:
        """Give the lease back; the token stays. Not ours any more: nothing happens."""


class StoreDescription(Protocol):
    """What `mb.sqlite(path)` and `mb.memory()` return: where a journal is, not an open one."""

    @property
    def durable(self) -> bool:
        """Whether the journal outlives the process."""

    def open(self, *, owner_id: str = "local") -> AbstractAsyncContextManager[Journal]:
        """Open the journal (making it if it does not exist) for one owner."""


# --- models -----------------------------------------------------------------------


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


# --- the rest of the world ------------------------------------------------------------


class Clock(Protocol):
    """Wall time for the journal, a monotonic clock for waiting."""

    def now(self) -> datetime:
        """Aware UTC."""

    def monotonic(self) -> float:
        """Seconds, never going back."""


class Timer(Clock, Protocol):
    """A clock that can be waited for; what a running session goes by."""

    async def sleep_until(self, moment: float) -> None:
        """Return once `monotonic` has reached `moment`; at once if it has."""


class IdSource(Protocol):
    """Randomness: ids and salts."""

    def new(self, prefix: str) -> str:
        """A new id, unique for all practical purposes: `prefix-` and 20 characters."""

    def salt(self) -> bytes:
        """`SALT_BYTES` random bytes."""


class Probe(Protocol):
    """Named points a test may act on (kill, fail, wait). A no-op in production."""

    def __call__(self, point: str) -> None:
        """Called at `point`: before_commit, after_commit, before_emit, after_emit,
        before_effect, after_effect, before_send, mid_stream."""

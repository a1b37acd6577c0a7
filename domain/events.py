"""The payload of every event type that this version writes and reads.

One frozen class per type. The docstring says what the event states; the events
reference in `docs/` is made from it. A field's default is part of the version:
it is left out of the stored bytes.

Class arguments: `type` and `version` are the stored name, `aggregate` the kind
it belongs to, `scope` the ids it must carry (R request, T turn, A model attempt,
C call; lower case: may carry), in that order.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from domain.limits import MAX_RESPONSE_ID_CHARACTERS
from domain.values import (
    AggregateKind,
    BudgetLevel,
    Effective,
    Interrupt,
    PermissionMode,
    Priority,
    SideEffect,
    Stop,
    ToolKind,
    Verdict,
)

K = AggregateKind
#: The kinds of tokens that a price list may name.
BudgetKind = Literal["input", "cached_input", "cache_write", "output", "reasoning"]


class Payload(BaseModel):
    """An event's content."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: ClassVar[str]
    version: ClassVar[int]
    aggregate: ClassVar[AggregateKind]
    scope: ClassVar[str]

    def __init_subclass__(
        cls, *, type: str, aggregate: AggregateKind, scope: str = "", version: int = 1, **kw: Any
    ) -> None:
        super().__init_subclass__(**kw)
        cls.type, cls.version, cls.aggregate, cls.scope = type, version, aggregate, scope

    @classmethod
    def __pydantic_init_subclass__(cls, **kw: Any) -> None:
        """Pydantic's own hook; the class arguments were taken above."""

    def to_plain(self) -> dict[str, Any]:
        """The stored form: fields that differ from their defaults."""
        return self.model_dump(mode="python", exclude_defaults=True)


# --- session --------------------------------------------------------------------


class SessionCreated(Payload, type="session_created", aggregate=K.SESSION):
    """The session exists: who owns it, under which settings, with which tools."""

    owner_id: str
    settings: dict[str, Any]
    settings_digest: str
    tools: dict[str, str] = Field(default_factory=dict)
    tools_digest: str = ""


class SessionResumed(Payload, type="session_resumed", aggregate=K.SESSION):
    """Another worker opened the session, with these tools."""

    settings_digest: str
    tools: dict[str, str] = Field(default_factory=dict)
    tools_digest: str = ""


class SessionClosed(Payload, type="session_closed", aggregate=K.SESSION):
    """The session ended for good."""

    reason: str = "user"


class LeaseAcquired(Payload, type="lease_acquired", aggregate=K.SESSION):
    """The worker that the envelope names (with its lease and token) holds the session from here on;
    who held it before, and what became of that: given back, run out, or its process was dead."""

    ttl_ms: int = Field(ge=1)
    former_worker_id: str | None = None
    former_token: int | None = Field(default=None, ge=1)
    former_end: Literal["released", "ran_out", "died"] | None = None


class LeaseReleased(Payload, type="lease_released", aggregate=K.SESSION):
    """The holder gave the session back; nothing more is written under this lease."""

    reason: Literal["handoff", "closed"]


class HandoffCompleted(Payload, type="handoff_completed", aggregate=K.SESSION):
    """Everything of the session has stopped at its holder; the next one begins with `next_action`."""

    next_action: str


class SettingsChanged(Payload, type="settings_changed", aggregate=K.SESSION):
    """Settings without an event of their own changed."""

    values: dict[str, Any]
    effective: Effective = Effective.NEXT_REQUEST


class ModelChanged(Payload, type="model_changed", aggregate=K.SESSION):
    """Another model from now on, at this provider. No `provider`: the default one of the
    configuration; no `context_window`: it is not known."""

    model: str
    effective: Effective = Effective.NEXT_TURN
    provider: str | None = None
    context_window: int | None = Field(default=None, ge=1)


class ThinkingKept(BaseModel):
    """Reasoning that is asked for; without a field its choice is the model's."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    budget_tokens: int | None = Field(default=None, ge=1)
    effort: str | None = None


class ThinkingChanged(Payload, type="thinking_changed", aggregate=K.SESSION):
    """Other reasoning from now on. Nothing at all: none is asked for, and the model does what it does."""

    thinking: ThinkingKept | None = None
    effective: Effective = Effective.NEXT_TURN


class BudgetSet(Payload, type="budget_set", aggregate=K.SESSION):
    """What the whole session may spend, from now on; without a limit there is none. Money in
    millionths: `rates` are for a million tokens of each kind. `warn_at` in thousandths of a limit."""

    max_tokens: int | None = Field(default=None, ge=1)
    max_cost: int | None = Field(default=None, ge=1)
    rates: dict[BudgetKind, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    warn_at: int = Field(default=800, ge=1, le=1000)


class BudgetExceeded(Payload, type="budget_exceeded", aggregate=K.SESSION):
    """A share of a limit is used up: at level `limit` nothing more is asked of a model."""

    level: BudgetLevel
    limit: Literal["tokens", "cost"]
    tokens: int = Field(ge=0)
    cost: int = Field(default=0, ge=0)


class PermissionModeChanged(Payload, type="permission_mode_changed", aggregate=K.SESSION):
    """Another permission mode, at once: open decisions are evaluated again."""

    mode: PermissionMode


class MaxTurnsChanged(Payload, type="max_turns_changed", aggregate=K.SESSION):
    """Another default for the number of turns of a request."""

    max_turns: int = Field(ge=1)
    effective: Effective = Effective.NEXT_REQUEST


class DefaultContextChanged(Payload, type="default_context_changed", aggregate=K.SESSION):
    """The default context of tools was replaced."""

    context: dict[str, Any]
    effective: Effective = Effective.NEXT_REQUEST


class PermissionRuleSet(Payload, type="permission_rule_set", aggregate=K.SESSION):
    """A standing answer for a tool or a category; without a verdict it is removed."""

    rule_id: str
    scope_of: Literal["tool", "category"]
    name: str
    verdict: Verdict | None = None


class PermissionGranted(Payload, type="permission_granted", aggregate=K.SESSION):
    """Somebody allowed a tool or a category from now on."""

    grant_id: str
    scope_of: Literal["tool", "category"]
    name: str
    lifetime: Literal["session", "process", "forever"] = "session"
    expires_at: str | None = None


class PermissionGrantRevoked(Payload, type="permission_grant_revoked", aggregate=K.SESSION):
    """A grant counts no more; decisions are evaluated again."""

    grant_id: str
    reason: str = ""


class NoticeRecorded(Payload, type="notice_recorded", aggregate=K.SESSION, scope="rtac"):
    """Something that changes no state but belongs in the minutes (a late result, a fallback)."""

    kind: str
    message: str
    data: Any = None


# --- inputs ------------------------------------------------------------------------


class InputAccepted(Payload, type="input_accepted", aggregate=K.SESSION):
    """An input is in the queue and will not be lost. `ordinal` counts accepted inputs from 1."""

    input_id: str
    content: str | list[dict[str, Any]]
    priority: Priority
    ordinal: int = Field(ge=1)
    size_bytes: int = Field(ge=0)
    target_request_id: str | None = None
    downgraded_from: Priority | None = None
    max_turns: int | None = Field(default=None, ge=1)
    metadata: dict[str, Any] = Field(default_factory=dict)


class InputPreparationStarted(Payload, type="input_preparation_started", aggregate=K.SESSION, scope="R"):
    """Hooks or attachments of applied inputs are about to run."""

    input_ids: list[str]
    hooks: list[str] = Field(default_factory=list)
    attachments: list[str] = Field(default_factory=list)


class InputPrepared(Payload, type="input_prepared", aggregate=K.SESSION, scope="R"):
    """Applied inputs are ready for the model; `contents` holds only what preparation changed."""

    input_ids: list[str]
    contents: dict[str, Any] = Field(default_factory=dict)
    changes: list[dict[str, Any]] = Field(default_factory=list)
    evidence: str | None = None


class InputApplied(Payload, type="input_applied", aggregate=K.SESSION, scope="R"):
    """An input left the queue into its request; `turn` is the turn that will see it."""

    input_id: str
    priority: Priority
    turn: int = Field(ge=1)


class InputCancelled(Payload, type="input_cancelled", aggregate=K.SESSION):
    """An input left the queue without being applied."""

    input_id: str
    reason: str


# --- request -------------------------------------------------------------------------


class RequestAccepted(Payload, type="request_accepted", aggregate=K.REQUEST, scope="R"):
    """A pending input became a unit of work, with the settings it will run under; `supersedes`
    names the request that it takes over from."""

    input_id: str
    max_turns: int = Field(ge=1)
    model: str
    settings_digest: str
    context: dict[str, Any] = Field(default_factory=dict)
    supersedes: str | None = None


class RequestStarted(Payload, type="request_started", aggregate=K.REQUEST, scope="R"):
    """The request is running."""


class AbortRequested(Payload, type="abort_requested", aggregate=K.REQUEST, scope="R"):
    """Somebody asked to stop; nothing of this request starts any more."""

    reason: str = "user"


class RequestCompleted(Payload, type="request_completed", aggregate=K.REQUEST, scope="R"):
    """The request ended with a final response. `usage` sums its model attempts."""

    output: str
    usage: dict[str, int] = Field(default_factory=dict)
    evidence: str | None = None


class RequestFailed(Payload, type="request_failed", aggregate=K.REQUEST, scope="R"):
    """The request ended without a final response."""

    error_code: str
    message: str
    evidence: str | None = None


class RequestInterrupted(Payload, type="request_interrupted", aggregate=K.REQUEST, scope="R"):
    """The request was stopped."""

    reason: str
    by_input_id: str | None = None
    evidence: str | None = None


class RequestSuperseded(Payload, type="request_superseded", aggregate=K.REQUEST, scope="R"):
    """The request was rolled over into a new one, accepted in the same commit. The new one's own
    input stands for `replaced_input_ids`: they were applied, and no turn has seen them."""

    reason: str
    evidence: str | None = None
    by_request_id: str | None = None
    replaced_input_ids: list[str] = Field(default_factory=list)


# --- turn --------------------------------------------------------------------------------


class TurnStarted(Payload, type="turn_started", aggregate=K.TURN, scope="RT"):
    """One model call with its tools begins, under these settings."""

    number: int = Field(ge=1)
    settings_digest: str


class TurnCompleted(Payload, type="turn_completed", aggregate=K.TURN, scope="RT"):
    """Every call of the turn's response has ended. Neither flag: the response is final."""

    has_tool_calls: bool
    continues: bool = False


class TurnAborted(Payload, type="turn_aborted", aggregate=K.TURN, scope="RT"):
    """The turn ended early."""

    reason: Literal["steering", "error", "abort", "abandoned", "superseded"]
    by_input_id: str | None = None


# --- model attempt -----------------------------------------------------------------------------


class ModelRequestStarted(Payload, type="model_request_started", aggregate=K.MODEL_ATTEMPT, scope="rtA"):
    """A request is about to go out. `request_digest` is SHA-256 over the digests of its parts;
    `attempt_key` goes with it where the server keeps the response and can be asked for it by that."""

    purpose: Literal["turn", "compaction"] = "turn"
    number: int = Field(ge=1)
    provider: str
    api: str
    model: str
    streaming: bool = True
    request_digest: str
    request_bytes: int = Field(ge=0)
    tools_digest: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)
    provider_run_tools: bool = False
    attempt_key: str | None = None


class ModelResponseIdentified(
    Payload, type="model_response_identified", aggregate=K.MODEL_ATTEMPT, scope="rtA"
):
    """The provider told its id of the response that is under way. If the attempt is lost, the
    provider can be asked for the response by it. Not every attempt has one: nothing waits for it."""

    response_id: str = Field(min_length=1, max_length=MAX_RESPONSE_ID_CHARACTERS)


class CallDeclared(BaseModel):
    """A call as the model declared it. `arguments` is the raw text."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    provider_call_id: str
    name: str
    arguments: str


class BlockKept(BaseModel):
    """One block of a response, as accumulated strings (see `domain.model_ports.Block`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["text", "opaque"]
    text: str
    format: str = ""


class ResponseKept(BaseModel):
    """A finished response."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    blocks: list[BlockKept] = Field(default_factory=list)
    calls: list[CallDeclared] = Field(default_factory=list)
    stop: Stop
    usage: dict[str, int] = Field(default_factory=dict)
    provider_ids: dict[str, str] = Field(default_factory=dict)


class ModelRequestCompleted(Payload, type="model_request_completed", aggregate=K.MODEL_ATTEMPT, scope="rtA"):
    """The response arrived whole, with its terminal marker."""

    response: ResponseKept


class ModelRequestFailed(Payload, type="model_request_failed", aggregate=K.MODEL_ATTEMPT, scope="rtA"):
    """The attempt ended without a usable response. It may have been billed if `bytes_sent`."""

    error_code: str
    message: str
    retryable: bool
    bytes_sent: bool = True
    retry_after_s: float | None = None
    received_digest: str | None = None


class ModelRequestAborted(Payload, type="model_request_aborted", aggregate=K.MODEL_ATTEMPT, scope="rtA"):
    """We stopped listening. The provider may have gone on, and billed it."""

    reason: Literal["abort", "steering", "detached", "handoff", "error", "abandoned", "superseded"]


class ModelOutcomeReconciled(
    Payload, type="model_outcome_reconciled", aggregate=K.MODEL_ATTEMPT, scope="rtA"
):
    """Somebody said what became of an attempt whose end nobody recorded."""

    outcome: Literal["completed", "failed", "lost"]
    response: ResponseKept | None = None
    message: str = ""
    evidence: str


# --- tool ------------------------------------------------------------------------------------------


class ToolScheduled(Payload, type="tool_scheduled", aggregate=K.TOOL, scope="RTAC"):
    """A declared call will be carried out. `input` is the parsed argument text; that text itself
    is in the response, `arguments_digest` is its SHA-256 (hex)."""

    index: int = Field(ge=0)
    provider_call_id: str
    name: str
    arguments_digest: str
    input: dict[str, Any]
    input_digest: str
    side_effect: SideEffect
    kind: ToolKind
    interrupt: Interrupt
    category: str | None = None
    destructive: bool = False
    tool_digest: str


class ToolRejected(Payload, type="tool_rejected", aggregate=K.TOOL, scope="RTAC"):
    """A declared call never starts; the model sees why."""

    index: int = Field(ge=0)
    provider_call_id: str
    name: str
    reason: Literal[
        "unknown_tool", "tool_unavailable", "malformed", "invalid", "truncated", "interrupted", "policy"
    ]
    message: str


class ToolStarted(Payload, type="tool_started", aggregate=K.TOOL, scope="RTAC"):
    """The tool's code is about to run. `input` only where it is not the scheduled one."""

    run: int = Field(ge=1)
    segment: int = Field(default=0, ge=0)
    input: dict[str, Any] | None = None
    input_digest: str
    side_effect: SideEffect
    narrowed_because: str | None = None
    idempotency_key: str


class ToolCompleted(Payload, type="tool_completed", aggregate=K.TOOL, scope="RTAC"):
    """The tool succeeded. `output` is what the model is told; `value` is the result as kept,
    where that is not the output itself; `kept` says how much of it is there (whole, blob, cut,
    placeholder)."""

    output: str
    value: Any = None
    kept: Literal["whole", "blob", "cut", "placeholder"] = "whole"
    display: Any = None
    messages: list[Any] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    blobs: list[str] = Field(default_factory=list)
    raw_digest: str = ""
    original_bytes: int = Field(default=0, ge=0)


class ToolFailed(Payload, type="tool_failed", aggregate=K.TOOL, scope="RTAC"):
    """The tool failed, for certain."""

    error_type: str
    message: str


class ToolCancelled(Payload, type="tool_cancelled", aggregate=K.TOOL, scope="RTAC"):
    """The call ended without a result: it was not started, or it was told to stop and did."""

    reason: str


class ToolOutcomeUnknown(Payload, type="tool_outcome_unknown", aggregate=K.TOOL, scope="RTAC"):
    """The tool was started and nobody knows what it did."""

    reason: str


class ToolSuspended(Payload, type="tool_suspended", aggregate=K.TOOL, scope="RTAC"):
    """The tool waits for an answer from outside."""

    payload: Any = None
    resume_schema: dict[str, Any] = Field(default_factory=dict)


class ToolResumed(Payload, type="tool_resumed", aggregate=K.TOOL, scope="RTAC"):
    """The answer arrived; the next segment may start."""

    answer: Any = None


class ToolOutcomeReconciled(Payload, type="tool_outcome_reconciled", aggregate=K.TOOL, scope="RTAC"):
    """Somebody said what became of a call, within its turn or after its request ended."""

    outcome: Literal["completed", "failed", "cancelled", "suspended"]
    output: str = ""
    value: Any = None
    evidence: str


# --- permission ------------------------------------------------------------------------------------


class PermissionEvaluated(Payload, type="permission_evaluated", aggregate=K.PERMISSION, scope="RTAC"):
    """The policy's verdict on one call with one input. `explanation` is for people."""

    verdict: Verdict
    source: Literal["rule", "grant", "mode", "hook", "handler", "path", "tool", "person", "default"]
    rule_id: str | None = None
    policy_digest: str
    input_digest: str
    explanation: list[str] = Field(default_factory=list)


class PermissionRequested(Payload, type="permission_requested", aggregate=K.PERMISSION, scope="RTAC"):
    """A person has to decide."""

    permission_id: str
    summary: str
    input_digest: str
    expires_at: str | None = None


class PermissionResolved(Payload, type="permission_resolved", aggregate=K.PERMISSION, scope="RTAC"):
    """A person decided, about exactly this input; `updated_input` replaces it."""

    permission_id: str
    verdict: Literal["allow", "deny"]
    input_digest: str
    updated_input: dict[str, Any] | None = None
    updated_digest: str | None = None
    message: str = ""


class PermissionCancelled(Payload, type="permission_cancelled", aggregate=K.PERMISSION, scope="RTAC"):
    """The question is closed without an answer."""

    permission_id: str
    reason: str


# --- compaction --------------------------------------------------------------------------------------


class CompactionStarted(Payload, type="compaction_started", aggregate=K.THREAD):
    """History is about to be summarised; nothing else of the session runs meanwhile."""

    compaction_id: str
    trigger: str


class CompactionCompleted(Payload, type="compaction_completed", aggregate=K.THREAD):
    """The summary stands for everything up to `upto_sequence`."""

    compaction_id: str
    summary: str
    upto_sequence: int = Field(ge=1)


class CompactionFailed(Payload, type="compaction_failed", aggregate=K.THREAD):
    """History stays as it was."""

    compaction_id: str
    reason: str

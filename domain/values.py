"""The small closed vocabularies of the domain. The values are what journals store."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SideEffect(StrEnum):
    """What running a tool twice would do to the world."""

    PURE = "pure"
    IDEMPOTENT = "idempotent"
    NON_IDEMPOTENT = "non_idempotent"


#: Classes that may be started again after a crash, with the same idempotency key.
RERUNNABLE = frozenset({SideEffect.PURE, SideEffect.IDEMPOTENT})


class ToolKind(StrEnum):
    """What a tool does to its surroundings; permission modes decide by it."""

    READ_ONLY = "read_only"
    WRITE = "write"
    EXECUTE = "execute"


class Interrupt(StrEnum):
    """Whether a `now` input may stop a running tool."""

    CANCEL = "cancel"
    BLOCK = "block"


class Priority(StrEnum):
    """When an input sent to a running session is applied."""

    NOW = "now"
    NEXT = "next"
    LATER = "later"


class PermissionMode(StrEnum):
    """The session's default answer to a call that no rule decides."""

    DEFAULT = "default"
    AUTO_EDIT = "autoEdit"
    YOLO = "yolo"
    PLAN = "plan"


class Verdict(StrEnum):
    """The outcome of one evaluation of a call."""

    ALLOW = "allow"
    DENY = "deny"
    ASK = "ask"


class OnLostAttempt(StrEnum):
    """What to do with a model attempt whose end nobody recorded."""

    ASK = "ask"
    RETRY = "retry"


class Stop(StrEnum):
    """Why a model response ended, in one vocabulary for every provider."""

    END = "end"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    REFUSAL = "refusal"
    PAUSE = "pause"
    UNKNOWN = "unknown"


#: A response that ended like this runs none of the calls it declared.
CUT_STOPS = frozenset({Stop.LENGTH, Stop.REFUSAL, Stop.PAUSE})


class AggregateKind(StrEnum):
    """Which aggregate an event belongs to."""

    SESSION = "session"
    THREAD = "thread"
    REQUEST = "request"
    TURN = "turn"
    MODEL_ATTEMPT = "model_attempt"
    TOOL = "tool"
    PERMISSION = "permission"


class ActorKind(StrEnum):
    """Who caused an event."""

    USER = "user"
    HOST = "host"
    MODEL = "model"
    POLICY = "policy"
    HOOK = "hook"
    OPERATOR = "operator"
    RECOVERY = "recovery"


class Effective(StrEnum):
    """From when a changed setting counts."""

    NEXT_TURN = "next_turn"
    NEXT_REQUEST = "next_request"


class BudgetLevel(StrEnum):
    """How much of a limit is used up: the share at which to warn, or all of it."""

    WARNING = "warning"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class ThinkingSettings:
    """Reasoning that the model is asked for; no settings at all leave the model its default.

    Args:
        budget_tokens: at most so many tokens of it; None leaves that to the model.
        effort: the API's own word for how hard (e.g. "low", "high"); None says nothing.
    """

    budget_tokens: int | None = None
    effort: str | None = None

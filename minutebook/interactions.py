"""Open questions of a session, and the answers to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Interaction:
    """A question that a person has to answer.

    Args:
        id: of the permission question, or of the suspended call.
        kind: "permission" or "suspension".
        digest: SHA-256 (hex) of the exact input; an answer repeats it.
        sequence: of the event that opened it.
    """

    id: str
    kind: str
    tool_id: str
    name: str
    summary: str
    input: dict[str, Any]
    digest: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Approve:
    """Let this one call run; `updated_input` replaces its input, and is checked again."""

    updated_input: dict[str, Any] | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Deny:
    """Do not run it; the model is told `message`."""

    message: str = ""


@dataclass(frozen=True, slots=True)
class ApproveCategory:
    """Let it run, and grant its category (or, without one, the tool) for the session."""

    message: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer that a suspended call waits for."""

    value: Any


ToolAnswer = Approve | Deny | ApproveCategory | Answer


@dataclass(frozen=True, slots=True)
class Decision:
    """What was recorded for an interaction: "allow", "deny" or "answered", and where."""

    interaction_id: str
    verdict: str
    sequence: int

"""The settings a session runs under, as they are journaled. No secrets are here."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from domain import canonical
from domain.limits import MAX_TURNS
from domain.values import OnLostAttempt, PermissionMode


class Settings(BaseModel):
    """One session's settings. Times in seconds.

    `provider` is the allow-listed public part of the provider's configuration.
    `context` is the default context of tools: `environment` and `metadata`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    provider: dict[str, Any] = Field(default_factory=dict)
    system_prompt: str | None = None
    temperature: float | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    max_turns: int = Field(default=MAX_TURNS, ge=1)
    permission_mode: PermissionMode = PermissionMode.DEFAULT
    on_lost_attempt: OnLostAttempt = OnLostAttempt.ASK
    context: dict[str, Any] = Field(default_factory=dict)

    def to_plain(self) -> dict[str, Any]:
        """As stored. Raises ValueRefused where a value cannot be kept."""
        plain: dict[str, Any] = canonical.decode(canonical.encode(self.model_dump()))
        return plain

    def digest(self) -> str:
        """SHA-256 (hex) of what differs from the defaults: a setting that is added later changes none."""
        return canonical.digest(self.model_dump(exclude_defaults=True))

    def changed(self, values: dict[str, Any]) -> Settings:
        """A copy with some values replaced, validated again."""
        return Settings.model_validate({**self.to_plain(), **values})

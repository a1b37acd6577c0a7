"""The settings a session runs under, as they are journaled. No secrets are here."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from domain import canonical
from domain.limits import MAX_TURNS
from domain.values import OnLostAttempt, PermissionMode, ThinkingSettings

#: Settings that came after the first journals: stored only where they say something.
_LATER: Final = frozenset(
    {"provider_name", "providers", "context_window", "thinking", "output_schema", "output_fallback"}
)


class Settings(BaseModel):
    """One session's settings. Times in seconds.

    `provider` is the allow-listed public part of the default provider's configuration,
    `providers` that of the others by name; `provider_name` says which of them the model is
    at, None the default one. `context_window` is how many tokens the model takes in, where
    that is known. `output_schema` is the JSON Schema that final texts have to match;
    `output_fallback` what happens at a provider that cannot force it. `context` is the
    default context of tools: `environment` and `metadata`.
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
    provider_name: str | None = None
    providers: dict[str, dict[str, Any]] = Field(default_factory=dict)
    context_window: int | None = Field(default=None, ge=1)
    thinking: ThinkingSettings | None = None
    output_schema: dict[str, Any] | None = None
    output_fallback: Literal["refuse", "instruct"] = "refuse"

    def to_plain(self) -> dict[str, Any]:
        """As stored. Raises ValueRefused where a value cannot be kept."""
        said = self.model_dump(exclude_defaults=True)
        dumped = {name: v for name, v in self.model_dump().items() if name in said or name not in _LATER}
        plain: dict[str, Any] = canonical.decode(canonical.encode(dumped))
        return plain

    def digest(self) -> str:
        """SHA-256 (hex) of what differs from the defaults: a setting that is added later changes none."""
        return canonical.digest(self.model_dump(exclude_defaults=True))

    def changed(self, values: dict[str, Any]) -> Settings:
        """A copy with some values replaced, validated again."""
        return Settings.model_validate({**self.to_plain(), **values})

    def changes_to(self, other: Settings) -> dict[str, Any]:
        """The values, as stored, by which `other` differs."""
        before, after = _whole(self), _whole(other)
        return {name: after[name] for name in after if after[name] != before[name]}

    @property
    def provider_key(self) -> str | None:
        """The name in the configuration of the provider that the model is at, if it has one."""
        return self.provider_name or self.provider.get("id") or self.provider.get("type")


def _whole(settings: Settings) -> dict[str, Any]:
    plain: dict[str, Any] = canonical.decode(canonical.encode(settings.model_dump()))
    return plain

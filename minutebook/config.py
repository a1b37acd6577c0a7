"""What an application gives a session: provider, tools, handlers, settings.

Credentials, tools and handlers come from here at every start and are never
journaled; settings are, and what differs at a resume is recorded as a change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from domain.errors import InvalidOptions
from domain.limits import MAX_TURNS
from domain.ports import ModelProvider, Probe
from domain.settings import Settings
from domain.values import OnLostAttempt, PermissionMode, ToolKind, Verdict
from minutebook.interactions import Interaction, ToolAnswer
from minutebook.provider_config import ProviderConfig
from minutebook.tool_definition import ToolDefinition, ToolSet


@dataclass(frozen=True, slots=True)
class PermissionCall:
    """A call that a permission handler is asked about. `input` is the parsed arguments."""

    session_id: str
    request_id: str
    tool_id: str
    name: str
    input: dict[str, Any]
    input_digest: str
    kind: ToolKind
    category: str | None
    destructive: bool


#: Asked before modes and rules that allow: deny denies, ask asks a person, allow
#: allows, None goes on. It cannot override a deny. It may be asked again after a crash.
PermissionHandler = Callable[[PermissionCall], Awaitable[Verdict | None]]

#: Asked when a person has to answer; None leaves the interaction open for `respond`.
ConfirmationHandler = Callable[[Interaction], Awaitable[ToolAnswer | None]]


def no_probe(point: str) -> None:
    """The probe of production: does nothing."""


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """Everything a session is opened with. Times in seconds unless they say otherwise.

    Args:
        provider: where the model is; a `ProviderConfig`, or any `ModelProvider`.
        tools: functions decorated with `@mb.tool`, or `ToolDefinition`s.
        on_lost_attempt: what to do with a model attempt whose end nobody recorded
            ("ask", or "retry", which may bill twice).
        context: `environment` (text to text, given to tools) and `metadata`.
        abort_timeout_s: how long running tools have to stop before their outcome is unknown.
        lease_ttl_ms: how long the session stays ours without a sign of life.
        worker_id: how the lease names this worker; default: host and process.

    Raises:
        InvalidOptions: the option's name, what is allowed, what was given. Nothing was opened.
    """

    provider: ProviderConfig | ModelProvider
    model: str
    tools: Sequence[ToolDefinition] = ()
    system_prompt: str | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    max_turns: int = MAX_TURNS
    permission_mode: PermissionMode = PermissionMode.DEFAULT
    permission_handler: PermissionHandler | None = None
    confirmation_handler: ConfirmationHandler | None = None
    on_lost_attempt: OnLostAttempt = OnLostAttempt.ASK
    context: Mapping[str, Any] = field(default_factory=dict)
    owner_id: str = "local"
    abort_timeout_s: float = 10.0
    lease_ttl_ms: int = 30_000
    worker_id: str | None = None
    probe: Probe = no_probe

    def __post_init__(self) -> None:
        if not self.model:
            raise InvalidOptions("model", "the name of a model", self.model)
        for option in ("permission_handler", "confirmation_handler"):
            given = getattr(self, option)
            if given is not None and not callable(given):
                raise InvalidOptions(option, "an async function, or None", given)
        if not self.abort_timeout_s > 0:
            raise InvalidOptions("abort_timeout_s", "seconds above 0", self.abort_timeout_s)
        if self.lease_ttl_ms < 1000:
            raise InvalidOptions("lease_ttl_ms", "at least 1000 milliseconds", self.lease_ttl_ms)
        ToolSet(self.tools)
        self.settings()

    def settings(self) -> Settings:
        """The part that is journaled."""
        provider = self.provider
        public = (
            provider.public()
            if isinstance(provider, ProviderConfig)
            else {"type": provider.provider, "api": provider.api}
        )
        try:
            settings = Settings(
                model=self.model,
                provider=public,
                system_prompt=self.system_prompt,
                temperature=self.temperature,
                max_output_tokens=self.max_output_tokens,
                max_turns=self.max_turns,
                permission_mode=self.permission_mode,
                on_lost_attempt=self.on_lost_attempt,
                context=dict(self.context),
            )
            settings.digest()
        except ValidationError as e:
            first = e.errors(include_url=False)[0]
            option = ".".join(str(part) for part in first["loc"])
            raise InvalidOptions(option, first["msg"], first["input"]) from None
        except ValueError as e:
            raise InvalidOptions("context and settings", "values that a journal can keep", str(e)) from None
        return settings

"""What an application gives a session: provider, tools, handlers, settings.

Credentials, tools and handlers come from here at every start and are never
journaled; settings are, and what differs at a resume is recorded as a change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from pydantic import ValidationError

from domain.errors import AssemblyFailed, InvalidOptions
from domain.limits import MAX_TURNS
from domain.model_ports import ModelProvider
from domain.ports import Probe
from domain.settings import Settings
from domain.values import OnLostAttempt, PermissionMode, ToolKind, Verdict
from minutebook.budget import Budget
from minutebook.interactions import Interaction, ToolAnswer
from minutebook.lease_config import LeaseConfig
from minutebook.models import ModelBinding, ModelInfo, Registry, Thinking, pair, thinking_settings
from minutebook.provider_config import ProviderConfig
from minutebook.session_options import check_options
from minutebook.structured import OutputFormat, OutputSchema, output_format
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
        provider: where the model is; a `ProviderConfig`, or any `ModelProvider`. The default one.
        model: a model's id, an alias, or one of `models`.
        providers: further ones by name, for `session.model.switch`; a configuration
            without an `id` takes its name as that.
        models: those that are supported; no others are taken then. Empty: any name is.
        aliases: other names for models, each for an id or a `ModelBinding`.
        thinking: reasoning to ask for; None leaves the model its default.
        output_schema: what final answers have to match: a pydantic model class, or a JSON Schema.
        output_fallback: at a provider that cannot force a schema: "refuse" to begin, or
            "instruct" the model in words, which is recorded.
        budget: what the whole session may spend. None at a resume: as the journal says.
        tools: functions decorated with `@mb.tool`, or `ToolDefinition`s.
        on_lost_attempt: what to do with a model attempt whose end nobody recorded
            ("ask", or "retry", which may bill twice).
        look_up_lost_attempts: ask the provider first, once in a run, where it keeps responses
            (`ProviderConfig.store`).
        context: `environment` (text to text, given to tools) and `metadata`.
        abort_timeout_s: how long running tools have to stop before their outcome is unknown.
        lease: how the session is held against other workers.

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
    permission_mode: PermissionMode | Literal["default", "autoEdit", "yolo", "plan"] = PermissionMode.DEFAULT
    permission_handler: PermissionHandler | None = None
    confirmation_handler: ConfirmationHandler | None = None
    on_lost_attempt: OnLostAttempt | Literal["ask", "retry"] = OnLostAttempt.ASK
    context: Mapping[str, Any] = field(default_factory=dict)
    owner_id: str = "local"
    abort_timeout_s: float = 10.0
    lease: LeaseConfig = field(default_factory=LeaseConfig)
    probe: Probe = no_probe
    providers: Mapping[str, ProviderConfig | ModelProvider] = field(default_factory=dict)
    models: Sequence[ModelInfo] = ()
    aliases: Mapping[str, str | ModelBinding] = field(default_factory=dict)
    thinking: Thinking | None = None
    output_schema: OutputSchema | None = None
    output_fallback: Literal["refuse", "instruct"] = "refuse"
    budget: Budget | None = None
    look_up_lost_attempts: bool = True

    def __post_init__(self) -> None:
        check_options(self, [option.name for option in fields(self)])
        if self.output_fallback != "refuse" and self.output_schema is None:
            raise InvalidOptions("output_fallback", "an output_schema beside it", self.output_fallback)
        _check_provider("provider", "", self.provider)
        named = {name: _named(name, given) for name, given in self.providers.items()}
        object.__setattr__(self, "providers", named)  # frozen: only while it is being made
        ToolSet(self.tools)
        self.settings()

    @property
    def provider_name(self) -> str:
        """The name of the default provider."""
        return _name_of(self.provider)

    def all_providers(self) -> dict[str, ProviderConfig | ModelProvider]:
        """Every provider by its name, the default one first."""
        return {self.provider_name: self.provider, **self.providers}

    def registry(self) -> Registry:
        """The models, aliases and provider names. Raises InvalidOptions."""
        if self.provider_name in self.providers:
            expected = f"names other than the default provider's, {self.provider_name}"
            raise InvalidOptions("providers", expected, self.provider_name)
        return Registry(self.provider_name, tuple(self.all_providers()), self.models, self.aliases)

    def output(self) -> OutputFormat | None:
        """How final texts are read. Raises InvalidOptions."""
        return output_format(self.output_schema)

    def settings(self) -> Settings:
        """The part that is journaled."""
        format_ = self.output()
        try:
            settings = Settings(
                **self._binding(),
                provider=_public(self.provider),
                providers={name: _public(provider) for name, provider in self.providers.items()},
                system_prompt=self.system_prompt,
                temperature=self.temperature,
                max_output_tokens=self.max_output_tokens,
                max_turns=self.max_turns,
                permission_mode=self.permission_mode,  # type: ignore[arg-type]  # a word becomes the enum
                on_lost_attempt=self.on_lost_attempt,  # type: ignore[arg-type]  # a word becomes the enum
                context=dict(self.context),
                thinking=thinking_settings(self.thinking),
                output_schema=format_.schema if format_ is not None else None,
                output_fallback=self.output_fallback,
            )
            settings.digest()
        except ValidationError as e:
            first = e.errors(include_url=False)[0]
            option = ".".join(str(part) for part in first["loc"])
            raise InvalidOptions(option, first["msg"], first["input"]) from None
        except InvalidOptions:
            raise
        except ValueError as e:
            raise InvalidOptions("context", "values that a journal can keep", str(e)) from None
        return settings

    def _binding(self) -> dict[str, Any]:
        registry = self.registry()
        try:
            binding = registry.resolve(self.model, registry.default)
        except AssemblyFailed as e:
            raise InvalidOptions("model", f"one of: {e.known}", self.model) from None
        # The default provider needs no name: `Settings.provider` has it.
        return {**pair(binding), **({"provider_name": None} if binding.provider == registry.default else {})}


def _named(name: str, provider: ProviderConfig | ModelProvider) -> ProviderConfig | ModelProvider:
    """With its name as its id: what one provider signed must not go to another of the same type."""
    _check_provider("providers", f"{name}: ", provider)
    if isinstance(provider, ProviderConfig) and provider.name == provider.type:
        try:
            return replace(provider, id=name)
        except InvalidOptions as e:
            raise InvalidOptions("providers", f"as names {e.expected}", name) from None
    return provider


def _check_provider(option: str, place: str, provider: object) -> None:
    needed = ("provider", "api", "capabilities", "encode", "body", "send", "aclose")
    missing = [each for each in needed if not hasattr(provider, each)]
    if missing and not isinstance(provider, ProviderConfig):
        expected = f"mb.ProviderConfig(...), or an object with {', '.join(needed)}"
        raise InvalidOptions(option, expected, f"{place}no {', '.join(missing)}")


def _name_of(provider: ProviderConfig | ModelProvider) -> str:
    if isinstance(provider, ProviderConfig):
        return provider.name
    return str(getattr(provider, "provider", type(provider).__name__))


def _public(provider: ProviderConfig | ModelProvider) -> dict[str, Any]:
    if isinstance(provider, ProviderConfig):
        return provider.public()
    return {"type": provider.provider, "api": provider.api}

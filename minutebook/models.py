"""Which model at which provider: names, aliases, bindings, and what a provider can do.

Imported by the configuration and by what opens and changes sessions. Pure: providers
are made elsewhere and handed in; whether a change is recorded is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from domain.errors import AssemblyFailed, CapabilityUnsupported, InvalidOptions
from domain.model_ports import ModelProvider
from domain.settings import Settings
from domain.values import ThinkingSettings
from projections.anthropic_parameters import check_temperature, check_thinking

_MOST_TOKENS: Final = 2**53 - 1  # every JSON reader keeps them exactly
_MESSAGES: Final = "anthropic-messages"


@dataclass(frozen=True, slots=True)
class Thinking:
    """Reasoning to ask the model for; whether it is shown is said to `stream`.

    Args:
        budget: at most so many tokens of it; None leaves that to the model.
        effort: the API's own word for how hard, e.g. "low"; None says nothing.

    Raises:
        InvalidOptions: a budget below 1, an empty word.
    """

    budget: int | None = None
    effort: str | None = None

    def __post_init__(self) -> None:
        if not _is_amount(self.budget):
            expected = f"a whole number of tokens, 1 to {_MOST_TOKENS}, or None"
            raise InvalidOptions("thinking.budget", expected, self.budget)
        if self.effort is not None and not _is_word(self.effort):
            raise InvalidOptions("thinking.effort", "a word of the provider's API, or None", self.effort)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model that the application supports.

    Args:
        id: what the provider calls it.
        name: what people call it.
        provider: the provider's name in the configuration.
        max_context_tokens: how many tokens it takes in, if that is known.
    """

    id: str
    name: str
    provider: str
    max_context_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ModelBinding:
    """A model and the provider that it is asked at, as a pair.

    Args:
        provider: its name in the configuration.
        model: what the provider calls the model.
        context_window: in tokens; not given: not known (any more).
    """

    provider: str
    model: str
    context_window: int | None = None


def thinking_settings(thinking: object) -> ThinkingSettings | None:
    """What is journaled of `SessionConfig.thinking`. Raises InvalidOptions."""
    if thinking is None:
        return None
    if not isinstance(thinking, Thinking):
        raise InvalidOptions("thinking", "mb.Thinking(...), or None", thinking)
    return ThinkingSettings(thinking.budget, thinking.effort)


class Registry:
    """The models, aliases and provider names of a configuration.

    Args:
        default: the name of the default provider.
        providers: the names of all, the default one included.
        models: those that are supported; empty: any the providers know.
        aliases: other names, each for a model's id or a binding.

    Raises:
        InvalidOptions: one of them names a provider or a model that is not there.
    """

    def __init__(
        self,
        default: str,
        providers: Sequence[str],
        models: Sequence[ModelInfo],
        aliases: Mapping[str, str | ModelBinding],
    ) -> None:
        self.default, self.providers, self.models = default, tuple(providers), tuple(models)
        self._aliases = dict(aliases)
        for info in self.models:
            if not _is_info(info):
                expected = "mb.ModelInfo(...) values: three texts, and a number of tokens from 1 or None"
                raise InvalidOptions("models", expected, info)
            self._check_place("models", info.provider)
        for alias in self._aliases:
            self._check_alias(alias)

    def _check_place(self, option: str, provider: str) -> None:
        if provider not in self.providers:
            raise InvalidOptions(option, f"providers among {', '.join(self.providers)}", provider)

    def _check_alias(self, alias: str) -> None:
        try:
            self.resolve(alias, self.default)
        except AssemblyFailed as e:
            raise InvalidOptions(
                "aliases", f"for {alias!r} a model that is configured: {e.known}", e.name
            ) from None
        except InvalidOptions as e:
            raise InvalidOptions("aliases", f"for {alias!r} a {e.option}: {e.expected}", e.actual) from None

    def resolve(self, wanted: str | ModelBinding, current: str) -> ModelBinding:
        """The binding that a name stands for.

        Args:
            wanted: an alias, a model's id, or a binding.
            current: the provider at which a model is taken that no list names.

        Raises:
            AssemblyFailed: it stands for nothing, or for several.
        """
        target = self._aliases.get(wanted, wanted) if isinstance(wanted, str) else wanted
        if isinstance(target, ModelBinding):
            return self._bound(target)
        if not _is_word(target):
            raise AssemblyFailed("model", target, self._known())
        if not self.models:
            return ModelBinding(current, target)
        found = [info for info in self.models if info.id == target]
        if not found:
            raise AssemblyFailed("model", target, self._known())
        here = [info for info in found if info.provider == current]
        if len(found) > 1 and not here:
            at = ", ".join(info.provider for info in found)
            raise AssemblyFailed("single model", target, f"it at each of {at}; give a ModelBinding")
        info = (here or found)[0]
        return ModelBinding(info.provider, info.id, info.max_context_tokens)

    def _bound(self, binding: ModelBinding) -> ModelBinding:
        if binding.provider not in self.providers:
            raise AssemblyFailed("provider", binding.provider, ", ".join(self.providers))
        if not _is_word(binding.model):
            raise AssemblyFailed("model", binding.model, self._known())
        window = binding.context_window
        if not _is_amount(window):
            raise InvalidOptions("context_window", "a number of tokens from 1, or None", window)
        return binding

    def _known(self) -> str:
        names = [*self._aliases, *(info.id for info in self.models)]
        return ", ".join(names) or "any name that a provider knows"


def _is_word(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_amount(tokens: object) -> bool:
    return tokens is None or (type(tokens) is int and 1 <= tokens <= _MOST_TOKENS)


def _is_info(info: object) -> bool:
    if not isinstance(info, ModelInfo):
        return False
    return all(map(_is_word, (info.id, info.name, info.provider))) and _is_amount(info.max_context_tokens)


def pair(binding: ModelBinding) -> dict[str, Any]:
    """A binding as settings."""
    return {
        "model": binding.model,
        "provider_name": binding.provider,
        "context_window": binding.context_window,
    }


class Providers:
    """The providers of one open session, by their names in its configuration."""

    def __init__(self, default: str, made: Mapping[str, ModelProvider]) -> None:
        self.default, self._made = default, dict(made)

    def name_for(self, settings: Settings) -> str:
        """The name of the provider that settings ask for."""
        return settings.provider_key or self.default

    def of(self, settings: Settings) -> ModelProvider:
        """The provider that settings ask for.

        Raises:
            AssemblyFailed: none of that name is configured.
        """
        name = self.name_for(settings)
        if name not in self._made:
            raise AssemblyFailed("provider", name, ", ".join(self._made))
        return self._made[name]


# --- what a provider can do -------------------------------------------------------------


def instructs(settings: Settings, provider: ModelProvider) -> bool:
    """Whether the model is only told what its answers have to look like."""
    return settings.output_schema is not None and not provider.capabilities.structured_output


def check_capabilities(settings: Settings, provider: ModelProvider) -> None:
    """Refuse settings that this provider's API would refuse or ignore.

    Raises:
        CapabilityUnsupported, InvalidOptions: the option, what is allowed, what was given.
    """
    for option, expected, given in _refused(settings, provider):
        raise CapabilityUnsupported(option, expected, given)
    if provider.api == _MESSAGES:
        check_thinking(settings.thinking, settings.max_output_tokens)
        check_temperature(settings.temperature, settings.thinking)


def _refused(settings: Settings, provider: ModelProvider) -> Iterator[tuple[str, str, object]]:
    where = f"the {provider.api} API of provider {provider.provider!r}"
    if settings.thinking is not None and not provider.capabilities.thinking:
        yield "thinking", f"None, because {where} has no such setting", settings.thinking
    if instructs(settings, provider) and settings.output_fallback == "refuse":
        expected = f'None, or output_fallback="instruct", because {where} cannot force answers into a schema'
        yield "output_schema", expected, settings.output_schema

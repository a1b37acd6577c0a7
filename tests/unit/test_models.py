"""Names of models, what they stand for, and what a provider's API cannot do."""

from __future__ import annotations

from typing import Any

import pytest

import minutebook as mb
from domain.errors import AssemblyFailed, CapabilityUnsupported, InvalidOptions
from domain.model_ports import EVERYTHING, Capabilities
from domain.settings import Settings
from domain.values import ThinkingSettings
from minutebook.models import (
    ModelBinding,
    ModelInfo,
    Providers,
    Registry,
    Thinking,
    check_capabilities,
    instructs,
)
from minutebook.testing.scripted import ScriptedProvider

SMALL = ModelInfo("vendor/small", "Small", "first", 8000)
LARGE = ModelInfo("large", "Large", "second")
BOTH = ModelInfo("large", "Large at the first", "first", 32_000)
ALIASES: dict[str, str | ModelBinding] = {
    "quick": "vendor/small",
    "best": ModelBinding("second", "large", 100),
}


def registry(*models: ModelInfo, aliases: dict[str, str | ModelBinding] | None = None) -> Registry:
    return Registry("first", ("first", "second"), models, aliases or {})


@pytest.mark.parametrize(
    ("models", "wanted", "current", "binding"),
    [
        ((), "anything", "first", ModelBinding("first", "anything")),
        ((), "anything", "second", ModelBinding("second", "anything")),
        ((SMALL, LARGE), "vendor/small", "second", ModelBinding("first", "vendor/small", 8000)),
        ((SMALL, LARGE), "quick", "second", ModelBinding("first", "vendor/small", 8000)),
        ((SMALL, LARGE), "best", "first", ModelBinding("second", "large", 100)),
        ((LARGE, BOTH, SMALL), "large", "first", ModelBinding("first", "large", 32_000)),
        ((LARGE, BOTH, SMALL), "large", "second", ModelBinding("second", "large")),
        ((SMALL,), ModelBinding("second", "not listed"), "first", ModelBinding("second", "not listed")),
    ],
    ids=str,
)
def test_a_name_stands_for_a_model_at_a_provider(
    models: tuple[ModelInfo, ...], wanted: str | ModelBinding, current: str, binding: ModelBinding
) -> None:
    aliases = ALIASES if SMALL in models else {}
    assert registry(*models, aliases=aliases).resolve(wanted, current) == binding


@pytest.mark.parametrize(
    "wanted",
    ["unlisted", "", "Small", ModelBinding("third", "large"), ModelBinding("first", "")],
    ids=repr,
)
def test_a_name_that_stands_for_nothing_fails(wanted: str | ModelBinding) -> None:
    with pytest.raises(AssemblyFailed) as failed:
        registry(SMALL, LARGE, aliases=ALIASES).resolve(wanted, "first")
    assert failed.value.code == "ASSEMBLY_FAILED"
    assert "there are" in str(failed.value)


def test_a_name_that_stands_for_several_fails() -> None:
    three = Registry("third", ("first", "second", "third"), (LARGE, BOTH), {})
    with pytest.raises(AssemblyFailed, match=r"second, first"):
        three.resolve("large", "third")


@pytest.mark.parametrize("window", [0, -1, 2.5, True])
def test_a_context_window_is_a_number_of_tokens(window: int) -> None:
    with pytest.raises(InvalidOptions, match="context_window"):
        registry().resolve(ModelBinding("first", "m", window), "first")


def test_an_alias_is_followed_once() -> None:
    """An alias of an alias is a model's id like any other, so it cannot lead in circles."""
    chained: dict[str, str | ModelBinding] = {"a": "b", "b": "a"}
    assert registry(aliases=chained).resolve("a", "first") == ModelBinding("first", "b")


# --- capabilities ---------------------------------------------------------------------------

SCHEMA = {"type": "object"}
BARE = Capabilities()


def provider(has: Capabilities, api: str = "openai-chat") -> ScriptedProvider:
    return ScriptedProvider([], api=api, capabilities=has)


@pytest.mark.parametrize(
    ("values", "option"),
    [
        ({"thinking": ThinkingSettings()}, "thinking"),
        ({"output_schema": SCHEMA}, "output_schema"),
    ],
    ids=str,
)
def test_what_the_api_cannot_do_is_refused_by_name(values: dict[str, object], option: str) -> None:
    settings = Settings.model_validate({"model": "m", **values})
    check_capabilities(settings, provider(EVERYTHING))
    with pytest.raises(CapabilityUnsupported) as refused:
        check_capabilities(settings, provider(BARE))
    assert (refused.value.code, refused.value.option) == ("CAPABILITY_UNSUPPORTED", option)
    assert "openai-chat" in str(refused.value)


def test_a_model_that_is_told_in_words_is_asked_all_the_same() -> None:
    settings = Settings(model="m", output_schema=SCHEMA, output_fallback="instruct")
    check_capabilities(settings, provider(BARE))
    assert instructs(settings, provider(BARE))
    assert not instructs(settings, provider(EVERYTHING))
    assert not instructs(Settings(model="m"), provider(BARE))


@pytest.mark.parametrize(
    ("tokens", "limit", "fits"),
    [(1024, None, True), (1023, None, False), (2000, 2001, True), (2000, 2000, False), (None, 10, True)],
)
def test_the_messages_api_takes_fewer_thinking_tokens_than_output_tokens(
    tokens: int | None, limit: int | None, fits: bool
) -> None:
    settings = Settings(model="m", thinking=ThinkingSettings(tokens), max_output_tokens=limit)
    check_capabilities(settings, provider(EVERYTHING))
    messages = provider(EVERYTHING, "anthropic-messages")
    if fits:
        check_capabilities(settings, messages)
        return
    with pytest.raises(InvalidOptions, match=r"thinking\.budget"):
        check_capabilities(settings, messages)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (Settings(model="m"), "first"),
        (Settings(model="m", provider={"type": "second"}), "second"),
        (Settings(model="m", provider={"type": "openai", "id": "first"}), "first"),
        (Settings(model="m", provider={"type": "openai", "id": "first"}, provider_name="second"), "second"),
    ],
    ids=["nothing", "type", "id", "name"],
)
def test_settings_name_their_provider(settings: Settings, name: str) -> None:
    first, second = provider(EVERYTHING), provider(EVERYTHING)
    providers = Providers("first", {"first": first, "second": second})
    assert providers.name_for(settings) == name
    assert providers.of(settings) is {"first": first, "second": second}[name]


def test_a_provider_that_is_not_configured_is_named() -> None:
    providers = Providers("first", {"first": provider(EVERYTHING)})
    with pytest.raises(AssemblyFailed, match="no provider 'gone' is configured; there are: first"):
        providers.of(Settings(model="m", provider_name="gone"))


@pytest.mark.parametrize(
    ("budget", "effort"), [(0, None), (-1, None), (True, None), (1.5, None), (None, ""), (None, 3)]
)
def test_thinking_is_a_number_of_tokens_and_a_word(budget: int | None, effort: str | None) -> None:
    with pytest.raises(InvalidOptions, match=r"thinking\."):
        Thinking(budget, effort)


def test_a_further_provider_takes_its_name_as_its_id() -> None:
    """What one server signed must not go to another server of the same type."""

    def at(port: int, id: str | None = None) -> mb.ProviderConfig:
        return mb.ProviderConfig("openai-compatible", base_url=f"http://127.0.0.1:{port}/v1", id=id)

    config = mb.SessionConfig(
        provider=at(1), model="m", providers={"second": at(2), "third": at(3, id="own")}
    )
    names = [p.name for p in config.all_providers().values() if isinstance(p, mb.ProviderConfig)]
    assert names == ["openai-compatible", "second", "own"]


class _HalfAProvider:
    provider, api = "half", "openai-chat"


@pytest.mark.parametrize("where", ["provider", "providers"])
def test_an_object_that_is_no_provider_is_refused_by_what_it_lacks(where: str) -> None:
    half: Any = _HalfAProvider()
    whole = ScriptedProvider([])
    given: dict[str, Any] = {
        "provider": {"provider": half},
        "providers": {"provider": whole, "providers": {"b": half}},
    }
    with pytest.raises(InvalidOptions, match="no capabilities, encode, body, send, aclose"):
        mb.SessionConfig(model="m", **given[where])

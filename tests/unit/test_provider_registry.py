"""Provider types of an application's own."""

from __future__ import annotations

import pytest

import minutebook as mb
from domain.errors import InvalidOptions
from domain.model_ports import Block, Response, Text
from minutebook.provider_config import ProviderConfig
from minutebook.testing.scripted import ScriptedProvider

pytestmark = pytest.mark.anyio


def a_config() -> ProviderConfig:
    return ProviderConfig("in-house", "http://models.internal")


def test_r022_a_registered_type_is_made_by_its_maker() -> None:
    registry, made = mb.ProviderRegistry(), ScriptedProvider([])
    given: list[ProviderConfig] = []

    def make(config: ProviderConfig) -> ScriptedProvider:
        given.append(config)
        return made

    registry.register("in-house", make)
    assert registry.make(a_config()) is made
    assert given == [a_config()]
    assert "in-house" in registry.types


def test_what_one_registry_knows_another_does_not() -> None:
    mb.ProviderRegistry().register("in-house", lambda config: ScriptedProvider([]))
    with pytest.raises(InvalidOptions, match=r"anthropic.*openai-compatible") as refused:
        mb.ProviderRegistry().make(a_config())
    assert refused.value.option == "type"


@pytest.mark.parametrize("kind", mb.ProviderType)
async def test_the_built_in_types_are_always_there(kind: str) -> None:
    address = "http://127.0.0.1:9" if kind in ("azure-openai", "openai-compatible") else None
    registry = mb.ProviderRegistry()
    assert kind in registry.types
    provider = registry.make(ProviderConfig(kind, address, "a-key"))
    assert provider.provider == kind
    await provider.aclose()


@pytest.mark.parametrize("kind", ["openai", "in-house"])
def test_a_type_is_registered_once(kind: str) -> None:
    registry = mb.ProviderRegistry()
    registry.register("in-house", lambda config: ScriptedProvider([]))
    with pytest.raises(InvalidOptions, match="a new one"):
        registry.register(kind, lambda config: ScriptedProvider([]))


def test_what_makes_nothing_is_refused() -> None:
    with pytest.raises(InvalidOptions, match="maker"):
        mb.ProviderRegistry().register("in-house", None)  # type: ignore[arg-type]  # that is the test


async def test_a_session_takes_its_provider_from_a_registry() -> None:
    registry = mb.ProviderRegistry()
    answer = Response((Block("text", "hello back"),), (), "end")
    registry.register("in-house", lambda config: ScriptedProvider([[Text("hello back"), answer]]))
    config = mb.SessionConfig(provider=a_config(), model="m")
    store = mb.memory()
    async with mb.create_session(config, store=store, session_id="s1", providers=registry) as session:
        assert (await session.run("hello")).content == "hello back"
    with pytest.raises(InvalidOptions, match="one of anthropic"):
        async with mb.create_session(config, session_id="s2"):
            pass
    async with mb.resume_session("s1", config, store=store, providers=registry) as session:
        assert session.id == "s1"

"""What options a provider type has, where its requests go, and what contradicts what."""

from __future__ import annotations

from typing import Any

import pytest

from domain.errors import InvalidOptions
from minutebook.provider_config import ProviderConfig
from minutebook.provider_options import ProviderType

AZURE = "https://r.openai.azure.com"


def a_config(kind: str, **options: Any) -> ProviderConfig:
    known = {"base_url": AZURE} if kind in ("azure-openai", "openai-compatible", "mine") else {}
    return ProviderConfig(kind, **(known | options))


# --- addresses ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        ("anthropic", "https://api.anthropic.com"),
        ("deepseek", "https://api.deepseek.com"),
        ("gemini", "https://generativelanguage.googleapis.com/v1beta/openai"),
        ("openai", "https://api.openai.com/v1"),
    ],
)
def test_r239_types_with_an_address_of_their_own(kind: str, url: str) -> None:
    assert ProviderConfig(kind).url == url


@pytest.mark.parametrize("kind", ["azure-openai", "openai-compatible", "mine"])
def test_r239_every_other_type_needs_one(kind: str) -> None:
    with pytest.raises(InvalidOptions, match="base_url"):
        ProviderConfig(kind)


@pytest.mark.parametrize("base_url", ["https://g.example/", "https://g.example"])
def test_a_host_alone_gets_googles_path(base_url: str) -> None:
    assert ProviderConfig("gemini", base_url).url == "https://g.example/v1beta/openai"


def test_a_path_of_its_own_stays() -> None:
    assert ProviderConfig("gemini", "https://g.example/proxy/v1").url == "https://g.example/proxy/v1"


AT_AZURE: list[tuple[dict[str, Any], str]] = [
    ({}, f"{AZURE}/openai/v1"),
    ({"base_url": f"{AZURE}/"}, f"{AZURE}/openai/v1"),
    ({"base_url": f"{AZURE}/openai"}, f"{AZURE}/openai/v1"),
    ({"base_url": f"{AZURE}/openai/v1/"}, f"{AZURE}/openai/v1/"),
    ({"api_version": "preview"}, f"{AZURE}/openai/v1?api-version=preview"),
    (
        {"deployment": "gpt", "api_version": "2024-10-21"},
        f"{AZURE}/openai/deployments/gpt?api-version=2024-10-21",
    ),
    (
        {"base_url": f"{AZURE}/openai/deployments/gpt", "api_version": "2024-10-21"},
        f"{AZURE}/openai/deployments/gpt?api-version=2024-10-21",
    ),
    (
        {"base_url": f"{AZURE}/openai/deployments/gpt?api-version=2024-02-01", "deployment": "gpt"},
        f"{AZURE}/openai/deployments/gpt?api-version=2024-02-01",
    ),
    (
        {"base_url": f"{AZURE}?api-version=old&x=1", "api_version": "new"},
        f"{AZURE}/openai/v1?x=1&api-version=new",
    ),
    ({"base_url": "https://gate.example/azure"}, "https://gate.example/azure"),
    (
        {"base_url": "https://gate.example/azure/openai", "deployment": "gpt", "api_version": "v"},
        "https://gate.example/azure/openai/deployments/gpt?api-version=v",
    ),
    ({"api": "responses"}, f"{AZURE}/openai/v1"),
]


@pytest.mark.parametrize(("options", "url"), AT_AZURE, ids=range(len(AT_AZURE)))
def test_r241_an_address_at_azure_may_be_of_three_kinds(options: dict[str, Any], url: str) -> None:
    assert a_config("azure-openai", **options).url.rstrip("/") == url.rstrip("/")


# --- what is refused ------------------------------------------------------------------------

REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    ("organization", "azure-openai", {"organization": "o"}),
    ("project_id", "deepseek", {"project_id": "p"}),
    ("api", "anthropic", {"api": "chat"}),
    ("api", "gemini", {"api": "responses"}),
    ("api", "openai", {"api": "completions"}),
    ("api_version", "openai", {"api_version": "v"}),
    ("api_version", "azure-openai", {"api_version": "a b"}),
    ("api_version", "azure-openai", {"deployment": "gpt"}),
    ("api_version", "azure-openai", {"base_url": f"{AZURE}/openai/deployments/gpt"}),
    ("deployment", "openai", {"deployment": "d"}),
    ("deployment", "azure-openai", {"deployment": "a/b", "api_version": "v"}),
    ("deployment", "azure-openai", {"deployment": "d", "api": "responses"}),
    ("deployment", "azure-openai", {"base_url": f"{AZURE}/openai/v1", "deployment": "d"}),
    (
        "deployment",
        "azure-openai",
        {"base_url": f"{AZURE}/openai/deployments/x", "deployment": "d", "api_version": "v"},
    ),
    ("base_url", "azure-openai", {"base_url": f"{AZURE}/openai/deployments/x", "api": "responses"}),
    ("store", "deepseek", {"store": True}),
    ("store", "anthropic", {"store": True}),
    ("store", "openai", {"store": None}),
    ("store", "openai", {"store": 1}),
    ("max_tokens_field", "deepseek", {"max_tokens_field": "max_tokens"}),
    ("max_tokens_field", "openai", {"max_tokens_field": "tokens"}),
    ("max_tokens_field", "openai", {"max_tokens_field": "max_tokens", "api": "responses"}),
    ("thinking_field", "openai", {"thinking_field": "reasoning"}),
    ("thinking_field", "openai-compatible", {"thinking_field": "think"}),
    ("thinking_field", "openai-compatible", {"thinking_field": "reasoning", "api": "responses"}),
    ("structured_output", "openai", {"structured_output": "yes"}),
    ("images", "openai", {"images": 1}),
    ("files", "openai", {"files": 0}),
    ("extra", "openai", {"extra": [("seed", 1)]}),
    ("extra", "openai", {"extra": {1: 2}}),
    ("extra", "openai", {"extra": {"messages": []}}),
    ("extra", "openai", {"api": "responses", "extra": {"previous_response_id": "resp_1"}}),
    ("extra", "openai", {"api": "responses", "extra": {"conversation": "conv_1"}}),
    ("extra", "openai", {"extra": {"seed": 2**70}}),
    ("extra", "openai", {"extra": {"seed": object()}}),
]


@pytest.mark.parametrize(("option", "kind", "options"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_work_is_refused_by_name(option: str, kind: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptions) as refused:
        a_config(kind, **options)
    assert refused.value.option == option
    assert refused.value.expected


def test_a_type_of_a_hosts_own_may_have_every_option() -> None:
    config = a_config("mine", api="responses", store=True, api_version="v", organization="o")
    assert (config.api, config.url) == ("responses", AZURE)


# --- what is taken ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ProviderType)
def test_every_type_is_taken_as_a_member_and_as_a_word(kind: ProviderType) -> None:
    config = a_config(kind)
    assert config == a_config(str(kind))
    assert type(config.type) is str
    assert config.name == str(kind)


@pytest.mark.parametrize(
    ("kind", "api"),
    [("openai", "chat"), ("azure-openai", "chat"), ("gemini", "chat"), ("anthropic", None), ("mine", None)],
)
def test_chat_is_the_dialect_unless_said_otherwise(kind: str, api: str | None) -> None:
    assert a_config(kind).api == api


def test_what_says_where_a_request_goes_may_be_journaled() -> None:
    at_azure = a_config("azure-openai", deployment="gpt", api_version="v", extra={"seed": 1}).public()
    assert {name: at_azure[name] for name in ("api_version", "deployment")} == {
        "api_version": "v",
        "deployment": "gpt",
    }
    assert a_config("openai", api="responses").public()["api"] == "responses"
    assert "extra" not in at_azure
    assert "seed" not in repr(at_azure)


def test_additional_fields_are_a_copy() -> None:
    extra = {"seed": 1}
    config = a_config("openai", extra=extra)
    extra["seed"] = 2
    assert config.extra == {"seed": 1}
    assert isinstance(hash(config), int)

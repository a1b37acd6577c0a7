"""From a provider's configuration to the adapter that speaks its dialect.

Imported by `minutebook.compose`. The SDKs take most of a second to import, so each
adapter is imported when a provider of its type is made, and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, Protocol

from domain.errors import InvalidOptions
from domain.model_ports import Capabilities, ModelProvider
from domain.ports import Probe


class ProviderSettings(Protocol):
    """What is needed of a configuration (`minutebook.ProviderConfig` has it)."""

    @property
    def type(self) -> str:
        """The type's word."""

    @property
    def name(self) -> str:
        """The logical name."""

    @property
    def api(self) -> str | None:
        """Which dialect, where the type has a choice: "chat" or "responses"."""

    @property
    def url(self) -> str:
        """The base URL that requests go to."""

    @property
    def credential(self) -> str | None:
        """The credential itself."""

    @property
    def header_pairs(self) -> tuple[tuple[str, str], ...]:
        """Extra headers, names and values."""

    @property
    def organization(self) -> str | None:
        """OpenAI's organization."""

    @property
    def project_id(self) -> str | None:
        """OpenAI's project."""

    @property
    def store(self) -> bool:
        """Whether the server keeps each response."""

    @property
    def max_tokens_field(self) -> str | None:
        """The server's name of the output limit; None: the type's."""

    @property
    def thinking_field(self) -> str | None:
        """How this server is asked for reasoning; None: as the type is."""

    @property
    def structured_output(self) -> bool | None:
        """Whether it has forced output; None: what the type has."""

    @property
    def images(self) -> bool | None:
        """Whether it takes images; None: what the type has."""

    @property
    def files(self) -> bool | None:
        """Whether it takes files; None: what the type has."""

    @property
    def extra(self) -> Mapping[str, Any]:
        """Body fields that are added as they are."""

    @property
    def request_timeout_ms(self) -> int:
        """Limit until an answer begins, and for one that is not streamed."""

    @property
    def stream_idle_timeout_ms(self) -> int:
        """Limit for the next piece of a streamed answer."""


def make_provider(config: ProviderSettings, *, probe: Probe | None = None) -> ModelProvider:
    """The provider that a configuration describes. Nothing is sent yet.

    Raises:
        InvalidOptions: no such type, its SDK is not installed, or the type cannot do
            without a credential.
    """
    make = _MAKERS.get(config.type)
    if make is None:
        raise InvalidOptions("type", f"one of {', '.join(sorted(_MAKERS))}", config.type)
    if config.type in _NEEDS_KEY and config.credential is None and not _has_credential_header(config):
        raise InvalidOptions("api_key", "a key; one in the environment is not picked up", None)
    return make(config, probe)


# --- one maker for each dialect -----------------------------------------------------------


def _openai(config: ProviderSettings, probe: Probe | None) -> ModelProvider:
    with _sdk("openai", config):
        return _responses(config, probe) if config.api == "responses" else _chat(config, probe)


def _chat(config: ProviderSettings, probe: Probe | None) -> ModelProvider:
    from adapters.openai_chat import OpenAIChatProvider
    from adapters.openai_chat_types import chat_type

    known = chat_type(config.type)
    server = replace(
        known.server,
        max_tokens_field=config.max_tokens_field or known.server.max_tokens_field,
        thinking_field=config.thinking_field or known.server.thinking_field,
        stores=config.store,
        extra=config.extra,
    )
    has = _capabilities(config, known.capabilities)
    has = replace(has, thinking=server.thinking_field is not None)
    return OpenAIChatProvider(**_common(config, probe), **_account(config), server=server, capabilities=has)


def _responses(config: ProviderSettings, probe: Probe | None) -> ModelProvider:
    from adapters.openai_responses import OpenAIResponsesProvider, capabilities_of

    has = _capabilities(config, capabilities_of(config.type))
    return OpenAIResponsesProvider(
        **_common(config, probe), **_account(config), store=config.store, extra=config.extra, capabilities=has
    )


def _anthropic(config: ProviderSettings, probe: Probe | None) -> ModelProvider:
    with _sdk("anthropic", config):
        from adapters.anthropic_messages import CAPABILITIES, AnthropicProvider

        has = _capabilities(config, CAPABILITIES)
        return AnthropicProvider(**_common(config, probe), extra=config.extra, capabilities=has)


# --- what the makers share ------------------------------------------------------------


def _common(config: ProviderSettings, probe: Probe | None) -> dict[str, Any]:
    from adapters.exchange import no_probe

    return {
        "provider": config.name,
        "base_url": config.url,
        "api_key": "" if config.type in _KEY_HEADERS else config.credential or "",
        "headers": _headers(config),
        "request_timeout_ms": config.request_timeout_ms,
        "stream_idle_timeout_ms": config.stream_idle_timeout_ms,
        "probe": probe or no_probe,
    }


def _account(config: ProviderSettings) -> dict[str, Any]:
    return {"organization": config.organization, "project_id": config.project_id}


def _headers(config: ProviderSettings) -> tuple[tuple[str, str], ...]:
    """The extra headers, and the credential where it has a header of its own."""
    header = _KEY_HEADERS.get(config.type)
    if header is None or config.credential is None:
        return config.header_pairs
    return ((header, config.credential), *config.header_pairs)


def _capabilities(config: ProviderSettings, of_type: Capabilities) -> Capabilities:
    """What the type has, less or more what the configuration says of this server."""
    said = {name: getattr(config, name) for name in ("structured_output", "images", "files")}
    return replace(of_type, **{name: value for name, value in said.items() if value is not None})


def _has_credential_header(config: ProviderSettings) -> bool:
    return any(name.lower() in _CREDENTIAL_HEADERS for name, _ in config.header_pairs)


@contextmanager
def _sdk(extra: str, config: ProviderSettings) -> Iterator[None]:
    """Say what to install where an SDK is missing."""
    try:
        yield
    except ModuleNotFoundError as e:
        if e.name not in (extra, "httpx2"):
            raise
        raise InvalidOptions("type", f"the SDK to be installed: minutebook[{extra}]", config.type) from e


#: Types whose servers answer nobody without a credential.
_NEEDS_KEY: Final = frozenset({"anthropic", "azure-openai", "deepseek", "gemini", "openai"})

#: A caller's header that is the credential, e.g. a token of a company's directory.
_CREDENTIAL_HEADERS: Final = frozenset({"authorization", "api-key", "x-api-key"})

#: Where the credential goes if not into `Authorization`.
_KEY_HEADERS: Final = {"azure-openai": "api-key"}

_MAKERS: Final[Mapping[str, Callable[[ProviderSettings, Probe | None], ModelProvider]]] = {
    "anthropic": _anthropic,
    "azure-openai": _openai,
    "deepseek": _openai,
    "gemini": _openai,
    "openai": _openai,
    "openai-compatible": _openai,
}

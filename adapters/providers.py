"""From a provider's configuration to the adapter that speaks its dialect.

Imported by `minutebook.compose`. The SDKs take most of a second to import, so each
adapter is imported when a provider of its type is made, and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from domain.errors import InvalidOptions
from domain.ports import ModelProvider, Probe


class ProviderSettings(Protocol):
    """What is needed of a configuration (`minutebook.ProviderConfig` has it)."""

    @property
    def type(self) -> str:
        """The dialect's word."""

    @property
    def name(self) -> str:
        """The logical name."""

    @property
    def url(self) -> str:
        """The base URL, the type's own where none was given."""

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
    def request_timeout_ms(self) -> int:
        """Limit until an answer begins, and for one that is not streamed."""

    @property
    def stream_idle_timeout_ms(self) -> int:
        """Limit for the next piece of a streamed answer."""


def make_provider(config: ProviderSettings, *, probe: Probe | None = None) -> ModelProvider:
    """The provider that a configuration describes. Nothing is sent yet.

    Raises:
        InvalidOptions: this version has no adapter for the type, the adapter's SDK is
            not installed, or the type cannot do without a credential.
    """
    make = _MAKERS.get(config.type)
    if make is None:
        supported = ", ".join(sorted(_MAKERS))
        raise InvalidOptions("type", f"one of {supported} (what this version supports)", config.type)
    return make(config, probe)


def _openai(config: ProviderSettings, probe: Probe | None) -> ModelProvider:
    if config.credential is None and not _has_authorization(config):
        raise InvalidOptions("api_key", "a key; one in the environment is not picked up", None)
    return _openai_chat(config, probe)


def _openai_chat(config: ProviderSettings, probe: Probe | None) -> ModelProvider:
    try:
        from adapters.exchange import no_probe
        from adapters.openai_chat import OpenAIChatProvider
    except ModuleNotFoundError as e:
        if e.name not in ("openai", "httpx2"):
            raise
        raise InvalidOptions("type", "the SDK to be installed: minutebook[openai]", config.type) from e
    return OpenAIChatProvider(
        provider=config.type,
        base_url=config.url,
        api_key=config.credential or "",
        headers=config.header_pairs,
        organization=config.organization,
        project_id=config.project_id,
        request_timeout_ms=config.request_timeout_ms,
        stream_idle_timeout_ms=config.stream_idle_timeout_ms,
        probe=probe or no_probe,
    )


def _has_authorization(config: ProviderSettings) -> bool:
    return any(name.lower() == "authorization" for name, _ in config.header_pairs)


_MAKERS: Final[Mapping[str, Callable[[ProviderSettings, Probe | None], ModelProvider]]] = {
    "openai": _openai,
    "openai-compatible": _openai_chat,
}

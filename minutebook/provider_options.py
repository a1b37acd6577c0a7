"""The provider types: their addresses, their options, and what contradicts what.

Pure. `ProviderConfig` calls `check` and `address` while it is being made, so that a
configuration that cannot work fails before anything is opened or sent. A type that
is not listed here is a host's own (`ProviderRegistry`); it may use every option.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from domain.errors import InvalidOptions, ValueRefused
from projections.wire_text import wire_json


class ProviderType(StrEnum):
    """The types that have an adapter here. A host may add others."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    AZURE_OPENAI = "azure-openai"
    GEMINI = "gemini"
    DEEPSEEK = "deepseek"
    OPENAI_COMPATIBLE = "openai-compatible"


#: Base URLs of the types that have one; every other type needs `base_url`.
DEFAULT_BASE_URLS: Final[Mapping[str, str]] = {
    "anthropic": "https://api.anthropic.com",
    "deepseek": "https://api.deepseek.com",
    "gemini": "https://generativelanguage.googleapis.com",
    "openai": "https://api.openai.com/v1",
}

#: Where Google's host speaks the chat dialect.
_GEMINI_PATH: Final = "/v1beta/openai"

#: The dialects of the types that have a choice; the first is the default.
APIS: Final[Mapping[str, tuple[str, ...]]] = {
    "openai": ("chat", "responses"),
    "azure-openai": ("chat", "responses"),
    "openai-compatible": ("chat", "responses"),
    "deepseek": ("chat", "responses"),
    "gemini": ("chat",),
}

#: Options that not every type has, and which types have them.
_ONLY: Final[Mapping[str, frozenset[str]]] = {
    "api": frozenset(APIS),
    "organization": frozenset({"openai"}),
    "project_id": frozenset({"openai"}),
    "api_version": frozenset({"azure-openai"}),
    "deployment": frozenset({"azure-openai"}),
    "store": frozenset({"openai", "azure-openai", "openai-compatible"}),
    "max_tokens_field": frozenset({"openai", "azure-openai", "openai-compatible"}),
    "thinking_field": frozenset({"openai-compatible"}),
}

#: Options of the chat dialect: the other one has a single name for what they name.
_CHAT_ONLY: Final = ("max_tokens_field", "thinking_field", "deployment")

MAX_TOKENS_FIELDS: Final = ("max_tokens", "max_completion_tokens")
THINKING_FIELDS: Final = ("reasoning_effort", "reasoning", "thinking")

#: Body fields that the encoders write; they are set by what they are about.
_ENCODED: Final = frozenset(
    {"model", "messages", "input", "system", "instructions", "stream", "tools", "n"}
    | {"previous_response_id", "conversation"}  # the journal is the conversation
)

_TYPES: Final = frozenset(str(kind) for kind in ProviderType)
_SEGMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_DEPLOYMENT_PATH: Final = re.compile(r"/openai/deployments/[^/]+$")


class Options(Protocol):
    """The part of a configuration that is checked here."""

    @property
    def type(self) -> str:
        """The type's word."""

    @property
    def base_url(self) -> str | None:
        """As given, or the type's own."""

    @property
    def api(self) -> str | None:
        """The dialect."""

    @property
    def api_version(self) -> str | None:
        """Azure's version."""

    @property
    def deployment(self) -> str | None:
        """Azure's name of a model."""


def check(config: Any) -> None:
    """Refuse options that the type does not have, and options that contradict each other.

    Raises:
        InvalidOptions: the option's name and what is allowed.
    """
    for option, types in _ONLY.items():
        if getattr(config, option) not in (None, False):
            _has_option(option, types, config)
    _one_of("api", config.api, APIS.get(config.type, ("chat", "responses")))
    _one_of("max_tokens_field", config.max_tokens_field, MAX_TOKENS_FIELDS)
    _one_of("thinking_field", config.thinking_field, THINKING_FIELDS)
    if config.api == "responses":
        for option in _CHAT_ONLY:
            if getattr(config, option) is not None:
                raise InvalidOptions(option, "None with api='responses'", getattr(config, option))
    for option in ("store", "structured_output", "images", "files"):
        _flag(option, getattr(config, option), may_be_none=option != "store")
    for option in ("api_version", "deployment"):
        _segment(option, getattr(config, option))


def api_of(kind: str, api: str | None) -> str | None:
    """The dialect: the given one, or the type's first; None for a type without a choice."""
    return api if api is not None else next(iter(APIS.get(kind, ())), None)


def extra_of(kind: str, extra: object) -> dict[str, Any]:
    """The additional body fields, if they can be sent. Raises InvalidOptions.

    At Anthropic `tools` may be among them: those that the provider runs itself.
    """
    if not isinstance(extra, Mapping) or not all(isinstance(name, str) for name in extra):
        raise InvalidOptions("extra", "body fields by name", type(extra).__name__)
    encoded = _ENCODED - {"tools"} if kind == ProviderType.ANTHROPIC else _ENCODED
    taken = sorted(encoded & extra.keys())
    if taken:
        raise InvalidOptions("extra", f"fields other than {', '.join(sorted(encoded))}", taken)
    try:
        wire_json(dict(extra), "extra")
    except ValueRefused as e:
        raise InvalidOptions("extra", "values that JSON can carry", str(e)) from None
    return dict(extra)


def address(config: Options) -> str:
    """The base URL that requests go to: path and query as the type wants them.

    Raises:
        InvalidOptions: an address at Azure that lacks its version or names two deployments.
    """
    url = config.base_url or DEFAULT_BASE_URLS[config.type]
    if config.type == "gemini" and not urlsplit(url).path.strip("/"):
        return urlunsplit(urlsplit(url)._replace(path=_GEMINI_PATH))
    return _azure(url, config) if config.type == "azure-openai" else url


# --- Azure ----------------------------------------------------------------------------


def _azure(url: str, config: Options) -> str:
    """A resource's address, a deployment's, or one of the newer `/openai/v1` kind."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/").removesuffix("/openai")
    if _DEPLOYMENT_PATH.search(path):
        path = _named_deployment(path, config)
    elif path == parts.path.rstrip("/") and path:
        _no_deployment(config)
    else:
        path = f"{path}/openai" + (f"/deployments/{quote(config.deployment)}" if config.deployment else "/v1")
    query = _with_version(parts.query, config.api_version)
    if "/deployments/" in path and "api-version=" not in query:
        raise InvalidOptions(
            "api_version", "a version such as 2024-10-21: a deployment's address needs it", None
        )
    return urlunsplit(parts._replace(path=path, query=query))


def _named_deployment(path: str, config: Options) -> str:
    named = path.rpartition("/")[2]
    if config.deployment not in (None, named):
        raise InvalidOptions("deployment", f"None or {named!r}, which base_url names", config.deployment)
    if config.api == "responses":
        raise InvalidOptions("base_url", "the resource's address: with api='responses' no deployment", named)
    return path


def _no_deployment(config: Options) -> None:
    if config.deployment is not None:
        expected = "None: base_url has a path of its own; give the resource's address to have one added"
        raise InvalidOptions("deployment", expected, config.deployment)


def _with_version(query: str, version: str | None) -> str:
    if version is None:
        return query
    others = [pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] != "api-version"]
    return urlencode([*others, ("api-version", version)])


# --- single options ---------------------------------------------------------------------


def _has_option(option: str, types: frozenset[str], config: Any) -> None:
    if config.type in _TYPES and config.type not in types:
        only = ", ".join(sorted(types))
        raise InvalidOptions(option, f"None: only type {only} has it", getattr(config, option))


def _one_of(option: str, value: object, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        raise InvalidOptions(option, f"one of {', '.join(allowed)}, or None", value)


def _flag(option: str, value: object, *, may_be_none: bool) -> None:
    if type(value) is not bool and not (may_be_none and value is None):
        raise InvalidOptions(option, "True, False or None" if may_be_none else "True or False", value)


def _segment(option: str, value: object) -> None:
    if value is not None and not (isinstance(value, str) and _SEGMENT.fullmatch(value)):
        raise InvalidOptions(option, "up to 128 of A-Z a-z 0-9 . _ -, a letter or digit first", value)

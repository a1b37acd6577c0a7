"""`ProviderConfig`: which model provider to talk to, with what credential.

Given by the user at every start; never journaled, except for what `public()`
lists. Nothing here reads the environment: a key that is only in a variable is
not there unless the caller passes it. Must never import an adapter or an SDK.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import SplitResult, urlsplit, urlunsplit

from domain.errors import InvalidOptions
from minutebook import known_secrets
from minutebook.provider_options import DEFAULT_BASE_URLS, address, api_of, check, extra_of

MAX_TIMEOUT_MS: Final = 24 * 3600 * 1000
#: What `is_word` allows, in words.
WORD: Final = "up to 64 of A-Z a-z 0-9 . _ -, a letter or digit first"
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")
_VISIBLE_LINE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?")
#: Headers that say how the message is framed; a value of the caller's would break the request.
_FRAMING: Final = frozenset({"host", "connection", "content-length", "content-type", "transfer-encoding"})
_HIDDEN: Final = "(not shown)"


class Secret:
    """A text that does not show itself: in no repr, copy, `asdict` or pickle.

    Guarantees: equal to another of the same text; the hash says nothing about it.
    """

    __slots__ = ("_text", "_watched")

    def __init__(self, text: str) -> None:
        self._text = text
        self._watched = known_secrets.remember(text)

    def reveal(self) -> str:
        """The text itself. Call this where it is sent, nowhere else."""
        return self._text

    def __repr__(self) -> str:
        return _HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(Secret)

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a credential is not pickled; give it to the process that needs it")


@dataclass(frozen=True, slots=True, repr=False)
class ProviderConfig:
    """A model provider and how to reach it.

    Args:
        type: a `ProviderType`, e.g. "openai" or "openai-compatible", or a host's own.
        base_url: http or https; None takes the type's own, where it has one. At Azure: the
            resource's, with or without `/openai/v1` or `/openai/deployments/<name>`.
        api_key: the credential itself; None for servers that take none.
        id: the logical name the journal shows; None takes `type`. What a model's reasoning
            is bound to goes back only to a provider of the same name.
        headers: pairs or a mapping, sent with every call.
        organization, project_id: of type "openai" only.
        request_timeout_ms: limit until an answer begins, and for one that is not streamed.
        stream_idle_timeout_ms: limit for the next piece of a streamed answer.
        credential_name: where the credential came from, e.g. "OPENAI_API_KEY". This name
            is journaled, the credential never is.
        api: "chat" (default) or "responses": which of OpenAI's two dialects the server speaks.
        api_version: of type "azure-openai" only, e.g. "2024-10-21"; needed for a deployment.
        deployment: of type "azure-openai" only; None sends to `/openai/v1`, where the model is it.
        store: the server keeps each response, so that a lost one can be looked up there.
        max_tokens_field: the server's name of the output limit, where it is not the type's usual one.
        thinking_field: of type "openai-compatible" only: the body field by which this server is
            asked for reasoning ("reasoning_effort", "reasoning" or "thinking"); None: it has none.
        structured_output, images, files: whether the server has it; None takes what the type has.
        extra: body fields that are added as they are; a None in it takes a field out, e.g.
            `{"stream_options": None}`. Not journaled.

    Raises:
        InvalidOptions: it cannot work. Nothing was opened or sent.
    """

    type: str
    base_url: str | None = None
    api_key: str | Secret | None = None
    id: str | None = None
    headers: Mapping[str, str] | Sequence[tuple[str, str | Secret]] = ()
    organization: str | None = None
    project_id: str | None = None
    request_timeout_ms: int = 600_000
    stream_idle_timeout_ms: int = 300_000
    credential_name: str | None = None
    api: str | None = None
    api_version: str | None = None
    deployment: str | None = None
    store: bool = False
    max_tokens_field: str | None = None
    thinking_field: str | None = None
    structured_output: bool | None = None
    images: bool | None = None
    files: bool | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _set(self, "type", _word("type", self.type))
        _set(self, "id", _word("id", self.type if self.id is None else self.id))
        _set(self, "base_url", _base_url(self.type, self.base_url))
        _set(self, "api_key", _key(self.api_key))
        _set(self, "headers", _headers(self.headers))
        check(self)
        _set(self, "api", api_of(self.type, self.api))
        _set(self, "extra", extra_of(self.type, self.extra))
        _visible("organization", self.organization)
        _visible("project_id", self.project_id)
        address(self)
        _positive("request_timeout_ms", self.request_timeout_ms)
        _positive("stream_idle_timeout_ms", self.stream_idle_timeout_ms)
        _credential_name(self.credential_name, self.credential)

    @property
    def name(self) -> str:
        """The logical name: `id`, or the type."""
        return self.id or self.type

    @property
    def url(self) -> str:
        """The base URL that requests go to, without userinfo, with path and query as the type wants."""
        return address(self)

    @property
    def credential(self) -> str | None:
        """The credential itself."""
        return self.api_key.reveal() if isinstance(self.api_key, Secret) else None

    @property
    def header_pairs(self) -> tuple[tuple[str, str], ...]:
        """The extra headers, names and values."""
        pairs = cast("tuple[tuple[str, Secret], ...]", self.headers)
        return tuple((name, value.reveal()) for name, value in pairs)

    def public(self) -> dict[str, Any]:
        """What may be journaled: type, id, base URL without userinfo and query, names of
        headers, name of the credential's source, and of the other options those that say
        where a request goes. Never a value of a header, never a digest of a credential."""
        chosen = {"api_version": self.api_version, "deployment": self.deployment}
        if self.api == "responses":
            chosen["api"] = self.api
        return {
            "type": self.type,
            "id": self.name,
            "base_url": _without_query(self.base_url or ""),
            "header_names": [name for name, _ in self.header_pairs],
            "credential_name": self.credential_name,
            **{name: value for name, value in chosen.items() if value is not None},
        }

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.public().items())
        return f"ProviderConfig({shown})"


def _set(config: ProviderConfig, name: str, value: object) -> None:
    object.__setattr__(config, name, value)  # frozen: only while it is being made


# --- checks ---------------------------------------------------------------------------


def _word(option: str, value: object) -> str:
    if not is_word(value):
        raise InvalidOptions(option, WORD, value)
    return str(value)


def is_word(value: object) -> bool:
    """Whether it can be a type or a name."""
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


def _base_url(kind: str, base_url: object) -> str:
    if base_url is None:
        if kind not in DEFAULT_BASE_URLS:
            raise InvalidOptions("base_url", f"a URL, because type {kind!r} has no default one", None)
        return DEFAULT_BASE_URLS[kind]
    parts = _parse_url(base_url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))


def _parse_url(url: object) -> SplitResult:
    expected = "an http or https URL with a host"
    if not isinstance(url, str) or not _VISIBLE.fullmatch(url):
        raise InvalidOptions("base_url", f"{expected}, without spaces", type(url).__name__)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable, parts = None, SplitResult("", "", "", "", "")
    if not usable:  # the URL may hold a password, so the message shows its scheme only
        raise InvalidOptions("base_url", expected, f"{parts.scheme or 'no scheme'}:...")
    return parts


def _without_query(url: str) -> str:
    return urlunsplit(urlsplit(url)._replace(query="", fragment=""))


def _key(key: object) -> Secret | None:
    text = key.reveal() if isinstance(key, Secret) else key
    if text is None:
        return None
    if not isinstance(text, str) or not _VISIBLE.fullmatch(text):
        raise InvalidOptions("api_key", "visible ASCII without spaces or line ends, or None", _HIDDEN)
    return Secret(text)


def _headers(headers: object) -> tuple[tuple[str, Secret], ...]:
    pairs = tuple(headers.items()) if isinstance(headers, Mapping) else headers
    if not isinstance(pairs, tuple | list):
        raise InvalidOptions("headers", "a mapping, or pairs of name and value", type(headers).__name__)
    return tuple(_header(pair) for pair in pairs)


def _header(pair: object) -> tuple[str, Secret]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InvalidOptions("headers", "pairs of name and value", type(pair).__name__)
    name, value = pair
    if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name) or name.lower() in _FRAMING:
        raise InvalidOptions("headers", "a header name that does not frame the request", name)
    text = value.reveal() if isinstance(value, Secret) else value
    if not isinstance(text, str) or not _VISIBLE_LINE.fullmatch(text):
        raise InvalidOptions("headers", f"one line of visible ASCII as value of {name}", _HIDDEN)
    return name, Secret(text)


def _visible(option: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str) or not _VISIBLE.fullmatch(value):
        raise InvalidOptions(option, "visible ASCII without spaces", value)


def _positive(option: str, value: object) -> None:
    if type(value) is not int or not 0 < value <= MAX_TIMEOUT_MS:
        raise InvalidOptions(option, f"a whole number of milliseconds, 1 to {MAX_TIMEOUT_MS}", value)


def _credential_name(name: object, credential: str | None) -> None:
    if name is None:
        return
    if not isinstance(name, str) or not _VISIBLE_LINE.fullmatch(name) or len(name) > 128:
        raise InvalidOptions("credential_name", "up to 128 visible characters", type(name).__name__)
    if credential is not None and credential in name:
        raise InvalidOptions("credential_name", "the name of the source, not the credential", _HIDDEN)

"""What went wrong with a model attempt, as stable words.

Pure: statuses, error objects and headers in, `ModelFailed` out; no SDK, no I/O.
Servers are classified by the words in their bodies first (`code`, `type`), by the
status only where these say nothing: a 200 stream can hold any error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Final

from domain import masking
from domain.errors import ModelFailed

#: Every `kind` of a failed attempt: may a new attempt succeed, and what to do next.
KINDS: Final[Mapping[str, tuple[bool, str]]] = {
    "connect_failed": (True, "check that the server is up and the base URL is right"),
    "connect_timeout": (True, "check the network and the base URL"),
    "tls_failed": (False, "check the base URL and the server's certificate"),
    "connection_lost": (True, "it may have been billed; try again"),
    "request_timeout": (True, "try again, or raise request_timeout_ms"),
    "stream_idle_timeout": (True, "try again, or raise stream_idle_timeout_ms"),
    "stream_cut": (True, "it may have been billed; try again"),
    "invalid_response": (True, "check that the base URL speaks this dialect"),
    "unexpected_content": (False, "check the base URL: this is a page, not an API"),
    "empty_response": (True, "try again"),
    "response_too_large": (False, "ask for less"),
    "too_many_calls": (False, "ask for fewer calls at once"),
    "bad_request": (False, "change the request"),
    "context_length_exceeded": (False, "make the conversation shorter"),
    "request_too_large": (False, "make the request smaller"),
    "unauthorized": (False, "check the credential"),
    "permission_denied": (False, "check what the credential may do"),
    "not_found": (False, "check the model name and the base URL"),
    "quota_exceeded": (False, "check the account's balance and limits"),
    "rate_limited": (True, "wait, then try again"),
    "conflict": (True, "try again"),
    "overloaded": (True, "wait, then try again"),
    "server_error": (True, "try again"),
    "content_filtered": (False, "change what is asked"),
    "tool_use_failed": (True, "the model wrote a call that the server refused; try again"),
    "redirected": (False, "set the base URL to where the server is now"),
    "provider_error": (True, "try again"),
}

_BY_WORD: Final[Mapping[str, str]] = {
    word: kind
    for kind, words in {
        "context_length_exceeded": "context_length_exceeded exceed_context_size_error "
        "model_context_window_exceeded",
        "quota_exceeded": "insufficient_quota insufficient_balance billing_hard_limit_reached "
        "billing_not_active billing_error quota_exceeded payment_required exceeded_current_quota_error",
        "rate_limited": "rate_limit_exceeded rate_limit_error rate_limited rate_limit_reached_error "
        "too_many_requests resource_exhausted tokens requests",
        "overloaded": "overloaded overloaded_error engine_overloaded engine_overloaded_error "
        "server_overloaded server_is_overloaded slow_down unavailable unavailable_error "
        "insufficient_system_resource",
        "unauthorized": "invalid_api_key authentication_error invalid_authentication "
        "invalid_authentication_error unauthenticated",
        "permission_denied": "permission_denied permission_error insufficient_permissions",
        "not_found": "model_not_found not_found not_found_error notfounderror deployment_not_found",
        "content_filtered": "content_filter content_policy_violation content_filtered sensitive",
        "request_too_large": "request_too_large",
        "tool_use_failed": "tool_use_failed",
        "request_timeout": "timeout timeout_error deadline_exceeded",
    }.items()
    for word in words.split()
}

#: Words that say less than a status does.
_BY_VAGUE_WORD: Final[Mapping[str, str]] = {
    "invalid_request_error": "bad_request",
    "invalid_argument": "bad_request",
    "badrequesterror": "bad_request",
    "server_error": "server_error",
    "internal_server_error": "server_error",
    "internalservererror": "server_error",
    "internal_error": "server_error",
    "internal": "server_error",
    "api_error": "server_error",
    "network_error": "server_error",
}

_BY_STATUS: Final[Mapping[int, str]] = {
    400: "bad_request",
    401: "unauthorized",
    402: "quota_exceeded",
    403: "permission_denied",
    404: "not_found",
    408: "request_timeout",
    409: "conflict",
    413: "request_too_large",
    422: "bad_request",
    425: "conflict",
    429: "rate_limited",
    529: "overloaded",
}

#: Servers without a word for it (vLLM, DeepSeek) say it in the message only.
_CONTEXT_MESSAGE: Final = re.compile(r"context (length|window|size)|prompt is too long", re.IGNORECASE)
_MESSAGE_CHARACTERS: Final = 400
_LONGEST_WAIT_S: Final = 7 * 24 * 3600.0


def failed(kind: str, message: str, *, bytes_sent: bool = True, status: int | None = None) -> ModelFailed:
    """A failure of a listed kind. The message may be long and hold anything until `told`."""
    return ModelFailed(kind, message, retryable=KINDS[kind][0], bytes_sent=bytes_sent, status=status)


def told(
    failure: ModelFailed, hidden: Sequence[str], *, visible: bool = False, digest: str | None = None
) -> ModelFailed:
    """The failure as the caller gets it: safe to show, finished with what to do next.

    Args:
        hidden: forms of secrets, masked in the message before it is shortened, so that no part
            of one is left.
        visible: whether a piece was yielded; then a new attempt would repeat it.
        digest: of the bytes that arrived, unless the failure knows better.
    """
    return ModelFailed(
        failure.kind,
        f"{_printable(masking.masked(failure.message, hidden))}; {KINDS[failure.kind][1]}",
        retryable=failure.retryable and not visible,
        bytes_sent=failure.bytes_sent,
        retry_after_s=failure.retry_after_s,
        received_digest=failure.received_digest or digest,
        status=failure.status,
    )


def from_error(error: Any, status: int | None = None) -> ModelFailed:
    """A failure from a body's error, in whichever of its shapes.

    Args:
        error: the `error` value of a body, or a whole body that is one.
        status: the HTTP status, or None within a stream that began with 200.
    """
    plain = error if isinstance(error, dict) else {"message": error}
    words = [str(plain.get(key) or "").lower() for key in ("code", "type", "status", "object")]
    said = _said(plain)
    kind = _kind(words, _number(plain), status)
    if kind in ("bad_request", "request_too_large") and _CONTEXT_MESSAGE.search(said):
        kind = "context_length_exceeded"
    named = " ".join(dict.fromkeys(word for word in words if word and word != "error")) or "no code"
    where = f"HTTP {status}" if status is not None else "an error inside the stream"
    return failed(kind, f"expected an answer, got {where} ({named}): {said}", status=status)


def from_status(status: int, headers: Mapping[str, str], body: Any, now: float) -> ModelFailed:
    """A failure from an HTTP answer that is not a success.

    Args:
        headers: names in lower case or case-insensitive.
        body: as plain values where it is JSON, otherwise its text.
        now: seconds since the epoch, for a `retry-after` that is a date.
    """
    if 300 <= status < 400:
        message = f"expected an answer, got HTTP {status}; redirects are not followed"
        return failed("redirected", message, status=status)
    failure = from_error(error_of(body) or body, status)
    failure.retryable = _told_to_retry(headers, failure.retryable)
    failure.retry_after_s = retry_after_s(headers, now)
    return failure


def error_of(body: Any) -> Any:
    """The error that a body holds, or None."""
    if isinstance(body, list):  # Gemini's endpoint wraps its error in a list
        body = body[0] if body else None
    if not isinstance(body, dict):
        return None
    if body.get("error"):
        return body["error"]
    return body if body.get("object") == "error" or body.get("type") == "error" else None


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds the server asked us to wait, or None if it did not say (or not sensibly)."""
    milliseconds = _seconds(headers.get("retry-after-ms"))
    wait = milliseconds / 1000 if milliseconds is not None else _seconds(headers.get("retry-after"))
    if wait is None:
        wait = _until(headers.get("retry-after"), now)
    return wait if wait is not None and wait <= _LONGEST_WAIT_S else None


def _kind(words: list[str], number: int | None, status: int | None) -> str:
    for word in words:
        if word in _BY_WORD:
            return _BY_WORD[word]
    for known in (number, status):
        kind = _of_status(known)
        if kind is not None and known != 400:
            return kind
    for word in words:
        if word in _BY_VAGUE_WORD:
            return _BY_VAGUE_WORD[word]
    return _of_status(number) or _of_status(status) or "provider_error"


def _of_status(status: int | None) -> str | None:
    if status is None or not 400 <= status <= 599:
        return None
    return _BY_STATUS.get(status, "server_error" if status >= 500 else "bad_request")


def _number(error: dict[Any, Any]) -> int | None:
    for value in (error.get("status_code"), error.get("code"), error.get("status")):
        if type(value) is int:
            return value
        if isinstance(value, str) and value.isascii() and value.isdigit():
            return int(value[:9])
    return None


def _said(error: dict[Any, Any]) -> str:
    said = error.get("message") or error.get("detail") or error.get("error") or ""
    return said if isinstance(said, str) else repr(said)


def _printable(text: str) -> str:
    shown = ascii(text[: 2 * _MESSAGE_CHARACTERS])[1:-1]
    return shown if len(shown) <= _MESSAGE_CHARACTERS else shown[: _MESSAGE_CHARACTERS - 3] + "..."


def _told_to_retry(headers: Mapping[str, str], retryable: bool) -> bool:
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower(), retryable)


def _seconds(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return max(0.0, value) if math.isfinite(value) else None


def _until(text: str | None, now: float) -> float | None:
    try:
        return max(0.0, parsedate_to_datetime(text or "").timestamp() - now)
    except (ValueError, OverflowError):
        return None

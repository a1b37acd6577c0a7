"""What went wrong, in stable words: by the body's words first, by the status last."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.model_failures import KINDS, failed, from_error, from_status, retry_after_s, told

NOW = 1_800_000_000.0
LATER = "Fri, 15 Jan 2027 08:00:30 GMT"  # 30 s after NOW


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, {"type": "invalid_request_error"}, "bad_request"),
        (400, {"code": "context_length_exceeded"}, "context_length_exceeded"),
        (400, {"message": "This model's maximum context length is 65536 tokens"}, "context_length_exceeded"),
        (400, {"code": "content_policy_violation"}, "content_filtered"),
        (400, {"code": "tool_use_failed", "type": "invalid_request_error"}, "tool_use_failed"),
        (401, {"type": "invalid_request_error", "code": None}, "unauthorized"),
        (401, {"code": "invalid_api_key"}, "unauthorized"),
        (402, {"message": "Insufficient Balance"}, "quota_exceeded"),
        (403, "forbidden", "permission_denied"),
        (404, {"code": "model_not_found"}, "not_found"),
        (404, "<html>not here</html>", "not_found"),
        (408, None, "request_timeout"),
        (409, {}, "conflict"),
        (413, {}, "request_too_large"),
        (413, {"message": "prompt is too long: 9 tokens"}, "context_length_exceeded"),
        (418, {}, "bad_request"),
        (422, {"detail": [{"msg": "field required"}]}, "bad_request"),
        (429, {"code": 429, "message": "Provider returned error"}, "rate_limited"),
        (429, {"code": "insufficient_quota", "type": "insufficient_quota"}, "quota_exceeded"),
        (429, {"type": "tokens", "code": "rate_limit_exceeded"}, "rate_limited"),
        (500, {"type": "server_error"}, "server_error"),
        (502, "bad gateway", "server_error"),
        (503, {"type": "overloaded_error"}, "overloaded"),
        (503, {"code": 503, "status": "UNAVAILABLE"}, "overloaded"),
        (529, {}, "overloaded"),
        (599, None, "server_error"),
        (None, {"code": 502, "message": "upstream"}, "server_error"),
        (None, {"code": "429"}, "rate_limited"),
        (None, {"status_code": 400, "type": "invalid_request_error"}, "bad_request"),
        (None, {"type": "invalid_request_error"}, "bad_request"),
        (None, {"code": True, "message": "?"}, "provider_error"),
        (None, {"code": 7, "type": ["odd"]}, "provider_error"),
        (None, "broken", "provider_error"),
    ],
)
def test_a_kind_for_every_error(status: int | None, error: Any, kind: str) -> None:
    failure = from_error(error, status)
    assert (failure.kind, failure.status) == (kind, status)
    assert failure.retryable is KINDS[kind][0]


@pytest.mark.parametrize("status", range(300, 600))
def test_every_status_has_a_listed_kind(status: int) -> None:
    assert from_status(status, {}, None, NOW).kind in KINDS


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": LATER}, 30.0),
        ({"retry-after": "Fri, 15 Jan 2027 07:00:00 GMT"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e9"}, None),
        ({"retry-after": "Fri, 99 Foo"}, None),
        ({"retry-after": ""}, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, NOW) == seconds


@pytest.mark.parametrize(("word", "retryable"), [("true", True), ("False", False), ("perhaps", False)])
def test_a_server_may_say_whether_to_try_again(word: str, retryable: bool) -> None:
    assert from_status(400, {"x-should-retry": word}, {}, NOW).retryable is retryable


def test_a_redirect_is_not_followed_and_said_so() -> None:
    failure = from_status(307, {"location": "http://elsewhere"}, None, NOW)
    assert (failure.kind, failure.retryable) == ("redirected", False)
    assert "elsewhere" not in str(failure)


def test_a_message_is_printable_bounded_and_says_what_next() -> None:
    failure = from_error({"message": "\x1b]52;c;x\x07 é \ud800" + "x" * 10_000}, 400)
    message = str(told(failure, []))
    assert message.isascii()
    assert message.isprintable()
    assert len(message) < 600
    assert message.endswith(KINDS["bad_request"][1])


@pytest.mark.parametrize("filler", [0, 350, 395, 399])
def test_a_secret_is_masked_before_the_message_is_shortened(filler: int) -> None:
    secret = "sk-canary-9d2e"
    failure = from_error({"message": "x" * filler + secret + "y" * 900}, 401)
    message = str(told(failure, [secret]))
    assert "sk-" not in message


def test_what_was_shown_is_not_tried_again() -> None:
    failure = failed("stream_cut", "expected more")
    assert told(failure, [], digest="d").retryable
    shown = told(failure, [], visible=True, digest="d")
    assert (shown.retryable, shown.received_digest, shown.bytes_sent) == (False, "d", True)

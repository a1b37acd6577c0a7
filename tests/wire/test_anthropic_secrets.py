"""The credential is sent and shown nowhere; neither environment nor files change anything."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from adapters.anthropic_messages import AnthropicProvider
from adapters.http_client import explicit_http_client
from adapters.providers import make_provider
from domain.errors import InvalidOptions
from domain.model_ports import Parameters
from minutebook.provider_config import ProviderConfig
from minutebook.testing.anthropic_replies import error_event, error_reply, events_reply, message_reply
from minutebook.testing.attempts import attempt
from minutebook.testing.fake_server import Cut, Faults, Received, Reply
from tests.wire.anthropic_place import connected
from tests.wire.test_openai_chat_secrets import locals_of

pytestmark = pytest.mark.anyio

KEY = "sk-ant-canary-8c41f0a7"
HEADER_VALUE = "hv-canary-51be"
SECRETS = (KEY, HEADER_VALUE, KEY[:14], KEY[-8:])

LEAKY = [
    error_reply(401, "authentication_error", f"invalid x-api-key: {KEY}"),
    error_reply(400, HEADER_VALUE, "x" * 390 + KEY),
    Reply(f"<p>{KEY} {HEADER_VALUE}".encode(), 502),
    Reply(f"<p>{KEY}".encode(), 200),
    Reply(f"data: {KEY}\n\n".encode()),
    events_reply([error_event(KEY, f"key {KEY}")]),
    events_reply([{"type": "message_start", "message": {}}, {"type": "content_block_delta", "index": KEY}]),
    Reply(faults=Faults(drop_request=True, cut=Cut.RESET)),
    Reply(message_reply("x").body, faults=Faults(cut_after=30, cut=Cut.RESET)),
    Reply(faults=Faults(stall_after=0)),
]


@pytest.mark.parametrize("reply", LEAKY, ids=range(len(LEAKY)))
async def test_no_failure_shows_a_secret(reply: Reply, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    options = {"api_key": KEY, "headers": (("X-Secret", HEADER_VALUE),), "stream_idle_timeout_ms": 60}
    async with connected([reply], **options) as (provider, server):
        failure = (await attempt(provider)).failure
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert server.requests[0].headers["x-secret"] == HEADER_VALUE
    assert failure is not None
    assert failure.__cause__ is None
    assert failure.__context__ is None, "an exception of the SDK holds the request, and that the credential"
    shown = [str(failure), repr(failure), repr(failure.details), repr(provider), caplog.text]
    for text in [*shown, *locals_of(failure.__traceback__)]:
        for secret in SECRETS:
            assert secret not in text


PROFILE = {
    "version": "1.0",
    "organization_id": "org-ambient",
    "workspace_id": "ws-ambient",
    "base_url": "http://127.0.0.1:9/ambient",
    "authentication": {"type": "user_oauth", "credentials_path": "ambient.json"},
}
TOKEN = {"type": "oauth_token", "access_token": "ambient-token", "expires_at": 4_000_000_000}


def planted(home: Path) -> dict[str, str]:
    """Every variable that the SDK reads, profile files where it looks for them, and proxies."""
    for place in (home / "config", home / ".config" / "anthropic"):
        for name in ("default", "ambient"):
            for kind, content in (("configs", PROFILE), ("credentials", TOKEN)):
                (place / kind).mkdir(parents=True, exist_ok=True)
                (place / kind / f"{name}.json").write_text(json.dumps(content))
        (place / "active_config").write_text("ambient")
    token = home / "token"
    token.write_text("ambient-identity")
    netrc = home / ".netrc"
    netrc.write_text("machine 127.0.0.1 login ambient password ambient\n")
    return {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "NETRC": str(netrc),
        "ANTHROPIC_API_KEY": "sk-ambient",
        "ANTHROPIC_AUTH_TOKEN": "ambient-token",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:9/ambient",
        "ANTHROPIC_CUSTOM_HEADERS": "X-Ambient: yes\nAuthorization: Bearer ambient\nUser-Agent: ambient",
        "ANTHROPIC_PROFILE": "ambient",
        "ANTHROPIC_CONFIG_DIR": str(home / "config"),
        "ANTHROPIC_IDENTITY_TOKEN": "ambient-identity",
        "ANTHROPIC_IDENTITY_TOKEN_FILE": str(token),
        "ANTHROPIC_FEDERATION_RULE_ID": "fdrl-ambient",
        "ANTHROPIC_ORGANIZATION_ID": "org-ambient",
        "ANTHROPIC_SERVICE_ACCOUNT_ID": "svac-ambient",
        "ANTHROPIC_WORKSPACE_ID": "ws-ambient",
        "ANTHROPIC_WEBHOOK_SIGNING_KEY": "whsec-ambient",
        "ANTHROPIC_LOG": "debug",
        "ANTHROPIC_OPEN_TELEMETRY": "true",
        "ANTHROPIC_OPEN_TELEMETRY_TRACES_CONTENT_MODE": "content",
        "ANTHROPIC_OPEN_TELEMETRY_PROPAGATION": "true",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "ALL_PROXY": "http://127.0.0.1:9",
        "SSL_CERT_FILE": "/nonexistent/ambient.pem",
        "SSL_CERT_DIR": "/nonexistent",
    }


@pytest.mark.parametrize("api_key", [KEY, ""])
async def test_neither_environment_nor_files_change_anything(
    api_key: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def sent() -> dict[str, str]:
        async with connected([message_reply("x")], api_key=api_key) as (provider, server):
            assert (await attempt(provider)).text == "x"
            assert "ambient" not in repr(vars(provider._client))
            assert provider._client.open_telemetry["traces"]["enabled"] is False
            request: Received = server.requests[0]
            return request.headers | {"host": "", "path": request.path}

    before = await sent()
    for name, value in planted(tmp_path).items():
        monkeypatch.setenv(name, value)
    assert await sent() == before
    assert "ambient" not in repr(before)
    assert before.get("authorization") == (f"Bearer {KEY}" if api_key else None)


async def test_the_planted_things_would_be_picked_up_by_the_sdk_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Otherwise the test above would show nothing."""
    from anthropic import AsyncAnthropic

    for name, value in planted(tmp_path).items():
        monkeypatch.setenv(name, value)
    by_key = AsyncAnthropic(http_client=explicit_http_client())
    assert by_key.api_key == "sk-ambient"
    assert "ambient" in str(by_key.base_url)
    assert by_key.default_headers["X-Ambient"] == "yes"
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name)
    by_profile = AsyncAnthropic(http_client=explicit_http_client())
    assert by_profile.credentials is not None
    for client in (by_key, by_profile):
        await client.close()


async def test_what_is_given_is_sent() -> None:
    headers = (("X-Team", "seven"), ("anthropic-beta", "mcp-client-2025-11-20"))
    async with connected([message_reply("x")], headers=headers) as (provider, server):
        await attempt(provider, b'{"a":1}', attempt_id="r1.t1.a1")
        sent = server.requests[0].headers
    assert (sent["x-team"], sent["anthropic-beta"]) == ("seven", "mcp-client-2025-11-20")
    assert sent["x-client-request-id"] == "r1.t1.a1"
    assert sent["x-stainless-retry-count"] == "0"
    assert sent["content-type"] == "application/json"
    assert sent["anthropic-version"]


@pytest.mark.parametrize("header", ["x-api-key", "Authorization"])
async def test_a_header_of_the_callers_may_be_the_credential(header: str) -> None:
    async with connected([message_reply("x")], api_key="", headers=((header, "mine-alone"),)) as (
        provider,
        server,
    ):
        await attempt(provider)
        sent = server.requests[0].headers
    assert sent[header.lower()] == "mine-alone"
    assert sent.get("authorization", "mine-alone") == "mine-alone"


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
async def test_the_path_is_added_once(path: str) -> None:
    async with connected([message_reply("x")]) as (_, server):
        address = server.url.removesuffix("/v1").replace("//", "//user:pw-canary@") + path
        provider = AnthropicProvider(provider="p", base_url=address, api_key=KEY)
        await attempt(provider)
        await provider.aclose()
        assert server.requests[0].path == "/v1/messages"
        assert "pw-canary" not in repr(server.requests[0]) + repr(provider)


# --- from a configuration ------------------------------------------------------------------------


async def test_a_configuration_makes_its_provider() -> None:
    async with connected([message_reply("x")]) as (_, server):
        config = ProviderConfig("anthropic", server.url, KEY, headers={"X-Team": "seven"}, extra={"top_k": 1})
        provider = make_provider(config)
        assert (provider.provider, provider.api) == ("anthropic", "anthropic-messages")
        assert provider.capabilities.thinking
        assert (await attempt(provider, provider.body([], [], Parameters("m")))).text == "x"
        await provider.aclose()
        assert server.requests[0].headers["x-team"] == "seven"
        assert server.requests[0].parsed["top_k"] == 1


def test_without_a_key_it_is_refused_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ambient")
    with pytest.raises(InvalidOptions, match="environment is not picked up"):
        make_provider(ProviderConfig("anthropic"))

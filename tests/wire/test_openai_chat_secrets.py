"""The credential is sent and shown nowhere; the environment changes nothing."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from adapters import http_client
from adapters.openai_chat import OpenAIChatProvider
from adapters.providers import make_provider
from domain.errors import InvalidOptions
from domain.model_ports import Parameters
from minutebook.provider_config import ProviderConfig
from minutebook.testing.attempts import attempt
from minutebook.testing.chat_replies import chat_reply, error_reply, stream_reply
from minutebook.testing.fake_server import Cut, Faults, Received, Reply

pytestmark = pytest.mark.anyio

KEY = "sk-canary-8c41f0a7"
HEADER_VALUE = "hv-canary-51be"
SECRETS = (KEY, HEADER_VALUE, KEY[:12], KEY[-8:])

LEAKY = [
    error_reply(401, {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}),
    error_reply(400, {"message": "x" * 390 + KEY, "type": HEADER_VALUE}),
    Reply(f"<p>{KEY} {HEADER_VALUE}".encode(), 502),
    Reply(f"<p>{KEY}".encode(), 200),
    Reply(f"data: {KEY}\n\n".encode()),
    stream_reply([{"error": {"message": f"key {KEY}", "code": KEY}}]),
    Reply(faults=Faults(drop_request=True, cut=Cut.RESET)),
    Reply(chat_reply("x").body, faults=Faults(cut_after=30, cut=Cut.RESET)),
    Reply(faults=Faults(stall_after=0)),
]


def locals_of(trace: TracebackType | None) -> list[str]:
    """What a crash reporter that shows local variables would show of our frames and the SDK's."""
    return [
        repr(frame.f_locals)
        for frame, _ in traceback.walk_tb(trace)
        if Path(frame.f_code.co_filename).parent != Path(__file__).parent
    ]


@pytest.mark.parametrize("reply", LEAKY, ids=range(len(LEAKY)))
async def test_no_failure_shows_a_secret(
    reply: Reply, connected: Any, caplog: pytest.LogCaptureFixture
) -> None:
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


async def test_a_failure_to_connect_shows_no_secret(connected: Any) -> None:
    async with connected([], base_url="http://user:pw-canary@127.0.0.1:1/v1", api_key=KEY) as (provider, _):
        failure = (await attempt(provider)).failure
    assert failure is not None
    shown = [str(failure), repr(provider), *locals_of(failure.__traceback__)]
    assert not [text for text in shown if KEY in text or "pw-canary" in text]


async def test_a_user_name_in_the_address_is_not_sent(connected: Any) -> None:
    async with connected([chat_reply("x")]) as (_, server):
        address = server.url.replace("//", "//user:pw-canary@")
        provider = OpenAIChatProvider(provider="p", base_url=address, api_key=KEY)
        await attempt(provider)
        await provider.aclose()
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert "pw-canary" not in repr(server.requests[0])


AMBIENT = {
    "OPENAI_API_KEY": "sk-ambient",
    "OPENAI_ADMIN_KEY": "sk-ambient-admin",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/ambient",
    "OPENAI_ORG_ID": "org-ambient",
    "OPENAI_PROJECT_ID": "proj-ambient",
    "OPENAI_WEBHOOK_SECRET": "whsec-ambient",
    "OPENAI_CUSTOM_HEADERS": "X-Ambient: yes\nAuthorization: Bearer ambient\nUser-Agent: ambient",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "http_proxy": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "ALL_PROXY": "http://127.0.0.1:9",
    "SSL_CERT_FILE": "/nonexistent/ambient.pem",
    "SSL_CERT_DIR": "/nonexistent",
}


@pytest.mark.parametrize("api_key", [KEY, ""])
async def test_the_environment_changes_nothing(
    api_key: str, connected: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login ambient password ambient\n")

    async def sent() -> dict[str, str]:
        async with connected([chat_reply("x")], api_key=api_key) as (provider, server):
            assert (await attempt(provider)).text == "x"
            request: Received = server.requests[0]
            return request.headers | {"host": "", "path": request.path}

    before = await sent()
    for name, value in (AMBIENT | {"NETRC": str(netrc)}).items():
        monkeypatch.setenv(name, value)
    assert await sent() == before
    assert "ambient" not in repr(before)
    assert before.get("authorization") == (f"Bearer {KEY}" if api_key else None)


def test_certificates_named_by_the_environment_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent/ambient.pem")
    http_client.trust.cache_clear()
    assert http_client.trust() is http_client.trust()


async def test_what_is_given_is_sent(connected: Any) -> None:
    options = {"organization": "org-1", "project_id": "proj_1", "headers": (("X-Team", "seven"),)}
    async with connected([chat_reply("x")], **options) as (provider, server):
        await attempt(provider, b'{"a":1}', attempt_id="r1.t1.a1")
        headers = server.requests[0].headers
    assert {name: headers[name] for name in ("openai-organization", "openai-project", "x-team")} == {
        "openai-organization": "org-1",
        "openai-project": "proj_1",
        "x-team": "seven",
    }
    assert headers["x-client-request-id"] == "r1.t1.a1"
    assert headers["x-stainless-retry-count"] == "0"
    assert headers["content-type"] == "application/json"


async def test_a_header_of_the_callers_may_be_the_credential(connected: Any) -> None:
    async with connected([chat_reply("x")], api_key="", headers=(("Authorization", "Basic eA=="),)) as (
        provider,
        server,
    ):
        await attempt(provider)
        assert server.requests[0].headers["authorization"] == "Basic eA=="


# --- from a configuration ------------------------------------------------------------------------


async def test_a_configuration_makes_its_provider(connected: Any) -> None:
    async with connected([chat_reply("x")]) as (_, server):
        config = ProviderConfig("openai-compatible", server.url, KEY, headers={"X-Team": "seven"})
        provider = make_provider(config)
        assert (provider.provider, provider.api) == ("openai-compatible", "openai-chat")
        assert (await attempt(provider)).text == "x"
        await provider.aclose()
        assert server.requests[0].headers["x-team"] == "seven"


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (ProviderConfig("openai", api_key=KEY), b"max_completion_tokens"),
        (ProviderConfig("openai-compatible", "http://h/v1"), b"max_tokens"),
    ],
    ids=["openai", "openai-compatible"],
)
async def test_each_type_names_the_output_limit_in_its_way(config: ProviderConfig, field: bytes) -> None:
    provider = make_provider(config)
    assert b'"%b":5' % field in provider.body([], [], Parameters("m", max_output_tokens=5))
    await provider.aclose()


def test_a_type_without_an_adapter_is_refused_and_others_named() -> None:
    with pytest.raises(InvalidOptions, match="openai, openai-compatible"):
        make_provider(ProviderConfig("mine", "http://h", api_key=KEY))


def test_openai_without_a_key_is_refused_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-ambient")
    with pytest.raises(InvalidOptions, match="environment is not picked up"):
        make_provider(ProviderConfig("openai"))

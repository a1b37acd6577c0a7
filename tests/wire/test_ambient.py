"""Credentials and addresses that lie about in the environment are never picked up, by any type.

A real process is given every variable that the SDKs read, and files where they look
for them; what its server gets has to be what it gets without.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from minutebook.provider_options import ProviderType
from minutebook.testing.anthropic_replies import message_reply
from minutebook.testing.chat_replies import chat_reply
from minutebook.testing.fake_server import Received, Reply, serve_in_thread
from minutebook.testing.responses_replies import response_reply
from tests.wire.ambient import CONFIGURED

ROOT = Path(__file__).parents[2]
KEY = "sk-given-5d0e77aa"
MARK: Final = "ambient-canary"

_HEADERS = f"X-Ambient: {MARK}\nAuthorization: Bearer {MARK}\napi-key: {MARK}\nUser-Agent: {MARK}"
_NOWHERE = f"http://127.0.0.1:9/{MARK}"

#: Variables whose value has to look like something.
SHAPED: Final = {
    "OPENAI_BASE_URL": _NOWHERE,
    "OPENAI_CUSTOM_HEADERS": _HEADERS,
    "OPENAI_LOG": "debug",
    "OPENAI_API_TYPE": "azure",
    "AZURE_OPENAI_ENDPOINT": _NOWHERE,
    "ANTHROPIC_BASE_URL": _NOWHERE,
    "ANTHROPIC_CUSTOM_HEADERS": _HEADERS,
    "ANTHROPIC_LOG": "debug",
    "ANTHROPIC_OPEN_TELEMETRY": "true",
    "ANTHROPIC_OPEN_TELEMETRY_PROPAGATION": "true",
    "GOOGLE_GEMINI_BASE_URL": _NOWHERE,
    "HTTP_PROXY": "http://127.0.0.1:9",
    "http_proxy": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
    "ALL_PROXY": "http://127.0.0.1:9",
    "all_proxy": "http://127.0.0.1:9",
    "SSL_CERT_FILE": f"/nonexistent/{MARK}.pem",
    "SSL_CERT_DIR": f"/nonexistent/{MARK}",
    "SSLKEYLOGFILE": "",
}
_WORDS: Final = """
    OPENAI_API_KEY OPENAI_ADMIN_KEY OPENAI_ORG_ID OPENAI_PROJECT_ID OPENAI_WEBHOOK_SECRET OPENAI_API_VERSION
    AZURE_OPENAI_API_KEY AZURE_OPENAI_AD_TOKEN AZURE_CLIENT_ID AZURE_CLIENT_SECRET AZURE_TENANT_ID
    ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN ANTHROPIC_PROFILE ANTHROPIC_IDENTITY_TOKEN ANTHROPIC_SCOPE
    ANTHROPIC_FEDERATION_RULE_ID ANTHROPIC_ORGANIZATION_ID ANTHROPIC_SERVICE_ACCOUNT_ID ANTHROPIC_WORKSPACE_ID
    ANTHROPIC_WEBHOOK_SIGNING_KEY ANTHROPIC_WORK_ID ANTHROPIC_WORK_SECRET ANTHROPIC_SESSION_ID
    ANTHROPIC_ENVIRONMENT_KEY ANTHROPIC_ENVIRONMENT_ID
    GEMINI_API_KEY GOOGLE_API_KEY GOOGLE_APPLICATION_CREDENTIALS GOOGLE_CLOUD_PROJECT GOOGLE_CLOUD_LOCATION
    DEEPSEEK_API_KEY OPENROUTER_API_KEY GROQ_API_KEY MISTRAL_API_KEY XAI_API_KEY
    AWS_BEARER_TOKEN_BEDROCK AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_REGION AWS_DEFAULT_REGION
"""

#: What one SDK reads for clients that are not used here, and what is no setting of a request.
_OTHER_CLIENTS: Final = re.compile(
    r"(ANTHROPIC|AWS)_(AWS|BEDROCK|VERTEX|FOUNDRY|GOOGLE_CLOUD)_\w+|CLOUD_ML_REGION|DEFER_PYDANTIC_BUILD|APPDATA"
    r"|ANTHROPIC_OPEN_TELEMETRY_TRACES_\w+|ENV_\w+|CONTENT_LENGTH|PATH|HOME|NO_PROXY|no_proxy"
)
_READ: Final = re.compile(
    r"""(?:environ(?:\.get)?\s*[\[(]|getenv\(|^ENV_\w+\s*(?::.*)?=)\s*["'](\w+)["']""", re.M
)


def planted(home: Path) -> dict[str, str]:
    """An environment that is full of what must not be used."""
    (home / ".netrc").write_text(f"machine 127.0.0.1 login {MARK} password {MARK}\n")
    profiles = home / ".config" / "anthropic" / "configs"
    profiles.mkdir(parents=True)
    for name in ("default", MARK):
        (profiles / f"{name}.json").write_text(json.dumps({"base_url": _NOWHERE, "api_key": MARK}))
    (home / ".config" / "anthropic" / "active_config").write_text("default")
    places = {"HOME": str(home), "NETRC": str(home / ".netrc"), "XDG_CONFIG_HOME": str(home / ".config")}
    identity = home / "identity-token"
    identity.write_text(MARK)
    files = {
        "ANTHROPIC_CONFIG_DIR": str(home / ".config" / "anthropic"),
        "ANTHROPIC_IDENTITY_TOKEN_FILE": str(identity),
    }
    return dict.fromkeys(_WORDS.split(), MARK) | SHAPED | places | files


def answer(request: Received) -> Reply:
    """An answer in the dialect of the path."""
    if "/chat/completions" in request.path:
        return chat_reply("x")
    return message_reply("x") if request.path.endswith("/v1/messages") else response_reply("x")


Run = tuple[dict[str, str], dict[str, Received], str]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run in an environment that is full of it."""
    return asked(planted(tmp_path_factory.mktemp("full")))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run in an environment with nothing in it."""
    return asked({"HOME": str(tmp_path_factory.mktemp("bare"))})


def asked(environment: dict[str, str]) -> Run:
    """What the process was answered, what its server got by name, and what it said besides."""
    base = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
    with serve_in_thread(answer) as server:
        address = server.url.removesuffix("/v1")
        child = subprocess.run(
            [sys.executable, "-m", "tests.wire.ambient", address, KEY],
            cwd=ROOT,
            env=base | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert child.returncode == 0, child.stderr
        requests = dict(zip(CONFIGURED, server.requests, strict=True))
        return json.loads(child.stdout), requests, child.stderr


def _comparable(request: Received) -> Any:
    return request.path, request.headers | {"host": ""}, request.body


def test_no_type_takes_anything_from_the_environment(bare: Run, full: Run) -> None:
    assert bare[0] == full[0] == dict.fromkeys(CONFIGURED, "x")
    for name, request in full[1].items():
        assert _comparable(request) == _comparable(bare[1][name]), name
        assert MARK not in repr(request), name
        sent = [value for value in request.headers.values() if KEY in value]
        assert len(sent) == 1, f"{name}: the key that was given, once"


def test_the_key_is_not_told_even_where_an_sdk_was_told_to_log(full: Run) -> None:
    assert "HTTP Request" in full[2] or "DEBUG" in full[2] or "debug" in full[2], "it did log"
    assert KEY not in full[2]


def test_the_key_and_the_request_go_where_the_type_wants_them(full: Run) -> None:
    by_name = full[1]
    for name, request in by_name.items():
        own = name.startswith("azure")
        assert request.headers.get("api-key") == (KEY if own else None), name
        assert request.headers.get("authorization") == (None if own else f"Bearer {KEY}"), name
    paths = {name: request.path for name, request in by_name.items() if name.startswith("azure")}
    assert paths == {
        "azure deployment": "/openai/deployments/gpt/chat/completions?api-version=2024-10-21",
        "azure v1": "/openai/v1/chat/completions",
        "azure responses": "/openai/v1/responses",
    }
    assert by_name["gemini"].path == "/v1beta/openai/chat/completions"
    assert by_name["deepseek"].path == "/chat/completions"


def test_every_variable_that_the_sdks_read_is_planted(tmp_path: Path) -> None:
    names = set(planted(tmp_path))
    missing = sorted(name for name in set(_variables()) - names if not _OTHER_CLIENTS.fullmatch(name))
    assert missing == []


def _variables() -> Iterator[str]:
    for package in ("openai", "anthropic", "httpx2"):
        found = importlib.util.find_spec(package)
        assert found is not None and found.submodule_search_locations
        for file in Path(found.submodule_search_locations[0]).rglob("*.py"):
            yield from _READ.findall(file.read_text(encoding="utf-8"))


def test_the_search_finds_what_is_known_to_be_read() -> None:
    assert {"OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "AZURE_OPENAI_AD_TOKEN"} <= set(_variables())


def test_every_type_is_tried() -> None:
    assert {options["type"] for options in CONFIGURED.values()} == {str(kind) for kind in ProviderType}

"""`ProviderConfig`: what it refuses, and that its credential shows nowhere."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from domain.errors import InvalidOptions
from minutebook.provider_config import ProviderConfig, Secret

ROOT = Path(__file__).parents[2]
KEY = "sk-canary-4f1d9c"
HEADER_VALUE = "hv-canary-77aa"
URL = "https://user:pw-canary-1@models.example/v1?token=q-canary-2#f"


def a_config(**changes: Any) -> ProviderConfig:
    options: dict[str, Any] = {
        "type": "openai-compatible",
        "base_url": URL,
        "api_key": KEY,
        "headers": {"X-Team": HEADER_VALUE},
        "credential_name": "TEAM_KEY",
    }
    return ProviderConfig(**(options | changes))


def test_what_may_be_journaled_is_a_closed_list() -> None:
    assert a_config(id="local").public() == {
        "type": "openai-compatible",
        "id": "local",
        "base_url": "https://models.example/v1",
        "header_names": ["X-Team"],
        "credential_name": "TEAM_KEY",
    }


@pytest.mark.parametrize("plain", [repr, str, "{}".format, asdict, astuple])
def test_no_way_of_showing_it_shows_a_secret(plain: Any) -> None:
    shown = repr(plain(a_config()))
    for secret in (KEY, HEADER_VALUE, "pw-canary-1"):
        assert secret not in shown


def test_plain_values_of_it_cannot_be_written_down_by_mistake() -> None:
    with pytest.raises(TypeError):
        orjson.dumps(asdict(a_config()))


def test_it_is_not_pickled() -> None:
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(a_config())


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, replace])
def test_a_copy_keeps_the_credential(again: Any) -> None:
    copied = again(a_config())
    assert copied == a_config()
    assert (copied.credential, copied.header_pairs) == (KEY, (("X-Team", HEADER_VALUE),))


def test_a_secret_equals_its_like_and_no_text() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert hash(Secret("a")) == hash(Secret("b"))


def test_type_openai_knows_its_address() -> None:
    config = ProviderConfig("openai")
    assert (config.url, config.name, config.credential) == ("https://api.openai.com/v1", "openai", None)


def test_an_address_keeps_its_query_and_loses_its_user() -> None:
    assert a_config().url == "https://models.example/v1?token=q-canary-2"


def test_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://nonsense.invalid")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    config = ProviderConfig("openai")
    assert (config.url, config.credential) == ("https://api.openai.com/v1", None)


@pytest.mark.parametrize(
    ("option", "changes"),
    [
        ("type", {"type": ""}),
        ("type", {"type": "a b"}),
        ("type", {"type": None}),
        ("id", {"id": ""}),
        ("base_url", {"base_url": None}),
        ("base_url", {"base_url": ""}),
        ("base_url", {"base_url": "models.example/v1"}),
        ("base_url", {"base_url": "ftp://models.example"}),
        ("base_url", {"base_url": "http://"}),
        ("base_url", {"base_url": "http://h:99999/"}),
        ("base_url", {"base_url": "http://[::1"}),
        ("base_url", {"base_url": "http://h/a b"}),
        ("base_url", {"base_url": 7}),
        ("api_key", {"api_key": ""}),
        ("api_key", {"api_key": KEY + "\n"}),
        ("api_key", {"api_key": "schlüssel"}),
        ("api_key", {"api_key": b"bytes"}),
        ("headers", {"headers": "X: y"}),
        ("headers", {"headers": [("X",)]}),
        ("headers", {"headers": {"X Y": "v"}}),
        ("headers", {"headers": {"Host": "v"}}),
        ("headers", {"headers": {"X": "a\r\nY: b"}}),
        ("organization", {"organization": "org"}),
        ("project_id", {"project_id": "proj"}),
        ("organization", {"type": "openai", "organization": "a b"}),
        ("request_timeout_ms", {"request_timeout_ms": 0}),
        ("request_timeout_ms", {"request_timeout_ms": True}),
        ("stream_idle_timeout_ms", {"stream_idle_timeout_ms": -1}),
        ("stream_idle_timeout_ms", {"stream_idle_timeout_ms": 1.5}),
        ("credential_name", {"credential_name": KEY}),
        ("credential_name", {"credential_name": ""}),
    ],
)
def test_what_cannot_work_is_refused_by_name_and_shows_no_secret(
    option: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(InvalidOptions) as refused:
        a_config(**changes)
    assert refused.value.option == option
    for secret in (KEY, HEADER_VALUE, "pw-canary-1", "schlüssel"):
        assert secret not in str(refused.value)


def test_organization_and_project_belong_to_type_openai() -> None:
    config = ProviderConfig("openai", organization="org-1", project_id="proj_1")
    assert (config.organization, config.project_id) == ("org-1", "proj_1")


def test_configurations_and_doubles_need_no_sdk() -> None:
    modules = "provider_config testing.scripted testing.replay testing.fake_server testing.chat_replies"
    imports = ", ".join(["adapters.providers", *(f"minutebook.{name}" for name in modules.split())])
    probe = f"import {imports}, sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    loaded = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert not {"openai", "httpx2", "eventsourcing", "sqlite3"} & set(loaded.stdout.split())

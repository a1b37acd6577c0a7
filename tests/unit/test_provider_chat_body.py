"""What a chat request says beside its messages, for each kind of server; media; stored completions."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest

from adapters.openai_chat_types import CHAT_TYPES, chat_type
from adapters.providers import make_provider
from domain.errors import InvalidOptions
from domain.model_ports import Capabilities, Parameters
from domain.values import ThinkingSettings
from minutebook.provider_config import ProviderConfig
from minutebook.testing.wire_rules import CHECKS
from projections.openai_chat_body import PLAIN, Server
from projections.openai_chat_wire import encode_item, request_body
from projections.transcript import UserItem
from projections.wire_calls import EMPTY_INPUT

pytestmark = pytest.mark.anyio

HELLO = encode_item(UserItem(1, "i", "hello"), "p")
STRICT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]} | {
    "additionalProperties": False
}


def body(server: Server = PLAIN, **parameters: Any) -> dict[str, Any]:
    sent = orjson.loads(request_body([HELLO], [], Parameters("m", **parameters), server))
    CHECKS["openai-chat"](sent)
    assert isinstance(sent, dict)
    return sent


# --- thinking -------------------------------------------------------------------------------

BUDGET, EFFORT = ThinkingSettings(2048), ThinkingSettings(effort="high")
BOTH, NEITHER = ThinkingSettings(2048, "high"), ThinkingSettings()

ASKED: list[tuple[str, ThinkingSettings, dict[str, Any]]] = [
    ("reasoning_effort", EFFORT, {"reasoning_effort": "high"}),
    ("reasoning_effort", BUDGET, {"reasoning_effort": "low"}),
    ("reasoning_effort", ThinkingSettings(10_000), {"reasoning_effort": "medium"}),
    ("reasoning_effort", ThinkingSettings(50_000), {"reasoning_effort": "high"}),
    ("reasoning_effort", BOTH, {"reasoning_effort": "high"}),
    ("reasoning_effort", NEITHER, {}),
    ("reasoning", EFFORT, {"reasoning": {"effort": "high"}}),
    ("reasoning", BUDGET, {"reasoning": {"max_tokens": 2048}}),
    ("reasoning", BOTH, {"reasoning": {"max_tokens": 2048}}),
    ("reasoning", NEITHER, {"reasoning": {"enabled": True}}),
    ("thinking", EFFORT, {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
    ("thinking", NEITHER, {"thinking": {"type": "enabled"}}),
    ("thinking", ThinkingSettings(effort="none"), {"thinking": {"type": "disabled"}}),
    ("google", EFFORT, {"reasoning_effort": "high"}),
    ("google", BOTH, {"extra_body": {"google": {"thinking_config": {"thinking_budget": 2048}}}}),
]
FIELDS = {"reasoning_effort", "reasoning", "thinking", "extra_body"}


@pytest.mark.parametrize(("field", "asked", "expected"), ASKED, ids=range(len(ASKED)))
def test_r024_reasoning_is_asked_for_in_the_servers_words(
    field: str, asked: ThinkingSettings, expected: dict[str, Any]
) -> None:
    sent = body(Server(thinking_field=field), thinking=asked)
    assert {name: sent[name] for name in FIELDS & sent.keys()} == expected


@pytest.mark.parametrize("field", ["reasoning_effort", "reasoning", "thinking", "google", None])
def test_reasoning_that_nobody_asked_for_is_not_mentioned(field: str | None) -> None:
    assert FIELDS & body(Server(thinking_field=field)).keys() == set()


def test_a_server_without_a_field_for_it_is_never_asked() -> None:
    with pytest.raises(InvalidOptions, match="thinking"):
        body(Server(thinking_field=None), thinking=EFFORT)


# --- forced output ---------------------------------------------------------------------------


@pytest.mark.parametrize(("schema", "strict"), [(STRICT, True), ({"type": "object"}, False)])
def test_a_schema_goes_out_as_it_is_and_strict_where_it_can_be(schema: dict[str, Any], strict: bool) -> None:
    assert body(output_schema=schema)["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "output", "schema": schema, "strict": strict},
    }


# --- stored completions and additional fields --------------------------------------------------


def test_a_stored_completion_carries_the_key_of_its_attempt() -> None:
    sent = body(Server(stores=True), attempt_key="s1/r1.t1.a1", extra={"metadata": {"team": "seven"}})
    assert (sent["store"], sent["metadata"]) == (True, {"team": "seven", "minutebook_attempt": "s1/r1.t1.a1"})


def test_what_is_not_stored_carries_no_key() -> None:
    sent = body(attempt_key="s1/r1.t1.a1")
    assert {"store", "metadata"} & sent.keys() == set()


def test_fields_of_the_session_come_after_those_of_the_server() -> None:
    server = Server(extra={"seed": 1, "user": "u", "stream_options": None})
    sent = body(server, extra={"seed": 2})
    assert (sent["seed"], sent["user"], "stream_options" in sent) == (2, "u", False)


@pytest.mark.parametrize("field", ["messages", "n"])
def test_fields_of_the_dialect_are_not_free_for_a_server_either(field: str) -> None:
    with pytest.raises(InvalidOptions, match=field):
        body(Server(extra={field: 1}))


# --- media -------------------------------------------------------------------------------------

PNG = {"type": "image", "media_type": "image/png", "blob": "a", "size": 3}
PDF = {"type": "file", "media_type": "application/pdf", "blob": "b", "size": 3, "filename": "r.pdf"}
NOTES = {"type": "file", "media_type": "text/markdown", "blob": "c", "size": 3, "filename": "n.md"}
MEDIA = {"a": b"png", "b": b"pdf", "c": "é\n".encode()}


def content(*parts: dict[str, Any], media: dict[str, bytes] | None = None) -> Any:
    item = UserItem(1, "i", list(parts), MEDIA if media is None else media)
    encoded = encode_item(item, "p")
    CHECKS["openai-chat"](orjson.loads(request_body([encoded], [], Parameters("m"))))
    return orjson.loads(encoded)["content"]


def test_an_image_and_a_document_go_out_with_their_bytes() -> None:
    text, image, document = content({"type": "text", "text": "see"}, PNG, PDF)
    assert text == {"type": "text", "text": "see"}
    encoded = base64.b64encode(b"png").decode()
    assert image == {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}"}}
    assert document["file"]["filename"] == "r.pdf"
    assert document["file"]["file_data"] == f"data:application/pdf;base64,{base64.b64encode(b'pdf').decode()}"


def test_a_text_file_goes_out_as_text() -> None:
    assert content(NOTES) == "[file n.md]\né\n"


def test_media_that_are_not_at_hand_are_named() -> None:
    assert content(PNG, media={}) == "[image, image/png, 3 bytes: not sent again]"


def test_empty_texts_beside_media_are_left_out() -> None:
    [image] = content({"type": "text", "text": " \n"}, PNG)
    assert image["type"] == "image_url"


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_an_input_without_a_word_gets_a_placeholder(text: str) -> None:
    assert content({"type": "text", "text": text}) == EMPTY_INPUT


# --- types ---------------------------------------------------------------------------------------

HAS = {
    "openai": Capabilities(structured_output=True, thinking=True, images=True, files=True),
    "azure-openai": Capabilities(structured_output=True, thinking=True, images=True),
    "gemini": Capabilities(structured_output=True, thinking=True, images=True),
    "deepseek": Capabilities(thinking=True),
    "openai-compatible": Capabilities(images=True),
}


def a_config(kind: str, **options: Any) -> ProviderConfig:
    address = "http://127.0.0.1:9/v1" if kind in ("azure-openai", "openai-compatible") else None
    return ProviderConfig(kind, address, "a-key", **options)


@pytest.mark.parametrize("kind", CHAT_TYPES)
async def test_what_each_type_has(kind: str) -> None:
    provider = make_provider(a_config(kind))
    assert provider.capabilities == HAS[kind] == chat_type(kind).capabilities
    await provider.aclose()


@pytest.mark.parametrize(
    ("kind", "has"),
    [
        ("openai", HAS["openai"]),
        ("azure-openai", HAS["openai"]),
        ("deepseek", HAS["deepseek"]),
        ("openai-compatible", Capabilities(thinking=True, images=True)),
    ],
)
async def test_what_each_type_has_in_the_responses_dialect(kind: str, has: Capabilities) -> None:
    provider = make_provider(a_config(kind, api="responses"))
    assert provider.capabilities == has
    await provider.aclose()


async def test_what_a_configuration_says_of_its_server_counts() -> None:
    options = {"structured_output": True, "images": False, "files": True, "thinking_field": "reasoning"}
    provider = make_provider(a_config("openai-compatible", **options))
    assert provider.capabilities == Capabilities(structured_output=True, thinking=True, files=True)
    sent = provider.body([HELLO], [], Parameters("m", thinking=EFFORT))
    assert orjson.loads(sent)["reasoning"] == {"effort": "high"}
    await provider.aclose()


@pytest.mark.parametrize(
    ("kind", "options", "field"),
    [
        ("openai", {}, "max_completion_tokens"),
        ("openai", {"max_tokens_field": "max_tokens"}, "max_tokens"),
        ("azure-openai", {}, "max_completion_tokens"),
        ("deepseek", {}, "max_tokens"),
        ("gemini", {}, "max_tokens"),
        ("openai-compatible", {}, "max_tokens"),
        ("openai-compatible", {"max_tokens_field": "max_completion_tokens"}, "max_completion_tokens"),
    ],
)
async def test_each_server_names_the_output_limit_in_its_way(
    kind: str, options: dict[str, Any], field: str
) -> None:
    provider = make_provider(a_config(kind, **options))
    sent = orjson.loads(provider.body([HELLO], [], Parameters("m", max_output_tokens=5)))
    assert {name: value for name, value in sent.items() if "tokens" in name} == {field: 5}
    await provider.aclose()


async def test_the_logical_name_is_what_is_recorded() -> None:
    provider = make_provider(a_config("openai-compatible", id="the-router"))
    assert provider.provider == "the-router"
    await provider.aclose()


@pytest.mark.parametrize("kind", ["anthropic", "azure-openai", "deepseek", "gemini", "openai"])
async def test_a_hosted_api_needs_a_credential(kind: str) -> None:
    address = "https://r.example" if kind == "azure-openai" else None
    with pytest.raises(InvalidOptions, match="environment is not picked up"):
        make_provider(ProviderConfig(kind, address))
    token = {"Authorization": "Bearer of-the-directory"}
    await make_provider(ProviderConfig(kind, address, headers=token)).aclose()

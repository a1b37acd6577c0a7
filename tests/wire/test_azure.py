"""Azure OpenAI: where requests go, with which credential, and what its content filter says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapters.providers import make_provider
from domain.model_ports import ModelProvider
from minutebook.provider_config import ProviderConfig
from minutebook.testing.attempts import attempt
from minutebook.testing.chat_replies import chat_reply, delta_chunk, error_reply, stream_reply
from minutebook.testing.fake_server import FakeServer, Reply, serve

pytestmark = pytest.mark.anyio

KEY = "key-of-a-resource"
SAFE = {"hate": {"filtered": False, "severity": "safe"}}


@asynccontextmanager
async def at_azure(*replies: Reply, **options: Any) -> AsyncIterator[tuple[ModelProvider, FakeServer]]:
    async with serve(replies) as server:
        address = server.url.removesuffix("/v1") + options.pop("path", "")
        provider = make_provider(ProviderConfig("azure-openai", address, **({"api_key": KEY} | options)))
        try:
            yield provider, server
        finally:
            await provider.aclose()


async def test_a_token_of_the_directory_goes_out_in_place_of_a_key() -> None:
    token = {"Authorization": "Bearer of-the-directory"}
    async with at_azure(chat_reply("x"), api_key=None, headers=token) as (provider, server):
        assert (await attempt(provider)).text == "x"
        sent = server.requests[0].headers
    assert sent["authorization"] == "Bearer of-the-directory"
    assert "api-key" not in sent


@pytest.mark.parametrize("path", ["", "/openai", "/openai/deployments/gpt"])
async def test_r241_a_deployment_has_its_path_and_version(path: str) -> None:
    options = {"path": path, "deployment": "gpt", "api_version": "2024-10-21"}
    async with at_azure(chat_reply("x"), **options) as (provider, server):
        await attempt(provider)
        await attempt(provider)
        paths = [request.path for request in server.requests]
    assert paths == ["/openai/deployments/gpt/chat/completions?api-version=2024-10-21"] * 2


async def test_a_filtered_prompt_is_refused_for_good() -> None:
    inner = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": SAFE}
    error = {"code": "content_filter", "message": "filtered", "status": 400, "innererror": inner}
    async with at_azure(error_reply(400, error)) as (provider, _):
        failure = (await attempt(provider)).failure
    assert failure is not None
    assert (failure.kind, failure.retryable) == ("content_filtered", False)


async def test_an_answer_that_the_filter_cut_is_a_refusal_and_runs_nothing() -> None:
    entry = {"index": 0, "id": "call_1", "function": {"name": "look", "arguments": '{"a":1}'}}
    chunks = [
        {"id": "", "model": "", "choices": [], "prompt_filter_results": [{"content_filter_results": SAFE}]},
        delta_chunk(content="So "),
        delta_chunk(tool_calls=[entry]),
        {
            "choices": [
                {"index": 0, "finish_reason": "content_filter", "delta": {}, "content_filter_results": SAFE}
            ]
        },
    ]
    async with at_azure(stream_reply(chunks)) as (provider, _):
        found = await attempt(provider)
    assert found.response is not None
    assert found.response.stop == "refusal"
    assert found.text == "So "


async def test_verdicts_that_come_late_and_without_text_are_passed_over() -> None:
    offsets = {"check_offset": 0, "start_offset": 0, "end_offset": 9}
    late = {
        "index": 0,
        "finish_reason": None,
        "content_filter_results": SAFE,
        "content_filter_offsets": offsets,
    }
    chunks = [
        delta_chunk(content="fine"),
        {"id": "", "choices": [late]},
        delta_chunk("stop"),
        {"id": "", "choices": [{**late, "index": 0}]},
    ]
    async with at_azure(stream_reply(chunks)) as (provider, _):
        found = await attempt(provider)
    assert found.response is not None
    assert (found.text, found.response.stop, found.response.usage) == ("fine", "end", {})


async def test_a_busy_deployment_says_how_long_to_wait() -> None:
    error = {"code": "429", "message": "Requests have exceeded the call rate limit."}
    async with at_azure(error_reply(429, error, [("retry-after", "12")])) as (provider, _):
        failure = (await attempt(provider)).failure
    assert failure is not None
    assert (failure.kind, failure.retryable, failure.retry_after_s) == ("rate_limited", True, 12.0)


async def test_the_key_is_in_no_failure() -> None:
    error = {"code": "401", "message": f"Access denied due to invalid subscription key {KEY}"}
    async with at_azure(error_reply(401, error)) as (provider, _):
        failure = (await attempt(provider)).failure
    assert failure is not None
    assert failure.kind == "unauthorized"
    assert KEY not in str(failure)
    assert KEY not in repr(provider)

"""What is asked of OpenAI's servers about a lost attempt, and what their answers are taken for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from domain.model_ports import Found, LostAttempt
from domain.values import Stop
from minutebook.testing.fake_server import Received, Reply, serve
from minutebook.testing.responses_replies import document_reply, output_items, response_document
from tests.session.storing_server import chat, responses

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

RESPONSE = LostAttempt("openai", "openai-responses", "resp_1")
COMPLETION = LostAttempt("openai", "openai-chat", "chatcmpl-1")
BY_KEY = LostAttempt("openai", "openai-chat", attempt_key="s1/r1.t1.a1")


@asynccontextmanager
async def asked(
    make: Any, lost: LostAttempt, *replies: dict[str, Any]
) -> AsyncIterator[tuple[Found, list[Received]]]:
    """What a provider finds whose server answers so, and what the server was asked."""
    async with serve([document_reply(reply) for reply in replies]) as server:
        provider = make(server.url)
        found = await provider.look_up(lost)
        await provider.aclose()
        yield found, server.requests


def completion(finish: str | None) -> dict[str, Any]:
    message = {"role": "assistant", "content": "so far"}
    return {"id": "chatcmpl-1", "choices": [{"index": 0, "message": message, "finish_reason": finish}]}


async def test_a_question_is_a_get_with_our_credential() -> None:
    async with asked(responses, RESPONSE, response_document(output_items("x"))) as (found, requests):
        assert found.outcome == "completed"
    (request,) = requests
    assert (request.method, request.path, request.body) == ("GET", "/v1/responses/resp_1", b"")
    assert request.headers["authorization"] == "Bearer sk-test-key"


async def test_an_id_cannot_lead_elsewhere() -> None:
    lost = LostAttempt("openai", "openai-responses", "../files/x?y=1#z")
    async with asked(responses, lost, {}) as (found, requests):
        assert found.outcome == "unknown"
    assert requests[0].path == "/v1/responses/..%2Ffiles%2Fx%3Fy%3D1%23z"


async def test_encrypted_reasoning_is_asked_for_where_there_is_reasoning() -> None:
    whole = output_items("x", reasoning="hm")
    without = [{k: v for k, v in item.items() if k != "encrypted_content"} for item in whole]
    async with asked(responses, RESPONSE, response_document(without), response_document(whole)) as (
        found,
        requests,
    ):
        assert found.response is not None
        assert "gAAAAfake" in found.response.blocks[0].text
    assert [r.path.partition("?")[2] for r in requests] == ["", "include%5B%5D=reasoning.encrypted_content"]


@pytest.mark.parametrize(
    ("status", "outcome", "stop"),
    [
        ("completed", "completed", Stop.END),
        ("incomplete", "completed", Stop.LENGTH),
        ("failed", "failed", None),
        ("cancelled", "cancelled", None),
        ("queued", "running", None),
        ("in_progress", "running", None),
        ("something_new", "unknown", None),
    ],
)
async def test_what_a_status_is_taken_for(status: str, outcome: str, stop: Stop | None) -> None:
    document = response_document(output_items("x")) | {"status": status}
    async with asked(responses, RESPONSE, document) as (found, _):
        assert (found.outcome, found.response and found.response.stop) == (outcome, stop)
        assert found.evidence.startswith("looked up: asked openai (openai-responses) for response resp_1; ")
        assert bool(found.message) == (outcome == "failed")


async def test_a_completion_without_an_end_is_running() -> None:
    for finish, outcome in (("stop", "completed"), (None, "running")):
        async with asked(chat, COMPLETION, completion(finish)) as (found, _):
            assert found.outcome == outcome
    async with asked(chat, COMPLETION, {"choices": []}) as (found, _):
        assert found.outcome == "unknown"


@pytest.mark.parametrize(
    "listed", [None, [], [{}], [{"id": 7}], [{"id": ""}], [{"id": "chatcmpl-1"}, {"id": "chatcmpl-2"}]]
)
async def test_a_listing_has_to_name_exactly_one(listed: Any) -> None:
    async with asked(chat, BY_KEY, {"data": listed}, completion("stop")) as (found, requests):
        assert found.outcome == "unknown"
    (request,) = requests
    assert "metadata%5Bminutebook_attempt%5D=s1%2Fr1.t1.a1" in request.path


async def test_a_listing_that_names_one_leads_to_it() -> None:
    async with asked(chat, BY_KEY, {"data": [{"id": "chatcmpl-1"}]}, completion("stop")) as (found, requests):
        assert found.outcome == "completed"
    assert requests[1].path == "/v1/chat/completions/chatcmpl-1"


async def test_a_background_response_that_breaks_again_is_unknown() -> None:
    running = response_document([], background=True, status="in_progress")

    def replies(request: Received) -> Reply:
        return Reply(b"data: {}\n\n", 200) if "stream" in request.path else document_reply(running)

    async with serve(replies) as server:
        provider = responses(server.url)
        found = await provider.look_up(RESPONSE)
        await provider.aclose()
    assert found.outcome == "unknown"
    assert "stream_cut" in found.evidence

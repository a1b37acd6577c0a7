"""What goes wrong between us and a server of the Responses dialect, each with its stable word."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from adapters.model_failures import KINDS
from domain.model_ports import DeclaredCall, Identified, Text
from domain.values import Stop
from minutebook.testing.attempts import Attempted, attempt
from minutebook.testing.chat_replies import error_reply
from minutebook.testing.fake_server import Cut, Faults, Reply
from minutebook.testing.responses_replies import (
    document_reply,
    events_reply,
    output_items,
    response_document,
    response_events,
    response_reply,
)
from tests.wire.responses_dialect import connected

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
HTML = (("content-type", "text/html"),)
CALL = DeclaredCall("call_1", "Write", '{"path":"a"}')
CREATED = {"type": "response.created", "response": response_document([], status="in_progress")}


def failed_event(status: str, error: Any = None) -> dict[str, Any]:
    return {"type": f"response.{status}", "response": {"id": "r", "status": status, "error": error}}


def facts(found: Attempted) -> tuple[str, bool]:
    assert found.failure is not None, found.response
    assert found.failure.kind in KINDS
    assert found.failure.bytes_sent
    return found.failure.kind, found.failure.retryable


@pytest.mark.parametrize(
    ("reply", "kind", "retryable"),
    [
        (error_reply(400, {"code": "decimal_below_min_value"}), "bad_request", False),
        (error_reply(401, {"code": "invalid_api_key"}), "unauthorized", False),
        (error_reply(404, {"code": "model_not_found"}), "not_found", False),
        (error_reply(413, {}), "request_too_large", False),
        (error_reply(429, {}), "rate_limited", True),
        (error_reply(500, {}), "server_error", True),
        (error_reply(529, {}), "overloaded", True),
        (Reply(b"<html>bad gateway</html>", 502, HTML), "server_error", True),
        (Reply(b"<html>sign in</html>", 200, HTML), "unexpected_content", False),
        (Reply(b"", 200), "stream_cut", True),
        (Reply(b"data: [DONE]\n\n", 200), "stream_cut", True),
        (events_reply([CREATED]), "stream_cut", True),
        (events_reply([CREATED, {"type": "error", "code": "rate_limit_exceeded"}]), "rate_limited", True),
        (events_reply([{"type": "error", "error": {"code": "server_error"}}]), "server_error", True),
        (Reply(b'event: error\ndata: {"message":"boom"}\n\n', 200), "provider_error", True),
        (events_reply([failed_event("failed", {"code": "server_error"})]), "server_error", True),
        (events_reply([failed_event("failed")]), "provider_error", True),
        (events_reply([failed_event("cancelled")]), "provider_error", True),
        (events_reply([{"type": "response.completed"}]), "empty_response", True),
        (response_reply("x", [CALL] * 61), "too_many_calls", False),
        (document_reply({"error": {"code": "insufficient_quota"}}), "quota_exceeded", False),
        (document_reply(failed_event("failed", {"code": "server_error"})["response"]), "server_error", True),
        (document_reply(response_document([], status="in_progress")), "invalid_response", True),
        (document_reply({"object": "chat.completion", "choices": []}), "invalid_response", True),
    ],
    ids=range(24),
)
async def test_an_answer_that_is_an_error(reply: Reply, kind: str, retryable: bool) -> None:
    async with connected([reply]) as (provider, server):
        found = await attempt(provider)
        assert facts(found) == (kind, retryable and not found.pieces)
        assert len(server.requests) == 1, "an attempt is one send, whatever comes back"


@BOTH
@pytest.mark.parametrize("cut", [Cut.CLOSE, Cut.RESET])
async def test_a_server_that_hangs_up_after_the_request(cut: Cut) -> None:
    async with connected([Reply(faults=Faults(drop_request=True, cut=cut))]) as (provider, server):
        assert facts(await attempt(provider)) == ("connection_lost", True)
        assert len(server.requests) == 1


@BOTH
async def test_a_stall_in_the_middle(anyio_backend: str) -> None:
    body = response_reply("slow", store=True).body
    reply = Reply(body, faults=Faults(stall_after=body.index(b"output_item.added")))
    async with connected([reply], stream_idle_timeout_ms=60, store=True) as (provider, server):
        with anyio.fail_after(5):
            found = await attempt(provider)
            await server.reader_gone()
    # The id was told, but nothing that anybody saw: it may be tried again.
    assert found.pieces == (Identified("resp_fake"),)
    assert facts(found) == ("stream_idle_timeout", True)


async def test_an_answer_that_does_not_begin() -> None:
    async with connected([Reply(faults=Faults(delay_s=86_400.0))], request_timeout_ms=60) as (provider, _):
        with anyio.fail_after(5):
            assert facts(await attempt(provider)) == ("request_timeout", True)


async def test_a_cut_after_visible_text_is_not_to_be_repeated() -> None:
    whole = response_reply("three pieces", pieces=3)
    place = whole.body.index(b"output_item.done")
    async with connected([Reply(whole.body, faults=Faults(cut_after=place, cut=Cut.CLOSE))]) as (provider, _):
        found = await attempt(provider)
    assert [piece for piece in found.pieces if isinstance(piece, Text)] == [
        Text("thre"),
        Text("e pi"),
        Text("eces"),
    ]
    assert facts(found) == ("stream_cut", False)


# --- ends that are answers -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("max_output_tokens", Stop.LENGTH),
        ("max_messages", Stop.LENGTH),
        ("content_filter", Stop.REFUSAL),
        ("steered", Stop.LENGTH),
        (None, Stop.LENGTH),
    ],
)
async def test_an_incomplete_answer_is_one_and_runs_nothing(reason: str | None, stop: Stop) -> None:
    events = response_events(output_items("so far", [CALL]), status="incomplete")
    events[-1]["response"]["incomplete_details"] = reason and {"reason": reason}
    events[-1]["response"]["output"] = events[-1]["response"]["output"][:1]
    cut_call = [e for e in events if e.get("item", {}).get("type") != "function_call" or "added" in e["type"]]
    async with connected([events_reply(cut_call)]) as (provider, _):
        found = await attempt(provider)
    assert found.response is not None
    assert (found.response.stop, found.text) == (stop, "so far")
    assert [call.name for call in found.response.calls] == ["Write"], "cut, but on record"


async def test_a_complete_answer_with_a_call_that_never_ended_is_none() -> None:
    events = response_events(output_items("", [CALL]))
    events[-1]["response"]["output"] = []
    without_end = [e for e in events if e["type"] != "response.output_item.done"]
    async with connected([events_reply(without_end)]) as (provider, _):
        assert facts(await attempt(provider)) == ("invalid_response", False)


async def test_a_document_is_an_answer_too() -> None:
    document = response_document(output_items("all at once", [CALL], reasoning="hm"))
    async with connected([document_reply(document)]) as (streamed, _):
        found = await attempt(streamed)
    async with connected([response_reply("all at once", [CALL], reasoning="hm")]) as (provider, _):
        expected = await attempt(provider)
    assert (found.response, found.text, found.thinking) == (expected.response, "all at once", "hm")


async def test_a_refusal_is_shown_and_ends_the_answer() -> None:
    item = {"type": "message", "id": "m", "content": [{"type": "refusal", "refusal": "I will not."}]}
    async with connected([document_reply(response_document([item]))]) as (provider, _):
        found = await attempt(provider)
    assert found.response is not None
    assert (found.response.stop, found.text) == (Stop.REFUSAL, "I will not.")


@BOTH
async def test_a_finished_attempt_leaves_its_connection_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.exchange._DRAIN_S", 5.0)  # its end comes, on a busy machine a little later
    async with connected([response_reply("x")]) as (provider, server):
        for number in range(3):
            found = await attempt(provider, attempt_id=f"r1.t1.a{number}")
            assert found.text == "x"
        assert (len(server.requests), server.connections) == (3, 1)
        sent = [request.headers for request in server.requests]
    assert [headers["x-client-request-id"] for headers in sent] == ["r1.t1.a0", "r1.t1.a1", "r1.t1.a2"]
    assert {headers["authorization"] for headers in sent} == {"Bearer sk-test-key"}
    assert {headers["accept-encoding"] for headers in sent} == {"identity"}


async def test_no_key_sends_none_and_no_key_is_told() -> None:
    async with connected([error_reply(401, {"message": "sk-secret-key?"})], api_key="") as (provider, server):
        await attempt(provider)
        assert "authorization" not in server.requests[0].headers
    async with connected([error_reply(401, {"message": "sk-secret-key?"})], api_key="sk-secret-key") as (
        provider,
        _,
    ):
        found = await attempt(provider)
        assert "sk-secret-key" not in f"{found.failure!r} {found.failure} {provider!r}"

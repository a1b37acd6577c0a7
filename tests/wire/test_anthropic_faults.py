"""Everything that goes wrong between us and an Anthropic server, each with its stable word."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

import anyio
import pytest

from adapters.model_failures import KINDS
from domain.model_ports import DeclaredCall, Text
from minutebook.testing.anthropic_replies import (
    document_reply,
    error_event,
    error_reply,
    events_reply,
    message_events,
    message_reply,
)
from minutebook.testing.attempts import Attempted, attempt
from minutebook.testing.fake_server import Cut, Faults, Reply
from tests.wire.anthropic_place import connected

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
HTML = (("content-type", "text/html"),)
CALL = DeclaredCall("toolu_1", "Write", '{"path":"a"}')
TEXT = {"type": "text", "text": "hello"}
A_WHOLE_DAY_S = 86_400.0


def facts(found: Attempted) -> tuple[str, bool, bool, float | None]:
    assert found.failure is not None, found.response
    assert found.failure.kind in KINDS
    failure = found.failure
    return failure.kind, failure.retryable, failure.bytes_sent, failure.retry_after_s


# --- answers that are errors -----------------------------------------------------------------

ERRORS: list[tuple[Reply, str, bool, float | None]] = [
    (error_reply(400, "invalid_request_error", "x"), "bad_request", False, None),
    (
        error_reply(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"),
        "context_length_exceeded",
        False,
        None,
    ),
    (error_reply(401, "authentication_error"), "unauthorized", False, None),
    (error_reply(402, "billing_error"), "quota_exceeded", False, None),
    (error_reply(403, "permission_error"), "permission_denied", False, None),
    (error_reply(404, "not_found_error"), "not_found", False, None),
    (error_reply(413, "request_too_large"), "request_too_large", False, None),
    (error_reply(429, "rate_limit_error", headers=[("retry-after", "7")]), "rate_limited", True, 7.0),
    (error_reply(500, "api_error"), "server_error", True, None),
    (error_reply(504, "timeout_error"), "request_timeout", True, None),
    (error_reply(529, "overloaded_error"), "overloaded", True, None),
    (error_reply(529, "overloaded_error", headers=[("x-should-retry", "false")]), "overloaded", False, None),
    (Reply(b"<html>bad gateway</html>", 502, HTML), "server_error", True, None),
    (Reply(b"<html>sign in</html>", 200, HTML), "unexpected_content", False, None),
    (Reply(b"", 307, (("location", "/elsewhere"),)), "redirected", False, None),
    (Reply(b"", 200), "stream_cut", True, None),
    (Reply(b"event: message_start\ndata: {\n\n", 200), "invalid_response", True, None),
    (events_reply([error_event("overloaded_error", "Overloaded")]), "overloaded", True, None),
    (events_reply([{"type": "ping"}, error_event("api_error")]), "server_error", True, None),
    (Reply(b'{"type":"error","error":{"type":"overloaded_error"}}', 200), "overloaded", True, None),
    (Reply(b'{"id":"msg_1","type":"message"}', 200), "empty_response", True, None),
    (message_reply("", [CALL] * 61), "too_many_calls", False, None),
]


@pytest.mark.parametrize(("reply", "kind", "retryable", "wait_s"), ERRORS, ids=range(len(ERRORS)))
async def test_an_answer_that_is_an_error(
    reply: Reply, kind: str, retryable: bool, wait_s: float | None
) -> None:
    async with connected([reply]) as (provider, server):
        assert facts(await attempt(provider)) == (kind, retryable, True, wait_s)
        assert len(server.requests) == 1, "an attempt is one send, whatever comes back"


async def test_an_error_after_visible_text_is_not_to_be_repeated() -> None:
    events = message_events([TEXT])[:-3]
    async with connected([events_reply([*events, error_event("overloaded_error")])]) as (provider, _):
        found = await attempt(provider)
    assert found.text == "hello"
    assert facts(found) == ("overloaded", False, True, None)


async def test_a_failure_names_the_request_for_the_servers_support() -> None:
    named = [("request-id", "req_77")]
    within = events_reply([error_event("api_error")])
    replies = [
        error_reply(500, "api_error", headers=named),
        Reply(within.body, 200, (*within.headers, *named)),
    ]
    async with connected(replies) as (provider, _):
        for _reply in replies:
            assert "(request id req_77)" in str((await attempt(provider)).failure)


async def test_the_next_attempt_is_not_harmed() -> None:
    async with connected([error_reply(529, "overloaded_error"), message_reply("done")]) as (provider, server):
        await attempt(provider)
        assert (await attempt(provider)).text == "done"
        assert len(server.requests) == 2


# --- messages that are not one message ----------------------------------------------------------

EVENTS = message_events([TEXT])
START, PING, BEGIN, PIECE, *_ = EVENTS
BEGIN_CALL = {
    "type": "content_block_start",
    "index": 1,
    "content_block": {"type": "tool_use", "id": "toolu_1", "name": "Write", "input": {}},
}
STOP_CALL = {"type": "content_block_stop", "index": 1}
OTHER_START = {"type": "message_start", "message": {"id": "msg_other", "role": "assistant"}}
ENDED = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}
LAST = {"type": "message_stop"}

BROKEN: list[list[dict[str, Any]]] = [
    [BEGIN, PIECE],
    [START, PIECE],
    [START, BEGIN, PIECE | {"index": 1}],
    [START, BEGIN, PIECE | {"index": None}],
    [START, BEGIN, {"type": "content_block_stop", "index": 0}, PIECE],
    [START, BEGIN, BEGIN],
    [START, BEGIN | {"content_block": "text"}],
    [START, BEGIN | {"content_block": {"text": "no type"}}],
    [START, BEGIN, PIECE | {"delta": {"type": "input_json_delta", "partial_json": "{"}}],
    [START, BEGIN_CALL, PIECE | {"index": 1}],
    [START, BEGIN_CALL, START],
    [START, BEGIN_CALL, OTHER_START, STOP_CALL, ENDED, LAST],
    [START, OTHER_START],
    [START, BEGIN_CALL, ENDED, LAST],  # the call did not end
    [START, BEGIN, LAST],  # no reason for the end
    [START, ENDED, BEGIN_CALL, STOP_CALL, LAST],  # a call behind the end
    [{"type": "message_start"}],
]


@pytest.mark.parametrize("events", BROKEN, ids=range(len(BROKEN)))
async def test_what_is_not_one_whole_message_is_broken(events: list[dict[str, Any]]) -> None:
    async with connected([events_reply([*events, *EVENTS[-2:]])]) as (provider, _):
        assert facts(await attempt(provider))[0] == "invalid_response"


LET_IN: list[list[dict[str, Any]]] = [
    [START, *EVENTS],  # twice, with nothing in between
    [PING, *EVENTS],
    [*EVENTS[:3], {"type": "something_new", "index": 99}, *EVENTS[3:]],
    [*EVENTS[:3], {"type": "content_block_stop", "index": 7}, *EVENTS[3:]],
    [*EVENTS[:-3], *EVENTS[-2:]],  # the text's end is missing
    [*EVENTS[:-2], {"type": "message_delta", "delta": {"stop_reason": None}}, *EVENTS[-2:]],
    [*EVENTS, OTHER_START],
]


@pytest.mark.parametrize("events", LET_IN, ids=range(len(LET_IN)))
async def test_what_does_no_harm_is_let_in(events: list[dict[str, Any]]) -> None:
    async with connected([events_reply(events)]) as (provider, _):
        found = await attempt(provider)
    assert found.response is not None, found.failure
    assert (found.text, found.response.stop) == ("hello", "end")


async def test_a_message_that_was_not_streamed() -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "Write", "input": {"path": "a"}}
    async with connected([document_reply([TEXT, block], stop="tool_use")]) as (provider, _):
        found = await attempt(provider)
    assert found.response is not None
    assert (found.text, found.inputs, found.response.calls) == ("hello", {0: '{"path":"a"}'}, (CALL,))


async def test_a_document_without_a_reason_for_its_end_is_no_answer() -> None:
    reply = document_reply([TEXT], stop="")
    async with connected([reply]) as (provider, _):
        assert facts(await attempt(provider))[0] == "invalid_response"


# --- the connection ---------------------------------------------------------------------------


@BOTH
async def test_nobody_listens() -> None:
    with socket.socket() as taken:  # bound, not listening: nobody else gets the port, nobody answers
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        async with connected([], base_url=f"http://127.0.0.1:{port}") as (provider, _):
            assert facts(await attempt(provider)) == ("connect_failed", True, False, None)


@BOTH
@pytest.mark.parametrize("cut", [Cut.CLOSE, Cut.RESET])
async def test_a_server_that_hangs_up_after_the_request(cut: Cut) -> None:
    async with connected([Reply(faults=Faults(drop_request=True, cut=cut))]) as (provider, server):
        assert facts(await attempt(provider)) == ("connection_lost", True, True, None)
        assert len(server.requests) == 1


async def test_a_cut_after_visible_text_is_not_to_be_repeated() -> None:
    whole = message_reply("three pieces", pieces=3)
    reply = Reply(whole.body, faults=Faults(cut_after=whole.body.index(b"message_delta"), cut=Cut.CLOSE))
    async with connected([reply]) as (provider, _):
        found = await attempt(provider)
    assert found.pieces == (Text("thre"), Text("e pi"), Text("eces"))
    assert facts(found) == ("stream_cut", False, True, None)


@BOTH
async def test_a_stall_in_the_middle() -> None:
    reply = Reply(message_reply("slow").body, faults=Faults(stall_after=10))
    async with connected([reply], stream_idle_timeout_ms=60) as (provider, server):
        with anyio.fail_after(5):
            assert facts(await attempt(provider)) == ("stream_idle_timeout", True, True, None)
            await server.reader_gone()


@BOTH
async def test_an_answer_that_does_not_begin() -> None:
    reply = Reply(faults=Faults(delay_s=A_WHOLE_DAY_S))
    async with connected([reply], request_timeout_ms=60) as (provider, _):
        with anyio.fail_after(5):
            assert facts(await attempt(provider)) == ("request_timeout", True, True, None)


@BOTH
async def test_leaving_early_ends_the_request_at_the_server() -> None:
    reply = Reply(message_reply("never mind").body, faults=Faults(stall_after=600))
    async with connected([reply]) as (provider, server):
        sent = cast(AsyncGenerator[Any], provider.send(b"{}", attempt_id="r1.t1.a1"))
        async with aclosing(sent) as signals:
            async for _signal in signals:
                break
        with anyio.fail_after(5):
            await server.reader_gone()


@BOTH
async def test_a_connection_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.exchange._DRAIN_S", 5.0)  # its end comes, on a busy machine a little later
    async with connected([message_reply("one"), message_reply("two")]) as (provider, server):
        assert [(await attempt(provider)).text for _ in range(2)] == ["one", "two"]
        assert server.connections == 1

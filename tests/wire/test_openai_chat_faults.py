"""Everything that goes wrong between us and a server, each with its stable word."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import anyio
import httpx2
import orjson
import pytest
from anyio.abc import SocketAttribute, SocketStream

from adapters.http_client import CappedTransport
from adapters.model_failures import KINDS
from adapters.openai_chat import OpenAIChatProvider
from domain.model_ports import DeclaredCall, Text
from minutebook.testing.attempts import Attempted, attempt
from minutebook.testing.chat_replies import chat_reply, error_reply, stream_reply
from minutebook.testing.fake_server import Cut, Faults, Reply

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
HTML = (("content-type", "text/html"),)
CALL = DeclaredCall("call_1", "Write", '{"path":"a"}')
A_WHOLE_DAY_S = 86_400.0


def facts(found: Attempted) -> tuple[str, bool, bool, float | None]:
    assert found.failure is not None, found.response
    assert found.failure.kind in KINDS
    failure = found.failure
    return failure.kind, failure.retryable, failure.bytes_sent, failure.retry_after_s


# --- answers that are errors -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "kind", "retryable", "wait_s"),
    [
        (error_reply(400, {"type": "invalid_request_error"}), "bad_request", False, None),
        (error_reply(400, {"message": "x"}, [("x-should-retry", "true")]), "bad_request", True, None),
        (error_reply(401, {"code": "invalid_api_key"}), "unauthorized", False, None),
        (error_reply(403, {}), "permission_denied", False, None),
        (error_reply(404, {"code": "model_not_found"}), "not_found", False, None),
        (error_reply(413, {}), "request_too_large", False, None),
        (error_reply(429, {}, [("retry-after", "7")]), "rate_limited", True, 7.0),
        (error_reply(429, {}, [("retry-after-ms", "250")]), "rate_limited", True, 0.25),
        (error_reply(429, {}, [("x-should-retry", "false")]), "rate_limited", False, None),
        (error_reply(429, {"code": "insufficient_quota"}), "quota_exceeded", False, None),
        (error_reply(500, {}), "server_error", True, None),
        (Reply(b"<html>bad gateway</html>", 502, HTML), "server_error", True, None),
        (error_reply(503, {"type": "overloaded_error"}), "overloaded", True, None),
        (error_reply(529, {}), "overloaded", True, None),
        (Reply(b"", 307, (("location", "/elsewhere"),)), "redirected", False, None),
        (Reply(b"<html>sign in</html>", 200, HTML), "unexpected_content", False, None),
        (Reply(b"", 200), "stream_cut", True, None),
        (Reply(b"data: [DONE]\n\n", 200), "empty_response", True, None),
        (Reply(b"data: {\n\n", 200), "invalid_response", True, None),
        (Reply(b"\x1f\x8b nonsense", 200, (("content-encoding", "gzip"),)), "invalid_response", True, None),
        (stream_reply([{"error": {"code": 429}}]), "rate_limited", True, None),
        (chat_reply("x", [CALL] * 61), "too_many_calls", False, None),
    ],
    ids=range(22),
)
async def test_an_answer_that_is_an_error(
    reply: Reply, kind: str, retryable: bool, wait_s: float | None, connected: Any
) -> None:
    async with connected([reply]) as (provider, server):
        assert facts(await attempt(provider)) == (kind, retryable, True, wait_s)
        assert len(server.requests) == 1, "an attempt is one send, whatever comes back"


async def test_a_failure_names_the_request_for_the_servers_support(connected: Any) -> None:
    named = [("x-request-id", "req-77")]
    within = stream_reply([{"error": {"message": "boom"}}])
    replies = [error_reply(500, {}, named), Reply(within.body, 200, (*within.headers, *named))]
    async with connected(replies) as (provider, _):
        for _reply in replies:
            assert "(request id req-77)" in str((await attempt(provider)).failure)


async def test_a_date_to_wait_for_is_a_number_of_seconds(connected: Any) -> None:
    reply = error_reply(503, {}, [("retry-after", "Mon, 01 Jan 2001 00:00:00 GMT")])
    async with connected([reply]) as (provider, _):
        assert facts(await attempt(provider)) == ("server_error", True, True, 0.0)


async def test_p12_a_failed_call_leaves_the_provider_usable(connected: Any) -> None:
    async with connected([chat_reply("", [CALL]), error_reply(529, {}), chat_reply("done")]) as (
        provider,
        server,
    ):
        first, second, third = [await attempt(provider, attempt_id=f"r1.t2.a{n}") for n in (1, 2, 3)]
        assert first.response is not None
        assert first.response.calls == (CALL,)
        assert facts(second) == ("overloaded", True, True, None)
        assert third.text == "done"
        assert [r.headers["x-client-request-id"] for r in server.requests] == [
            "r1.t2.a1",
            "r1.t2.a2",
            "r1.t2.a3",
        ]


# --- the connection ---------------------------------------------------------------------------


@BOTH
async def test_nobody_listens(connected: Any) -> None:
    with socket.socket() as taken:  # bound, not listening: nobody else gets the port, nobody answers
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        async with connected([], base_url=f"http://127.0.0.1:{port}/v1") as (provider, _):
            assert facts(await attempt(provider)) == ("connect_failed", True, False, None)


@BOTH
@pytest.mark.parametrize("cut", [Cut.CLOSE, Cut.RESET])
async def test_a_server_that_hangs_up_after_the_request(cut: Cut, connected: Any) -> None:
    async with connected([Reply(faults=Faults(drop_request=True, cut=cut))]) as (provider, server):
        assert facts(await attempt(provider)) == ("connection_lost", True, True, None)
        assert len(server.requests) == 1


async def test_p25_a_cut_after_visible_text_is_not_to_be_repeated(connected: Any) -> None:
    whole = chat_reply("three pieces", pieces=3)
    after_text = whole.body.index(b'"finish_reason":"stop"')
    reply = Reply(whole.body, faults=Faults(cut_after=after_text, cut=Cut.CLOSE))
    async with connected([reply, whole]) as (provider, _):
        found = await attempt(provider)
        assert [piece for piece in found.pieces if isinstance(piece, Text)] == [
            Text("thre"),
            Text("e pi"),
            Text("eces"),
        ]
        assert facts(found) == ("stream_cut", False, True, None)
        assert found.failure is not None
        assert found.failure.received_digest is not None


@BOTH
async def test_a_stall_in_the_middle(connected: Any) -> None:
    reply = Reply(chat_reply("slow").body, faults=Faults(stall_after=10))
    async with connected([reply], stream_idle_timeout_ms=60) as (provider, server):
        with anyio.fail_after(5):
            assert facts(await attempt(provider)) == ("stream_idle_timeout", True, True, None)
            await server.reader_gone()


@BOTH
async def test_an_answer_that_does_not_begin(connected: Any) -> None:
    reply = Reply(faults=Faults(delay_s=A_WHOLE_DAY_S))
    async with connected([reply], request_timeout_ms=60) as (provider, _):
        with anyio.fail_after(5):
            assert facts(await attempt(provider)) == ("request_timeout", True, True, None)


async def test_a_document_has_to_be_whole_in_time(connected: Any) -> None:
    reply = Reply(b'{"choices":[]}', faults=Faults(stall_after=5))
    async with connected([reply], request_timeout_ms=120) as (provider, _):
        with anyio.fail_after(5):
            assert facts(await attempt(provider)) == ("request_timeout", True, True, None)


@BOTH
async def test_a_server_that_does_not_speak_tls(connected: Any) -> None:
    async def answer_plainly(stream: SocketStream) -> None:
        async with stream:
            await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        address = f"https://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, answer_plainly)
            async with connected([], base_url=address) as (provider, _):
                assert facts(await attempt(provider)) == ("connect_failed", True, False, None)
            tasks.cancel_scope.cancel()


# --- what the HTTP layer raises ---------------------------------------------------------------


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


RAISED: list[tuple[Exception, str, bool, bool]] = [
    (httpx2.ConnectError("x"), "connect_failed", True, False),
    (httpx2.ConnectTimeout("x"), "connect_timeout", True, False),
    (httpx2.PoolTimeout("x"), "connect_failed", True, False),
    (httpx2.ProxyError("x"), "connect_failed", True, False),
    (httpx2.UnsupportedProtocol("x"), "connect_failed", True, False),
    (caused(httpx2.ConnectError("x"), ssl.SSLCertVerificationError("bad")), "tls_failed", False, False),
    (httpx2.LocalProtocolError("x"), "bad_request", False, False),
    (httpx2.WriteError("x"), "connection_lost", True, True),
    (httpx2.WriteTimeout("x"), "request_timeout", True, True),
    (httpx2.ReadError("x"), "connection_lost", True, True),
    (httpx2.ReadTimeout("x"), "request_timeout", True, True),
    (httpx2.RemoteProtocolError("x"), "connection_lost", True, True),
    (OSError("x"), "connection_lost", True, True),
    (ssl.SSLError("x"), "connection_lost", True, True),
    (anyio.EndOfStream(), "connection_lost", True, True),
    (anyio.BrokenResourceError(), "connection_lost", True, True),
]


@pytest.mark.parametrize(("error", "kind", "retryable", "sent"), RAISED, ids=range(len(RAISED)))
async def test_what_is_raised_before_the_answer(
    error: Exception, kind: str, retryable: bool, sent: bool
) -> None:
    def refuse(_: httpx2.Request) -> httpx2.Response:
        raise error

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(refuse)) as http:
        assert facts(await attempt(over(http))) == (kind, retryable, sent, None)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx2.ReadError("x"), "stream_cut"),
        (httpx2.RemoteProtocolError("x"), "stream_cut"),
        (httpx2.ReadTimeout("x"), "stream_idle_timeout"),
        (ConnectionResetError("x"), "stream_cut"),
        (ssl.SSLError("x"), "stream_cut"),
        (anyio.ClosedResourceError(), "stream_cut"),
        (httpx2.DecodingError("x"), "invalid_response"),
    ],
    ids=range(7),
)
@pytest.mark.parametrize("shown", [False, True])
async def test_what_is_raised_within_the_answer(error: Exception, kind: str, shown: bool) -> None:
    text = chat_reply("x").body[: -len(b"data: [DONE]\n\n")]

    class Breaking(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield text if shown else b": ping\n\n"
            raise error

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, stream=Breaking())

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        assert facts(await attempt(over(http))) == (kind, not shown, True, None)


async def test_an_endless_error_ends() -> None:
    class Endless(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 1000

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(500, stream=Endless())

    transport = CappedTransport(httpx2.MockTransport(answer), limit_bytes=10_000)
    async with httpx2.AsyncClient(transport=transport) as http:
        assert facts(await attempt(over(http)))[0] == "connection_lost"


def over(http: httpx2.AsyncClient) -> OpenAIChatProvider:
    return OpenAIChatProvider(provider="p", base_url="http://server/v1", api_key="k", http_client=http)


# --- leaving early, and connections ---------------------------------------------------------------


@BOTH
async def test_a_cancelled_attempt_closes_its_connection_at_once(connected: Any) -> None:
    body = chat_reply("first second").body
    reply = Reply(body, faults=Faults(stall_after=body.index(b"usage")))
    async with connected([reply]) as (provider, server):
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                shown = anyio.Event()

                async def read() -> None:
                    async with aclosing(provider.send(b"{}", attempt_id="a")) as signals:
                        async for _ in signals:
                            shown.set()

                tasks.start_soon(read)
                await shown.wait()
                tasks.cancel_scope.cancel()
            await server.reader_gone()


@BOTH
async def test_a_reader_that_leaves_closes_its_connection(
    connected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.exchange._CLOSE_S", 5.0)  # longer than we wait: closed, not given up
    body = chat_reply("first second").body
    reply = Reply(body, faults=Faults(stall_after=body.index(b"usage")))
    async with connected([reply]) as (provider, server):
        with anyio.fail_after(3):
            async with aclosing(provider.send(b"{}", attempt_id="a")) as signals:
                assert await anext(signals) == Text("fir")
            await server.reader_gone()


@BOTH
async def test_a_finished_attempt_leaves_its_connection_to_the_next(
    connected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.exchange._DRAIN_S", 5.0)  # its end comes, on a busy machine a little later
    async with connected([chat_reply("x")]) as (provider, server):
        for _ in range(3):
            assert (await attempt(provider)).text == "x"
        assert (len(server.requests), server.connections) == (3, 1)


async def test_a_server_that_goes_on_after_the_marker_is_left(connected: Any) -> None:
    body = chat_reply("x").body
    reply = Reply(body + b": more", faults=Faults(stall_after=len(body)))
    async with connected([reply]) as (provider, server):
        with anyio.fail_after(5):
            assert (await attempt(provider)).text == "x"
            await server.reader_gone()


async def test_attempts_run_beside_each_other(connected: Any) -> None:
    def echo(request: Any) -> Reply:
        return chat_reply(request.parsed["say"])

    async with connected(echo) as (provider, _):
        found: dict[str, str] = {}

        async def ask(word: str) -> None:
            found[word] = (await attempt(provider, orjson.dumps({"say": word}))).text

        async with anyio.create_task_group() as tasks:
            for n in range(8):
                tasks.start_soon(ask, f"word {n}")
    assert found == {f"word {n}": f"word {n}" for n in range(8)}


async def test_kill_points_are_where_they_say(connected: Any) -> None:
    points: list[str] = []
    async with connected([chat_reply("x")], probe=points.append) as (provider, server):
        signals = provider.send(b"{}", attempt_id="a")
        async with aclosing(signals):
            assert (points, server.requests) == ([], [])
            await anext(signals)
            assert points[:2] == ["before_send", "mid_stream"]

"""The providers and the server that tests and demos use in place of real ones."""

from __future__ import annotations

import socket
from collections.abc import Mapping

import anyio
import pytest

from domain.errors import ModelFailed, ReplayMiss
from domain.model_ports import Block, ModelProvider, Parameters, Response, Text
from domain.values import Stop
from minutebook.testing.attempts import attempt
from minutebook.testing.chat_replies import chat_reply
from minutebook.testing.fake_server import Reply, serve_in_thread
from minutebook.testing.replay import ReplayProvider
from minutebook.testing.scripted import Gate, ScriptedProvider, call, fail, reply
from projections.transcript import UserItem

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

ANSWER = Response((Block("text", "A"),), (), Stop.END)
OTHER = Response((Block("text", "B"),), (), Stop.END)


def as_port(provider: ModelProvider) -> ModelProvider:
    return provider


async def test_a_script_is_played_in_order() -> None:
    provider = as_port(ScriptedProvider([reply("one", pieces=3), reply("", call("Write", {"a": 1}, "c1"))]))
    first, second = await attempt(provider), await attempt(provider)
    assert first.pieces == (Text("o"), Text("n"), Text("e"))
    assert second.inputs == {0: '{"a":1}'}
    assert second.response is not None
    assert second.response.stop is Stop.TOOL_CALLS


async def test_a_script_remembers_what_it_was_asked() -> None:
    provider = ScriptedProvider([reply("one")])
    body = provider.body([provider.encode(UserItem(1, "i", "hi"))], [], Parameters("m"))
    await attempt(provider, body, attempt_id="r9.t1.a1")
    assert provider.sent[0].attempt_id == "r9.t1.a1"
    assert provider.sent[0].messages == [{"role": "user", "content": "hi"}]
    assert (provider.counts.encoded, provider.counts.bodies, provider.counts.finished) == (1, 1, 1)


async def test_a_script_by_attempt_finds_its_place_again() -> None:
    script: Mapping[str, list[Response]] = {"r1.t1.a1": [ANSWER], "r1.t1.a2": [OTHER]}
    found = await attempt(ScriptedProvider(script), attempt_id="r1.t1.a2")
    assert found.response == OTHER


async def test_a_script_may_look_at_the_request() -> None:
    provider = ScriptedProvider(lambda sent: reply(sent.body.decode()))
    assert (await attempt(provider, b"echo")).text == "echo"


async def test_a_script_that_is_over_says_so() -> None:
    failure = (await attempt(ScriptedProvider([]))).failure
    assert failure is not None
    assert (failure.kind, failure.retryable, failure.bytes_sent) == ("script_exhausted", False, False)


async def test_a_script_fails_where_it_is_told_to() -> None:
    found = await attempt(ScriptedProvider([fail("stream_cut", retryable=False, after=[Text("ha")])]))
    assert found.text == "ha"
    assert found.failure is not None
    assert (found.failure.kind, found.failure.retryable) == ("stream_cut", False)


async def test_a_gate_holds_the_script_and_is_seen() -> None:
    gate = Gate()
    provider = ScriptedProvider([[Text("before"), gate, Text("after"), ANSWER]])
    pieces: list[object] = []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                pieces.extend((await attempt(provider)).pieces)

            tasks.start_soon(run)
            await gate.reached()
            assert pieces == []
            gate.open()
    assert pieces == [Text("before"), Text("after")]


async def test_a_cancelled_script_is_counted() -> None:
    gate = Gate()
    provider = ScriptedProvider([[gate, ANSWER]])
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(attempt, provider)
            await gate.reached()
            tasks.cancel_scope.cancel()
    assert (provider.counts.finished, provider.counts.cancelled) == (0, 1)


async def test_p32_replay_goes_by_attempt_and_not_by_question() -> None:
    provider = as_port(ReplayProvider({"r1.t1.a1": ANSWER, "r2.t1.a1": OTHER}))
    same = b'{"messages":[{"role":"user","content":"?"}]}'
    answers = [
        await attempt(provider, same, attempt_id=name) for name in ("r1.t1.a1", "r2.t1.a1", "r1.t1.a1")
    ]
    assert [found.response for found in answers] == [ANSWER, OTHER, ANSWER]
    assert [found.text for found in answers] == ["A", "B", "A"]


async def test_p32_a_miss_is_an_error_and_opens_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = ReplayProvider({"r1.t1.a1": ANSWER})

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a replay opened a socket")

    monkeypatch.setattr(socket, "socket", refuse)
    await attempt(provider, attempt_id="r1.t1.a1")
    with pytest.raises(ReplayMiss, match=r"r1\.t1\.a2"):
        await attempt(provider, attempt_id="r1.t1.a2")


async def test_a_replayed_failure_fails_alike() -> None:
    recorded = ModelFailed("overloaded", "busy", retryable=True)
    assert (await attempt(ReplayProvider({"a": recorded}), attempt_id="a")).failure is recorded


async def test_a_server_in_a_thread_answers_whoever_asks() -> None:
    with serve_in_thread([chat_reply("hello"), Reply(b"no", status=404)]) as server:
        request = b"POST /v1/x HTTP/1.1\r\nX-Name: v\r\nContent-Length: 2\r\n\r\n{}"
        async with await anyio.connect_tcp("127.0.0.1", server.port) as stream:
            await stream.send(request)
            first = await stream.receive()
            while b"[DONE]" not in first:
                first += await stream.receive()
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert server.requests[0].headers["x-name"] == "v"
    assert server.requests[0].parsed == {}

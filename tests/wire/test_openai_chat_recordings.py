"""Recorded answers of real servers, through a real socket and the real SDK.

What each holds was read from the recordings by hand. Longer texts are named by
their beginning, length and SHA-256.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from adapters.model_failures import KINDS
from domain.model_ports import Response
from minutebook.testing.attempts import Attempted, attempt
from minutebook.testing.chat_replies import recorded_reply
from minutebook.testing.fake_server import Faults, Reply
from tests.wire.summaries import Summary, summary

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Answer:
    """What a recorded answer holds."""

    text: Summary = ""
    thinking: Summary = ""
    calls: tuple[tuple[str, str, Summary], ...] = ()
    stop: str = "end"
    usage: tuple[int | None, int | None] = (None, None)
    ids: frozenset[str] = frozenset({"response_id", "model"})
    opaque: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failure:
    """How a recorded answer fails."""

    kind: str
    retryable: bool
    status: int | None
    thinking: Summary = ""


ALL_IDS = frozenset({"response_id", "model", "request_id"})
MODEL = frozenset({"model"})

GOLDEN: dict[str, Answer | Failure] = {
    "azure-chat-json": Answer("The capital of France is **Paris**.", usage=(14, 9)),
    "azure-chat-stream-content-filter": Answer(("Why did the Opentele", 120, "ad799bd0ddb6"), ids=ALL_IDS),
    "deepseek-chat-json-thinking-tools-step1": Answer(
        "Let me load the dice rolling capability!",
        ("The user wants to pl", 233, "6f551637a5fc"),
        (("call_00_sXqYgMESDht75NCLLZtt9804", "load_capability", '{"id": "DICE_ROLL"}'),),
        "tool_calls",
        (563, 116),
        opaque=("reasoning_content",),
    ),
    "deepseek-chat-json-thinking-tools-step2": Answer(
        "Let me get your name and roll the die!",
        ("Great, now I have ac", 105, "123ffdf748eb"),
        (
            ("call_00_6edlnw3Z1MgeMfey687g8451", "get_player_name", "{}"),
            ("call_01_km02sac7sHxNDPATKLZy7705", "roll_dice", "{}"),
        ),
        "tool_calls",
        (875, 79),
        opaque=("reasoning_content",),
    ),
    "deepseek-chat-json-thinking-tools-step3": Answer(
        ("🎉 **Congratulations,", 124, "821b4da9c11e"),
        ("The player's name is", 83, "53b88ba71b82"),
        usage=(976, 61),
        opaque=("reasoning_content",),
    ),
    "deepseek-chat-stream-reasoning": Answer(
        "Hello there! 😊 How can I help you today?",
        ("Hmm, the user just s", 882, "d29146ea4f40"),
        usage=(6, 212),
        opaque=("reasoning_content",),
    ),
    "deepseek-chat-stream-tool": Answer(
        "",
        ("The user is asking f", 191, "e9e5190a993c"),
        (("call_00_ioIn7yN9p1ZOMNpDLwd4MgAF", "weather", '{"location": "San Francisco"}'),),
        "tool_calls",
        (339, 83),
        opaque=("reasoning_content",),
    ),
    "gemini-openai-endpoint-tool-empty-id-step1": Answer(
        calls=(("", "get_current_time", "{}"),),
        stop="tool_calls",
        usage=(35, 12),
        opaque=("extra_content",),
    ),
    "gemini-openai-endpoint-tool-empty-id-step2": Answer(
        "The current time is Noon.", usage=(66, 6), opaque=("extra_content",)
    ),
    "groq-chat-error-400-tool-use-failed": Failure("tool_use_failed", True, 400),
    "groq-chat-stream-tool-use-failed-step1": Failure(
        "tool_use_failed", False, None, ("We need to call the ", 412, "42abcfd444c1")
    ),
    "groq-chat-stream-tool-use-failed-step2": Answer(
        "",
        ("We need to call the ", 92, "30d4b14ce076"),
        (("fc_bfb39741-3748-4def-9886-a93fc9c64a90", "get_something_by_name", '{"name":"example"}'),),
        "tool_calls",
        (304, 49),
        opaque=("reasoning",),
    ),
    "hf-novita-chat-stream-finish-before-usage": Answer("Paris", usage=(40, 2)),
    "llamacpp-chat-error-400-context": Failure("context_length_exceeded", False, 400),
    "llamacpp-chat-json-schema": Answer('{\n    "name": "John",\n    "age": 30\n}', usage=(14, 23)),
    "llamacpp-chat-stream": Answer(
        ("The two most popular", 98, "addb72ca8d12"), stop="length", usage=(13, 24)
    ),
    "mistral-chat-stream-incremental-tool": Answer(
        calls=(("chatcmpl-tool-9f149c74c42f265b", "webSearchTool", '{"query": "current Berlin weather"}'),),
        stop="tool_calls",
        usage=(171, 14),
    ),
    "ollama-chat-json-tool": Answer(
        "",
        ("The conversation: us", 763, "e11378b3f2a4"),
        (("call_o2vnpxrw", "final_result", '{"city":"Paris","country":"France"}'),),
        "tool_calls",
        (206, 194),
        opaque=("reasoning",),
    ),
    # A call that the model wrote as text stays text: nothing here guesses.
    "ollama-chat-stream-tool-as-text": Answer('{"name":"get_time","parameters>{"timezone":"UTC"}}'),
    "ollama-chat-stream-tool": Answer(
        calls=(("call_lzagyd98", "get_weather", '{"location":"San Francisco, CA"}'),), stop="tool_calls"
    ),
    "openai-chat-error-400-system-role": Failure("bad_request", False, 400),
    "openai-chat-error-404-model": Failure("not_found", False, 404),
    "openai-chat-stream-moderation": Answer("Paris.", usage=(13, 11)),
    "openai-chat-stream-n2-choices": Answer(
        ("I'm unable to provid", 277, "cfb0e0914d5f"), usage=(26, 104), ids=ALL_IDS
    ),
    "openai-chat-stream-parallel-tools-legacy": Answer(
        calls=(
            ("call_cCPjAyfwTzboEKjVlqFrArNF", "get_current_weather", '{"location": "San Francisco"}'),
            ("call_Zi4He1Ns0mozwT6f85nW1BOW", "get_current_weather", '{"location": "Boston"}'),
        ),
        stop="tool_calls",
        ids=ALL_IDS,
    ),
    "openai-chat-stream-parallel-tools-step1": Answer(
        calls=(
            ("call_q2UyBRP7eXNTzAoR8lEhjc9Z", "get_country", "{}"),
            ("call_b51ijcpFkDiTQG1bQzsrmtW5", "get_product_name", "{}"),
        ),
        stop="tool_calls",
        usage=(364, 40),
    ),
    "openai-chat-stream-parallel-tools-step2": Answer(
        calls=(("call_LwxJUB9KppVyogRRLQsamRJv", "get_weather", '{"city":"Mexico City"}'),),
        stop="tool_calls",
        usage=(423, 15),
    ),
    "openai-chat-stream-parallel-tools-step3": Answer(
        calls=(
            (
                "call_CCGIWaMeYWmxOQ91orkmTvzn",
                "final_result",
                ('{"answers":[{"label"', 229, "abd202e0de14"),
            ),
        ),
        stop="tool_calls",
        usage=(448, 62),
    ),
    "openrouter-chat-error-429": Failure("rate_limited", True, 429),
    "openrouter-chat-stream-error-midway": Failure(
        "bad_request", False, None, "We need to respond to a greeting. The user"
    ),
    "openrouter-chat-stream-reasoning": Answer(
        "2 + 2 = 4",
        "This is a simple arithmetic question. 2+2 equals 4.",
        usage=(43, 36),
        opaque=("reasoning", "reasoning_details"),
    ),
    # No finish reason at all, but the marker: completed, reason unknown.
    "snowflake-chat-stream-empty-ids": Answer("4", stop="unknown", usage=(22, 5), ids=MODEL),
    "snowflake-chat-stream-thinking": Answer(
        ("15 \u00d7 27 = **405**\n\nH", 93, "a1b5313205c6"),
        "15 * 27 = 405",
        stop="unknown",
        usage=(45, 73),
        ids=MODEL,
        opaque=("reasoning_details",),
    ),
    "vllm-chat-stream-tool-think-tags": Answer(
        ("<think>\nOkay, the us", 330, "c7344692cd55"),
        calls=(("chatcmpl-tool-41faa6bedd074d51a6335cd2447deeab", "get_time", '{"timezone": "UTC"}'),),
        stop="tool_calls",
    ),
    "vllm-chat-stream-usage": Answer("1, 2, 3, 4, 5", usage=(46, 14)),
    "xai-chat-stream-tool-whole-no-index": Answer(
        "",
        "First, the user is",
        (("call_55117580", "weather", '{"location":"San Francisco"}'),),
        "tool_calls",
        (291, 26),
        opaque=("reasoning_content",),
    ),
    "zai-chat-stream-reasoning": Answer(
        "4",
        ("\n1.  **Analyze the U", 2173, "960317a214d0"),
        usage=(13, 564),
        opaque=("reasoning_content",),
    ),
}


def answer_of(response: Response, thinking: str) -> Answer:
    return Answer(
        summary("".join(block.text for block in response.blocks if block.kind == "text")),
        summary(thinking),
        tuple((c.provider_call_id, c.name, summary(c.arguments)) for c in response.calls),
        response.stop,
        (response.usage.get("input_tokens"), response.usage.get("output_tokens")),
        frozenset(response.provider_ids),
        tuple(b.format.removeprefix("openai-chat/") for b in response.blocks if b.kind == "opaque"),
    )


def check(name: str, found: Attempted) -> None:
    expected = GOLDEN[name]
    if isinstance(expected, Failure):
        assert found.failure is not None
        assert found.failure.bytes_sent
        assert found.failure.received_digest is not None
        assert expected == Failure(
            found.failure.kind, found.failure.retryable, found.failure.status, summary(found.thinking)
        )
        return
    assert found.response is not None, found.failure
    assert answer_of(found.response, found.thinking) == expected
    # What was shown live is what is kept.
    assert summary(found.text) == expected.text
    assert list(found.inputs.values()) == [call.arguments for call in found.response.calls]


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", GOLDEN)
async def test_a_recording_gives_what_it_holds(
    name: str, recording: Callable[[str], Any], connected: Any
) -> None:
    async with connected([recorded_reply(recording(name))]) as (provider, server):
        check(name, await attempt(provider, b'{"model":"m"}'))
        assert [(r.method, r.path, r.body) for r in server.requests] == [
            ("POST", "/v1/chat/completions", b'{"model":"m"}')
        ]


@pytest.mark.parametrize("name", GOLDEN)
async def test_a_recording_in_pieces_gives_the_same(
    name: str, recording: Callable[[str], Any], connected: Any
) -> None:
    whole = recorded_reply(recording(name))
    size, luck = len(whole.body), random.Random(name)
    cuts = [tuple(luck.randrange(size) for _ in range(luck.randint(1, 40))) for _ in range(5)]
    faults = [Faults(splits=places) for places in cuts] + [Faults(piece_bytes=7)]
    replies = [Reply(whole.body, whole.status, whole.headers, fault) for fault in faults]
    async with connected(replies) as (provider, _):
        for _ in faults:
            check(name, await attempt(provider))


async def test_recordings_nobody_looked_at_end_in_one_of_two_ways(
    chat_recordings: dict[str, Any], connected: Any
) -> None:
    replies = [recorded_reply(found) for found in chat_recordings.values()]
    async with connected(replies) as (provider, _):
        for name, reply in zip(chat_recordings, replies, strict=True):
            found = await attempt(provider)
            if found.failure is not None:
                assert found.failure.kind in KINDS, name
            else:
                document = reply.body.lstrip().startswith(b"{")
                assert document or b"[DONE]" in reply.body, name

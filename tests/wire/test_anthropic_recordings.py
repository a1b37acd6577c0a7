"""Recorded answers of real servers, through a real socket and the real SDK.

What each holds was read from the recordings by hand. Longer texts are named by
their beginning, length and SHA-256. Counting tokens is a dialect of its own, so
its recording is only one of an answer that is no message.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from domain.model_ports import Response
from minutebook.testing.attempts import Attempted, attempt
from minutebook.testing.chat_replies import recorded_reply
from minutebook.testing.fake_server import Faults, Reply
from tests.wire.anthropic_place import connected
from tests.wire.summaries import Summary, summary

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Answer:
    """What a recorded answer holds. `usage`: all input, output, of the input from the cache."""

    text: Summary = ""
    thinking: Summary = ""
    calls: tuple[tuple[str, str, Summary], ...] = ()
    stop: str = "end"
    usage: tuple[int, int, int | None] = (0, 0, 0)
    opaque: str = ""
    named: bool = False


@dataclass(frozen=True)
class Failure:
    """How a recorded answer fails."""

    kind: str
    retryable: bool
    status: int | None
    thinking: Summary = ""


SEARCH = "server_tool_use web_search_tool_result"

GOLDEN: dict[str, Answer | Failure] = {
    "anthropic-error-400-effort": Failure("bad_request", False, 400),
    "anthropic-error-404-model": Failure("not_found", False, 404),
    "anthropic-json-count-tokens": Failure("empty_response", True, None),
    "anthropic-json-parallel-tools-4-step1": Answer(
        ("I'll help you find o", 156, "45d112edf129"),
        calls=(
            ("toolu_0167cfEnoQaPviGdVXA95zcu", "retrieve_entity_info", '{"name":"Alice"}'),
            ("toolu_01EEe2V5HD1Ac4rKiUR4HD2T", "retrieve_entity_info", '{"name":"Bob"}'),
            ("toolu_01XFyAjstT3966qvRynZyVPo", "retrieve_entity_info", '{"name":"Charlie"}'),
            ("toolu_013mnQZbgtK2oe3Mo3XKJsx3", "retrieve_entity_info", '{"name":"Daisy"}'),
        ),
        stop="tool_calls",
        usage=(423, 202, 0),
    ),
    "anthropic-json-parallel-tools-4-step2": Answer(
        ("Based on the retriev", 340, "34ab64df7815"), usage=(771, 77, 0)
    ),
    "anthropic-json-redacted-thinking-replayed-step1": Answer(
        ("I notice that your m", 341, "a350ca9ccbab"), usage=(92, 196, 0), opaque="redacted_thinking"
    ),
    "anthropic-json-redacted-thinking-replayed-step2": Answer(
        ("That message appeare", 500, "6da5005aba50"), usage=(168, 232, 0), opaque="redacted_thinking"
    ),
    "anthropic-stream-clear-tool-uses": Answer(
        ("\n\nHere's a compariso", 440, "8cb57585a8dd"), usage=(859, 122, 0)
    ),
    "anthropic-stream-code-execution-server-tool": Answer(
        ("I'll calculate that ", 501, "daa935c0ed5d"),
        "Let me calculate this mathematical expression.",
        usage=(4714, 304, 0),
        opaque="thinking server_tool_use bash_code_execution_tool_result message/ending",
    ),
    # Two passes are billed, and the totals beside them are of the second one only.
    "anthropic-stream-compaction-usage": Answer("Hello! 👋", usage=(55377, 91, 55096), opaque="compaction"),
    "anthropic-stream-compaction": Answer("Hello there!", usage=(30, 8, None), opaque="compaction"),
    "anthropic-stream-duplicate-message-start": Answer("Hello, World!", usage=(17, 227, None)),
    "anthropic-stream-max-tokens-partial-json": Answer(
        ("I'll create a compre", 135, "4d0a033af934"),
        calls=(
            ("toolu_01EKqbqmZrGRXy18eN7m9kvY", "make_file", ('{"filename": "taxes.', 149, "1fb86d981ced")),
        ),
        stop="length",
        usage=(450, 124, 0),
    ),
    "anthropic-stream-mcp-connector": Answer(
        ("**Pydantic-AI** is a", 806, "db349327f3d7"),
        ("The user is asking a", 192, "b8da0661e6e2"),
        usage=(3042, 354, 0),
        opaque="thinking mcp_tool_use mcp_tool_result",
    ),
    "anthropic-stream-pause-turn": Answer(
        ("I'll run these searc", 166, "bff05339c306"),
        ("The user wants me to", 1051, "d6ff8883e7ef"),
        stop="pause",
        usage=(404500, 943, 0),
        opaque=f"thinking {' '.join([SEARCH] * 10)} server_tool_use",
    ),
    "anthropic-stream-redacted-thinking": Answer(
        ("I notice that you've", 359, "33e0d169251b"),
        usage=(92, 189, 0),
        opaque="redacted_thinking redacted_thinking",
    ),
    "anthropic-stream-refusal": Answer(stop="refusal", usage=(18, 5, 0), opaque="message/ending"),
    "anthropic-stream-spliced-message-start": Failure(
        "invalid_response", False, None, "I will call the tool."
    ),
    "anthropic-stream-thinking-signature": Answer(
        ("Here are the basic s", 1021, "1b0c432c3a48"),
        ("This is a straightfo", 202, "18c2c6e0236d"),
        usage=(43, 282, 0),
        opaque="thinking",
    ),
    "anthropic-stream-thinking-tool-chain-step1": Answer(
        "",
        ("The user wants me to", 180, "7a4548123a7b"),
        (("toolu_01825dXWLSoJwCst1qTsiWdb", "fixed_version", ""),),
        "tool_calls",
        (598, 92, 0),
        "thinking calls/0",
        named=True,
    ),
    "anthropic-stream-thinking-tool-chain-step2": Answer(
        ("The version is **0.3", 277, "5f9498ba9558"), usage=(707, 89, 0), named=True
    ),
    "anthropic-stream-tool-no-args": Answer(
        "I'll update the issue list for you.",
        calls=(("toolu_01QE1WLsSVp5hy5Q3GmGTmjP", "updateIssueList", ""),),
        stop="tool_calls",
        usage=(565, 48, 0),
    ),
    "anthropic-stream-tool-use": Answer(
        calls=(("toolu_01CzN6riCPqw4pVSuTd9Dwn7", "pelican_name_generator", ""),),
        stop="tool_calls",
        usage=(543, 40, 0),
        opaque="calls/0",
        named=True,
    ),
    "anthropic-stream-unknown-block-tool-search": Answer(
        ("Let me search for a ", 158, "e73ac65d75e5"),
        calls=(
            (
                "toolu_01EFn5wTNBYA8Reni8rbmnHT",
                "get_exchange_rate",
                '{"from_currency": "USD", "to_currency": "EUR"}',
            ),
        ),
        stop="tool_calls",
        usage=(1591, 175, 0),
        opaque="server_tool_use tool_search_tool_result calls/0",
    ),
    "llamacpp-messages-stream": Answer(
        "The two most popular colours in the world are:\n\n- Red - The", stop="length", usage=(13, 16, 12)
    ),
}


def answer_of(response: Response, thinking: str) -> Answer:
    usage = response.usage
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert response.provider_ids.keys() >= {"response_id", "model"}
    return Answer(
        summary("".join(block.text for block in response.blocks if block.kind == "text")),
        summary(thinking),
        tuple((c.provider_call_id, c.name, summary(c.arguments)) for c in response.calls),
        response.stop,
        (usage["input_tokens"], usage["output_tokens"], usage.get("cached_input_tokens")),
        " ".join(b.format.removeprefix("anthropic-messages/") for b in response.blocks if b.kind == "opaque"),
        "request_id" in response.provider_ids,
    )


def check(name: str, found: Attempted) -> None:
    expected = GOLDEN[name]
    if isinstance(expected, Failure):
        failure = found.failure
        assert failure is not None
        assert failure.bytes_sent
        assert failure.received_digest is not None
        seen = Failure(failure.kind, failure.retryable, failure.status, summary(found.thinking))
        assert seen == expected
        return
    assert found.response is not None, found.failure
    assert answer_of(found.response, found.thinking) == expected
    # What was shown live is what is kept.
    assert summary(found.text) == expected.text
    shown = {index: call.arguments for index, call in enumerate(found.response.calls) if call.arguments}
    assert found.inputs == shown


def test_the_recordings_of_anthropic_are_all_here(wire_dir: Path) -> None:
    known = {path.stem for path in wire_dir.glob("anthropic-*.json")}
    assert known | {"llamacpp-messages-stream"} >= GOLDEN.keys()
    assert len(GOLDEN) == 25


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", GOLDEN)
async def test_a_recording_gives_what_it_holds(name: str, recording: Callable[[str], Any]) -> None:
    async with connected([recorded_reply(recording(name))]) as (provider, server):
        check(name, await attempt(provider, b'{"model":"m"}'))
        assert [(r.method, r.path, r.body) for r in server.requests] == [
            ("POST", "/v1/messages", b'{"model":"m"}')
        ]


@pytest.mark.parametrize("name", GOLDEN)
async def test_a_recording_in_pieces_gives_the_same(name: str, recording: Callable[[str], Any]) -> None:
    whole = recorded_reply(recording(name))
    size, luck = len(whole.body), random.Random(name)
    cuts = [tuple(luck.randrange(size) for _ in range(luck.randint(1, 40))) for _ in range(4)]
    faults = [Faults(splits=places) for places in cuts] + [Faults(piece_bytes=7)]
    replies = [Reply(whole.body, whole.status, whole.headers, fault) for fault in faults]
    async with connected(replies) as (provider, _):
        for _ in faults:
            check(name, await attempt(provider))

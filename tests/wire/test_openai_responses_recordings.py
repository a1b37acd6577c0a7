"""Recorded answers of real servers, through a real socket and the real SDK.

What each holds was read from the recordings by hand. Longer texts are named by
their beginning, length and SHA-256.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from adapters.model_failures import KINDS
from minutebook.testing.attempts import Attempted, attempt
from minutebook.testing.chat_replies import recorded_reply
from minutebook.testing.fake_server import Faults, Reply
from minutebook.testing.wire_rules.openai_responses import check as check_body
from tests.wire.responses_dialect import Answer, Failure, answer_of, connected, recordings
from tests.wire.summaries import summary

pytestmark = pytest.mark.anyio

REASONING = ("reasoning", "")
LISTED = ("mcp_list_tools", "")
NARRATED = "I\u2019ll check the capital lookup tool for \u201cPotatoLand.\u201d"

GOLDEN: dict[str, Answer | Failure] = {
    "bedrock-mantle-responses-reused-call-ids-step1": Answer(
        calls=(("call_0", "first_tool", "{}"),),
        stop="tool_calls",
        usage=(88, 14, 0, 0),
        response_id="resp_yqqp3b5",
        identified=True,
    ),
    "bedrock-mantle-responses-reused-call-ids-step2": Answer(
        (REASONING,),
        (("call_1", "second_tool", "{}"),),
        "tool_calls",
        usage=(115, 30, 0, 14),
        response_id="resp_3irkem3",
        identified=True,
    ),
    "bedrock-mantle-responses-reused-call-ids-step3": Answer(
        (REASONING, ("message/final_answer", ("First tool result: `", 70, "0656f738af1d"))),
        usage=(158, 32, 0, 10),
        response_id="resp_xk6l63o",
        identified=True,
    ),
    "deepseek-responses-error-400-interleaved": Failure("bad_request", False, 400),
    "deepseek-responses-stream-tool-step1": Answer(
        (REASONING,),
        (("call_00_xjY8Z2BvSlzgEmmw0DtH0464", "get_temperature", '{"city": "Tokyo"}'),),
        "tool_calls",
        ("The user asks about ", 61, "840c3f3ae6b4"),
        (366, 59, 256, 14),
        "1235b7ba-fdc",
    ),
    "deepseek-responses-stream-tool-step2": Answer(
        (("message/final_answer", "The current temperature in Tokyo is **21.0°C**."),),
        usage=(440, 14, 384, 0),
        response_id="33df88f0-9f3",
    ),
    "llamacpp-responses-stream-missing-indexes": Answer(
        (("message", "The two most popular colours in the world are:\n\n- Red - The"),),
        usage=(13, 16, 12, None),
        response_id="resp_UEu8P7U",
    ),
    # The server says that it does not store it; a background response can be asked for all the same.
    "openai-responses-background-resume-step1": Answer(
        (("message", "2 + 2 equals 4."),),
        usage=(15, 9, 0, 0),
        response_id="resp_0850765",
        identified=True,
    ),
    "openai-responses-background-resume-step2": Answer(
        (("message", "2 + 2 equals 4."),),
        usage=(15, 9, 0, 0),
        response_id="resp_0850765",
        identified=True,
    ),
    "openai-responses-error-400-history": Failure("bad_request", False, 400),
    "openai-responses-error-400-model": Failure("bad_request", False, 400),
    "openai-responses-stream-custom-tool": Answer(
        (("calls/0", "custom_tool_call"),),
        (("call_custom_sql_001", "write_sql", '{"input":"SELECT * FROM users WHERE age > 25"}'),),
        "tool_calls",
        usage=(50, 20, 0, 0),
        response_id="resp_custom_",
        identified=True,
    ),
    "openai-responses-stream-failed-quota": Failure("quota_exceeded", False, None),
    "openai-responses-stream-id-rotation": Answer(
        (REASONING, ("message/final_answer", ("There are **3** lett", 138, "2b565af7080a"))),
        thinking="**Counting character occurrences**",
        usage=(19, 105, 0, 44),
        response_id="capture-id-1",
    ),
    "openai-responses-stream-mcp-approval": Answer(
        (LISTED, REASONING, ("mcp_approval_request", "")),
        usage=(422, 48, 0, 0),
        response_id="resp_04a97b4",
        identified=True,
    ),
    "openai-responses-stream-mcp-provider-run": Answer(
        (LISTED, LISTED, LISTED, ("message", ("Here are the availab", 398, "2e91ad68993b"))),
        usage=(1199, 103, 0, 0),
        response_id="resp_034c5e9",
        identified=True,
    ),
    "openai-responses-stream-reasoning-tool-phase-step1": Answer(
        (REASONING, ("message/commentary", NARRATED)),
        (("call_LabG58Uhrq9kZvR52BYKjToD", "get_capital", '{"country":"PotatoLand"}'),),
        "tool_calls",
        usage=(63, 69, 0, 26),
        response_id="resp_0fabc13",
        identified=True,
    ),
    "openai-responses-stream-reasoning-tool-phase-step2": Answer(
        (("message/final_answer", "The capital of PotatoLand is **Potato City**."),),
        usage=(147, 16, 0, 0),
        response_id="resp_0fabc13",
        identified=True,
    ),
    "openai-responses-stream-tool-step1": Answer(
        calls=(("call_kL0PCQV7M2WMoVX8V8OtYSAL", "get_capital", '{"country":"France"}'),),
        stop="tool_calls",
        usage=(255, 16, 0, 0),
        response_id="resp_67e554a",
        identified=True,
    ),
    "openai-responses-stream-tool-step2": Answer(
        (("message", "The capital of France is Paris."),),
        usage=(278, 9, 0, 0),
        response_id="resp_67e554a",
        identified=True,
    ),
    "openai-responses-stream-usage-reasoning": Answer(
        (REASONING,),
        (("call_CWXgs68YprAjp6t0371hiPOI", "final_result", '{"result":6666}'),),
        "tool_calls",
        usage=(53, 469, 0, 448),
        response_id="resp_0050471",
        identified=True,
    ),
}


@pytest.fixture(scope="module")
def recorded(wire_dir: Path) -> dict[str, Any]:
    return recordings(wire_dir)


def check(name: str, found: Attempted) -> None:
    expected = GOLDEN[name]
    if isinstance(expected, Failure):
        assert found.failure is not None
        assert found.failure.bytes_sent
        assert found.failure.received_digest is not None
        failure = found.failure
        assert expected == Failure(failure.kind, failure.retryable, failure.status)
        return
    assert answer_of(found) == expected
    # What was shown live is what is kept.
    assert found.response is not None
    kept = "".join(block.text for block in found.response.blocks if block.kind == "text")
    assert found.text == kept
    assert list(found.inputs.values()) == [call.arguments for call in found.response.calls]


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", GOLDEN)
async def test_a_recording_gives_what_it_holds(name: str, recorded: dict[str, Any]) -> None:
    async with connected([recorded_reply(recorded[name])], store=True) as (provider, server):
        check(name, await attempt(provider, b'{"model":"m"}'))
        assert [(r.method, r.path, r.body) for r in server.requests] == [
            ("POST", "/v1/responses", b'{"model":"m"}')
        ]


@pytest.mark.parametrize("name", GOLDEN)
async def test_a_recording_in_pieces_gives_the_same(name: str, recorded: dict[str, Any]) -> None:
    whole = recorded_reply(recorded[name])
    size, luck = len(whole.body), random.Random(name)
    cuts = [tuple(luck.randrange(size) for _ in range(luck.randint(1, 40))) for _ in range(5)]
    faults = [Faults(splits=places) for places in cuts] + [Faults(piece_bytes=7)]
    replies = [Reply(whole.body, whole.status, whole.headers, fault) for fault in faults]
    async with connected(replies, store=True) as (provider, _):
        for _ in faults:
            check(name, await attempt(provider))


async def test_the_id_is_told_only_where_the_response_can_be_asked_for(recorded: dict[str, Any]) -> None:
    told = {}
    for name in ("openai-responses-stream-tool-step1", "openai-responses-background-resume-step1"):
        async with connected([recorded_reply(recorded[name])], store=False) as (provider, _):
            told[name] = answer_of(await attempt(provider)).identified
    assert list(told.values()) == [False, True]


async def test_recordings_nobody_looked_at_end_in_one_of_two_ways(recorded: dict[str, Any]) -> None:
    replies = [recorded_reply(found) for found in recorded.values()]
    async with connected(replies) as (provider, _):
        for name, reply in zip(recorded, replies, strict=True):
            found = await attempt(provider)
            if found.failure is not None:
                assert found.failure.kind in KINDS, name
            else:
                document = reply.body.lstrip().startswith(b"{")
                assert document or b"response.completed" in reply.body or b"incomplete" in reply.body, name


def test_the_checker_agrees_with_the_servers(recorded: dict[str, Any]) -> None:
    """Recorded requests of ordinary shape: refused exactly where the server refused them."""
    judged = 0
    for name, found in recorded.items():
        body = found["request"]["body"]
        ordinary = isinstance(body, dict) and isinstance(body.get("input"), list)
        if not ordinary or any(tool["type"] != "function" for tool in body.get("tools", ())):
            continue
        judged += 1
        try:
            check_body(body)
            accepted = True
        except AssertionError:
            accepted = False
        assert accepted == (found["response"]["status"] == 200), name
    assert judged >= 13


def test_summary_names_long_texts() -> None:
    assert summary("x" * 61) == ("x" * 20, 61, "c508e75f24e2")

"""How users got hurt by what models say and servers refuse."""

from __future__ import annotations

import pytest

from domain.errors import ReplayMiss
from domain.model_attempt import keep
from domain.model_ports import Block, Response
from domain.values import Stop, ToolKind
from minutebook import stream_events as se
from minutebook.testing.replay import ReplayProvider
from minutebook.testing.scripted import Gate, ScriptedProvider, call, reply
from minutebook.tool_definition import tool
from tests.session.harness import Hands, Place, data

pytestmark = pytest.mark.anyio


async def test_p32_a_replay_goes_by_the_identity_of_an_attempt(hands: Hands) -> None:
    """Equal questions keep their own answers; what was not recorded is an error and no question."""
    recorded = {"r1.t1.a1": reply("A")[-1], "r2.t1.a1": reply("B")[-1]}
    provider = ReplayProvider(recorded)  # type: ignore[arg-type]
    place = Place()
    async with place.create(provider) as session:
        contents = [(await session.run("the same question")).content for _ in range(2)]
        missed = await session.run("the same question")
    assert contents == ["A", "B"]
    assert (missed.status, missed.error_code) == ("failed", "provider_error")
    assert ReplayMiss("r3.t1.a1").args[0] in missed.message
    await place.check()


OPAQUE = [
    Block("opaque", "I thought about it", "openai-chat/reasoning_content"),
    Block("opaque", '[{"signature":"abc=="}]', "openai-chat/reasoning_details"),
    Block("opaque", '{"google":{}}', "openai-chat/tool_calls/0/extra_content"),
]


@pytest.mark.parametrize("block", OPAQUE, ids=lambda block: block.format.rpartition("/")[2])
@pytest.mark.parametrize("other", ["alpha", "beta"])
async def test_p50_material_of_one_provider_is_not_sent_to_another(
    place: Place, hands: Hands, block: Block, other: str
) -> None:
    declared = call("look", {"what": "x"})
    speaks = Response((Block("text", "hm"), block), (declared,), Stop.TOOL_CALLS)
    first = ScriptedProvider([[speaks], reply("done")], provider="alpha")
    async with place.create(first, tools=hands.tools()) as session:
        await session.run("hello")
    second = ScriptedProvider([reply("done")], provider=other)
    async with place.resume(second, tools=hands.tools()) as session:
        await session.run("again")
    mark = block.text.strip('{}"').encode()[:8]
    assert mark in first.sent[1].body
    assert (mark in second.sent[0].body) == (other == "alpha")
    assert data(await place.events(), "model_request_completed")[0].response.blocks[1].text == block.text


EMPTY_ANSWERS = [
    Response((), (), Stop.END),
    Response((Block("text", ""),), (), Stop.END),
    Response((Block("text", " \n"),), (), Stop.END),
    Response((Block("opaque", "thinking only", "openai-chat/reasoning_content"),), (), Stop.END),
]


@pytest.mark.parametrize("answer", EMPTY_ANSWERS, ids=range(len(EMPTY_ANSWERS)))
async def test_p54_an_empty_answer_does_not_spoil_the_session(place: Place, answer: Response) -> None:
    provider = ScriptedProvider([[answer], reply("better")])
    async with place.create(provider) as session:
        assert (await session.run("hello")).status == "completed"
        assert (await session.run("again")).content == "better"
    assert [message["role"] for message in provider.sent[1].messages] == ["user", "user"]
    assert data(await place.events(), "model_request_completed")[0].response == keep(answer)


@pytest.mark.parametrize("output", ["", " ", "\n", None])
async def test_p54_an_empty_result_has_a_body(place: Place, output: str | None) -> None:
    @tool(kind=ToolKind.READ_ONLY)
    async def quiet() -> str | None:
        return output

    provider = ScriptedProvider([reply("", call("quiet")), reply("done")])
    async with place.create(provider, tools=[quiet]) as session:
        await session.run("hello")
    assert provider.sent[1].messages[-1]["content"].strip()


#: Long, foreign, empty, and two that are equal in their first 64 characters.
ODD_IDS = ["", "call_" + "x" * 94, "call_1|fc_2", "functions.x:3", "y" * 64 + "a", "y" * 64 + "b", "\ud83d"]


@pytest.mark.parametrize("first", ODD_IDS, ids=range(len(ODD_IDS)))
@pytest.mark.parametrize("second", ["call_0", "", "y" * 64 + "b"], ids=["plain", "empty", "long"])
async def test_p55_p56_ids_of_any_shape_reach_the_wire_plain_paired_and_unique(
    place: Place, hands: Hands, first: str, second: str
) -> None:
    calls = [call("look", {"what": "a"}, first), call("look", {"what": "b"}, second)]
    script = [reply("", *calls), reply("", *calls), reply("done")]
    async with place.create(ScriptedProvider(script), tools=hands.tools()) as session:
        assert (await session.run("hello")).content == "done"
    events = await place.events()  # what was sent is checked when the test ends
    assert [event.provider_call_id for event in data(events, "tool_scheduled")] == [first, second] * 2
    assert sorted(hands.done) == ["a", "a", "b", "b"]


CUT_OFF = ['{"what": "a", "content":"x', '{"what"', "{", '{"what": "a"', '{"what": "a"}}', "[1"]


@pytest.mark.parametrize("raw", CUT_OFF)
@pytest.mark.parametrize("stop", [Stop.TOOL_CALLS, Stop.LENGTH, Stop.UNKNOWN])
async def test_p58_arguments_that_were_cut_off_are_kept_and_not_carried_out(
    place: Place, hands: Hands, raw: str, stop: Stop
) -> None:
    provider = ScriptedProvider([reply("", call("look", raw), stop=stop), reply("sorry")])
    async with place.create(provider, tools=hands.tools()) as session:
        assert (await session.run("hello")).content == "sorry"
    assert hands.begun == []
    events = await place.events()
    assert data(events, "model_request_completed")[0].response.calls[0].arguments == raw
    assert [event.reason for event in data(events, "tool_rejected")] == [
        "truncated" if stop is Stop.LENGTH else "malformed"
    ]


async def test_p58_calls_of_an_interrupted_response_are_not_carried_out(place: Place, hands: Hands) -> None:
    gate = Gate()
    *pieces, end = reply("", call("look", {"what": "a"}))
    async with place.create([[*pieces, gate, end]], tools=hands.tools()) as session:
        await session.send("hello")
        await gate.reached()
        await session.abort()
    assert hands.begun == []
    assert "tool_scheduled" not in await place.types()


NOT_OBJECTS = [
    "null",
    '["x"]',
    '"ls"',
    '{"a":NaN}',
    '{"a":1,"a":2}',
    '"{\\"a\\":1}"',
    "1",
    "true",
    "-0",
    '{"a":1e999}',
]


@pytest.mark.parametrize("raw", NOT_OBJECTS)
async def test_p60_arguments_that_are_no_object_are_told_and_the_loop_goes_on(
    place: Place, hands: Hands, raw: str
) -> None:
    @tool(kind=ToolKind.READ_ONLY)
    async def ls(a: int = 0) -> str:
        hands.begun.append(str(a))
        return "listed"

    provider = ScriptedProvider([reply("", call("ls", raw), call("ls", "")), reply("done")])
    async with place.create(provider, tools=[ls]) as session:
        await session.send("hello")
        told = await place.told(session.stream())
    results = {e.id[-1]: e for e in told if isinstance(e, se.ToolResult)}
    assert (results["0"].outcome, results["1"].outcome) == ("rejected", "completed")
    assert len(results["0"].output) < 500
    assert hands.begun == ["0"]


@pytest.mark.parametrize("position", range(3))
@pytest.mark.parametrize(
    "error", [Exception(""), ValueError("x"), KeyboardInterrupt(), SystemExit(1)], ids=repr
)
async def test_p94_one_of_several_raises_and_every_call_has_an_end_of_its_own(
    place: Place, hands: Hands, position: int, error: BaseException
) -> None:
    @tool(kind=ToolKind.READ_ONLY)
    async def fails() -> None:
        raise error

    hands.gates["slow"] = Gate()
    calls = [call("look", {"what": "quick"}), call("look", {"what": "slow"})]
    calls.insert(position, call("fails"))
    async with place.create([reply("", *calls), reply("done")], tools=[*hands.tools(), fails]) as session:
        await session.send("hello")
        stream = session.stream()
        while not (isinstance(event := await anext(stream), se.ToolResult) and event.name == "fails"):
            pass
        assert event.id == f"r1.t1.a1.c{position}"
        assert event.output.strip(" :.") != "The tool failed"
        hands.gates["slow"].open()
        assert (await place.told(stream))[-1].content == "done"
    assert sorted(hands.done) == ["quick", "slow"]


@pytest.mark.parametrize("name", ["mcp__x__add", "x" * 100, "übung", "", "look "])
async def test_p98_a_tool_of_the_past_is_told_and_a_call_of_it_refused(
    place: Place, hands: Hands, name: str
) -> None:
    script = [reply("", call(name, {})), reply("done")]
    async with place.create(script, tools=hands.tools()) as session:
        await session.run("hello")
    provider = ScriptedProvider([reply("", call(name, {})), reply("I see")])
    async with place.resume(provider) as session:
        assert (await session.run("again")).content == "I see"
    events = await place.events()
    assert [event.reason for event in data(events, "tool_rejected")] == ["unknown_tool"] * 2
    digests = [event.tools_digest for event in data(events, "model_request_started")]
    assert (digests[0], digests[2]) == (digests[1], digests[3])
    assert digests[0] != digests[2]


async def test_p108_another_catalogue_does_not_change_what_was(place: Place, hands: Hands) -> None:
    script = [reply("", call("look", {"what": "x"})), reply("done")]
    async with place.create(script, tools=hands.tools()) as session:
        await session.run("hello")
        before = session.messages

    @tool(kind=ToolKind.READ_ONLY)
    async def look(where: int) -> str:
        return str(where)

    provider = ScriptedProvider([reply("", call("look", {"what": "x"})), reply("I see")])
    async with place.resume(provider, tools=[look]) as session:
        assert session.messages == before
        assert (await session.run("again")).content == "I see"
    assert [event.reason for event in data(await place.events(), "tool_rejected")] == ["invalid"]
    assert len(provider.sent) == 2  # told once, and tried again by nobody but the model

"""Settings that reach the model: thinking, structured output, and what cannot work."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

import minutebook as mb
from domain.errors import CapabilityUnsupported, InvalidOptions
from domain.model_ports import EVERYTHING, Capabilities, Parameters
from domain.values import ThinkingSettings
from minutebook.testing.scripted import Gate, ScriptedProvider, call, fail, reply
from tests.session.harness import Hands, Place, data

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

BARE = Capabilities(images=True, files=True)
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Count(BaseModel):
    n: int


class Recording(ScriptedProvider):
    """A scripted provider that remembers the parameters of its bodies."""

    def __init__(self, script: Any, **fields: Any) -> None:
        super().__init__(script, **fields)
        self.asked: list[Parameters] = []

    def body(self, items: Any, tools: Any, parameters: Parameters) -> bytes:
        self.asked.append(parameters)
        plain = Parameters(parameters.model, parameters.system_prompt)
        return super().body(items, tools, plain)


def parameters(events: list[Any]) -> list[dict[str, Any]]:
    return [sent.parameters for sent in data(events, "model_request_started")]


# --- thinking -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("thinking", "settings"),
    [
        (None, None),
        (mb.Thinking(), ThinkingSettings()),
        (mb.Thinking(budget=2000), ThinkingSettings(2000)),
        (mb.Thinking(effort="low"), ThinkingSettings(None, "low")),
    ],
    ids=str,
)
async def test_thinking_has_three_states_and_each_reaches_the_model(
    any_place: Place, thinking: mb.Thinking | None, settings: ThinkingSettings | None
) -> None:
    provider = Recording([reply("a"), reply("b")])
    async with any_place.create(provider, thinking=thinking) as session:
        await session.run("hello")
    assert [each.thinking for each in provider.asked] == [settings]
    (told,) = parameters(await any_place.events())
    wanted = (
        None if settings is None else {"budget_tokens": settings.budget_tokens, "effort": settings.effort}
    )
    assert told.get("thinking") == wanted
    async with any_place.resume(provider, thinking=thinking) as session:
        await session.run("again")
    assert [each.thinking for each in provider.asked] == [settings, settings]
    assert "thinking_changed" not in await any_place.types()


async def test_thinking_is_set_from_the_next_turn_on_and_not_within_one(
    any_place: Place, hands: Hands
) -> None:
    gate = Gate()
    script = [[gate, *fail()], reply("", call("look", {"what": "x"})), reply("done"), reply("more")]
    provider = Recording(script)
    async with any_place.create(provider, tools=hands.tools()) as session:
        await session.send("hello")
        await gate.reached()
        await session.set_thinking(mb.Thinking(budget=7))
        await session.set_thinking(mb.Thinking(budget=7))
        gate.open()
        await session.wait_idle()
        await session.set_thinking(None)
        await session.run("again")
    seven = ThinkingSettings(7)
    assert [each.thinking for each in provider.asked] == [None, None, seven, None]
    events = await any_place.events()
    changed = data(events, "thinking_changed")
    assert [c.thinking and c.thinking.budget_tokens for c in changed] == [7, None]


async def test_reasoning_is_shown_whether_or_not_it_was_asked_for(place: Place) -> None:
    async with place.create([reply("a", thinking="hm"), reply("b", thinking="hm")]) as session:
        await session.send("hello")
        told = [event async for event in session.stream(include_thinking=True)]
        assert "thinking" in [event.type for event in told]
        await session.set_thinking(mb.Thinking())
        await session.send("again")
        assert "thinking" not in [event.type async for event in session.stream()]


async def test_setting_what_the_api_has_not_changes_nothing(place: Place) -> None:
    async with place.create(ScriptedProvider([reply("a")], capabilities=BARE)) as session:
        before = session.head_sequence
        with pytest.raises(CapabilityUnsupported, match="thinking"):
            await session.set_thinking(mb.Thinking())
        with pytest.raises(InvalidOptions, match="thinking"):
            await session.set_thinking(5)  # type: ignore[arg-type]  # what somebody may try
        await session.set_thinking(None)
        assert session.head_sequence == before
        assert (await session.run("hello")).content == "a"


# --- structured output ----------------------------------------------------------------------------


async def test_an_answer_is_a_value_of_the_class(any_place: Place) -> None:
    provider = Recording([reply('{"n": 3}'), reply("three"), fail(retryable=False)])
    async with any_place.create(provider, output_schema=Count) as session:
        good = await session.run("how many?")
        assert (good.parsed, good.output_error, good.content) == (Count(n=3), None, '{"n": 3}')
        bad = await session.run("how many?")
        assert (bad.status, bad.parsed, bad.content) == ("completed", None, "three")
        assert "Invalid JSON" in str(bad.output_error)
        failed = await session.run("how many?")
        assert (failed.status, failed.parsed, failed.output_error) == ("failed", None, None)
    schema = provider.asked[0].output_schema
    assert schema is not None
    assert (schema["required"], schema["additionalProperties"]) == (["n"], False)
    assert [each.system_prompt for each in provider.asked] == [None] * 3
    events = await any_place.events()
    assert {told["output_schema"]["how"] for told in parameters(events)} == {"strict"}
    assert data(events, "session_created")[0].settings["output_schema"] == schema
    assert data(events, "notice_recorded") == []


async def test_an_answer_is_read_by_a_schema_and_by_prompt_too(place: Place) -> None:
    config = place.config([reply('{"n": "x"}')], output_schema=SCHEMA)
    result = await mb.prompt("how many?", config)
    assert (result.parsed, result.output_error) == (None, "at $.n: 'x' is not of type 'integer'")
    assert (await mb.prompt("hi", place.config([reply('{"n": 1}')], output_schema=SCHEMA))).parsed == {"n": 1}


async def test_a_request_keeps_the_schema_it_was_accepted_under(any_place: Place) -> None:
    gate = Gate()
    async with any_place.create(Recording([[gate, *reply('{"n": 1}')]]), output_schema=SCHEMA) as session:
        await session.send("how many?")
        await gate.reached()
    again = Recording([reply('{"n": 2}'), reply('{"n": 3}')])
    async with any_place.resume(again, output_schema=Count) as session:
        await session.wait_idle()
        assert (await session.run("and now?")).parsed == Count(n=3)
    schemas = [each.output_schema for each in again.asked]
    assert schemas[0] == SCHEMA
    assert schemas[1] is not None
    assert schemas[1]["title"] == "Count"
    assert data(await any_place.events(), "settings_changed")[0].values.keys() == {"output_schema"}


async def test_where_the_api_cannot_force_it_the_model_is_told_and_that_is_recorded_once(
    any_place: Place, hands: Hands
) -> None:
    script = [fail(), reply("", call("look", {"what": "x"})), reply('```json\n{"n": 1}\n```'), reply("{}")]
    provider = Recording(script, capabilities=BARE)
    options: dict[str, Any] = {"output_schema": SCHEMA, "output_fallback": "instruct", "tools": hands.tools()}
    async with any_place.create(provider, system_prompt="Be brief.", **options) as session:
        assert (await session.run("how many?")).parsed == {"n": 1}
        assert (await session.run("again")).output_error == "at $: 'n' is a required property"
    for asked in provider.asked:
        assert asked.output_schema is None
        assert asked.system_prompt is not None
        assert asked.system_prompt.startswith("Be brief.\n\nYour final answer")
        assert '"required":["n"]' in asked.system_prompt
    events = await any_place.events()
    notices = [e for e in events if e.type == "notice_recorded"]
    assert [(e.request_id, e.data.kind) for e in notices] == [
        ("r1", "output_schema_fallback"),
        ("r2", "output_schema_fallback"),
    ]
    assert {told["output_schema"]["how"] for told in parameters(events)} == {"instructed"}


# --- what cannot work -----------------------------------------------------------------------------------

FIRST = mb.ProviderConfig(type="openai-compatible", base_url="http://127.0.0.1:1/v1", id="first")
SMALL = mb.ModelInfo("small", "Small", "scripted")
OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown model": ({"model": "large", "models": [SMALL]}, "model"),
    "an empty alias": ({"aliases": {"a": ""}}, "aliases"),
    "an alias for an unknown model": (
        {"models": [SMALL], "model": "small", "aliases": {"a": "b"}},
        "aliases",
    ),
    "an alias at an unknown provider": ({"aliases": {"a": mb.ModelBinding("gone", "m")}}, "aliases"),
    "a model at an unknown provider": ({"models": [mb.ModelInfo("m", "M", "gone")]}, "models"),
    "models that are none": ({"models": ["small"]}, "models"),
    "a provider with the default one's name": ({"providers": {"scripted": FIRST}}, "providers"),
    "thinking that is none": ({"thinking": {"budget": 5}}, "thinking"),
    "no schema": ({"output_schema": "integer"}, "output_schema"),
    "a fallback from nothing": ({"output_fallback": "instruct"}, "output_fallback"),
    "an unknown fallback": ({"output_schema": SCHEMA, "output_fallback": "hope"}, "output_fallback"),
    "a budget that is none": ({"budget": 1000}, "budget"),
    "thinking on an API without it": ({"thinking": mb.Thinking()}, "thinking"),
    "a schema on an API without it": ({"output_schema": Count}, "output_schema"),
}
MESSAGES: dict[str, tuple[dict[str, Any], str]] = {
    "thinking above the output": (
        {"thinking": mb.Thinking(budget=2000), "max_output_tokens": 2000},
        "thinking.budget",
    ),
    "a temperature beside thinking": ({"thinking": mb.Thinking(), "temperature": 0.3}, "temperature"),
    "a temperature above the highest": ({"temperature": 1.5}, "temperature"),
    "thinking below the least": ({"thinking": mb.Thinking(budget=1000)}, "thinking.budget"),
}


@pytest.mark.parametrize("case", [*OPTIONS, *MESSAGES])
async def test_what_cannot_work_fails_before_anything_is_opened(place: Place, case: str) -> None:
    options, option = {**OPTIONS, **MESSAGES}[case]
    provider = ScriptedProvider([], capabilities=BARE)
    if case in MESSAGES:
        provider = ScriptedProvider([], api="anthropic-messages", capabilities=EVERYTHING)
    with pytest.raises(InvalidOptions) as refused:
        async with place.create(provider, **options):
            pytest.fail("it was opened")
    assert refused.value.option == option
    assert "expected" in str(refused.value)
    assert place.store.batches == []
    assert provider.sent == []


async def test_it_fails_at_a_resume_too_and_nothing_is_written(place: Place) -> None:
    async with place.create([]):
        pass
    written = len(place.store.batches)
    for options, option in OPTIONS.values():
        with pytest.raises(InvalidOptions) as refused:
            async with place.resume(ScriptedProvider([], capabilities=BARE), **options):
                pytest.fail("it was opened")
        assert refused.value.option == option
    assert len(place.store.batches) == written

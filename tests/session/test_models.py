"""Models and providers that change between turns, and what a restart makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import minutebook as mb
from domain.errors import AssemblyFailed, CapabilityUnsupported, InvalidOptions, SessionClosed
from domain.model_ports import EVERYTHING, Block, Capabilities, Response
from domain.values import Stop
from minutebook.testing.scripted import Attempt, Gate, ScriptedProvider, call, fail, reply
from tests.session.harness import Hands, Place, data

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

BARE = Capabilities()
SCHEMA = {"type": "object"}
LARGE = mb.ModelBinding("second", "vendor/large", 200_000)
MODELS = (
    mb.ModelInfo("small", "Small", "first", 8000),
    mb.ModelInfo("vendor/large", "Large", "second", 200_000),
)


def first(script: Sequence[Attempt], **fields: Any) -> ScriptedProvider:
    return ScriptedProvider(script, provider="first", **fields)


def second(script: Sequence[Attempt], **fields: Any) -> ScriptedProvider:
    return ScriptedProvider(script, provider="second", **fields)


def models(events: list[Any]) -> list[tuple[str, str]]:
    """Which model each attempt asked, at which provider."""
    return [(sent.provider, sent.model) for sent in data(events, "model_request_started")]


def signed(provider: str) -> Attempt:
    """A response with a call, and with material that only its own provider reads."""
    material = Block("opaque", f'[{{"signature":"of {provider}"}}]', "openai-chat/reasoning_details")
    return [
        Response((material, Block("text", f"by {provider}")), (call("look", {"what": "x"}),), Stop.TOOL_CALLS)
    ]


async def test_one_model_without_a_list(place: Place) -> None:
    async with place.create([reply("a")], model="vendor/family/model-1") as session:
        assert session.model.current == "vendor/family/model-1"
        assert session.model.display_name == "model-1"
        assert session.model.binding == mb.ModelBinding("scripted", "vendor/family/model-1")
        assert session.model.active is None
        assert session.model.is_selected
        only = mb.ModelInfo("vendor/family/model-1", "model-1", "scripted")
        assert await session.model.available() == (only,)


async def test_the_configured_models_are_those_that_are_available(place: Place) -> None:
    config: dict[str, Any] = {"model": "small", "models": MODELS, "providers": {"second": second([])}}
    async with place.create(first([]), **config) as session:
        assert await session.model.available() == MODELS
        assert session.model.binding == mb.ModelBinding("first", "small", 8000)


async def test_another_model_answers_from_the_next_turn_on(any_place: Place, hands: Hands) -> None:
    gate = Gate()
    script = [[gate, *fail()], reply("", call("look", {"what": "x"})), reply("done"), reply("again")]
    async with any_place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        await gate.reached()
        assert session.model.active == "test-model"
        assert await session.model.switch("other-model") == mb.ModelBinding("scripted", "other-model")
        assert (session.model.current, session.model.active) == ("other-model", "test-model")
        gate.open()
        await session.wait_idle()
        await session.run("once more")
    asked = [model for _, model in models(await any_place.events())]
    assert asked == ["test-model", "test-model", "other-model", "other-model"]


async def test_a_change_that_changes_nothing_is_not_recorded(place: Place) -> None:
    async with place.create(first([]), providers={"second": second([])}) as session:
        await session.model.switch(LARGE)
        at = session.head_sequence
        await session.model.switch(LARGE)
        assert session.head_sequence == at
        (changed,) = data(await place.events(), "model_changed")
    assert (changed.provider, changed.model, changed.context_window) == ("second", "vendor/large", 200_000)


async def test_a_window_that_is_not_given_is_cleared(place: Place) -> None:
    async with place.create(first([]), providers={"second": second([])}) as session:
        await session.model.switch(LARGE)
        await session.model.switch(replace(LARGE, context_window=None))
        assert session.model.binding.context_window is None
        await session.model.switch(LARGE)
        await session.model.switch("plain")
        assert session.model.binding == mb.ModelBinding("second", "plain")
        await session.change(model=LARGE)
        assert session.model.binding == LARGE
        await session.change(model="plainer")
        assert session.model.binding == mb.ModelBinding("second", "plainer")


async def test_an_alias_leads_to_a_model_at_its_provider(any_place: Place) -> None:
    there = second([reply("by the other")])
    options: dict[str, Any] = {
        "model": "cheap",
        "models": MODELS,
        "aliases": {"cheap": "small", "best": "vendor/large"},
        "providers": {"second": there},
    }
    async with any_place.create(first([reply("by the first")]), **options) as session:
        assert session.model.current == "small"
        await session.run("hello")
        await session.model.switch("best")
        assert (await session.run("again")).content == "by the other"
    assert models(await any_place.events()) == [("first", "small"), ("second", "vendor/large")]


@pytest.mark.parametrize(
    "wanted", ["unheard of", "", mb.ModelBinding("gone", "m"), mb.ModelBinding("first", "")], ids=repr
)
async def test_a_name_that_leads_nowhere_changes_nothing(place: Place, wanted: Any) -> None:
    options: dict[str, Any] = {"model": "small", "models": MODELS, "providers": {"second": second([])}}
    async with place.create(first([reply("a")]), **options) as session:
        before = session.head_sequence, session.model.binding
        with pytest.raises(AssemblyFailed) as failed:
            await session.model.switch(wanted)
        assert failed.value.code == "ASSEMBLY_FAILED"
        if isinstance(wanted, str):
            with pytest.raises(AssemblyFailed):
                await session.change(model=wanted)
        with pytest.raises(InvalidOptions, match="model"):
            await session.change(model=5)
        assert (session.head_sequence, session.model.binding) == before
        assert (await session.run("hello")).content == "a"


# --- another provider ---------------------------------------------------------------------------


async def test_the_conversation_goes_over_and_what_only_its_provider_reads_stays_behind(
    any_place: Place, hands: Hands
) -> None:
    here = first([signed("first"), reply("one"), reply("three")])
    there = second([signed("second"), reply("two")])
    async with any_place.create(here, providers={"second": there}, tools=hands.tools()) as session:
        await session.run("first")
        await session.model.switch(LARGE)
        await session.run("second")
        await session.model.switch(mb.ModelBinding("first", "test-small"))
        await session.run("third")
    assert [m["role"] for m in there.sent[0].messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert b"of first" in here.sent[1].body
    assert b"by first" in there.sent[0].body
    assert b"of first" not in there.sent[0].body
    assert b"of second" in there.sent[1].body
    assert b"by second" in here.sent[2].body
    assert b"of first" in here.sent[2].body
    assert b"of second" not in here.sent[2].body
    events = await any_place.events()
    asked = [("first", "test-model")] * 2 + [("second", "vendor/large")] * 2 + [("first", "test-small")]
    assert models(events) == asked
    names = [sent.parameters.get("provider_name") for sent in data(events, "model_request_started")]
    assert names == [None, None, "second", "second", "first"]


async def test_an_item_is_encoded_once_for_each_provider_in_use(place: Place) -> None:
    here, there = first([reply("a"), reply("b")]), second([reply("c"), reply("d")])
    async with place.create(here, providers={"second": there}) as session:
        await session.run("one")
        await session.run("two")
        before = there.counts.encoded
        await session.model.switch(LARGE)
        await session.run("three")
        await session.run("four")
    # four items so far, then for each input: the check before it is accepted, itself; and a response
    assert there.counts.encoded - before == 4 + (2 + 0) + (2 + 1)


async def test_a_tool_round_goes_on_at_another_provider(any_place: Place, hands: Hands) -> None:
    hands.gates["x"] = Gate()
    here, there = first([reply("", call("look", {"what": "x"}, "call_1"))]), second([reply("done")])
    async with any_place.create(here, providers={"second": there}, tools=hands.tools()) as session:
        await session.send("hello")
        await hands.gates["x"].reached()
        await session.model.switch(LARGE)
        hands.gates["x"].open()
        await session.wait_idle()
    assert [m["role"] for m in there.sent[0].messages] == ["user", "assistant", "tool"]
    assert there.sent[0].messages[2]["content"] == "did x"


@pytest.mark.parametrize(
    "options",
    [{"thinking": mb.Thinking()}, {"output_schema": SCHEMA}],
    ids=["thinking", "schema"],
)
async def test_a_provider_that_cannot_do_what_is_asked_is_not_switched_to(
    place: Place, options: dict[str, Any]
) -> None:
    others: dict[str, Any] = {"second": second([], capabilities=BARE)}
    async with place.create(first([reply("{}")]), providers=others, **options) as session:
        before = session.head_sequence
        with pytest.raises(CapabilityUnsupported):
            await session.model.switch(LARGE)
        with pytest.raises(CapabilityUnsupported):
            await session.change(model=LARGE)
        assert session.head_sequence == before
        assert (await session.run("hello")).content == "{}"


async def test_a_request_that_goes_over_to_words_says_so(any_place: Place, hands: Hands) -> None:
    hands.gates["x"] = Gate()
    here, there = first([reply("", call("look", {"what": "x"}))]), second([reply("{}")], capabilities=BARE)
    options: dict[str, Any] = {"output_schema": SCHEMA, "output_fallback": "instruct", "tools": hands.tools()}
    async with any_place.create(here, providers={"second": there}, **options) as session:
        await session.send("hello")
        await hands.gates["x"].reached()
        await session.model.switch(LARGE)
        hands.gates["x"].open()
        await session.wait_idle()
    notices = data(await any_place.events(), "notice_recorded")
    assert [(n.kind, n.data["provider"]) for n in notices] == [("output_schema_fallback", "second")]
    assert "JSON Schema" in there.sent[0].messages[0]["content"]


async def test_every_provider_is_closed_when_the_session_is_left(place: Place) -> None:
    here, there = first([]), second([])
    async with place.create(here, providers={"second": there}):
        assert not here.closed
        assert not there.closed
    assert here.closed
    assert there.closed


# --- after a restart ---------------------------------------------------------------------------------


async def test_an_open_request_goes_on_at_the_provider_it_was_at(any_place: Place) -> None:
    """The configuration's model is for the next request; the one that is open keeps its own."""
    gate = Gate()
    here, there = first([]), second([[gate, *reply("never")]])
    async with any_place.create(here, providers={"second": there}) as session:
        await session.model.switch(LARGE)
        await session.send("hello")
        await gate.reached()
    here, there = first([reply("by the first")]), second([reply("by the second")])
    async with any_place.resume(here, providers={"second": there}) as session:
        assert session.model.binding == LARGE
        await session.wait_idle()
        assert session.model.binding == mb.ModelBinding("first", "test-model")
        assert (await session.run("again")).content == "by the first"
    assert [m["content"] for m in here.sent[0].messages] == ["hello", "by the second", "again"]
    asked = models(await any_place.events())
    assert asked == [("second", "vendor/large"), ("second", "vendor/large"), ("first", "test-model")]


async def test_killed_anywhere_each_turn_asks_the_model_it_began_with(place: Place, hands: Hands) -> None:
    """After a kill at any commit: turns go to where the journal says, whatever the configuration says."""
    hands.gates["x"] = Gate()
    answers = {
        f"r1.t{n}.a{a}": attempt
        for n, attempt in enumerate([reply("", call("look", {"what": "x"})), reply("done")], 1)
        for a in (1, 2)
    }
    options: dict[str, Any] = {"tools": hands.tools(), "on_lost_attempt": "retry"}
    here, there = (ScriptedProvider(answers, provider=name) for name in ("first", "second"))
    async with place.create(here, providers={"second": there}, **options) as session:
        await session.send("hello")
        await hands.gates["x"].reached()
        await session.model.switch(LARGE)
        hands.gates["x"].open()
        await session.wait_idle()
    for commits in range(1, len(place.store.batches) + 1):
        left = await place.killed_after(commits)
        switched = "model_changed" in await left.types()
        began = "request_accepted" in await left.types()
        again = [ScriptedProvider(answers, provider=name) for name in ("first", "second")]
        async with left.resume(again[0], providers={"second": again[1]}, **options) as session:
            await session.wait_idle()
        sent = [e for e in await left.events() if e.type == "model_request_started"]
        asked = {(event.turn_id, event.data.provider) for event in sent}
        second_turn = ("r1.t2", "second" if switched else "first")
        assert asked == ({("r1.t1", "first"), second_turn} if began else set())
        await left.check()


async def test_the_default_provider_of_before_is_found_by_its_name(place: Place) -> None:
    gate = Gate()
    async with place.create(first([[gate, *reply("never")]])) as session:
        await session.send("hello")
        await gate.reached()
    here = first([reply("by the first")])
    async with place.resume(second([reply("by the second")]), providers={"first": here}) as session:
        await session.wait_idle()
        assert (await session.run("again")).content == "by the second"
    assert len(here.sent) == 1


async def test_one_that_is_not_configured_any_more_is_named_and_nothing_is_written(place: Place) -> None:
    gate = Gate()
    options: dict[str, Any] = {"providers": {"second": second([[gate, *reply("never")]])}}
    async with place.create(first([]), **options) as session:
        await session.model.switch(LARGE)
        await session.send("hello")
        await gate.reached()
    written = len(place.store.batches)
    alone = first([reply("a")])
    with pytest.raises(AssemblyFailed, match="no provider 'second' is configured; there are: first"):
        async with place.resume(alone):
            pytest.fail("it was opened")
    assert len(place.store.batches) == written
    assert alone.sent == []
    async with place.resume(alone, providers={"second": second([reply("b")])}) as session:
        await session.wait_idle()


async def test_idle_nothing_of_the_old_provider_is_needed(place: Place) -> None:
    async with place.create(first([]), providers={"second": second([reply("a")])}) as session:
        await session.model.switch(LARGE)
        await session.run("hello")
    async with place.resume(first([reply("b")])) as session:
        assert (await session.run("again")).content == "b"


async def test_a_session_that_was_left_is_not_changed_any_more(place: Place) -> None:
    async with place.create(first([])) as session:
        pass
    written = len(place.store.batches)
    with pytest.raises(SessionClosed):
        await session.model.switch("other")
    with pytest.raises(SessionClosed):
        await session.set_budget(mb.Budget(max_tokens=1))
    with pytest.raises(SessionClosed):
        await session.set_thinking(mb.Thinking())
    assert len(place.store.batches) == written


async def test_another_model_at_the_same_provider_stays_there(place: Place) -> None:
    larger = mb.ModelInfo("vendor/larger", "Larger", "second", 200_000)
    options: dict[str, Any] = {"models": (*MODELS, larger), "providers": {"second": second([reply("a")])}}
    async with place.create(first([]), model="vendor/large", **options) as session:
        assert session.model.binding == LARGE
    async with place.resume(first([]), model="vendor/larger", **options) as session:
        assert session.model.binding == mb.ModelBinding("second", "vendor/larger", 200_000)
        assert (await session.run("hello")).content == "a"


async def test_what_an_open_request_asks_for_is_checked_again(place: Place) -> None:
    gate = Gate()
    async with place.create(first([[gate, *reply("never")]]), thinking=mb.Thinking()) as session:
        await session.send("hello")
        await gate.reached()
    with pytest.raises(CapabilityUnsupported, match="thinking"):
        async with place.resume(first([], capabilities=BARE)):
            pytest.fail("it was opened")
    async with place.resume(first([reply("a")], capabilities=EVERYTHING)) as session:
        await session.wait_idle()

"""Whatever an option of a session is given: it is taken, or refused by the option's name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import minutebook as mb
from domain.errors import InvalidOptions, MinutebookError
from minutebook.session_options import ELSEWHERE, check_options
from minutebook.testing.scripted import Gate, ScriptedProvider, call, reply

NAMES = [option.name for option in fields(mb.SessionConfig)]


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def circle() -> list[Any]:
    inside: list[Any] = []
    inside.append(inside)
    return inside


#: Values of every kind, none of which is right for more than a few options.
KINDS: list[Any] = [
    *(None, True, 0, -1, 5, 10**30, 10**400, 1.5, math.nan, math.inf, -math.inf, 1j),
    *("", "x", "\ud800", "\0", "x" * 5000, b"x", bytearray(b"x"), range(3), iter([1]), object()),
    *([], ["a"], [None], (), [("a", 1)], circle(), {}, {"a": 1}, {1: 2}, {"": "m"}, {"a": math.nan}, {"a"}),
    *(Unprintable(), len, int, mb.Budget, mb.Thinking(), mb.Budget(max_tokens=1), ValueError("x")),
    *({"environment": 1}, {"environment": {"a": 1}}, {"metadata": []}, {"a": mb.ModelBinding("p", "m", -1)}),
    *([mb.ModelInfo("m", "M", "scripted", -1)], [mb.ModelInfo("", "M", "scripted")], {"type": []}),
]


def make(**options: Any) -> mb.SessionConfig:
    return mb.SessionConfig(**{"provider": ScriptedProvider([]), "model": "m", **options})


def refusal(made: Callable[[], Any]) -> InvalidOptions | None:
    try:
        made()
    except InvalidOptions as refused:
        return refused
    return None


@pytest.mark.parametrize("option", NAMES)
def test_every_kind_of_value_is_taken_or_refused_by_name(option: str) -> None:
    for value in KINDS:
        found = refusal(partial(make, **{option: value}))
        assert found is None or found.option.partition(".")[0] == option, found


REFUSED = [
    ("model", "a\ud800"),
    ("system_prompt", b"bytes"),
    ("system_prompt", "\udfff"),
    ("temperature", True),
    ("temperature", -0.1),
    ("max_output_tokens", True),
    ("max_output_tokens", 2**53),
    ("max_turns", "3"),
    ("max_turns", 1.0),
    ("permission_mode", "strict"),
    ("on_lost_attempt", 1),
    ("context", [("metadata", {})]),
    ("context", {"environment": {"a": 1}}),
    ("context", {"metadata": "m"}),
    ("owner_id", ""),
    ("owner_id", b"me"),
    ("owner_id", "a\0b"),
    ("abort_timeout_s", "1"),
    ("abort_timeout_s", math.nan),
    ("abort_timeout_s", 10**400),
    ("lease", 30),
    ("lease", None),
    ("probe", None),
    ("providers", [ScriptedProvider([])]),
    ("providers", {"a b": mb.ProviderConfig("openai-compatible", "http://127.0.0.1:1/v1")}),
    ("models", [mb.ModelInfo("m", "M", "scripted", 0)]),
    ("aliases", {"a": mb.ModelBinding("scripted", "m", 0)}),
    ("aliases", {1: "m"}),
    ("budget", {"max_tokens": 5}),
]


@pytest.mark.parametrize(("option", "value"), REFUSED, ids=repr)
def test_what_cannot_work_is_refused(option: str, value: Any) -> None:
    with pytest.raises(InvalidOptions) as refused:
        make(**{option: value})
    assert refused.value.option == option


@pytest.mark.parametrize("option", ["tools", "models"])
def test_what_is_empty_once_it_was_looked_at_is_refused(option: str) -> None:
    def once() -> Iterator[Any]:
        yield from ()

    with pytest.raises(InvalidOptions, match=option):
        make(**{option: once()})


def test_every_option_has_a_rule() -> None:
    check_options(make(), NAMES)
    assert set(NAMES) >= ELSEWHERE


@pytest.mark.parametrize("timeout", ["request_timeout_ms", "stream_idle_timeout_ms"])
@pytest.mark.parametrize("value", [10**400, 2**63, 0, 1.0, "1", None])
def test_a_time_that_no_clock_holds_is_refused(timeout: str, value: Any) -> None:
    with pytest.raises(InvalidOptions, match=timeout):
        mb.ProviderConfig("openai-compatible", "http://127.0.0.1:1/v1", **{timeout: value})


BUDGETS: list[tuple[str, Callable[[Any], Any]]] = [
    ("budget.rates", lambda value: mb.Budget(max_cost=1, rates=value)),
    (
        "budget.max_tokens",
        lambda value: mb.Budget(max_tokens=value, max_cost=1, rates={"input": 1, "output": 1}),
    ),
    ("thinking.budget", lambda value: mb.Thinking(budget=value)),
]


@pytest.mark.parametrize(("option", "made"), BUDGETS, ids=[name for name, _ in BUDGETS])
def test_every_kind_of_value_is_taken_or_refused_by_name_in_parts_too(
    option: str, made: Callable[[Any], Any]
) -> None:
    for value in KINDS:
        found = refusal(partial(made, value))
        assert found is None or found.option.startswith(option.partition(".")[0])
    with pytest.raises(InvalidOptions, match=option):
        made(10**400)


def instead(value: Any) -> Any:
    """None is right there."""
    return 0 if value is None else value


OPENED: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("config", lambda value, store: mb.create_session(value, store=store)),
    ("store", lambda value, store: mb.create_session(make(), store=instead(value))),
    ("providers", lambda value, store: mb.create_session(make(), store=store, providers=instead(value))),
    ("type", lambda value, store: mb.ProviderRegistry().register(value, len)),  # type: ignore[arg-type]  # wrong
]


@pytest.mark.parametrize(("option", "opened"), OPENED, ids=[name for name, _ in OPENED])
def test_what_opens_a_session_takes_nothing_else(
    option: str, opened: Callable[[Any, Any], Any], tmp_path: Path
) -> None:
    for value in KINDS:
        if option == "type" and value == "x":
            continue
        with pytest.raises(InvalidOptions, match=option):
            opened(value, mb.sqlite(tmp_path / "j.db"))
    assert list(tmp_path.iterdir()) == []


#: Calls of an open session with one argument of any kind.
CALLS: dict[str, Callable[[mb.Session, Any], Any]] = {
    "send": lambda s, value: s.send(value),
    "input_id": lambda s, value: s.send("x", input_id=value),
    "max_turns": lambda s, value: s.send("x", max_turns=value),
    "priority": lambda s, value: s.send("x", priority=value),
    "metadata": lambda s, value: s.send("x", metadata=value),
    "cancel_input": lambda s, value: s.cancel_input(value),
    "respond": lambda s, value: s.respond(value, mb.Approve()),
    "answer": lambda s, value: s.respond(None, value),
    "set_thinking": lambda s, value: s.set_thinking(value),
    "set_budget": lambda s, value: s.set_budget(value),
    "switch": lambda s, value: s.model.switch(value),
    "model": lambda s, value: s.change(model=value),
    "system_prompt": lambda s, value: s.change(system_prompt=value),
    "temperature": lambda s, value: s.change(temperature=value),
    "context": lambda s, value: s.change(context=value),
    "permission_mode": lambda s, value: s.change(permission_mode=value),
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", CALLS)
async def test_a_call_takes_every_kind_of_value_or_refuses_it(name: str) -> None:
    provider = ScriptedProvider([reply("x")] * (2 * len(KINDS)))
    async with mb.create_session(make(provider=provider), store=mb.memory()) as session:
        for value in KINDS:
            with suppress(MinutebookError):
                await CALLS[name](session, value)
            await session.set_budget(None)
            await session.wait_idle()
            for number in (-1, "x", None, 1.5):
                with pytest.raises(InvalidOptions, match="offset"):
                    session.history(number)  # type: ignore[arg-type]  # wrong


#: None of them is a reason.
REASONS: list[Any] = [None, 5, b"x", [], {}]

STOPPING: dict[str, Callable[[mb.Session, Any], Any]] = {
    "abort": lambda s, value: s.abort(value),
    "cancel_input": lambda s, value: s.cancel_input("i-2", value),
    "close": lambda s, value: s.close(final=True, reason=value),
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", STOPPING)
async def test_a_reason_is_a_text(name: str) -> None:
    gate = Gate()
    config = make(provider=ScriptedProvider([[gate, *reply("x")]]))
    async with mb.create_session(config, store=mb.memory()) as session:
        await session.send("one")
        await session.send("two", input_id="i-2")
        await gate.reached()
        for value in REASONS:
            with pytest.raises(InvalidOptions, match="reason"):
                await STOPPING[name](session, value)
        assert session.is_running
        assert len(session.pending_inputs) == 1
        await STOPPING[name](session, "enough")


ANSWERS: list[Callable[[Any], Any]] = [
    lambda value: mb.Approve(updated_input=value),
    lambda value: mb.Approve(message=value),
    lambda value: mb.Deny(message=value),
    lambda value: mb.ApproveCategory(message=value),
]


@pytest.mark.anyio
@pytest.mark.parametrize("answer", ANSWERS, ids=range(len(ANSWERS)))
async def test_an_answer_is_taken_or_refused(answer: Callable[[Any], Any]) -> None:
    @mb.tool
    async def pay(what: str) -> str:
        """Pay."""
        return what

    for value in (*KINDS, (part for part in ("x",))):
        asking = ScriptedProvider([reply("", call("pay", {"what": "x"})), reply("done")])
        async with mb.create_session(make(provider=asking, tools=[pay]), store=mb.memory()) as session:
            await session.send("go")
            await session.wait_idle()
            (asked,) = session.interactions
            with suppress(MinutebookError):
                await session.respond(asked.id, answer(value), digest=asked.digest)
            await session.wait_idle()


@pytest.mark.anyio
@pytest.mark.parametrize("option", ["system_prompt", "temperature", "context", "max_turns"])
async def test_a_change_is_refused_by_the_options_name(option: str) -> None:
    async with mb.create_session(make(), store=mb.memory()) as session:
        before = session.head_sequence
        with pytest.raises(InvalidOptions) as refused:
            await session.change(**{option: b"x"})
        assert refused.value.option == option
        assert session.head_sequence == before

"""Definitions: from a typed function to name, schema, behaviour and digest."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, replace
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from domain.errors import InvalidOptions
from domain.model_ports import ToolSpec
from domain.values import Interrupt, SideEffect, ToolKind, Verdict
from minutebook.arguments import bind
from minutebook.tool_context import ToolContext
from minutebook.tool_definition import ToolDefinition, ToolSet, tool


@tool
async def read_file(path: str, lines: Annotated[int, Field(description="how many", ge=1)] = 10) -> str:
    """Read a file.

    From its beginning.
    """
    return f"{path}:{lines}"


# --- the decorator ------------------------------------------------------------------


def test_name_description_and_schema_come_from_the_function() -> None:
    assert read_file.spec == ToolSpec(
        "read_file",
        "Read a file.\n\nFrom its beginning.",
        {
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "lines": {"type": "integer", "description": "how many", "minimum": 1, "default": 10},
            },
            "required": ["path"],
            "additionalProperties": False,
        },
    )


def test_what_is_not_declared_is_taken_to_be_the_worst() -> None:
    assert read_file.kind is ToolKind.EXECUTE
    assert read_file.side_effect is SideEffect.NON_IDEMPOTENT
    assert read_file.interrupt is Interrupt.BLOCK
    assert (read_file.category, read_file.destructive, read_file.version) == (None, False, "1")
    assert read_file.timeout_s == 600


def test_options_are_kept_and_words_become_values() -> None:
    word: Any = "pure"

    @tool(
        name="look",
        description="Look around.",
        kind=ToolKind.READ_ONLY,
        side_effect=word,
        interrupt=Interrupt.CANCEL,
        category="files",
        destructive=True,
        version="2",
        timeout_s=1.5,
    )
    def whatever() -> None:
        """Not this."""

    assert (whatever.name, whatever.description) == ("look", "Look around.")
    assert whatever.side_effect is SideEffect.PURE
    assert (whatever.kind, whatever.interrupt) == (ToolKind.READ_ONLY, Interrupt.CANCEL)
    assert (whatever.category, whatever.destructive, whatever.version) == ("files", True, "2")
    assert whatever.timeout_s == 1.5


@pytest.mark.anyio
async def test_a_decorated_function_can_still_be_called() -> None:
    assert await read_file("a", lines=2) == "a:2"


def test_async_and_sync_are_told_apart() -> None:
    @tool
    def sync() -> None: ...

    assert read_file.is_async
    assert not sync.is_async


def test_the_context_is_injected_and_hidden() -> None:
    @tool
    def tell(text: str, me: ToolContext) -> None: ...

    assert tell.context_parameter == "me"
    assert list(tell.parameters["properties"]) == ["text"]
    assert read_file.context_parameter is None


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    @tool
    def now() -> None: ...

    assert now.parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    assert now.description == ""


def test_parameters_may_have_the_names_of_model_attributes() -> None:
    @tool
    def odd(json: str, copy: int, model_config: bool, _private: str = "x", schema: str = "") -> None: ...

    arguments = {"json": "a", "copy": 1, "model_config": True}
    assert bind(odd, arguments) == {**arguments, "_private": "x", "schema": ""}
    assert set(odd.parameters["properties"]) == {"json", "copy", "model_config", "_private", "schema"}


def test_a_field_may_be_the_default() -> None:
    @tool
    def pick(n: int = Field(4, description="how many", ge=2)) -> None: ...

    schema = {"type": "integer", "default": 4, "description": "how many", "minimum": 2}
    assert pick.parameters["properties"] == {"n": schema}
    assert bind(pick, {}) == {"n": 4}


def test_a_default_that_is_no_json_is_left_out_of_the_schema() -> None:
    nothing = object()

    @tool
    def maybe(value: Any = nothing) -> None: ...

    assert maybe.parameters["properties"] == {"value": {}}
    assert bind(maybe, {}) == {"value": nothing}


def test_methods_and_wrapped_functions_are_functions() -> None:
    class Shop:
        def buy(self, item: str) -> str:
            return f"bought {item}"

    @functools.wraps(Shop.buy)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return Shop().buy(*args, **kwargs)

    bought = tool(Shop().buy)
    assert list(bought.parameters["properties"]) == ["item"]
    assert bought(item="a") == "bought a"
    with pytest.raises(InvalidOptions, match=r"tool buy, parameter self"):
        tool(wrapper)


# --- what is refused -------------------------------------------------------------------


class Opaque:
    """No type that JSON can carry."""


def no_annotation(good: int, bad) -> None: ...  # type: ignore[no-untyped-def]
def star_args(*bad: int) -> None: ...
def star_kwargs(**bad: int) -> None: ...
def positional(bad: int, /) -> None: ...
def opaque(good: int, bad: Opaque) -> None: ...
def function_type(good: int, bad: Callable[[], int]) -> None: ...
def unknown(bad: Unknown) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def two_contexts(ctx: ToolContext, bad: ToolContext) -> None: ...
def maybe_context(bad: ToolContext | None = None) -> None: ...


@pytest.mark.parametrize(
    "function",
    [
        no_annotation,
        star_args,
        star_kwargs,
        positional,
        opaque,
        function_type,
        unknown,
        two_contexts,
        maybe_context,
    ],
)
def test_a_bad_parameter_is_refused_by_name(function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidOptions) as caught:
        tool(function)
    assert caught.value.option == f"tool {function.__name__}, parameter bad"


def generator() -> Any:
    yield 1


async def async_generator() -> Any:
    yield 1


@pytest.mark.parametrize("thing", [generator, async_generator, Opaque, 3, functools.partial(print)])
def test_only_functions_that_return_can_be_tools(thing: Any) -> None:
    with pytest.raises(InvalidOptions, match="expected a function"):
        tool(thing)


@pytest.mark.parametrize("name", ["", "a b", "naïve", "a.b", "a" * 65, "a\n", "list\u200bfiles"])
def test_a_name_that_providers_refuse_is_refused(name: str) -> None:
    with pytest.raises(InvalidOptions, match="1 to 64 of a-z"):
        ToolDefinition(name, "", {"type": "object"}, print, is_async=False)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("kind", "readonly"),
        ("side_effect", "idempotent "),
        ("interrupt", None),
        ("timeout_s", 0),
        ("timeout_s", -1),
        ("timeout_s", float("inf")),
        ("timeout_s", float("nan")),
        ("version", ""),
        ("version", 2),
        ("category", ""),
        ("parameters", {"type": "array"}),
        ("parameters", {"type": "object", "default": float("nan")}),
    ],
)
def test_an_option_that_cannot_work_is_refused_by_name(option: str, value: object) -> None:
    with pytest.raises(InvalidOptions) as caught:
        changed(read_file, **{option: value})
    assert caught.value.option == f"tool read_file, {option}"


def changed(definition: ToolDefinition, **changes: Any) -> ToolDefinition:
    return replace(definition, **changes)


# --- the digest ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"parameters": {"type": "object"}},
        {"version": "2"},
        {"kind": ToolKind.WRITE},
        {"side_effect": SideEffect.PURE},
        {"interrupt": Interrupt.CANCEL},
        {"category": "files"},
        {"destructive": True},
    ],
)
def test_p108_what_makes_a_tool_another_one_changes_the_digest(change: dict[str, Any]) -> None:
    assert changed(read_file, **change).digest != read_file.digest


@pytest.mark.parametrize(
    "change", [{"description": "Other."}, {"timeout_s": 1.0}, {"check": bool}, {"function": print}]
)
def test_the_rest_does_not_change_the_digest(change: dict[str, Any]) -> None:
    assert changed(read_file, **change).digest == read_file.digest


def test_the_digest_is_the_same_in_every_process() -> None:
    definition = ToolDefinition("a", "", {"type": "object"}, print, is_async=False)
    counted = b'["a",{"type":"object"},"1","execute","non_idempotent","block",null,false]'
    assert definition.digest == hashlib.sha256(counted).hexdigest()


def test_a_definition_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        read_file.version = "2"  # type: ignore[misc]


# --- the set ------------------------------------------------------------------------


def named(*names: str) -> list[ToolDefinition]:
    return [ToolDefinition(name, "", {"type": "object"}, print, is_async=False) for name in names]


def test_a_set_keeps_the_order_and_finds_by_name() -> None:
    tools = ToolSet(named("b", "a", "c"))
    assert list(tools) == ["b", "a", "c"]
    assert [spec.name for spec in tools.specs()] == ["b", "a", "c"]
    assert tools["a"].name == "a"
    assert tools.get("nobody") is None
    assert "c" in tools
    assert len(tools) == 3
    assert repr(tools) == "ToolSet(b, a, c)"


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidOptions, match=r"tool a.*second tool of that name"):
        ToolSet(named("a", "b", "a"))


def test_a_plain_function_in_a_set_is_refused() -> None:
    with pytest.raises(InvalidOptions, match=r"@mb\.tool"):
        ToolSet([print])  # type: ignore[list-item]


def test_the_digest_of_a_set_is_over_its_tools_and_not_their_order() -> None:
    assert ToolSet(named("a", "b")).digest == ToolSet(named("b", "a")).digest
    assert ToolSet(named("a", "b")).digest != ToolSet(named("a")).digest
    a, b = named("a", "b")
    assert ToolSet([a, changed(b, version="2")]).digest != ToolSet([a, b]).digest
    assert ToolSet().digest != ToolSet([a]).digest


# --- check and narrow -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [(None, None), ("allow", Verdict.ALLOW), (Verdict.ASK, Verdict.ASK), ("deny", Verdict.DENY)],
)
def test_the_own_check_is_asked_about_the_arguments(answer: Any, verdict: Verdict | None) -> None:
    seen: list[Mapping[str, Any]] = []

    def check(arguments: Mapping[str, Any]) -> Any:
        seen.append(arguments)
        return answer

    assert changed(read_file, check=check).own_check({"path": "a"})[0] is verdict
    assert seen == [{"path": "a"}]


def test_a_tool_without_a_check_has_no_opinion() -> None:
    assert read_file.own_check({}) == (None, "")


@pytest.mark.parametrize(
    "check",
    [lambda _: "yes", lambda _: True, lambda _: 1 / 0, lambda: None],
    ids=["other word", "no verdict", "raises", "takes no arguments"],
)
def test_a_check_that_fails_is_a_deny_that_says_so(check: Any) -> None:
    verdict, reason = changed(read_file, check=check).own_check({})
    assert verdict is Verdict.DENY
    assert reason.startswith("it failed with ")


def test_narrowing_gives_the_class_and_the_reason() -> None:
    def narrow(arguments: Mapping[str, Any]) -> tuple[SideEffect, str] | None:
        return (SideEffect.PURE, "it only looks") if arguments["dry"] else None

    definition = changed(read_file, narrow=narrow)
    assert definition.narrowed({"dry": True}) == (SideEffect.PURE, "it only looks")
    assert definition.narrowed({"dry": False}) == (SideEffect.NON_IDEMPOTENT, None)
    assert read_file.narrowed({}) == (SideEffect.NON_IDEMPOTENT, None)
    assert changed(definition, side_effect=SideEffect.PURE).narrowed({"dry": True}) == (SideEffect.PURE, None)


@pytest.mark.parametrize(
    "answer",
    [(SideEffect.NON_IDEMPOTENT, "wider"), (SideEffect.PURE, ""), ("mild", "why"), SideEffect.PURE, 3],
)
def test_a_resolver_that_widens_or_gives_no_reason_stops_the_call(answer: Any) -> None:
    definition = changed(read_file, side_effect=SideEffect.IDEMPOTENT, narrow=lambda _: answer)
    with pytest.raises(InvalidOptions, match="tool read_file, narrow"):
        definition.narrowed({})


def test_a_resolver_that_raises_stops_the_call() -> None:
    with pytest.raises(InvalidOptions, match="tool read_file, narrow"):
        changed(read_file, narrow=lambda _: 1 / 0).narrowed({})


# --- the context ----------------------------------------------------------------------


def context(**more: Any) -> ToolContext:
    return ToolContext("s", "r1", "r1.t1", "r1.t1.a1.c0", "key", **more)


def test_a_context_says_when_to_stop() -> None:
    stopping = threading.Event()
    ctx = context(stopping=stopping)
    assert not ctx.cancelled
    ctx.raise_if_cancelled()
    stopping.set()
    assert ctx.cancelled
    with pytest.raises(asyncio.CancelledError):
        ctx.raise_if_cancelled()


def test_contexts_do_not_share_their_parts() -> None:
    one, other = context(), context()
    one.stopping.set()
    assert not other.cancelled
    assert (one.run, one.fence, one.environment, one.metadata) == (1, None, {}, {})


@pytest.mark.anyio
async def test_reports_go_to_the_session_and_nowhere_without_one() -> None:
    taken: list[Any] = []

    async def take(value: Any) -> None:
        taken.append(value)

    ctx = context(on_progress=take, on_message=take)
    await ctx.progress(0.5)
    await ctx.message("half")
    await context().progress(1)
    assert taken == [0.5, "half"]


class Item(BaseModel):
    """One thing."""

    name: str
    parts: list[Item] = []


def test_models_may_refer_to_themselves() -> None:
    @tool
    def build(item: Item) -> None: ...

    assert bind(build, {"item": {"name": "a", "parts": [{"name": "b"}]}}) == {
        "item": Item(name="a", parts=[Item(name="b")])
    }
    assert "$defs" in build.parameters

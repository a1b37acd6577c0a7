"""Raw argument text: one strict parser, one digest, and the tool's schema."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from datetime import date
from enum import StrEnum
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, BeforeValidator, Field

from domain import canonical
from domain.arguments import MAX_ARGUMENT_DEPTH, MAX_DIGITS, canonical_digest, parse_arguments
from domain.errors import ArgumentsRefused, ValueRefused
from domain.limits import MAX_JSON_DEPTH
from minutebook.arguments import bind
from minutebook.tool_context import ToolContext
from minutebook.tool_definition import ToolDefinition, tool


def refusal(raw: str) -> str:
    with pytest.raises(ArgumentsRefused) as caught:
        parse_arguments(raw)
    assert len(str(caught.value)) < 500, "the preview is bounded"
    assert str(caught.value).isprintable()
    return caught.value.reason


# --- the parser -------------------------------------------------------------------


@pytest.mark.parametrize("raw", ["", " ", "\n\t\r "])
def test_p60_nothing_is_an_empty_object(raw: str) -> None:
    assert parse_arguments(raw) == {}


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("null", "found null"),
        ('["x"]', "found a list"),
        ("[]", "found a list"),
        ('"ls"', "found text"),
        ('""', "found text"),
        ('"{\\"a\\":1}"', "found text"),
        ("true", "true or false"),
        ("17", "found a number"),
        ("1.5", "found a number"),
        ('{"a":NaN}', "found NaN"),
        ('{"a":Infinity}', "found Infinity"),
        ('{"a":[-Infinity]}', "found -Infinity"),
        ('{"a":1E400}', "found '1E400'"),
        ('{"a":1,"a":2}', "found 'a' again"),
        ('{"a":{"b":1,"c":[{"d":1,"d":1}]}}', "found 'd' again"),
        ('{"a":1,"\\u0061":1}', "found 'a' again"),
        ('{"a":1} {"b":2}', "Extra data"),
        ('{"a":1}x', "Extra data"),
        ("{'a':1}", "property name"),
        ('{"a":1,}', "property name"),
        ('{"a":01}', "delimiter"),
        ('{"a":"\n"}', "control character"),
        ("\ufeff{}", "Expecting value"),
        ("\u00a0", "Expecting value"),
        ("\ud800", "Expecting value"),
        ("\x00", "Expecting value"),
        ("ls -la", "Expecting value"),
    ],
)
def test_p60_what_is_not_one_object_is_refused(raw: str, reason: str) -> None:
    assert reason in refusal(raw)


@pytest.mark.parametrize("raw", ['{"path":"a","content":"x', '{"path":"a","content":', '{"path":"a",', "{"])
def test_p58_a_cut_off_text_is_never_repaired(raw: str) -> None:
    assert refusal(raw).startswith("expected one JSON object: ")


def test_the_refusal_shows_the_start_of_the_text_and_no_more() -> None:
    with pytest.raises(ArgumentsRefused) as caught:
        parse_arguments('["secret", ' + "x" * 10_000_000)
    assert caught.value.raw.startswith('\'["secret"')
    assert len(caught.value.raw) == 200
    assert caught.value.code == "MALFORMED_ARGUMENTS"


def test_big_integers_stay_integers() -> None:
    raw = f'{{"n": {2**70}, "m": -{"9" * MAX_DIGITS}}}'
    assert parse_arguments(raw) == {"n": 2**70, "m": 1 - 10**MAX_DIGITS}


@pytest.mark.parametrize("sign", ["", "-"])
def test_an_integer_with_too_many_digits_is_refused(sign: str) -> None:
    assert "expected integers of at most 4000 digits" in refusal(f'{{"n":{sign}{"1" * (MAX_DIGITS + 1)}}}')


def test_a_lower_limit_set_by_the_application_is_a_refusal_too() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        assert "shorter integers" in refusal(f'{{"n":{"1" * 700}}}')
    finally:
        sys.set_int_max_str_digits(before)


def test_text_keeps_lone_surrogates_and_zeros() -> None:
    parsed = parse_arguments('{"a":"\\ud83d","b\\u0000":"\\u0000"}')
    assert parsed == {"a": "\ud83d", "b\0": "\0"}
    assert canonical.decode(canonical.encode(parsed)) == parsed


def nested(levels: int, opening: str = '{"a":', innermost: str = "1", closing: str = "}") -> str:
    return opening * levels + innermost + closing * levels


def test_depth_is_limited_so_that_an_event_can_hold_the_arguments() -> None:
    assert MAX_ARGUMENT_DEPTH < MAX_JSON_DEPTH
    deepest = parse_arguments(nested(MAX_ARGUMENT_DEPTH))
    canonical.encode({"payload": {"input": deepest}})
    assert "levels of nesting" in refusal(nested(MAX_ARGUMENT_DEPTH + 1))


@pytest.mark.parametrize("levels", [255, 1025, 100_000])
@pytest.mark.parametrize("cut", [False, True])
def test_no_depth_exhausts_the_stack(levels: int, cut: bool) -> None:
    assert "levels of nesting" in refusal(nested(levels, closing="" if cut else "}"))
    assert "levels of nesting" in refusal('{"a":' + nested(levels, "[", "", "" if cut else "]"))


def test_brackets_inside_text_are_no_depth() -> None:
    text = '[{"\\' * 500
    assert parse_arguments(json.dumps({"a": text})) == {"a": text}


def test_many_brackets_side_by_side_are_no_depth() -> None:
    assert parse_arguments('{"a":[' + "[],{}," * 500 + "1]}")["a"][-1] == 1


def test_keys_that_the_journal_has_to_escape_count_as_deeper() -> None:
    assert "levels of nesting" in refusal(nested(MAX_ARGUMENT_DEPTH, '{"$mb":'))
    assert parse_arguments(nested(50, '{"$mb":'))


def test_an_unterminated_text_full_of_quotes_is_read_in_one_pass() -> None:
    # Trying each quote again would take minutes here.
    assert "Unterminated" in refusal('{"a":"' + '\\"' * 300_000 + "{" * 200)


# --- properties -------------------------------------------------------------------

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**60, max_value=2**80)
    | st.floats()
    | st.text(st.characters(exclude_categories=[]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "b", "$mb", "\ud800", "ключ"]), inner, max_size=4)
    ),
    max_leaves=12,
)
json_texts = st.builds(
    lambda value, ascii_only, indent: json.dumps(value, ensure_ascii=ascii_only, indent=indent),
    json_values,
    st.booleans(),
    st.none() | st.integers(0, 2),
)
scribbles = st.lists(
    st.sampled_from(["{", "}", "[", "]", '"a"', '"b"', ":", ",", "1", "-0", "1e3", "1E999", "null", " "]),
    max_size=12,
).map("".join)


class _Pairs(list[tuple[str, Any]]):
    """An object as the reference reader sees it, keys given twice included."""


def reference(raw: str) -> dict[str, Any] | None:
    """What the text means by the standard reader and a walk over its tree; None: to be refused."""
    if not raw.strip(" \t\r\n"):
        return {}
    try:
        tree = json.loads(raw, object_pairs_hook=_Pairs)
    except ValueError:
        return None
    if not isinstance(tree, _Pairs) or any(_is_wrong(node) for node in _nodes(tree)):
        return None
    built: dict[str, Any] = _built(tree)
    return built


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    children = [item for _, item in node] if isinstance(node, _Pairs) else node
    if isinstance(children, list):
        for child in children:
            yield from _nodes(child)


def _is_wrong(node: Any) -> bool:
    if isinstance(node, float):
        return node != node or node in (float("inf"), float("-inf"))
    return isinstance(node, _Pairs) and len({key for key, _ in node}) < len(node)


def _built(node: Any) -> Any:
    if isinstance(node, _Pairs):
        return {key: _built(item) for key, item in node}
    return [_built(item) for item in node] if isinstance(node, list) else node


def parsed_or_none(raw: str) -> dict[str, Any] | None:
    try:
        return parse_arguments(raw)
    except ArgumentsRefused:
        return None


@given(json_texts | scribbles | st.text(max_size=20))
def test_the_parser_agrees_with_a_reference_or_both_refuse(raw: str) -> None:
    # repr tells 1 from 1.0 and from true, which == does not.
    assert repr(parsed_or_none(raw)) == repr(reference(raw))


@given(st.dictionaries(st.text(max_size=4), json_values, max_size=4).map(json.dumps), st.data())
def test_p58_no_beginning_of_an_object_is_an_object(raw: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(raw) - 1))
    assert parsed_or_none(raw[:cut]) is None


@given(json_texts)
def test_p20_what_was_parsed_is_kept_exactly_and_digests_equal(raw: str) -> None:
    parsed = parsed_or_none(raw)
    if parsed is not None:
        stored = canonical.encode(parsed)
        assert repr(canonical.decode(stored)) == repr(dict(sorted_keys(parsed)))
        assert canonical_digest(parsed) == canonical_digest(json.loads(json.dumps(parsed)))


def sorted_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: sorted_keys(value[key]) for key in sorted(value)}
    return [sorted_keys(item) for item in value] if isinstance(value, list) else value


# --- the digest -------------------------------------------------------------------


def test_p20_shared_and_copied_parts_give_one_digest() -> None:
    part = {"x": [1, 2]}
    shared = {"left": part, "right": part}
    copied = {"right": {"x": [1, 2]}, "left": {"x": [1, 2]}}
    assert canonical_digest(shared) == canonical_digest(copied)


@pytest.mark.parametrize(
    "other", [{"a": 1.0}, {"a": True}, {"a": "1"}, {"a": [1]}, {"b": 1}, {"a": 1, "b": None}, {}]
)
def test_p20_other_values_give_other_digests(other: dict[str, Any]) -> None:
    assert canonical_digest({"a": 1}) != canonical_digest(other)


def test_the_digest_refuses_what_the_journal_cannot_keep() -> None:
    with pytest.raises(ValueRefused) as caught:
        canonical_digest({"a": [float("nan")]})
    assert caught.value.path == "$.a[0]"


# --- binding to the tool's parameters ------------------------------------------------


class Color(StrEnum):
    RED = "red"


class Place(BaseModel):
    city: str
    zip_code: int | None = None


@tool
def visit(
    place: Place,
    when: date,
    colors: tuple[Color, ...] = (),
    times: Annotated[int, Field(ge=1)] = 1,
    *,
    ratio: float = 0.5,
    json: str = "",
    ctx: ToolContext,
) -> None:
    """Go there."""


def bind_refusal(definition: ToolDefinition, arguments: dict[str, Any]) -> str:
    with pytest.raises(ArgumentsRefused) as caught:
        bind(definition, arguments)
    assert caught.value.__cause__ is None, "pydantic's own error would show all of the input"
    assert len(str(caught.value)) < 2000
    return caught.value.reason


def test_json_forms_of_types_are_read_and_defaults_filled_in() -> None:
    given_arguments = {"place": {"city": "Rom"}, "when": "2024-02-29", "colors": ["red"], "ratio": 1}
    assert bind(visit, given_arguments) == {
        "place": Place(city="Rom"),
        "when": date(2024, 2, 29),
        "colors": (Color.RED,),
        "times": 1,
        "ratio": 1.0,
        "json": "",
    }


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "at $.place: Field required; at $.when: Field required"),
        ({"place": {"city": 3}, "when": "2024-01-01"}, "at $.place.city: "),
        ({"place": {"city": "Rom"}, "when": "soon"}, "at $.when: "),
        ({"place": {"city": "Rom"}, "when": "2024-01-01", "times": "2"}, "at $.times: "),
        ({"place": {"city": "Rom"}, "when": "2024-01-01", "times": 2.0}, "at $.times: "),
        ({"place": {"city": "Rom"}, "when": "2024-01-01", "times": True}, "at $.times: "),
        ({"place": {"city": "Rom"}, "when": "2024-01-01", "times": 0}, "at $.times: "),
        ({"place": {"city": "Rom"}, "when": "2024-01-01", "colors": ["red", "no"]}, "at $.colors[1]: "),
        ({"place": {"city": "Rom"}, "when": "2024-01-01", "json": None}, "at $.json: "),
        ({"place": {"city": "Rom"}, "when": "2024-01-01", "ctx": {}}, "at $.ctx: Extra"),
        ({"place": {"city": "Rom"}, "when": "2024-01-01", "a\nb": 1}, "at $.'a\\nb': Extra"),
        ({"place": '{"city": "Rom"}', "when": "2024-01-01"}, "at $.place: "),
    ],
)
def test_p108_arguments_that_do_not_fit_are_refused_with_their_path(
    arguments: dict[str, Any], reason: str
) -> None:
    assert reason in bind_refusal(visit, arguments)


def test_few_of_many_problems_are_listed() -> None:
    reason = bind_refusal(visit, {f"x{i}": i for i in range(100)})
    assert reason.endswith("; and 97 more")
    assert reason.count("at $.") == 5


def test_lone_surrogates_reach_the_tool_as_they_are() -> None:
    @tool
    def echo(text: str, count: int = 1) -> str:
        return text

    assert bind(echo, parse_arguments('{"text":"\\ud83d"}')) == {"text": "\ud83d", "count": 1}
    assert "at $.count" in bind_refusal(echo, parse_arguments('{"text":"\\ud83d","count":"1"}'))


def test_big_integers_reach_the_tool_as_they_are() -> None:
    @tool
    def count(n: int, any_value: Any = None) -> None: ...

    bound = bind(count, parse_arguments(f'{{"n":{2**70},"any_value":{{"deep":[{2**65}]}}}}'))
    assert bound == {"n": 2**70, "any_value": {"deep": [2**65]}}


def test_a_default_that_can_change_is_not_shared_between_calls() -> None:
    @tool
    def collect(items: list[str] = []) -> None: ...  # noqa: B006 - what users write

    bind(collect, {})["items"].append("left over")
    assert bind(collect, {}) == {"items": []}


def _fail(value: Any) -> Any:
    raise LookupError("no table")


def test_a_validator_that_fails_is_a_refusal() -> None:
    @tool
    def look(key: Annotated[str, BeforeValidator(_fail)]) -> None: ...

    with pytest.raises(
        ArgumentsRefused, match="do not fit look: they could not be checked, with LookupError"
    ):
        bind(look, {"key": "a"})


def by_hand(function: Callable[..., Any], schema: dict[str, Any]) -> ToolDefinition:
    return ToolDefinition("by_hand", "", schema, function, is_async=False)


def test_a_definition_by_hand_is_checked_for_names_only() -> None:
    closed = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {}},
        "required": ["a"],
        "additionalProperties": False,
    }
    definition = by_hand(lambda a: a, closed)
    assert bind(definition, {"a": "as the server sees it"}) == {"a": "as the server sees it"}
    reason = bind_refusal(definition, {"c": 1})
    assert "at $.a: missing" in reason
    assert "at $.c: not a parameter" in reason
    assert bind(by_hand(lambda **all_of_it: all_of_it, {"type": "object"}), {"x": 1}) == {"x": 1}


def test_binding_does_not_change_the_arguments() -> None:
    arguments = {"place": {"city": "Rom"}, "when": "2024-01-01"}
    before = json.dumps(arguments)
    bind(visit, arguments)
    assert json.dumps(arguments) == before

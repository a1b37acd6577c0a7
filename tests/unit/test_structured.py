"""Structured output: what becomes of a class or a schema, and how texts are read by it."""

from __future__ import annotations

import enum
import threading
from typing import Annotated, Any, Literal, Optional

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator

from domain.errors import InvalidOptions
from minutebook.structured import Formats, OutputFormat, instruction, output_format
from projections.strict_schema import is_strict


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Part(BaseModel):
    name: str = Field(min_length=2, description="what it is called")
    count: int = Field(default=1, ge=1)
    parts: list[Part] = []


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


class Order(BaseModel):
    """What somebody orders."""

    first: Part = Field(description="the first one")
    note: str | None = None
    colour: Colour
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    sizes: set[float] = set()


ORDER = '{"first":{"name":"ab"},"colour":"red","pet":{"kind":"dog"}}'


def made(output_schema: object) -> OutputFormat:
    format_ = output_format(output_schema)
    assert format_ is not None
    return format_


def objects(schema: Any) -> list[dict[str, Any]]:
    """Every object of a schema."""
    if isinstance(schema, list):
        return [found for inner in schema for found in objects(inner)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "object" else []
    return own + [found for inner in schema.values() for found in objects(inner)]


@pytest.mark.parametrize("model", [Order, Part, Cat], ids=lambda model: model.__name__)
def test_a_class_becomes_a_schema_that_servers_can_force(model: type[BaseModel]) -> None:
    schema = made(model).schema
    assert is_strict(schema)
    assert schema["title"] == model.__name__
    Draft202012Validator.check_schema(schema)
    found = objects(schema)
    assert found
    for each in found:
        assert each["additionalProperties"] is False
        assert each["required"] == list(each["properties"])


def test_what_a_server_gives_by_it_is_a_value_of_the_class() -> None:
    whole = {"name": "abc", "count": 2, "parts": [{"name": "de", "count": 1, "parts": []}]}
    assert Draft202012Validator(made(Part).schema).is_valid(whole)
    assert Part.model_validate(whole).parts[0].name == "de"
    assert not Draft202012Validator(made(Part).schema).is_valid({"name": "abc"})


def test_nothing_stands_beside_a_reference_and_advice_is_left_out() -> None:
    schema = made(Order).schema
    assert schema["properties"]["first"] == {"$ref": "#/$defs/Part"}
    assert schema["$defs"]["Part"]["properties"]["name"] == {
        "type": "string",
        "description": "what it is called",
    }
    assert schema["properties"]["pet"] == {"anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class Handle(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    f: threading.Event


#: Types of a field that no server could be made to force.
BEYOND: dict[str, Any] = {
    "a mapping": dict[str, int],
    "any mapping": dict,
    "anything": Any,
    "a list of anything": list[Any],
    "a tuple": tuple[int, str],
    "a mapping or none": Optional[dict[str, int]],  # noqa: UP045 - a value, not an annotation
    "an object": object,
}
REFUSED = {
    **{name: create_model("Holding", f=(kind, ...)) for name, kind in BEYOND.items()},
    "a class that is open": Open,
    "a class without a schema": Handle,
}


@pytest.mark.parametrize("model", REFUSED.values(), ids=REFUSED)
def test_a_class_that_no_server_could_force_is_refused_with_the_place(model: type[BaseModel]) -> None:
    with pytest.raises(InvalidOptions) as refused:
        output_format(model)
    assert refused.value.option == "output_schema"
    assert model.__name__ in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        3,
        "object",
        [],
        int,
        {"type": "nope"},
        {"properties": 3},
        {"$ref": "https://example.org/schema"},
        {"properties": {"a": {"$ref": "other.json"}}},
        {"$ref": "#/nowhere"},
        {"$ref": "#"},
        {"pattern": "("},
        {"default": 1j},
        {1: 2},
    ],
    ids=repr,
)
def test_what_is_no_schema_is_refused(given: object) -> None:
    with pytest.raises(InvalidOptions, match="output_schema"):
        output_format(given)


def test_no_schema_asks_for_nothing() -> None:
    assert output_format(None) is None
    assert Formats(None).read("r1", "text") == Formats(None).read("r2", "{}")
    assert Formats(None).read("r1", "{}").parsed is None


# --- reading --------------------------------------------------------------------------------


def test_a_text_is_read_as_a_value_of_the_class() -> None:
    read = made(Order).read(ORDER)
    assert read.error is None
    assert read.parsed == Order.model_validate_json(ORDER)


def test_a_text_is_read_by_a_schema() -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    assert made(schema).read(" [1, 2]\n").parsed == [1, 2]
    assert made(schema).read("[1, 2.5]").error == "at $[1]: 2.5 is not of type 'integer'"
    assert made({"type": "null"}).read("null").error is None


@pytest.mark.parametrize(
    "text", ["```json\n{ORDER}\n```", "```\n{ORDER}```", "\n``` JSON\n{ORDER}\n```\n"], ids=repr
)
def test_a_text_that_is_one_fenced_block_is_read_without_its_fence(text: str) -> None:
    assert made(Order).read(text.replace("{ORDER}", ORDER)).error is None


@pytest.mark.parametrize("format_", [made(Order), made({"type": "object"})], ids=["class", "schema"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "```",
        "``````",
        "I cannot do that.",
        "{}" + ORDER,
        "Here it is: " + ORDER,
        ORDER[:-1],
        "NaN",
        "[" * 100_000,
        '{"a": 1e999}',
        "\ud800",
        "\x00",
        "3",
        '"' + "x" * 100_000,
    ],
    ids=lambda text: ascii(text[:20]),
)
def test_any_other_text_is_told_and_never_raised(format_: OutputFormat, text: str) -> None:
    read = format_.read(text)
    assert read.parsed is None
    assert read.error
    assert len(read.error) <= 1000


def test_a_schema_that_nobody_checked_raises_nothing_either() -> None:
    for schema in ({"$ref": "#"}, {"pattern": "("}, {"$ref": "https://example.org"}, {"type": 3}):
        assert "cannot be used" in str(OutputFormat(schema).read('"a"').error)


class Odd(BaseModel):
    a: int

    @field_validator("a")
    @classmethod
    def halved(cls, a: int) -> int:
        return 2 // a


def test_what_a_class_raises_by_itself_is_told_too() -> None:
    assert made(Odd).read('{"a":1}').parsed == Odd(a=1)
    assert str(made(Odd).read('{"a":0}').error).startswith("ZeroDivisionError")


def test_more_than_one_mistake_is_counted() -> None:
    assert made(Order).read("{}").error == "at first: Field required (and 2 more)"


def test_the_request_that_was_open_is_read_by_its_own_schema() -> None:
    formats = Formats(made(Order), ("r1", {"type": "integer"}))
    assert formats.read("r1", "7").parsed == 7
    assert formats.read("r2", ORDER).parsed == Order.model_validate_json(ORDER)
    same = Formats(made(Order), ("r1", made(Order).schema))
    assert isinstance(same.read("r1", ORDER).parsed, Order)
    assert Formats(made(Order), ("r1", None)).read("r1", "hello").error is None


def test_the_instruction_holds_the_schema() -> None:
    told = instruction({"type": "object", "title": "a {brace}"})
    assert told.endswith('{"title":"a {brace}","type":"object"}')

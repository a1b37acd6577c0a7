"""Which schemas a server can force an answer into."""

from __future__ import annotations

from typing import Any

import pytest

from projections.strict_schema import is_strict

CITY = {"type": "string", "description": "where"}


def closed(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
        **more,
    }


@pytest.mark.parametrize(
    "schema",
    [
        closed({}),
        closed({"city": CITY, "at": {"anyOf": [{"type": "null"}, closed({"x": {"type": "number"}})]}}),
        closed(
            {"all": {"type": "array", "items": {"$ref": "#/$defs/one"}}}, **{"$defs": {"one": closed({})}}
        ),
        closed({"word": {"enum": ["a", "b"], "type": ["string", "null"]}}),
    ],
)
def test_strict(schema: dict[str, Any]) -> None:
    assert is_strict(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        {"type": "string"},
        {"type": "object", "properties": {}},
        closed({"city": CITY}, additionalProperties=True),
        closed({"city": CITY}, required=[]),
        closed({"city": {"type": "string", "default": "Rome"}}),
        closed({"city": {"oneOf": [CITY]}}),
        closed({"inner": {"type": "object"}}),
        closed({"inner": {"type": ["object", "null"]}}),
        closed({"all": {"type": "array", "items": {"properties": {}}}}),
        closed({"city": True}),
        closed({"city": {"anyOf": {}}}),
        closed({}, **{"$defs": []}),
        closed({}, patternProperties={}),
    ],
    ids=range(15),
)
def test_not_strict(schema: Any) -> None:
    assert not is_strict(schema)


def test_what_is_nested_too_deep_is_not_strict() -> None:
    schema: dict[str, Any] = closed({})
    for _ in range(9):
        schema = closed({"inner": schema})
    assert is_strict(schema)
    for _ in range(2):
        schema = closed({"inner": schema})
    assert not is_strict(schema)

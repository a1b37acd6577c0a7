"""Rules that servers of several dialects have in common.

Pure. The checkers of the dialects import it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

#: A plain name of a tool or a schema.
NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def need(met: bool, expected: str, found: Any) -> None:
    """Raise AssertionError where a rule is not met."""
    if not met:
        raise AssertionError(f"expected {expected}, got {found!r}")


def check_named(owner: Mapping[str, Any], field: str) -> None:
    """A tool or a forced output has a plain name, and a schema in `field` that is as strict as it says."""
    need(bool(NAME.fullmatch(str(owner.get("name")))), "a plain name", owner)
    schema = owner.get(field)
    need(isinstance(schema, dict) and schema.get("type") == "object", "a schema of an object", schema)
    need(isinstance(owner.get("strict"), bool), "a word on whether it is strict", owner)
    if owner["strict"]:
        for inner in _objects(schema):
            closed = inner.get("additionalProperties") is False
            need(closed, "objects without further properties in a strict schema", inner)
            named = set(inner.get("properties", {})) == set(inner.get("required", ()))
            need(named, "every property required in a strict schema", inner)


def _objects(schema: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for inner in schema.values():
            yield from _objects(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _objects(inner)

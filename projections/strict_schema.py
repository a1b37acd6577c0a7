"""Whether a JSON Schema is one that a server can force an answer into, word by word.

Pure; the encoders of the OpenAI dialects import it. "Strict" is refused by servers
for schemas outside of a small part of the language, so it is asked for only there.
"""

from __future__ import annotations

from typing import Any, Final

#: What a strict schema may hold; anything else (`oneOf`, `default`, `patternProperties`) is not in it.
_WORDS: Final = frozenset(
    "type properties required additionalProperties items anyOf enum const $ref $defs definitions "
    "description title pattern format minimum maximum exclusiveMinimum exclusiveMaximum multipleOf "
    "minItems maxItems".split()
)
_MAX_DEPTH: Final = 10


def is_strict(schema: Any) -> bool:
    """Whether every object in it names all of its properties as required and allows no others."""
    return isinstance(schema, dict) and schema.get("type") == "object" and _fits(schema, 0)


def _fits(schema: Any, depth: int) -> bool:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH or not schema.keys() <= _WORDS:
        return False
    if "properties" in schema or _may_be(schema, "object"):
        if schema.get("additionalProperties") is not False:
            return False
        if set(schema.get("required", ())) != set(schema.get("properties", {})):
            return False
    return all(_fits(inner, depth + 1) for inner in _inner(schema))


def _may_be(schema: dict[str, Any], word: str) -> bool:
    kind = schema.get("type")
    return kind == word or (isinstance(kind, list) and word in kind)


def _inner(schema: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    for word in ("properties", "$defs", "definitions"):
        inner = schema.get(word, {})
        found += inner.values() if isinstance(inner, dict) else [None]
    if "items" in schema:
        found.append(schema["items"])
    several = schema.get("anyOf", [])
    return found + (several if isinstance(several, list) else [None])

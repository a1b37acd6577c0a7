"""Structured output: the schema that final texts have to match, and what they say by it.

Pure. What a provider makes of a schema is its encoder's business; a text that does not
match is told, never repaired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from domain import canonical
from domain.errors import InvalidOptions, ValueRefused
from projections.strict_schema import is_strict

OutputSchema = type[BaseModel] | Mapping[str, Any]

MAX_ERROR: Final = 1000
#: What the model is told where the API has no structured output.
INSTRUCTION: Final = (
    "Your final answer has to be one JSON value that matches the JSON Schema below. "
    "Write this JSON value and nothing else: no explanation, no code fence.\n\n{schema}"
)
#: Words of a schema that say nothing a server could force; they are checked here afterwards.
_ADVICE: Final = frozenset(
    "default examples deprecated readOnly writeOnly title minLength maxLength uniqueItems "
    "contentMediaType contentEncoding discriminator".split()
)
#: Words of a schema that hold schemas by name, and those that hold one or several.
_NAMED: Final = ("properties", "$defs")
_FENCE: Final = "```"


@dataclass(frozen=True, slots=True)
class Output:
    """What a final text says by its schema: `parsed`, or why it says nothing (`error`)."""

    parsed: Any = None
    error: str | None = None


class OutputFormat:
    """A schema, and how a text is read by it.

    Args:
        schema: as it is journaled and sent.
        model: the class that reads texts; None leaves it to the schema itself.
    """

    def __init__(self, schema: dict[str, Any], model: type[BaseModel] | None = None) -> None:
        self.schema, self._model = schema, model

    def read(self, text: str) -> Output:
        """A final text by the schema. Raises nothing."""
        bare = _without_fence(text)
        try:
            if self._model is not None:
                return Output(self._model.model_validate_json(bare))
            value = from_json(bare, allow_inf_nan=False)
            canonical.encode(value)  # refuses a number that is none, such as 1e999
        except Exception as e:  # a class brings validators of its own, and they raise what they like
            return Output(error=_why(e))
        error = _mismatch(self.schema, value)
        return Output(value) if error is None else Output(error=error)


class Formats:
    """How the final texts of a session's requests are read.

    Args:
        configured: for what this handle accepts.
        open_request: the request that was open already, with the schema it was accepted under.
    """

    def __init__(
        self, configured: OutputFormat | None, open_request: tuple[str, dict[str, Any] | None] | None = None
    ) -> None:
        self._configured = configured
        self._earlier: dict[str, OutputFormat | None] = {}
        if open_request is not None:
            request_id, schema = open_request
            self._earlier[request_id] = self._known(schema)

    def _known(self, schema: dict[str, Any] | None) -> OutputFormat | None:
        if self._configured is not None and schema == self._configured.schema:
            return self._configured
        return OutputFormat(schema) if schema is not None else None

    def read(self, request_id: str, text: str) -> Output:
        """A request's final text."""
        format_ = self._earlier.get(request_id, self._configured)
        return format_.read(text) if format_ is not None else Output()


def output_format(output_schema: object) -> OutputFormat | None:
    """What `SessionConfig.output_schema` asks for.

    Raises:
        InvalidOptions: no model class and no JSON Schema, or one that cannot be kept; of a
            class: no server could be made to force it, with the place in it.
    """
    if output_schema is None:
        return None
    if isinstance(output_schema, type) and issubclass(output_schema, BaseModel):
        return OutputFormat(_strict_schema_of(output_schema), output_schema)
    if not isinstance(output_schema, Mapping):
        raise InvalidOptions("output_schema", "a pydantic model class or a JSON Schema", output_schema)
    schema = _kept(dict(output_schema))
    _check_schema(schema)
    return OutputFormat(schema)


def instruction(schema: dict[str, Any]) -> str:
    """What a model is told that cannot be forced."""
    return INSTRUCTION.format(schema=canonical.encode(schema).decode())


# --- schemas of classes -------------------------------------------------------------------


def _strict_schema_of(model: type[BaseModel]) -> dict[str, Any]:
    try:
        made = model.model_json_schema()
    except Exception as e:  # pydantic has several, and a class may bring its own
        expected = "a model class that has a JSON Schema"
        raise InvalidOptions("output_schema", expected, f"{model.__name__}: {e}") from None
    name = made.pop("$ref", "").rpartition("/")[2]  # a class that refers to itself is among its own parts
    schema = _strict({**made, **made.get("$defs", {}).get(name, {})}, model.__name__)
    schema["title"] = model.__name__
    if not is_strict(schema):
        raise InvalidOptions("output_schema", f"a class of plain fields: {_EXPECTED}", model.__name__)
    return schema


_EXPECTED: Final = (
    "models, text, numbers, booleans, literals, enums, lists and unions of them, at most 10 levels deep; "
    "no dict, tuple, Any, or class that allows extra fields"
)


def _strict(schema: Any, path: str) -> dict[str, Any]:
    """The same schema with every field required and no others allowed, without mere advice."""
    if schema.get("additionalProperties", False) is not False or "prefixItems" in schema:
        raise InvalidOptions("output_schema", f"at {path} one of: {_EXPECTED}", schema)
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}  # servers take no other word beside it
    kept = {word: value for word, value in schema.items() if word not in _ADVICE}
    for word in _NAMED:
        if word in kept:
            kept[word] = {name: _strict(inner, f"{path}.{name}") for name, inner in kept[word].items()}
    if "items" in kept:
        kept["items"] = _strict(kept["items"], f"{path}[]")
    several = kept.pop("oneOf", None) or kept.pop("anyOf", None)
    if several is not None:
        kept["anyOf"] = [_strict(inner, path) for inner in several]
    if kept.get("type") == "object":
        kept["properties"] = kept.get("properties", {})
        kept |= {"required": list(kept["properties"]), "additionalProperties": False}
    if not kept.keys() & {"type", "anyOf", "enum", "const"}:
        raise InvalidOptions("output_schema", f"at {path} one of: {_EXPECTED}", schema)
    return kept


# --- schemas as they are --------------------------------------------------------------------


def _kept(schema: dict[str, Any]) -> dict[str, Any]:
    try:
        return cast("dict[str, Any]", canonical.decode(canonical.encode(schema)))
    except ValueRefused as e:
        raise InvalidOptions("output_schema", "a JSON Schema of plain values", str(e)) from None


def _check_schema(schema: dict[str, Any]) -> None:
    from jsonschema import SchemaError

    for reference in _references(schema):
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise InvalidOptions("output_schema", "references within the schema only", reference)
    try:
        _validator(schema).check_schema(schema)
    except SchemaError as e:
        raise InvalidOptions("output_schema", "a JSON Schema", e.message) from None
    error = _mismatch(schema, None)
    if error is not None and error.startswith(_UNUSABLE):
        raise InvalidOptions("output_schema", "a JSON Schema that can be used", error)


def _references(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for word in ("$ref", "$dynamicRef"):
            if word in value:
                yield value[word]
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _references(inner)


_UNUSABLE: Final = "the schema cannot be used"


def _validator(schema: dict[str, Any]) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    return validator_for(schema, default=Draft202012Validator)


def _mismatch(schema: dict[str, Any], value: Any) -> str | None:
    """Why a value does not match, or None. Looks nothing up anywhere."""
    from jsonschema.exceptions import best_match
    from referencing import Registry

    try:
        error = best_match(_validator(schema)(schema, registry=Registry()).iter_errors(value))
    except Exception as e:  # a reference that leads nowhere or in circles, a pattern that is none
        return f"{_UNUSABLE}: {type(e).__name__}: {e}"[:MAX_ERROR]
    if error is None:
        return None
    return f"at {error.json_path}: {error.message}"[:MAX_ERROR]


# --- texts ------------------------------------------------------------------------------------


def _without_fence(text: str) -> str:
    """A text that is one fenced block, without its fence: models that are only told write one."""
    bare = text.strip()
    if len(bare) < 2 * len(_FENCE) or not bare.startswith(_FENCE) or not bare.endswith(_FENCE):
        return bare
    _, _, inside = bare[: -len(_FENCE)].partition("\n")
    return inside.strip()


def _why(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return f"{type(error).__name__}: {error}"[:MAX_ERROR]
    first, *more = error.errors(include_url=False, include_context=False, include_input=False)
    where = ".".join(str(part) for part in first["loc"]) or "the text"
    rest = f" (and {len(more)} more)" if more else ""
    return f"at {where}: {first['msg']}{rest}"[:MAX_ERROR]

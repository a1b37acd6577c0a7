"""From a typed function to the parameters a model may fill in.

Used by the `tool` decorator only. What a tool is, and how its arguments are
bound, is elsewhere (`tool_definition`, `arguments`). Whatever cannot be put to a
model is refused here, when the tool is defined, with the parameter's name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, Final, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from domain.errors import InvalidOptions
from minutebook.tool_context import ToolContext

_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes.

    Args:
        model: validates the arguments; its fields have the parameters' names as aliases.
        schema: the JSON Schema object the model is shown.
        context_parameter: the parameter that gets the `ToolContext`, if there is one.
    """

    model: type[BaseModel]
    schema: dict[str, Any]
    context_parameter: str | None


def read_signature(name: str, function: Callable[..., Any]) -> Signature:
    """Read a function's parameters.

    Args:
        name: the tool's name, for messages.
        function: typed; every parameter can be given by name.

    Raises:
        InvalidOptions: a parameter without a usable annotation, `*args`, `**kwargs`, a
            positional-only parameter, two contexts. The option names tool and parameter.
    """
    annotations = {p.name: _annotation(name, function, p) for p in _parameters(name, function)}
    contexts = [parameter for parameter, kind in annotations.items() if kind is ToolContext]
    if len(contexts) > 1:
        raise _invalid(name, contexts[1], "one parameter annotated ToolContext", "a second one")
    for parameter in contexts:
        del annotations[parameter]
    model = _model(name, function, annotations)
    return Signature(model, _schema(name, model, annotations), contexts[0] if contexts else None)


class _PlainSchema(GenerateJsonSchema):
    """No titles (they repeat the names), no warnings (a default that is no JSON is left out)."""

    ignored_warning_kinds = frozenset({"skipped-choice", "non-serializable-default"})  # type: ignore[assignment]

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _invalid(tool: str, parameter: str, expected: str, actual: object) -> InvalidOptions:
    return InvalidOptions(f"tool {tool}, parameter {parameter}", expected, actual)


def _parameters(tool: str, function: Callable[..., Any]) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        if parameter.kind not in _BY_NAME:
            raise _invalid(
                tool, parameter.name, "a parameter that can be given by name", parameter.kind.description
            )
        if parameter.annotation is inspect.Parameter.empty:
            raise _invalid(tool, parameter.name, "a type annotation", "none")
    return parameters


def _annotation(tool: str, function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    module = getattr(inspect.unwrap(function), "__globals__", {})
    holder = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return get_type_hints(holder, globalns=module, include_extras=True)[parameter.name]
    except Exception as e:
        expected = "an annotation that can be read from the function's module"
        raise _invalid(tool, parameter.name, expected, f"{parameter.annotation} ({e})") from e


def _model(tool: str, function: Callable[..., Any], annotations: dict[str, Any]) -> type[BaseModel]:
    parameters = inspect.signature(function).parameters
    # Field names of our own: a parameter may be called `json` or `model_config`.
    fields: dict[str, Any] = {
        f"p{i}": _field(name, annotation, parameters[name].default)
        for i, (name, annotation) in enumerate(annotations.items())
    }
    try:
        return create_model(tool, __config__=ConfigDict(extra="forbid", strict=True), **fields)
    except PydanticUserError as e:
        raise _unusable(tool, annotations, e) from e


def _field(name: str, annotation: Any, default: Any) -> tuple[Any, Any]:
    if isinstance(default, FieldInfo):  # `x: int = Field(3, description=...)`
        return Annotated[annotation, default], Field(alias=name)
    if default is inspect.Parameter.empty:
        return annotation, Field(alias=name)
    return annotation, Field(default=default, alias=name)


def _schema(tool: str, model: type[BaseModel], annotations: dict[str, Any]) -> dict[str, Any]:
    try:
        schema = model.model_json_schema(by_alias=True, schema_generator=_PlainSchema)
    except PydanticUserError as e:
        raise _unusable(tool, annotations, e) from e
    del schema["title"]
    return {"type": "object", "properties": {}, **schema}


def _unusable(tool: str, annotations: dict[str, Any], error: PydanticUserError) -> InvalidOptions:
    for name, annotation in annotations.items():
        try:
            TypeAdapter(annotation).json_schema()
        except PydanticUserError as e:
            return _invalid(tool, name, "a type that JSON can carry", f"{annotation!r}: {e.message}")
    return InvalidOptions(f"tool {tool}", "parameters that JSON can carry", error.message)

"""Parsed arguments to what a tool's function is called with.

The one place where a call's input meets the tool's schema. Reading the raw text
is `domain.arguments`; running the function is `tool_runner`.
"""

from __future__ import annotations

from typing import Any, Final

import pydantic_core
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from domain import canonical
from domain.errors import ArgumentsRefused
from minutebook.plain_values import step
from minutebook.tool_definition import ToolDefinition

_MAX_PROBLEMS: Final = 5
_SHOWN_BYTES: Final = 1000  # more than any preview shows


def bind(definition: ToolDefinition, arguments: dict[str, Any]) -> dict[str, Any]:
    """Validate a call's arguments and turn them into the function's parameters.

    Validation is strict in JSON's terms: no text becomes a number and no number a
    text, while types that JSON writes as text (dates, ids, enums) are read from it.
    A tool without a model of its own is checked for missing and unknown names only.

    Args:
        definition: the tool.
        arguments: what `domain.arguments.parse_arguments` returned; not changed.

    Returns:
        Values by parameter name, defaults filled in. The `ToolContext` is not among them.

    Raises:
        ArgumentsRefused: they do not fit; the reason names each JSON path. Tell the model.
    """
    if definition.model is None:
        return _by_schema(definition, arguments)
    try:
        bound = _validate(definition.model, arguments)
    except ValidationError as e:
        raise ArgumentsRefused(_reason(definition.name, e), _shown(arguments)) from None
    except Exception as e:  # validators and default factories are other people's code
        problem = f"they could not be checked, with {type(e).__name__}: {e}"[:300]
        raise ArgumentsRefused(_listed(definition.name, [problem]), _shown(arguments)) from e
    return {
        field.alias or name: getattr(bound, name) for name, field in definition.model.model_fields.items()
    }


def _validate(model: type[BaseModel], arguments: dict[str, Any]) -> BaseModel:
    try:
        text = pydantic_core.to_json(arguments)
    except ValueError:  # text with lone surrogates, which no JSON bytes can hold
        return model.model_validate(arguments, strict=True)
    return model.model_validate_json(text, strict=True)


def _by_schema(definition: ToolDefinition, arguments: dict[str, Any]) -> dict[str, Any]:
    schema = definition.parameters
    problems = [f"at $.{name}: missing" for name in schema.get("required", ()) if name not in arguments]
    if schema.get("additionalProperties") is False:
        known = schema.get("properties", {})
        problems += [f"at {_path((name,))}: not a parameter" for name in arguments if name not in known]
    if problems:
        raise ArgumentsRefused(_listed(definition.name, problems), _shown(arguments))
    return dict(arguments)


def _reason(tool: str, error: ValidationError) -> str:
    details = error.errors(include_url=False, include_context=False, include_input=False)
    return _listed(tool, [_problem(each) for each in details])


def _problem(detail: ErrorDetails) -> str:
    return f"at {_path(detail['loc'])}: {detail['msg'][:200]}"


def _path(location: tuple[int | str, ...]) -> str:
    steps = (f"[{part}]" if isinstance(part, int) else f".{step(part)}" for part in location[:20])
    return "$" + "".join(steps)


def _listed(tool: str, problems: list[str]) -> str:
    more = len(problems) - _MAX_PROBLEMS
    tail = f"; and {more} more" if more > 0 else ""
    return f"the arguments do not fit {tool}: {'; '.join(problems[:_MAX_PROBLEMS])}{tail}"


def _shown(arguments: dict[str, Any]) -> str:
    return canonical.encode(arguments)[:_SHOWN_BYTES].decode("utf-8", "replace")

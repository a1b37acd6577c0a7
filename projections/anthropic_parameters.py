"""What an Anthropic request says besides its messages.

Pure; the encoder of the dialect imports it, and `minutebook.models` to refuse options that
contradict each other before a session is opened. What depends on the model, the server
decides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from domain.errors import InvalidOptions
from domain.model_ports import Parameters, ToolSpec
from domain.values import ThinkingSettings
from projections.request_fields import check_free, filled, streamed

#: The API wants a limit. Every model that is served today allows twice as much; an answer
#: that reaches it ends as `length`, which is seen.
DEFAULT_MAX_TOKENS: Final = 16_384

#: Fewer tokens of thinking are refused.
LEAST_BUDGET_TOKENS: Final = 1024

#: Body fields that only this module and the encoder set.
_RESERVED: Final = frozenset({"model", "messages", "stream", "system"})
_THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})


def fields(tools: Sequence[ToolSpec], parameters: Parameters, open_turn: bytes | None) -> dict[str, Any]:
    """The body's fields without `messages`.

    Args:
        open_turn: the first encoded item of the turn that the request goes on with.

    Raises:
        InvalidOptions: they contradict each other.
    """
    extra = parameters.extra
    check_free(extra, _RESERVED)
    check_thinking(parameters.thinking, parameters.max_output_tokens)
    check_temperature(parameters.temperature, parameters.thinking)
    thinking = _thinking(parameters.thinking, open_turn)
    body: dict[str, Any] = {
        "model": parameters.model,
        "system": filled(parameters.system_prompt),
        "max_tokens": _max_tokens(parameters),
        "temperature": parameters.temperature,
        "thinking": thinking,
        **extra,
        "tools": [*(_tool(tool) for tool in tools), *_listed(extra)] or None,
        "output_config": _output_config(parameters, extra),
    }
    return streamed(body)


def check_thinking(settings: ThinkingSettings | None, max_output_tokens: int | None) -> None:
    """Refuse a budget that this API refuses, whatever the model. Raises InvalidOptions."""
    budget = settings.budget_tokens if settings is not None else None
    if budget is None:
        return
    if budget < LEAST_BUDGET_TOKENS:
        raise InvalidOptions("thinking.budget", f"at least {LEAST_BUDGET_TOKENS} tokens", budget)
    if max_output_tokens is not None and budget >= max_output_tokens:
        expected = f"fewer tokens than max_output_tokens, {max_output_tokens}"
        raise InvalidOptions("thinking.budget", expected, budget)


def check_temperature(temperature: float | None, thinking: ThinkingSettings | None) -> None:
    """Refuse a temperature that this API refuses, whatever the model. Raises InvalidOptions."""
    if temperature is None:
        return
    if thinking is not None and temperature != 1:
        raise InvalidOptions("temperature", "None or 1, because there is thinking", temperature)
    if not 0 <= temperature <= 1:
        raise InvalidOptions("temperature", "a number from 0 to 1 at this API", temperature)


def _max_tokens(parameters: Parameters) -> int:
    if parameters.max_output_tokens is not None:
        return parameters.max_output_tokens
    budget = parameters.thinking.budget_tokens if parameters.thinking else None
    return DEFAULT_MAX_TOKENS + (budget or 0)


def _thinking(settings: ThinkingSettings | None, open_turn: bytes | None) -> dict[str, Any] | None:
    if settings is None:
        return None
    budget = settings.budget_tokens
    if budget is None:
        return {"type": "adaptive"}
    # A turn that began without thinking (at another provider) cannot go on with it.
    if open_turn is not None and not _begins_with_thinking(open_turn):
        return None
    return {"type": "enabled", "budget_tokens": budget}


def _begins_with_thinking(item: bytes) -> bool:
    first = json.loads(b"[" + item + b"]")[0]["content"][0]
    return first["type"] in _THOUGHTS


def _output_config(parameters: Parameters, extra: Mapping[str, Any]) -> Any:
    ours: dict[str, Any] = {}
    if parameters.thinking is not None and parameters.thinking.effort is not None:
        ours["effort"] = parameters.thinking.effort
    if parameters.output_schema is not None:
        ours["format"] = {"type": "json_schema", "schema": parameters.output_schema}
    theirs = extra.get("output_config")
    return {**ours, **theirs} if isinstance(theirs, dict) else ours or None


def _listed(extra: Mapping[str, Any]) -> list[Any]:
    """Tools that the provider runs itself."""
    theirs = extra.get("tools") or []
    if not isinstance(theirs, list):
        raise InvalidOptions("extra", "a list of the provider's own tools as `tools`", type(theirs).__name__)
    return theirs


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}

"""The fields of a chat-completions request beside its messages, and where servers differ in them.

Pure. `openai_chat_wire` imports it; adapters say by a `Server` whom a body is for. What
the Responses dialect asks in the same words, `openai_responses_wire` takes from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from domain.errors import InvalidOptions
from domain.model_ports import Parameters, ToolSpec
from domain.values import ThinkingSettings
from projections.request_fields import check_free, streamed
from projections.strict_schema import is_strict

#: Where the attempt's key goes in a stored completion's metadata.
ATTEMPT_METADATA: Final = "minutebook_attempt"

#: Body fields that only the encoder sets.
_RESERVED: Final = frozenset({"model", "messages", "stream", "tools", "n"})

#: Tokens of reasoning up to which an effort is meant, where a server has no budgets.
_EFFORTS: Final = ((4096, "low"), (16_384, "medium"))


@dataclass(frozen=True, slots=True)
class Server:
    """What is special about a server of this dialect.

    Args:
        max_tokens_field: its name of the output limit.
        thinking_field: how reasoning is asked for: "reasoning_effort" (a word), "reasoning"
            (an object with effort or budget), "thinking" (on or off, and a word), "google"
            (a word, or a budget in Google's own object); None: not at all.
        wants_reasoning: every message with calls has `reasoning_content`, an empty one if
            need be, and what a model thought before an answer goes back too.
        stores: completions are kept, under the key of their attempt.
        extra: body fields that are added as they are; those of the parameters come after.
    """

    max_tokens_field: str = "max_tokens"
    thinking_field: str | None = "reasoning_effort"
    wants_reasoning: bool = False
    stores: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


#: A server with nothing special.
PLAIN: Final = Server()


def fields(tools: Sequence[ToolSpec], parameters: Parameters, server: Server) -> dict[str, Any]:
    """The body without its messages.

    Raises:
        InvalidOptions: `extra` names a field that is not free, or thinking is asked of a
            server that has no field for it.
    """
    extra = {**server.extra, **parameters.extra}
    check_free(extra, _RESERVED)
    every: dict[str, Any] = {
        "model": parameters.model,
        "temperature": parameters.temperature,
        server.max_tokens_field: parameters.max_output_tokens,
        "tools": [_tool(tool) for tool in tools] or None,
        "response_format": _response_format(parameters.output_schema),
        "store": server.stores or None,
        "stream_options": {"include_usage": True},
        **_thinking(parameters.thinking, server.thinking_field),
        **extra,
        "metadata": metadata(parameters, extra, stores=server.stores),
    }
    return streamed(every)


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _response_format(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    return {"type": "json_schema", "json_schema": named_schema(schema)} if schema is not None else None


def named_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema to force answers into."""
    return {"name": "output", "schema": schema, "strict": is_strict(schema)}


def metadata(parameters: Parameters, extra: Mapping[str, Any], *, stores: bool) -> Any:
    """What the caller says, and in stored answers the key by which a lost one is found."""
    theirs = extra.get("metadata")
    if not stores or not parameters.attempt_key:
        return theirs
    ours = {ATTEMPT_METADATA: parameters.attempt_key}
    return {**theirs, **ours} if isinstance(theirs, dict) else ours


# --- thinking -------------------------------------------------------------------------


def _thinking(asked: ThinkingSettings | None, where: str | None) -> dict[str, Any]:
    if asked is None:
        return {}
    match where:
        case "reasoning_effort":
            return {"reasoning_effort": effort_of(asked)}
        case "reasoning":
            return {"reasoning": _reasoning(asked)}
        case "thinking":
            effort = effort_of(asked)
            if effort == "none":
                return {"thinking": {"type": "disabled"}}
            return {"thinking": {"type": "enabled"}, "reasoning_effort": effort}
        case "google":
            return _google(asked)
    raise InvalidOptions("thinking", "None, because this server has no field for it", asked)


def effort_of(asked: ThinkingSettings) -> str | None:
    """The word for how hard; for a budget alone the one that comes closest."""
    if asked.effort is not None or asked.budget_tokens is None:
        return asked.effort
    budget = asked.budget_tokens
    return next((word for most, word in _EFFORTS if budget <= most), "high")


def _reasoning(asked: ThinkingSettings) -> dict[str, Any]:
    """Servers take one of the two; the budget says more."""
    if asked.budget_tokens is not None:
        return {"max_tokens": asked.budget_tokens}
    return {"effort": asked.effort} if asked.effort is not None else {"enabled": True}


def _google(asked: ThinkingSettings) -> dict[str, Any]:
    if asked.budget_tokens is None:
        return {"reasoning_effort": asked.effort}
    config = {"thinking_budget": asked.budget_tokens}
    return {"extra_body": {"google": {"thinking_config": config}}}

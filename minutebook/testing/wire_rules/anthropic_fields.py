"""The rules of the messages dialect about everything in a body but its messages.

Pure. `minutebook.testing.wire_rules.anthropic` is the way in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from minutebook.testing.wire_rules.shared import NAME, need

_FIELDS: Final = frozenset(
    "cache_control container context_management inference_geo max_tokens mcp_servers messages metadata model "
    "output_config service_tier speed stop_sequences stream system temperature thinking tool_choice tools "
    "top_k top_p".split()
)
_EFFORTS: Final = frozenset({"low", "medium", "high", "xhigh", "max"})
_LEAST_BUDGET: Final = 1024


def check(body: Mapping[str, Any]) -> None:
    """Hold the fields against the rules. Raises AssertionError."""
    need(body.keys() <= _FIELDS, "only fields that the API knows", sorted(body.keys() - _FIELDS))
    model, limit = body.get("model"), body.get("max_tokens")
    need(isinstance(model, str) and bool(model), "a model", model)
    need(type(limit) is int and limit >= 1, "max_tokens of at least 1", limit)
    assert isinstance(limit, int)
    _check_system(body.get("system"))
    _check_thinking(body.get("thinking"), limit, body.get("temperature"))
    _check_output(body.get("output_config"))
    _check_tools(body.get("tools"))


def _check_system(system: Any) -> None:
    if isinstance(system, list):
        texts = [block.get("text") for block in system]
    else:
        texts = [] if system is None else [system]
    for text in texts:
        need(isinstance(text, str) and bool(text.strip()), "a system prompt with something in it", text)


def _check_thinking(thinking: Any, limit: int, temperature: Any) -> None:
    need(temperature is None or 0 <= temperature <= 1, "a temperature from 0 to 1", temperature)
    if thinking is None:
        return
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    need(kind in ("enabled", "adaptive", "disabled"), "a kind of thinking", thinking)
    if kind == "enabled":
        budget = thinking.get("budget_tokens")
        need(type(budget) is int and budget >= _LEAST_BUDGET, f"a budget from {_LEAST_BUDGET}", budget)
        need(budget < limit, "a budget below max_tokens", (budget, limit))
        need(temperature in (None, 1), "no temperature but 1 with thinking", temperature)
    else:
        need("budget_tokens" not in thinking, f"no budget for {kind} thinking", thinking)


def _check_output(output: Any) -> None:
    if output is None:
        return
    need(isinstance(output, dict) and output.keys() <= {"effort", "format"}, "effort and format", output)
    need(output.get("effort", "low") in _EFFORTS, f"one of {sorted(_EFFORTS)}", output.get("effort"))
    form = output.get("format")
    if form is not None:
        need(
            form.get("type") == "json_schema" and isinstance(form.get("schema"), dict), "a JSON Schema", form
        )


def _check_tools(tools: Any) -> None:
    names: set[str] = set()
    for tool in tools or ():
        name = tool.get("name")
        if tool.get("type", "custom") != "custom":
            continue  # the provider's own: it knows what it has
        need(isinstance(name, str) and bool(NAME.fullmatch(name)), "a plain name of a tool", name)
        need(name not in names, "every name once", name)
        names.add(name)
        schema = tool.get("input_schema")
        need(isinstance(schema, dict) and schema.get("type") == "object", "an object's schema as input", tool)

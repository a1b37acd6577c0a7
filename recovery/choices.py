"""From the words of `reconcile` on the command line to a decision.

Imported by `recovery.deciding`. Whether the plan calls for it is not judged here.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import anyio
import orjson
from pydantic import ValidationError

from domain.errors import InvalidOptions
from domain.events import ResponseKept
from domain.model_ports import Block, DeclaredCall, Response
from recovery.decisions import (
    Abandon,
    Choice,
    ModelOutcome,
    PermissionAnswer,
    PreparedInputs,
    RequestOutcome,
    SuspensionAnswer,
    ToolOutcome,
)
from recovery.rollover import Content, RequestRollover, TurnRollover


async def choice_of(options: argparse.Namespace) -> Choice | None:
    """The decision; None for what is automatic. Raises InvalidOptions."""
    match options.what:
        case "model":
            response = await _response(options.response)
            return ModelOutcome(options.subject, options.outcome, options.evidence, response, options.message)
        case "tool":
            value = _json("--value", options.value)
            return ToolOutcome(options.subject, options.outcome, options.evidence, options.output, value)
        case "permission":
            updated = _object("--updated-input", options.updated_input)
            return PermissionAnswer(
                options.subject, options.verdict, options.digest, options.message, updated
            )
        case "suspension":
            return SuspensionAnswer(options.subject, _json("--answer", options.answer))
        case "inputs":
            return PreparedInputs(options.evidence, _object("--contents", options.contents) or {})
        case "request":
            return RequestOutcome(options.outcome, options.evidence, options.message)
        case "abandon":
            return Abandon(options.reason, options.evidence)
        case "rollover-request":
            applied = tuple(input_id for input_id in options.applied.split(",") if input_id)
            return RequestRollover(applied, options.evidence, _content(options), options.max_turns)
        case "rollover-turn":
            return TurnRollover(options.evidence, _content(options), options.max_turns)
    return None


def _content(options: argparse.Namespace) -> Content | None:
    if options.content is not None:
        return str(options.content)
    parts = _json("--parts", options.parts)
    if parts is not None and not _are_parts(parts):
        raise InvalidOptions("--parts", 'a JSON list of objects, each with a "type"', options.parts)
    return parts  # type: ignore[no-any-return]  # just looked at


def _are_parts(parts: Any) -> bool:
    return isinstance(parts, list) and all(isinstance(part, dict) and "type" in part for part in parts)


def _json(option: str, text: str | None) -> Any:
    if text is None:
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as e:
        raise InvalidOptions(option, f"JSON ({e})", text) from None


def _object(option: str, text: str | None) -> dict[str, Any] | None:
    value = _json(option, text)
    if value is not None and not isinstance(value, dict):
        raise InvalidOptions(option, "a JSON object", text)
    return value


async def _text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else await anyio.Path(Path(file)).read_text(encoding="utf-8")
    except (OSError, ValueError) as e:  # not there, not to be read, no text
        raise InvalidOptions("--response", f"a file with JSON in it ({e})", file) from e


async def _response(file: str | None) -> Response | None:
    if file is None:
        return None
    text = await _text(file)
    try:
        kept = ResponseKept.model_validate(_json("--response", text))
    except ValidationError as e:
        first = e.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidOptions(
            "--response", "a response: blocks, calls, stop, usage", f"{where}: {first['msg']}"
        ) from e
    return Response(
        tuple(Block(b.kind, b.text, b.format) for b in kept.blocks),
        tuple(DeclaredCall(c.provider_call_id, c.name, c.arguments) for c in kept.calls),
        kept.stop,
        kept.usage,
        kept.provider_ids,
    )

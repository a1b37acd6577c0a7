"""The command that decides: `reconcile`, with `--dry-run` to see what it would append.

Loaded by `recovery.cli`. A dry run reads and takes no lease; everything else goes
through `RecoveryCoordinator`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import anyio
import orjson
from pydantic import ValidationError

from domain import unattended
from domain.entry import Entry
from domain.envelope import Fence
from domain.errors import InvalidOptions, RecoveryRejected, SessionNotFound
from domain.events import ResponseKept
from domain.model_ports import Block, DeclaredCall, Response
from domain.next_steps import Who, next_steps
from domain.ports import Receipt, SessionRow
from recovery import stores
from recovery.coordinator import RecoveryCoordinator
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
from recovery.escape import visible
from recovery.exit_codes import OK
from recovery.reading import find_row, load

WORKER: str = "operator"


async def reconcile(options: argparse.Namespace) -> int:
    """Carry out one decision, or say what it would append."""
    choice = await _choice(options)
    if options.dry_run:
        return await _dry_run(options, choice)
    row = await _row(options)
    async with (
        stores.open_journal(options.journal, owner_id=row.owner_id) as journal,
        RecoveryCoordinator.open(
            journal,
            options.session,
            clock=stores.clock(),
            ids=stores.id_source(),
            holder=stores.holder(WORKER),
            actor_id=options.by,
        ) as coordinator,
    ):
        if choice is None:
            receipts = await coordinator.apply_automatic()
        else:
            receipts = [await coordinator.decide(choice, command_id=options.command_id)]
        _print_receipts(receipts)
        print(f"next: {visible(_next(coordinator))}")
    return OK


def _print_receipts(receipts: list[Receipt]) -> None:
    for receipt in receipts:
        first, last = receipt.first_sequence, receipt.last_sequence
        where = f"event {first}" if first == last else f"events {first} to {last}"
        print(f"{receipt.status.value}: {where}, head {receipt.head.hex()}")
    if not receipts:
        print("nothing to do: no automatic step that needs no application code")


def _next(coordinator: RecoveryCoordinator) -> str:
    plan = coordinator.plan
    return "; ".join(f"{item.action} {item.subject} ({item.who})" for item in plan.items)


async def _row(options: argparse.Namespace) -> SessionRow:
    async with stores.open_reader(options.journal, owner_id=options.owner) as reader:
        row, _ = await find_row(reader, options.session)
        return row


async def _dry_run(options: argparse.Namespace, choice: Choice | None) -> int:
    async with stores.open_reader(options.journal, owner_id=options.owner) as reader:
        loaded = await load(reader, options.session)
        if loaded.row is None:
            raise SessionNotFound(options.session, reader.name)
        if loaded.problem is not None:
            raise RecoveryRejected("blocked", f"the journal cannot be followed: {loaded.problem}")
    state = loaded.state
    # The lease that a decision would take has a token that is no lower than the last one.
    fence = Fence(WORKER, "dry-run", state.token) if state.token else None
    entry = Entry(state, options.command_id or "dry-run", stores.clock().now(), fence)
    if choice is None:
        due = [s for s in next_steps(state) if s.who is Who.AUTOMATIC and s.action in unattended.ACTIONS]
        steps = "; ".join(f"{s.action.value} {s.subject}" for s in due)
        print(f"would carry out: {visible(steps) or 'nothing'}")
        return OK
    for command in choice.decide(state):
        entry.add(command)
    entry.finish()
    print(f"would append {len(entry.events)} to session {options.session} at {state.sequence}:")
    for event in entry.events:
        print(f"  {event.sequence} {event.type} {visible(event.aggregate_id)}")
    then = "; ".join(f"{s.action.value} {s.subject} ({s.who.value})" for s in next_steps(entry.state))
    print(f"next: {visible(then)}")
    return OK


# --- arguments to choices ---------------------------------------------------------------


async def _choice(options: argparse.Namespace) -> Choice | None:
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
    return None


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


async def _response(file: str | None) -> Response | None:
    if file is None:
        return None
    text = sys.stdin.read() if file == "-" else await anyio.Path(Path(file)).read_text(encoding="utf-8")
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

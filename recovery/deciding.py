"""The command that decides: `reconcile`, with `--dry-run` to see what it would append.

Loaded by `recovery.cli`. A dry run reads, takes no lease, and is refused where the
real one would be; everything else goes through `RecoveryCoordinator`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from domain import taking_over
from domain.entry import Entry
from domain.envelope import Actor, Fence
from domain.errors import LeaseConflict
from domain.ports import Journal, JournalReader, LeaseRow, Receipt, SessionRow
from domain.state import State
from domain.values import ActorKind
from recovery import addresses, stores
from recovery.choices import choice_of
from recovery.composing import Composer
from recovery.coordinator import DEFAULT_TTL_MS, RecoveryCoordinator, answered, check_whole
from recovery.decisions import Choice
from recovery.escape import json_text, visible
from recovery.exit_codes import OK
from recovery.facts import Facts
from recovery.plan import RecoveryPlan, make_plan, plan_of
from recovery.reading import find_row, lease_lives, load

WORKER: Final = "operator"
FORMAT: Final = "minutebook.reconciliation/1"


async def reconcile(options: argparse.Namespace) -> int:
    """Carry out one decision, or say what it would append."""
    stores.check_takes_events(options.journal)
    choice = await choice_of(options)
    if options.dry_run:
        return await _dry_run(options, choice)
    row = await _row(options)
    async with stores.open_journal(options.journal, owner_id=row.owner_id) as journal:
        if await _tell_earlier(journal, options, choice):
            return OK
        try:
            await _decide(journal, options, choice)
        except LeaseConflict:
            # Whoever holds the session may have decided just this, under the same id.
            if not await _tell_earlier(journal, options, choice):
                raise
    return OK


async def _row(options: argparse.Namespace) -> SessionRow:
    async with stores.open_reader(options.journal, owner_id=options.owner) as reader:
        row, _ = await find_row(reader, options.session)
        return row


async def _decide(journal: Journal, options: argparse.Namespace, choice: Choice | None) -> None:
    async with RecoveryCoordinator.open(
        journal,
        options.session,
        clock=stores.clock(),
        ids=stores.id_source(),
        holder=stores.holder(WORKER),
        actor_id=options.by,
    ) as coordinator:
        before = coordinator.plan
        if choice is None:
            receipts = await coordinator.apply_automatic()
        else:
            receipts = [await coordinator.decide(choice, command_id=options.command_id)]
        _tell(options, receipts, before, coordinator.plan)


async def _tell_earlier(reader: JournalReader, options: argparse.Namespace, choice: Choice | None) -> bool:
    """Say what was decided under this command id before, if anything was."""
    if choice is None or options.command_id is None:
        return False
    receipt = await answered(reader, options.session, choice, options.command_id)
    if receipt is None:
        return False
    loaded = check_whole(await load(reader, options.session))
    lives = await lease_lives(reader, loaded.row.lease)
    plan = plan_of(loaded, journal=addresses.shown(options.journal), lease_lives=lives)
    _tell(options, [receipt], plan, plan)
    return True


# --- what would be written ----------------------------------------------------------------


async def _dry_run(options: argparse.Namespace, choice: Choice | None) -> int:
    async with stores.open_reader(options.journal, owner_id=options.owner) as reader:
        await find_row(reader, options.session)
        if await _tell_earlier(reader, options, choice):
            return OK
        loaded = check_whole(await load(reader, options.session))
        lease = loaded.row.lease
        if lease is not None and await reader.lease_lives(lease):
            raise LeaseConflict(options.session, lease.holder_id, lease.expires_at.isoformat())
        entries = await _entries(_composer(reader, lease, options), loaded.state, choice, options.command_id)
    shown = addresses.shown(options.journal)
    before = plan_of(loaded, journal=shown, lease_lives=False)
    after = make_plan(entries[-1].state, Facts(journal=shown)) if entries else before
    _tell_entries(options, entries, before, after)
    return OK


def _composer(reader: JournalReader, former: LeaseRow | None, options: argparse.Namespace) -> Composer:
    """One that composes as the next holder of the lease would."""
    clock, holder = stores.clock(), stores.holder(WORKER)
    now, token = clock.now(), former.token + 1 if former is not None else 1
    runs_out = clock.monotonic() + DEFAULT_TTL_MS / 1000
    lease = LeaseRow(token, "dry-run", holder.worker_id, now, now, now, clock.boot_id, runs_out=runs_out)
    holds = taking_over.announcement(former, lease, DEFAULT_TTL_MS)
    fence = Fence(holder.worker_id, "dry-run", token)
    actor = Actor(ActorKind.OPERATOR, options.by)
    return Composer(reader, clock, stores.id_source(), lease, fence, holds, actor)


async def _entries(
    composer: Composer, state: State, choice: Choice | None, command_id: str | None
) -> list[Entry]:
    if choice is not None:
        entries = [await composer.decision(state, choice, command_id)]
    else:
        entries = []
        while (composed := await composer.automatic(state)) is not None:
            entries.append(composed[0])
            state = composed[0].state
    for entry in entries:  # what cannot be kept is refused here as it would be then
        entry.sealed(bytes(32), composer.ids.salt)
    return entries


# --- telling ------------------------------------------------------------------------------


def _tell(
    options: argparse.Namespace, receipts: Sequence[Receipt], before: RecoveryPlan, after: RecoveryPlan
) -> None:
    if options.json:
        told = [
            {
                "status": receipt.status.value,
                "first_sequence": receipt.first_sequence,
                "last_sequence": receipt.last_sequence,
                "head": receipt.head.hex(),
            }
            for receipt in receipts
        ]
        _print_document(options, {"receipts": told}, before, after)
        return
    for receipt in receipts:
        first, last = receipt.first_sequence, receipt.last_sequence
        where = f"event {first}" if first == last else f"events {first} to {last}"
        print(f"{receipt.status.value}: {where}, head {receipt.head.hex()}")
    if not receipts:
        print("nothing to do: no automatic step that needs no application code")
    print(f"next: {visible(_steps(after))}")


def _tell_entries(
    options: argparse.Namespace, entries: Sequence[Entry], before: RecoveryPlan, after: RecoveryPlan
) -> None:
    if options.json:
        told = [
            [{"sequence": e.sequence, "type": e.type, "aggregate_id": e.aggregate_id} for e in entry.events]
            for entry in entries
        ]
        _print_document(options, {"would_append": told}, before, after)
        return
    print(f"now: {visible(_steps(before))}")
    for entry in entries:
        at = entry.base.sequence
        print(f"would append {len(entry.events)} to session {options.session} at {at}:")
        for event in entry.events:
            print(f"  {event.sequence} {event.type} {visible(event.aggregate_id)}")
    if not entries:
        print("would append nothing: no automatic step that needs no application code")
    print(f"next: {visible(_steps(after))}")


def _steps(plan: RecoveryPlan) -> str:
    return "; ".join(f"{item.action} {item.subject} ({item.who})" for item in plan.items)


def _print_document(
    options: argparse.Namespace, told: dict[str, Any], before: RecoveryPlan, after: RecoveryPlan
) -> None:
    plans = {"plan_before": before.to_json(), "plan_after": after.to_json()}
    head = {"format": FORMAT, "session_id": options.session, "dry_run": options.dry_run}
    print(json_text({**head, **told, **plans}))

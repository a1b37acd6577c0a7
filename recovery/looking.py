"""The commands that look: inspect, verify, replay, diff, timeline. None of them writes to a journal.

Loaded by `recovery.cli`. Each takes the parsed arguments and returns an exit code.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final, Self

from domain.errors import Corrupt, InvalidOptions
from domain.next_steps import Who
from domain.ports import JournalReader
from recovery import addresses, stores
from recovery.details import read_details
from recovery.escape import json_text, visible
from recovery.exit_codes import BROKEN, OK, UNPROVEN, UNREADABLE, WAITS
from recovery.pages import Pages
from recovery.plan import Kind, RecoveryPlan, plan_of
from recovery.progress import Progress, progress
from recovery.reading import lease_lives, load
from recovery.replaying import replay as rebuild
from recovery.timeline import Timeline
from recovery.verify import Result, Verification
from recovery.verify import verify as verify_session

PLANS_FORMAT: Final = "minutebook.recovery-plans/1"
VERIFICATIONS_FORMAT: Final = "minutebook.verifications/1"
_VERIFY_CODES: Final = {
    Result.PROVEN: OK,
    Result.CONSISTENT: UNPROVEN,
    Result.BROKEN: BROKEN,
    Result.UNREADABLE: UNREADABLE,
}
_SHOWN_DAMAGES: Final = 10
#: Exit codes of `verify` from best to worst.
_VERIFY_ORDER: Final = (OK, UNPROVEN, UNREADABLE, BROKEN)


async def session_ids(reader: JournalReader, session: str | None) -> AsyncIterator[str]:
    """The one session that was named, or all of them by id. Raises Corrupt where they are in no order."""
    if session is not None:
        yield session
        return
    after = ""
    while rows := await reader.sessions(after=after):
        for row in rows:
            if row.session_id <= after:  # a damaged index may lead in a circle
                raise Corrupt("sessions", f"ids in order, after {after!r}", row.session_id)
            yield row.session_id
            after = row.session_id


def _tell_caveats(reader: JournalReader) -> None:
    """On standard error, since what is printed may be a document."""
    for caveat in stores.caveats_of(reader):
        print(f"note: {visible(caveat)}", file=sys.stderr)


# --- inspect ----------------------------------------------------------------------------


async def inspect(options: argparse.Namespace) -> int:
    """Print the plan of one session, or of those that need somebody; the worst decides the exit code."""
    if options.at is not None and options.session is None:
        raise InvalidOptions("--at", "a SESSION with it", options.at)
    async with stores.open_reader(options.journal, owner_id=options.owner) as opened:
        _tell_caveats(opened)
        with progress("inspecting") as line:
            look = _inspect_json if options.json else _inspect
            return await look(line.watch(opened), options, line)


async def _inspect(reader: JournalReader, options: argparse.Namespace, line: Progress) -> int:
    from recovery.report import print_plan, print_summary
    from recovery.report_history import print_verification
    from recovery.terminal import console

    to, worst, kinds, printed = console(), OK, Counter[Kind](), 0
    each = options.session is not None or options.all
    async for session_id in session_ids(reader, options.session):
        plan, checked = await _looked_at(reader, session_id, options)
        code = _inspect_code(plan, checked)
        if each or code != OK or plan.unsettled_effects:
            line.clear()
            print_plan(plan, to)
            if checked is not None:
                print_verification(checked, to)
            printed += 1
        kinds[plan.kind] += 1
        worst = max(worst, code)
    line.clear()
    if options.session is None:
        print_summary(kinds, printed, reader.name, to)
    return worst


async def _inspect_json(reader: JournalReader, options: argparse.Namespace, line: Progress) -> int:
    worst = OK
    with _Documents(PLANS_FORMAT, "plans", reader.name, options.session is None, line) as documents:
        async for session_id in session_ids(reader, options.session):
            plan, checked = await _looked_at(reader, session_id, options)
            document = plan.to_json()
            if checked is not None:
                document["verification"] = checked.to_json()
            documents.write(document)
            worst = max(worst, _inspect_code(plan, checked))
    return worst


async def _looked_at(
    reader: JournalReader, session_id: str, options: argparse.Namespace
) -> tuple[RecoveryPlan, Verification | None]:
    loaded = await load(reader, session_id, upto=options.at)
    details = await read_details(reader, loaded)
    lives = await lease_lives(reader, loaded.row.lease)
    plan = plan_of(loaded, journal=addresses.shown(options.journal), lease_lives=lives, details=details)
    plan = replace(plan, notes=(*stores.caveats_of(reader), *plan.notes))
    return plan, await verify_session(reader, session_id) if options.verify else None


def _inspect_code(plan: RecoveryPlan, checked: Verification | None) -> int:
    broken = checked is not None and checked.result in (Result.BROKEN, Result.UNREADABLE)
    if plan.kind is Kind.BLOCKED or broken:
        return UNREADABLE
    by_itself = all(item.who in (Who.NOBODY, Who.AUTOMATIC) for item in plan.items)
    return OK if by_itself else WAITS


class _Documents:
    """One document, or a list of them written as they come; the list is ended also where reading failed."""

    def __init__(self, format_: str, name: str, journal: str, many: bool, line: Progress) -> None:
        self._many, self._written, self._line = many, 0, line
        if many:
            head = json_text({"format": format_, "journal": journal}, indent=False)
            print(f'{head[:-1]},"{name}":[')

    def write(self, document: dict[str, Any]) -> None:
        self._line.clear()
        if self._many and self._written:
            print(",")
        self._written += 1
        print(json_text(document), end="" if self._many else "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        if self._many:
            print("\n]}" if self._written else "]}")


# --- verify -----------------------------------------------------------------------------


async def verify(options: argparse.Namespace) -> int:
    """Check everything; broken is worse than unreadable, unreadable than unproven."""
    async with stores.open_reader(options.journal, owner_id=options.owner) as opened:
        if options.expect_head is not None and options.session is None:
            await _check_alone(opened)
        _tell_caveats(opened)
        with progress("verifying") as line:
            worst = await _verify(line.watch(opened), options, line)
        if options.session is None:
            worst = max(worst, await _check_file(opened), key=_VERIFY_ORDER.index)
        return worst


async def _verify(reader: JournalReader, options: argparse.Namespace, line: Progress) -> int:
    worst = OK
    form = _JsonVerify if options.json else _TextVerify
    with form(reader.name, options, line) as show:
        async for session_id in session_ids(reader, options.session):
            found = await verify_session(
                reader, session_id, expected_head=options.expect_head, rules=not options.chain_only
            )
            show.add(found)
            worst = max(worst, _VERIFY_CODES[found.result], key=_VERIFY_ORDER.index)
    return worst


async def _check_file(reader: JournalReader) -> int:
    """The engine's own check of the whole file: a session that is gone leaves no chain that breaks."""
    damage = await stores.damage_of(reader)
    for found in damage[:_SHOWN_DAMAGES]:
        print(f"damaged file: {visible(found)}", file=sys.stderr)
    return BROKEN if damage else OK


async def _check_alone(reader: JournalReader) -> None:
    if len(await reader.sessions(limit=2)) > 1:
        raise InvalidOptions("--expect-head", "a SESSION with it: the journal holds several", "no SESSION")


class _TextVerify:
    """One session's verification, or of several those that something is wrong with, and counts."""

    def __init__(self, journal: str, options: argparse.Namespace, line: Progress) -> None:
        from recovery.terminal import console

        self._to, self._line, self._journal = console(), line, journal
        self._each, self._summed_up = options.session is not None or options.all, options.session is None
        self._results, self._events, self._printed = Counter[Result](), 0, 0

    def add(self, found: Verification) -> None:
        from recovery.report_history import print_verification

        self._results[found.result] += 1
        self._events += found.events
        if self._each or found.problems or found.notes:
            self._line.clear()
            self._printed += 1
            print_verification(found, self._to)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        from recovery.report_history import LIMITS, print_results

        self._line.clear()
        if any(failure):
            return
        if self._summed_up:
            print_results(self._results, self._events, self._printed, self._journal, self._to)
        self._to.print(LIMITS, style="dim")


class _JsonVerify(_Documents):
    def __init__(self, journal: str, options: argparse.Namespace, line: Progress) -> None:
        super().__init__(VERIFICATIONS_FORMAT, "verifications", journal, options.session is None, line)

    def add(self, found: Verification) -> None:
        self.write(found.to_json())


# --- replay, diff and timeline ----------------------------------------------------------------


async def replay(options: argparse.Namespace) -> int:
    """Rebuild one session offline. What could be followed is shown, also before a problem."""
    async with stores.open_reader(options.journal, owner_id=options.owner) as reader:
        with progress("replaying") as line:
            found = await rebuild(line.watch(reader), options.session, upto=options.at)
    if options.json:
        print(json_text(found.to_json()))
    else:
        from recovery.report_history import print_replay
        from recovery.terminal import console

        print_replay(found, console())
    return OK if found.problem is None else UNREADABLE


async def diff(options: argparse.Namespace) -> int:
    """Print what changed between two points. What could be followed is told, also before a problem."""
    from recovery.differing import difference

    async with stores.open_reader(options.journal, owner_id=options.owner) as reader:
        with progress("comparing") as line:
            found = await difference(line.watch(reader), options.session, options.first, options.last)
    if options.json:
        print(json_text(found.to_json()))
    else:
        from recovery.report_difference import print_difference
        from recovery.terminal import console

        print_difference(found, console())
    return OK if found.problem is None else UNREADABLE


async def timeline(options: argparse.Namespace) -> int:
    """Print the minutes page by page, also events of unknown types."""
    from recovery.report_history import TIMELINE_HEAD, print_problem, timeline_lines
    from recovery.terminal import console

    minutes, date, left = Timeline(), None, options.limit or sys.maxsize
    async with stores.open_reader(options.journal, owner_id=options.owner) as reader:
        with progress("reading") as line:
            pages = Pages(line.watch(reader), options.session, known_types=False)
            async for rows in pages:
                moments = [m for m in map(minutes.moment, rows) if m.sequence > options.after][:left]
                if moments:
                    line.clear()
                if moments and date is None:
                    print(TIMELINE_HEAD)
                for moment in moments:
                    print(*timeline_lines(moment, date), sep="\n")
                    date = moment.at
                left -= len(moments)
                if not left:
                    return OK
    if pages.problem is None:
        return OK
    print_problem(pages.problem, console())
    return UNREADABLE

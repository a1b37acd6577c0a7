"""The command line over many sessions: what it shows, what it asks the store for, what it holds."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest

from adapters.jsonl_reader import open_export
from adapters.memory_journal import MemoryStore
from adapters.system import SystemIds
from bench.conversations import Place
from bench.journals import make
from domain.errors import SessionExists, StoreWriteFailed
from domain.ports import Journal, JournalReader
from minutebook.testing.faulty_store import Fault, FaultyStore
from minutebook.testing.scenario import Scenario
from recovery import progress
from recovery.cli import main
from recovery.exporting import check_import, export_session, import_session, import_sessions
from recovery.pages import PAGE
from recovery.reading import load
from recovery.verify import verify
from tests.integration.command_line import call, write
from tests.integration.test_cli_looking import damage
from tests.journals import asking, kept, long, lost_payment, unsettled


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal in which one session needs somebody, one might, and three do not."""
    quiet = [long(20 * n, f"s-{n}") for n in (1, 2, 3)]
    return write(tmp_path / "journal.db", *quiet, asking(), unsettled())


# --- what is shown ------------------------------------------------------------------------


def shown(out: str) -> list[str]:
    return [line.split()[1] for line in out.splitlines() if line.startswith("session ")]


def test_inspect_shows_who_needs_somebody_and_counts_the_others(journal: Path) -> None:
    found = call("inspect", journal)
    assert shown(found.out) == ["s-ask", "s-left"]
    assert "5 sessions: 4 nothing to do, 1 waits for people" in found.out
    assert "shown: the 2 that need somebody; --all shows the others too" in found.out
    every = call("inspect", journal, "--all")
    assert shown(every.out) == ["s-1", "s-2", "s-3", "s-ask", "s-left"]
    assert "shows the others" not in every.out
    assert found.code == every.code == 1


def test_a_session_that_is_named_is_shown_whatever_its_plan_says(journal: Path) -> None:
    for command in ("inspect", "verify"):
        found = call(command, journal, "s-1")
        assert shown(found.out) == ["s-1"]
        assert "sessions" not in found.out


def test_verify_shows_what_is_wrong_and_counts_the_others(journal: Path) -> None:
    found = call("verify", journal)
    assert (found.code, shown(found.out)) == (4, [])
    assert "5 sessions, 150 events: 5 consistent, not proven" in found.out
    damage(journal, "UPDATE minutebook_events SET payload = x'7b7d' WHERE originator_id = 's-2'")
    found = call("verify", journal)
    assert (found.code, shown(found.out)) == (1, ["s-2"])
    assert "4 consistent, not proven, 1 broken" in found.out
    assert len(shown(call("verify", journal, "--all").out)) == 5
    checked = call("inspect", journal, "--verify")
    assert (checked.code, shown(checked.out).count("s-2")) == (3, 2)


def test_documents_are_complete_whoever_is_needed(journal: Path) -> None:
    assert len(call("inspect", journal, "--json").document["plans"]) == 5
    assert len(call("verify", journal, "--json").document["verifications"]) == 5


def test_a_session_that_is_not_there_is_told_without_anything_else(journal: Path) -> None:
    for command in ("inspect", "verify", "timeline", "replay"):
        found = call(command, journal, "s-none")
        assert (found.code, found.out) == (2, ""), command


# --- what a store is asked for --------------------------------------------------------------


class Counted:
    """A journal, or a reader of one, whose calls are counted."""

    def __init__(self, inner: Journal | JournalReader) -> None:
        self._inner, self.calls = inner, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        if name not in ("name", "leases"):
            self.calls[name] += 1
        return getattr(self._inner, name)


def counted(inner: Journal | JournalReader) -> tuple[Any, Counter[str]]:
    made = Counted(inner)
    return cast("Any", made), made.calls


@pytest.mark.anyio
async def test_a_plan_takes_four_questions() -> None:
    async with kept(long(100)) as journal:
        reader, calls = counted(journal)
        await load(reader, "s-long")
    assert calls == {"session": 1, "snapshot": 1, "read": 2}


@pytest.mark.anyio
async def test_an_export_asks_for_commands_by_the_page() -> None:
    async with kept(long(PAGE + 300, per_commit=2)) as journal:
        reader, calls = counted(journal)
        await export_session(reader, "s-long", lambda line: None)
    assert calls == {"session": 2, "read": 2, "commands": 2}


@pytest.mark.anyio
async def test_an_import_asks_for_commands_by_the_page(tmp_path: Path) -> None:
    path = await exported(tmp_path, long(300, per_commit=2))
    async with open_export(str(path)) as export, MemoryStore().open() as journal:
        row = await check_import(export, "s-long")
        reader, calls = counted(export)
        await import_session(reader, row, journal, SystemIds())
    assert calls == {"session": 1, "read": 1, "commands": 1}


# --- what is held ---------------------------------------------------------------------------


def peak(*arguments: object) -> int:
    """The most memory that a command held, its output thrown away."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        tracemalloc.start()
        try:
            main([str(argument) for argument in arguments])
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("command", [["inspect", "--json"], ["verify"]])
def test_what_is_held_does_not_grow_with_the_sessions(tmp_path: Path, command: list[str]) -> None:
    few, many = (  # both fill a page of a listing
        make(Place(tmp_path, "", {}), name=f"{copies}.db", requests=0, copies=copies)["file"]
        for copies in (120, 400)
    )
    name, *more = command
    peak(name, few, *more)  # what is loaded once is not counted
    assert peak(name, many, *more) < 3 * peak(name, few, *more)  # a collector of garbage runs when it likes


# --- an import that is broken off -------------------------------------------------------------


async def exported(directory: Path, *scenarios: Scenario) -> Path:
    path = directory / "e.jsonl"
    async with kept(*scenarios) as journal:
        with path.open("wb") as file:
            for scenario in scenarios:
                await export_session(journal, scenario.state.session_id, file.write)
    return path


@pytest.mark.anyio
@pytest.mark.parametrize("broken_at", [1, 2, 7, 30])
async def test_an_import_goes_on_where_it_was_broken_off(tmp_path: Path, broken_at: int) -> None:
    scenarios = [long(40, f"s-{n:02}", per_commit=10) for n in range(20)]
    path = await exported(tmp_path, *scenarios)
    store = FaultyStore(MemoryStore(), faults={broken_at: Fault.WRITE_FAILED})
    async with open_export(str(path)) as export, store.open() as journal:
        rows = [await check_import(export, scenario.state.session_id) for scenario in scenarios]
        with pytest.raises(StoreWriteFailed):
            await import_sessions(export, rows, journal, SystemIds())
        there = sum([row.sequence for row in await journal.sessions()])
        left = await import_sessions(export, rows, journal, SystemIds())
        assert there + left == sum(row.sequence for row in rows)
        assert [row.head for row in await journal.sessions()] == [row.head for row in rows]
        assert not [row for row in rows if (await verify(journal, row.session_id)).problems]
        before = len(store.batches)
        assert await import_sessions(export, rows, journal, SystemIds()) == 0
        assert len(store.batches) == before


@pytest.mark.anyio
async def test_one_that_fails_lets_those_under_way_come_to_their_end(tmp_path: Path) -> None:
    scenarios = [long(40, f"s-{n:02}", per_commit=10) for n in range(20)]
    path = await exported(tmp_path, *scenarios)
    store = FaultyStore(MemoryStore(), faults={2: Fault.WRITE_FAILED})
    async with open_export(str(path)) as export, store.open() as journal:
        rows = [await check_import(export, scenario.state.session_id) for scenario in scenarios]
        with pytest.raises(StoreWriteFailed):
            await import_sessions(export, rows, journal, SystemIds())
        whole = {scenario.state.sequence for scenario in scenarios}
        there = await journal.sessions()
        assert sum(row.sequence not in whole for row in there) <= 1
        assert len(there) < len(rows)  # and no other one is begun


@pytest.mark.anyio
@pytest.mark.parametrize("there", [unsettled("s-pay"), asking("s-pay")], ids=["went on", "another"])
async def test_a_session_that_went_on_or_is_another_one_is_not_touched(
    tmp_path: Path, there: Scenario
) -> None:
    path = await exported(tmp_path, lost_payment())
    async with open_export(str(path)) as export, kept(there) as journal:
        row = await check_import(export, "s-pay")
        with pytest.raises(SessionExists):
            await import_session(export, row, journal, SystemIds())
        assert (await load(journal, "s-pay")).state == there.state


def test_an_import_tells_what_was_there(tmp_path: Path) -> None:
    export, copy = tmp_path / "e.jsonl", tmp_path / "copy.db"
    call("export", write(tmp_path / "some.db", asking(), lost_payment()), "--output", export)
    assert call("import", export, copy).out == "imported 2 sessions, 24 events\n"
    again = call("import", export, copy)
    assert (again.code, again.out) == (0, "imported 2 sessions, 0 events; 24 were there already\n")


# --- an export of nothing -----------------------------------------------------------------------


def test_no_export_is_made_of_no_session(tmp_path: Path) -> None:
    empty, export = write(tmp_path / "empty.db"), tmp_path / "e.jsonl"
    found = call("export", empty, "--output", export)
    assert (found.code, export.exists()) == (2, False)
    assert "a journal with sessions" in found.err
    some = write(tmp_path / "some.db", asking())
    found = call("export", some, "--owner", "ann", "--output", export)
    assert (found.code, export.exists(), "of 'ann'" in found.err) == (2, False, True)


# --- on a terminal ------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """Standard error as a terminal is."""

    def isatty(self) -> bool:
        return True


COMMANDS = {
    "inspecting": ["inspect", "{journal}"],
    "verifying": ["verify", "{journal}", "--json"],
    "replaying": ["replay", "{journal}", "s-3"],
    "comparing": ["diff", "{journal}", "s-3", "--from", "3", "--to", "30"],
    "reading": ["timeline", "{journal}", "s-3"],
    "exporting": ["export", "{journal}", "--output", "{new}.jsonl"],
}


@pytest.mark.parametrize("doing", COMMANDS)
def test_a_terminal_is_told_how_far_each_command_is(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doing: str
) -> None:
    words = [word.format(journal=journal, new=tmp_path / "new") for word in COMMANDS[doing]]
    with contextlib.redirect_stderr(Terminal()) as terminal:
        monkeypatch.setattr(progress, "EVERY_S", 0)
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
            main(words)
    assert f"\r{doing}: " in terminal.getvalue()
    assert terminal.getvalue().rpartition(" events read, at ")[2].partition("\r")[2].strip(" \r") in (
        "",
        "exported 5 sessions, 150 events\n",
    )


def test_an_import_says_whether_it_checks_or_writes(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("export", journal, "--output", tmp_path / "e.jsonl")
    monkeypatch.setattr(progress, "EVERY_S", 0)
    with contextlib.redirect_stderr(Terminal()) as terminal:
        assert main(["import", str(tmp_path / "e.jsonl"), str(tmp_path / "copy.db")]) == 0
    assert list(dict.fromkeys(re.findall(r"\r(\w+): ", terminal.getvalue()))) == ["checking", "importing"]

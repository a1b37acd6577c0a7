"""The line that tells how far a command is."""

from __future__ import annotations

import io

import pytest

from minutebook.testing.clock import ManualClock
from recovery.pages import Pages
from recovery.progress import EVERY_S, Progress, progress
from tests.journals import kept, long


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def terminal() -> io.StringIO:
    return io.StringIO()


def screen(terminal: io.StringIO) -> str:
    """What is to be seen on a terminal of one line."""
    line, at = "", 0
    for character in terminal.getvalue():
        if character == "\r":
            at = 0
        else:
            line, at = line[:at] + character + line[at + 1 :], at + 1
    return line.rstrip()


def test_nothing_is_said_in_the_first_second(terminal: io.StringIO, clock: ManualClock) -> None:
    line = Progress("reading", terminal, clock)
    line.read("s-1", 500)
    line.clear()
    assert terminal.getvalue() == ""


def test_then_a_line_says_how_many_events_were_read(terminal: io.StringIO, clock: ManualClock) -> None:
    line = Progress("reading", terminal, clock)
    line.read("s-1", 1500)
    clock.advance(EVERY_S)
    line.read("s-longer", 1000)
    assert screen(terminal) == "reading: 2,500 events read, at s-longer"
    line.read("s-2", 1000)  # not again within a second
    assert screen(terminal) == "reading: 2,500 events read, at s-longer"
    clock.advance(EVERY_S)
    line.read("s-3", 1)
    assert screen(terminal) == "reading: 3,501 events read, at s-3"
    line.clear()
    assert screen(terminal) == ""
    assert terminal.getvalue().endswith("\r")


def test_a_hostile_id_does_nothing_to_the_terminal(terminal: io.StringIO, clock: ManualClock) -> None:
    line = Progress("reading", terminal, clock)
    clock.advance(EVERY_S)
    line.read("\x1b[2J" + "x" * 500, 1)
    assert "\x1b" not in terminal.getvalue()
    assert len(screen(terminal)) < 80  # it would not be overwritten if it were broken


@pytest.mark.anyio
async def test_what_is_read_through_it_is_counted(terminal: io.StringIO, clock: ManualClock) -> None:
    line = Progress("reading", terminal, clock)
    clock.advance(EVERY_S)
    async with kept(long(300)) as journal:
        reader = line.watch(journal)
        assert reader.name == journal.name
        async for _ in Pages(reader, "s-long"):
            pass
    assert screen(terminal) == "reading: 301 events read, at s-long"


def test_nothing_is_shown_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("reading") as line:
        line.read("s-1", 10**6)
    assert capsys.readouterr() == ("", "")

"""The disk is full, or fails, or the process is killed, at some system calls of each name.

Every call is in `every_fault.py`; what has to hold is in `faults.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from minutebook.testing.fork_server import ForkServer
from tests.chaos.faults import Fault, Found, every_fault
from tests.chaos.power import MODES, place_of_its_own
from tests.chaos.small_disks import full_from_then_on, small_file_system
from tests.chaos.tracing import needs_strace
from tests.crash.matrix import in_parallel

#: Sync calls have another name in another build of SQLite.
SYNCS = ("fsync", "fdatasync")


def some(
    writers: list[ForkServer], program: str, faults: Sequence[Fault], story: Any, numbers: Sequence[int]
) -> Found:
    """Lives with these faults at these numbers, as far as there are such calls."""
    cases = [(fault, number) for fault in faults for number in numbers]

    def lives(place: int) -> Found:
        found = Found()
        for fault, number in cases[place :: len(writers)]:
            found.add(every_fault(writers[place], program, fault, story, numbers=[number]))
        return found

    total = Found()
    for found in in_parallel(len(writers), lives):
        total.add(found)
    return total


@needs_strace
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("what", "sticky"), [("ENOSPC", False), ("ENOSPC", True), ("EIO", False), ("EIO", True)]
)
def test_what_a_store_says_of_a_failing_disk_is_true(
    writers: list[ForkServer], mode: str, what: str, sticky: bool
) -> None:
    """Commits, and the lease before them, and its renewal among them."""
    writes = [Fault("pwrite64", what, sticky, "open", mode)]
    syncs = [Fault(name, what, sticky, "open", mode) for name in SYNCS]
    found = some(writers, "keep", writes, None, (1, 83))
    found.add(some(writers, "keep", syncs, None, (8,)))
    assert found.wrong == []
    assert found.runs >= 3, found
    assert set(found.ends) - {"unharmed"}, "no fault was noticed"


@needs_strace
@pytest.mark.parametrize("mode", MODES)
def test_a_store_that_cannot_be_made_or_opened_says_so(writers: list[ForkServer], mode: str) -> None:
    faults = [Fault(name, "EIO", True, "opening", mode) for name in ("pwrite64", *SYNCS, "openat")]
    found = some(writers, "keep", faults, None, (1, 3))
    assert found.wrong == []
    assert found.ends["StoreWriteFailed"] >= 4, found


@needs_strace
@pytest.mark.parametrize("mode", MODES)
def test_a_session_on_a_failing_disk_stops_and_is_gone_on_with(
    writers: list[ForkServer], mode: str, story: Any
) -> None:
    found = some(writers, "session", [Fault("pwrite64", "ENOSPC", False, "open", mode)], story, (33,))
    found.add(some(writers, "session", [Fault("pwrite64", "EIO", True, "open", mode)], story, (2, 60)))
    found.add(some(writers, "session", [Fault(s, "EIO", True, "open", mode) for s in SYNCS], story, (12,)))
    assert found.wrong == []
    assert sum(number for end, number in found.ends.items() if end != "unharmed") >= 3, found


@needs_strace
@pytest.mark.parametrize("mode", MODES)
def test_a_session_killed_in_a_system_call_is_gone_on_with(
    writers: list[ForkServer], mode: str, story: Any
) -> None:
    found = some(writers, "session", [Fault("pwrite64", "KILL", False, "open", mode)], story, (120,))
    found.add(some(writers, "session", [Fault("write", "KILL", False, "open", mode)], story, (3,)))
    found.add(some(writers, "session", [Fault(s, "KILL", False, "open", mode) for s in SYNCS], story, (25,)))
    found.add(some(writers, "session", [Fault("pwrite64", "KILL", False, "closing", mode)], story, (1,)))
    assert found.wrong == []
    assert found.ends == {"killed": found.runs}
    assert found.runs >= 3, found


@pytest.fixture(scope="module")
def small_place() -> Iterator[Path]:
    """A directory on a file system of its own that is soon full."""
    with place_of_its_own() as place, small_file_system(place):
        yield place


@pytest.mark.parametrize(("mode", "commit"), [*zip(MODES, (2, 9), strict=True)])
def test_a_session_on_a_full_disk_goes_on_when_there_is_room(
    writers: list[ForkServer], mode: str, commit: int, story: Any, small_place: Path
) -> None:
    found = full_from_then_on(writers[0], small_place, mode, "space", (commit,), story)
    assert (found.runs, found.wrong) == (1, [])
    assert "unharmed" not in found.ends


@pytest.mark.parametrize(("mode", "commit"), [*zip(MODES, (14, 3), strict=True)])
def test_a_session_whose_files_may_not_grow_goes_on_when_they_may(
    writers: list[ForkServer], mode: str, commit: int, story: Any
) -> None:
    with place_of_its_own() as place:
        found = full_from_then_on(writers[0], place, mode, "limit", (commit,), story)
    assert (found.runs, found.wrong) == (1, [])


def test_no_numbers_are_no_runs(writers: list[ForkServer]) -> None:
    """A name without calls in a phase must not become every call of every phase."""
    fault = Fault("ftruncate", "EIO", True, "opening", "wal")
    assert every_fault(writers[0], "keep", fault, None, numbers=range(0)) == Found()

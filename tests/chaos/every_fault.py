"""Every system call of a store and of a session fails once, or from then on, or kills.

Not part of the suite, because of its name; run it by naming it, or with all the long runs:

    make test ARGS=tests/chaos/every_fault.py
    make chaos

There is no chance in it, so no seed: the same program gives the same calls. `ARGS=--every=20` tries
every twentieth call only, beginning elsewhere for each fault.
"""

from __future__ import annotations

from itertools import count
from typing import Any, Final
from zlib import crc32

import pytest

from minutebook.testing.fork_server import ForkServer
from tests.chaos.faults import ERRORS, NAMES, PHASES, Fault, Found, calls_to_open, every_fault
from tests.chaos.power import MODES, place_of_its_own
from tests.chaos.small_disks import full_from_then_on, small_file_system
from tests.chaos.tracing import needs_strace
from tests.crash.matrix import in_parallel
from tests.long_runs import Numbers, share

#: What a kill may come in the middle of: what changes files, and the world's own witness.
KILLED_IN = (*NAMES, "write", "close")
#: Of `application`, and what they are.
PROGRAMS: Final = {"keep": "a store", "session": "a session"}


@pytest.fixture
def step(every: int | None) -> int:
    """Every how manieth call is tried."""
    return every or 1


def tried(writers: list[ForkServer], program: str, fault: Fault, step: int, story: Any) -> Found:
    """The numbers of one fault, on all cores. Opening: no more than it takes to open."""
    last = calls_to_open(fault.mode)[fault.name] if fault.at == "opening" else None
    first, stride = 1 + crc32(str(fault).encode()) % step, step * len(writers)

    def lives(place: int) -> Found:
        begin = first + place * step
        numbers = range(begin, last + 1, stride) if last is not None else count(begin, stride)
        return every_fault(writers[place], program, fault, story, numbers=numbers)

    total = Found()
    for found in in_parallel(len(writers), lives):
        total.add(found)
    return total


@needs_strace
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("at", PHASES)
@pytest.mark.parametrize("sticky", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("what", ERRORS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_failing_call(
    writers: list[ForkServer],
    numbers: Numbers,
    story: Any,
    step: int,
    program: str,
    what: str,
    sticky: bool,
    at: str,
    mode: str,
) -> None:
    total = Found()
    for name in NAMES:
        total.add(tried(writers, program, Fault(name, what, sticky, at, mode), step, story))
    how_long = "from then on" if sticky else "once"
    total.tell(numbers, f"{PROGRAMS[program]}: {what} {how_long}{share(step)}", f"{at}, {mode}")
    assert total.wrong == []
    assert total.runs > 0 or at == "closing" or step > 1


@needs_strace
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("at", PHASES)
def test_every_call_that_kills(
    writers: list[ForkServer], numbers: Numbers, story: Any, step: int, at: str, mode: str
) -> None:
    total = Found()
    for name in KILLED_IN:
        total.add(tried(writers, "session", Fault(name, "KILL", False, at, mode), step, story))
    total.tell(numbers, f"{PROGRAMS['session']}: killed in a system call{share(step)}", f"{at}, {mode}")
    assert total.wrong == []
    assert total.ends == {"killed": total.runs}
    assert total.runs > 0 or step > 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["space", "limit"])
def test_every_commit_on_a_full_disk(
    writers: list[ForkServer], numbers: Numbers, story: Any, how: str, mode: str
) -> None:
    with place_of_its_own() as place:
        if how == "limit":
            found = full_from_then_on(writers[0], place, mode, how, None, story)
        else:
            with small_file_system(place):
                found = full_from_then_on(writers[0], place, mode, how, None, story)
    found.tell(numbers, f"{PROGRAMS['session']}: a full disk", f"{how}, {mode}")
    assert found.wrong == []
    assert found.runs >= 20

"""Small programs that die in known ways, for the tests of the testing aid itself."""

from __future__ import annotations

import os
import signal
import sys
import threading

import anyio

from minutebook.testing.crash import KillAt, Tell, Witness, loop_turns


def count_to_three(tell: Tell, kill_at: int) -> None:
    """Pass three points."""
    probe = KillAt(kill_at, tell)
    for point in ("one", "two", "three"):
        probe(point)
    tell(passed=probe.passed)


def have_effects(tell: Tell, witness: str, kill_at: int) -> None:
    """Have two effects, with a point after each."""
    probe = KillAt(kill_at, tell)
    for effect in ("first", "second"):
        Witness(witness).record(effect, 7)
        probe(effect)


def commit_slowly(tell: Tell, turns: int) -> None:
    """Die in a thread, while the event loop could go on."""

    async def show() -> None:
        for number in range(5):
            await anyio.lowlevel.checkpoint()
            tell(shown=number)

    async def main() -> None:
        probe = KillAt(1, tell, loop_turns(turns) if turns else None)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, probe, "in a thread")
            tasks.start_soon(show)

    anyio.run(main)


def fail(tell: Tell) -> None:
    """Raise something."""
    raise LookupError("on purpose")


def leave(tell: Tell, code: int) -> None:
    """Exit."""
    sys.exit(code)


def die_otherwise(tell: Tell) -> None:
    """Be killed, but not by a probe."""
    tell(about="to die")
    os.kill(os.getpid(), signal.SIGKILL)


def stand_still(tell: Tell) -> None:
    """Stop, as whoever is stopped by somebody else and forgotten."""
    os.kill(os.getpid(), signal.SIGSTOP)


def wait_for_ever(tell: Tell) -> None:
    """Hang."""
    tell(waiting=os.getpid())
    threading.Event().wait()

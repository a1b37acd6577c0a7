"""Disks that are really full: a small file system, and a limit on the size of files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from minutebook.testing.fork_server import ForkServer
from tests.chaos.faults import Found, judge_session, not_about_the_disk
from tests.crash.harness import Life

#: Room for a journal and its log, before somebody else takes what is left.
SIZE: Final = "8m"


@contextmanager
def small_file_system(place: Path) -> Iterator[None]:
    """Mount one at `place`; a test that asks for it is left out where that is not allowed."""
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "tmpfs", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != os.EX_OK:
        pytest.skip(f"a small file system cannot be mounted here: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def full_from_then_on(
    server: ForkServer, place: Path, mode: str, how: str, numbers: Iterable[int] | None, story: Any
) -> Found:
    """A session whose disk is full from its n-th commit on, and has room again when it has failed.

    Args:
        how: "space" or "limit", see `application.small_disk`.
        numbers: which commits; None: every one from 1.
        story: what a session tells to which nothing happens.
    """
    found = Found()
    for number in count(1) if numbers is None else numbers:
        for left in place.iterdir():
            left.unlink()
        life = Life(server, place, {})
        ended = life.finish(
            server.start("small_disk", **life.files, journal_mode=mode, how=how, full_at=number)
        )
        if not ended.told("full"):
            break
        found.runs += 1
        failed = ended.told("failed")
        found.ends["+".join(failed[0]) if failed else "unharmed"] += 1
        wrong = [] if ended.returncode == os.EX_OK else [f"it ended with {ended}"]
        wrong += [*not_about_the_disk(ended), *judge_session(life, story)]
        found.wrong += [f"full ({how}) from commit {number} on, {mode}: {w}" for w in wrong]
    return found

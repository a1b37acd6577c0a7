"""Counting how often a case waits for the disk, with `strace` where there is one.

The number of fsyncs travels between machines; what one costs does not.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

#: Requests of the shorter and the longer run; the difference leaves out opening and closing.
SHORT: Final = 3
LONG: Final = 8

_CALLS: Final = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?\S+$", re.MULTILINE)


def can_count() -> bool:
    """Whether `strace` is on the path."""
    return shutil.which("strace") is not None


def prefix(report: Path) -> list[str]:
    """What to put before a command, so that its waits are written to a file."""
    return ["strace", "-f", "-c", "-e", "trace=fsync,fdatasync", "-o", str(report)]


def counted(report: str) -> int:
    """The calls in a report of `strace -c`; 0 where there were none."""
    lines = [line for line in report.splitlines() if not line.rstrip().endswith("total")]
    return sum(int(calls) for calls in _CALLS.findall("\n".join(lines)))


def per_request(run: Callable[[int], int]) -> float:
    """Waits for each further request, given what a run of so many requests counts."""
    return (run(LONG) - run(SHORT)) / (LONG - SHORT)

"""Stop-watches and counters of one process: wall, processor, written bytes, memory.

Imported by the cases, in every environment: only the standard library.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_IO: Final = Path("/proc/self/io")
_STATUS: Final = Path("/proc/self/status")


class Watch:
    """`with Watch() as watch: ...`; then seconds and bytes of what was inside.

    `written` is what the process sent to the disk, in bytes; None where the system does not tell.
    """

    def __enter__(self) -> Watch:
        self._written = _written_bytes()
        self._cpu = time.process_time()
        self._wall = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall_s = time.perf_counter() - self._wall
        self.cpu_s = time.process_time() - self._cpu
        now = _written_bytes()
        self.written = None if now is None or self._written is None else now - self._written


def _written_bytes() -> int | None:
    if not _IO.exists():
        return None
    fields = dict(line.split(": ") for line in _IO.read_text().splitlines())
    return int(fields["write_bytes"])


def resident_kib(which: str = "VmRSS") -> float:
    """Memory of this process in KiB: what it holds now, or (`VmHWM`) held at most; nan if unknown."""
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith(f"{which}:"):
                return float(line.split()[1])
    if which == "VmHWM":
        import resource

        most = float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        return most / 1024 if sys.platform == "darwin" else most
    return float("nan")


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share (0 to 1) of them lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def curve(values: Sequence[float], points: int = 20) -> list[list[float]]:
    """Pairs of (position, median around it), positions counted from 1."""
    size = max(1, len(values) // points)
    slices = [(at, values[at : at + size]) for at in range(0, len(values) - size + 1, size)]
    return [[at + (len(part) + 1) / 2, statistics.median(part)] for at, part in slices]


def directory_bytes(directory: Path) -> int:
    """The size of all files in and below a directory."""
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())

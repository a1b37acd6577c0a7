"""The machine underneath: clocks, random ids, and which process is alive.

Imported by the stores (for lease times) and by whoever composes a session.
Nothing here decides anything about sessions, and nothing reads the environment.
"""

from __future__ import annotations

import base64
import functools
import os
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import anyio

from domain.envelope import SALT_BYTES
from domain.ports import LeaseRow

_RANDOM_ID_BYTES: Final = 13
_RANDOM_ID_CHARACTERS: Final = 20
#: Positions in /proc/<pid>/stat, counted from the field after the command name.
_STATE_FIELD: Final = 0
_START_TIME_FIELD: Final = 19
_ENDED_STATES: Final = frozenset("ZXx")


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The host's wall clock, and a monotonic clock that also counts suspended time."""

    @property
    def boot_id(self) -> str | None:
        """The running kernel, where `monotonic` counts from its start."""
        return this_process().boot_id if hasattr(time, "CLOCK_BOOTTIME") else None

    def now(self) -> datetime:
        """Aware UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds, never going back; goes on while the machine sleeps where the system can tell."""
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()

    async def sleep_until(self, moment: float) -> None:
        """Return once `monotonic` has reached `moment`; at once if it has."""
        while (left := moment - self.monotonic()) > 0:  # noqa: ASYNC110  # a sleep may end early
            await anyio.sleep(left)


@dataclass(frozen=True, slots=True)
class SystemIds:
    """Ids and salts from the operating system's random source."""

    def new(self, prefix: str) -> str:
        """`prefix-` and 20 characters of a-z and 2-7 (100 random bits)."""
        text = base64.b32encode(secrets.token_bytes(_RANDOM_ID_BYTES)).decode("ascii")
        return f"{prefix}-{text[:_RANDOM_ID_CHARACTERS].lower()}"

    def salt(self) -> bytes:
        """`SALT_BYTES` random bytes."""
        return secrets.token_bytes(SALT_BYTES)


def no_probe(point: str) -> None:
    """The probe of production: nothing happens at any point."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, told apart from every other that ever had its number.

    Args:
        boot_id: the running kernel, the process namespace and the time namespace; None where unknown.
        process_id: the number inside that namespace.
        process_started: the kernel's start time of the process, in ticks; None where unknown.
    """

    boot_id: str | None
    process_id: int
    process_started: str | None


def this_process() -> ProcessIdentity:
    """Who we are, for a lease row."""
    return _identity(os.getpid())


def provably_dead(boot_id: str | None, process_id: int | None, process_started: str | None) -> bool:
    """Whether a process is certainly gone. Unknown, or on another host: False.

    Args:
        boot_id, process_id, process_started: as `this_process` gave them in that process.
    """
    ours = this_process().boot_id
    if boot_id is None or process_id is None or ours is None or _numbered(boot_id) != _numbered(ours):
        return False
    if not _exists(process_id):
        return True
    found = _state_and_start(process_id)
    if found is None:
        return False  # it is there, but hidden from us
    state, started = found
    return state in _ENDED_STATES or (process_started is not None and started != process_started)


def holder_is_dead(lease: LeaseRow) -> bool:
    """Whether the process that a lease row names is certainly gone."""
    return provably_dead(lease.boot_id, lease.process_id, lease.process_started)


@functools.lru_cache(maxsize=1)
def _identity(process_id: int) -> ProcessIdentity:
    found = _state_and_start(process_id)
    return ProcessIdentity(_boot_id(), process_id, found[1] if found else None)


def _boot_id() -> str | None:
    # Containers share the kernel's boot id but number their processes apart:
    # without the namespace a live holder next door would look dead. They can also
    # be given a clock of their own that counts from another moment.
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.readlink('/proc/self/ns/pid')}/{_time_namespace()}"
    except OSError:
        return None


def _time_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/time")
    except OSError:
        return "time:[]"  # a kernel that has none


def _numbered(boot_id: str) -> list[str]:
    """The parts of a boot id that say among which processes a number counts: not the time namespace."""
    return boot_id.split("/")[:2]


def _exists(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _state_and_start(process_id: int) -> tuple[str, str] | None:
    try:
        with open(f"/proc/{process_id}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields[_STATE_FIELD], fields[_START_TIME_FIELD]

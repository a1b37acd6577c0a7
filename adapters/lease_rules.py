"""Who may hold a session and who may write to it; the same for every engine.

Imported by the stores. Pure: times and liveness are given to it.

On one host a lease is judged by the seconds since that host was started, which no
one can set. Only where the holder's boot is another one, or is not known, does the
wall clock decide; a store with a clock of its own, such as PostgreSQL, has no boot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from domain.envelope import Fence
from domain.errors import InvalidOptions, LeaseConflict, LeaseLost, LeaseRequired
from domain.ports import Clock, Holder, LeaseRow

MAX_TTL_MS: Final = 24 * 60 * 60 * 1000
_MICROSECOND_DIGITS: Final = 6

_BY_BOOT: Final = "counted in seconds since this host was started"
_BY_WALL: Final = (
    "by this host's wall clock, because the holder is on another host, or was here before a restart"
)
_BY_STORE: Final = "by the store's clock"


@dataclass(frozen=True, slots=True)
class Instant:
    """The store's clock, read once.

    Args:
        now: wall clock, aware UTC.
        boot_id: which boot `seconds` counts from; None: there is only `now`.
        seconds: boot-time clock, to the microsecond.
    """

    now: datetime
    boot_id: str | None = None
    seconds: float = 0.0

    @classmethod
    def of(cls, clock: Clock) -> Instant:
        """What a clock says at this moment."""
        return cls(clock.now(), clock.boot_id, round(clock.monotonic(), _MICROSECOND_DIGITS))

    def shares_clock_with(self, boot_id: str | None) -> bool:
        """Whether a process of that boot counts the same seconds."""
        known = boot_id is not None and self.boot_id is not None
        return known and _counted(boot_id) == _counted(self.boot_id)


def check_fence(session_id: str, lease: LeaseRow | None, fence: Fence | None, at: Instant) -> None:
    """Decide whether a writer with this fence (or none) may append.

    Args:
        lease: the session's lease row; None if it was never leased.
        at: the store's clock.

    Raises:
        LeaseLost: the fence is not the live lease, even if nobody took over.
        LeaseRequired: the session has been leased before and the writer has no fence.
    """
    if lease is None and fence is None:
        return
    if fence is None:
        raise LeaseRequired(session_id, "it has been leased before; acquire its lease to write")
    live(session_id, lease, fence, at)


def live(session_id: str, lease: LeaseRow | None, fence: Fence, at: Instant) -> LeaseRow:
    """Return the lease if the fence is it and it has not run out.

    Raises:
        LeaseLost: saying what is there instead.
    """
    if lease is None:
        raise LeaseLost(session_id, f"expected lease {fence.lease_id}, but it was never leased")
    if not _same(lease, fence):
        found = f"lease {lease.lease_id}" if lease.lease_id else "that it was given back,"
        raise LeaseLost(
            session_id,
            f"expected lease {fence.lease_id} with token {fence.token}, "
            f"found {found} with token {lease.token}",
        )
    if has_run_out(lease, at):
        raise LeaseLost(session_id, f"the lease ran out at {_until(lease, at)}, {_judged_by(lease, at)}")
    return lease


def has_run_out(lease: LeaseRow, at: Instant) -> bool:
    """Whether a lease's time is over."""
    left = _seconds_left(lease, at)
    return at.now >= lease.expires_at if left is None else left <= 0


def lives(lease: LeaseRow, at: Instant, is_dead: Callable[[LeaseRow], bool]) -> bool:
    """Whether a lease holds: not given back, not run out, its process not provably gone."""
    return lease.lease_id is not None and not has_run_out(lease, at) and not is_dead(lease)


def is_free(lease: LeaseRow | None, at: Instant, is_dead: Callable[[LeaseRow], bool]) -> bool:
    """Whether anybody who asks would be granted the lease."""
    return lease is None or not lives(lease, at, is_dead)


def granted(
    session_id: str,
    lease: LeaseRow | None,
    holder: Holder,
    ttl_ms: int,
    at: Instant,
    is_dead: Callable[[LeaseRow], bool],
) -> LeaseRow:
    """The lease row after an acquire.

    Args:
        is_dead: whether the process that a row names is provably gone.

    Raises:
        LeaseConflict: another live holder has it.
    """
    ttl = checked_ttl(ttl_ms)
    again = lease is not None and (lease.lease_id, lease.holder_id) == (holder.lease_id, holder.worker_id)
    if lease is not None and not again and lives(lease, at, is_dead):
        raise conflict(session_id, lease, at)
    row = LeaseRow(
        token=_next_token(lease, again=again),
        lease_id=holder.lease_id,
        holder_id=holder.worker_id,
        acquired_at=lease.acquired_at if lease is not None and again else at.now,
        renewed_at=at.now,
        expires_at=at.now,
        boot_id=holder.boot_id,
        process_id=holder.process_id,
        process_started=holder.process_started,
    )
    return _extended(row, ttl, at)


def conflict(session_id: str, lease: LeaseRow, at: Instant) -> LeaseConflict:
    """The refusal that names a live lease: who has it, until when, and by which clock."""
    return LeaseConflict(session_id, lease.holder_id, _until(lease, at), _judged_by(lease, at))


def renewed(session_id: str, lease: LeaseRow | None, fence: Fence, ttl_ms: int, at: Instant) -> LeaseRow:
    """The lease row after a renewal. Raises LeaseLost as `live` does."""
    ttl = checked_ttl(ttl_ms)
    return _extended(live(session_id, lease, fence, at), ttl, at)


def released(lease: LeaseRow | None, fence: Fence, at: Instant) -> LeaseRow | None:
    """The lease row after a release, the token kept; None if there is nothing to give back."""
    if lease is None or not _same(lease, fence):
        return None
    return replace(lease, lease_id=None, expires_at=min(at.now, lease.expires_at), runs_out=None)


def checked_ttl(ttl_ms: int) -> timedelta:
    """A lease's length. Raises InvalidOptions outside 1 ms to one day."""
    if not 1 <= ttl_ms <= MAX_TTL_MS:
        raise InvalidOptions("ttl_ms", f"1 to {MAX_TTL_MS}", ttl_ms)
    return timedelta(milliseconds=ttl_ms)


def _extended(lease: LeaseRow, ttl: timedelta, at: Instant) -> LeaseRow:
    # Seconds of another boot would mean nothing here: such a lease is left to the wall clock.
    shared = at.shares_clock_with(lease.boot_id)
    runs_out = round(at.seconds + ttl.total_seconds(), _MICROSECOND_DIGITS) if shared else None
    return replace(lease, renewed_at=at.now, expires_at=at.now + ttl, runs_out=runs_out)


def _next_token(lease: LeaseRow | None, *, again: bool) -> int:
    if lease is None:
        return 1
    return lease.token if again else lease.token + 1


def _until(lease: LeaseRow, at: Instant) -> str:
    """When a lease runs out, by the wall clock as it is set now."""
    left = _seconds_left(lease, at)
    moment = lease.expires_at if left is None else at.now + timedelta(seconds=left)
    return moment.isoformat(timespec="milliseconds")


def _judged_by(lease: LeaseRow, at: Instant) -> str:
    if at.boot_id is None:
        return _BY_STORE
    return _BY_WALL if _seconds_left(lease, at) is None else _BY_BOOT


def _seconds_left(lease: LeaseRow, at: Instant) -> float | None:
    """By the boot-time clock, where both count by the same one."""
    if lease.runs_out is None or not at.shares_clock_with(lease.boot_id):
        return None
    return lease.runs_out - at.seconds


def _counted(boot_id: str | None) -> list[str]:
    """The parts of a boot id that say from when seconds are counted: not the process namespace."""
    parts = (boot_id or "").split("/")
    return parts[:1] + parts[2:]


def _same(lease: LeaseRow, fence: Fence) -> bool:
    held = (lease.lease_id, lease.token, lease.holder_id)
    return held == (fence.lease_id, fence.token, fence.worker_id)

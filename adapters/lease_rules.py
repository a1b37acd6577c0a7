"""Who may hold a session and who may write to it; the same for every engine.

Imported by the stores. Pure: times and liveness are given to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from domain.envelope import Fence
from domain.errors import InvalidOptions, LeaseConflict, LeaseLost, LeaseRequired
from domain.ports import Holder, LeaseRow

MAX_TTL_MS: Final = 24 * 60 * 60 * 1000


def check_fence(session_id: str, lease: LeaseRow | None, fence: Fence | None, now: datetime) -> None:
    """Decide whether a writer with this fence (or none) may append.

    Args:
        lease: the session's lease row; None if it was never leased.
        now: the store's clock.

    Raises:
        LeaseLost: the fence is not the live lease, even if nobody took over.
        LeaseRequired: the session has been leased before and the writer has no fence.
    """
    if lease is None and fence is None:
        return
    if fence is None:
        raise LeaseRequired(session_id, "it has been leased before; acquire its lease to write")
    live(session_id, lease, fence, now)


def live(session_id: str, lease: LeaseRow | None, fence: Fence, now: datetime) -> LeaseRow:
    """Return the lease if the fence is it and it has not run out.

    Raises:
        LeaseLost: saying what is there instead.
    """
    if lease is None:
        raise LeaseLost(session_id, f"expected lease {fence.lease_id}, but it was never leased")
    if not _same(lease, fence):
        raise LeaseLost(
            session_id,
            f"expected lease {fence.lease_id} with token {fence.token}, "
            f"found {lease.lease_id or 'none'} with token {lease.token}",
        )
    if now >= lease.expires_at:
        raise LeaseLost(session_id, f"the lease ran out at {lease.expires_at.isoformat()}")
    return lease


def granted(
    session_id: str,
    lease: LeaseRow | None,
    holder: Holder,
    ttl_ms: int,
    now: datetime,
    is_dead: Callable[[LeaseRow], bool],
) -> LeaseRow:
    """The lease row after an acquire.

    Args:
        is_dead: whether the process that a row names is provably gone.

    Raises:
        LeaseConflict: another live holder has it.
    """
    expires_at = now + checked_ttl(ttl_ms)
    if lease is not None and lease.lease_id is not None:
        if (lease.lease_id, lease.holder_id) == (holder.lease_id, holder.worker_id):
            return replace(lease, renewed_at=now, expires_at=expires_at)
        if now < lease.expires_at and not is_dead(lease):
            raise LeaseConflict(session_id, lease.holder_id, lease.expires_at.isoformat())
    return LeaseRow(
        token=lease.token + 1 if lease else 1,
        lease_id=holder.lease_id,
        holder_id=holder.worker_id,
        acquired_at=now,
        renewed_at=now,
        expires_at=expires_at,
        boot_id=holder.boot_id,
        process_id=holder.process_id,
        process_started=holder.process_started,
    )


def renewed(session_id: str, lease: LeaseRow | None, fence: Fence, ttl_ms: int, now: datetime) -> LeaseRow:
    """The lease row after a renewal. Raises LeaseLost as `live` does."""
    ttl = checked_ttl(ttl_ms)
    return replace(live(session_id, lease, fence, now), renewed_at=now, expires_at=now + ttl)


def released(lease: LeaseRow | None, fence: Fence, now: datetime) -> LeaseRow | None:
    """The lease row after a release, the token kept; None if there is nothing to give back."""
    if lease is None or not _same(lease, fence):
        return None
    return replace(lease, lease_id=None, expires_at=min(now, lease.expires_at))


def checked_ttl(ttl_ms: int) -> timedelta:
    """A lease's length. Raises InvalidOptions outside 1 ms to one day."""
    if not 1 <= ttl_ms <= MAX_TTL_MS:
        raise InvalidOptions("ttl_ms", f"1 to {MAX_TTL_MS}", ttl_ms)
    return timedelta(milliseconds=ttl_ms)


def _same(lease: LeaseRow, fence: Fence) -> bool:
    held = (lease.lease_id, lease.token, lease.holder_id)
    return held == (fence.lease_id, fence.token, fence.worker_id)

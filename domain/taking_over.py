"""What a new holder of a session's lease puts on record: who held it before, and how that ended.

Pure; for whoever takes a lease and then writes. The event is `domain.lease`'s business.
"""

from __future__ import annotations

from domain.lease import AcquireLease
from domain.ports import LeaseRow
from domain.state import State


def is_due(state: State, lease: LeaseRow) -> bool:
    """Whether the journal does not name this holder yet: then its next commit begins with that."""
    return state.lease is None or state.lease.token < lease.token


def announcement(former: LeaseRow | None, lease: LeaseRow, ttl_ms: int) -> AcquireLease:
    """The command that names a new holder.

    Args:
        former: the row as it was before the lease was taken; None: nobody held it.
        lease: as it was taken, before any renewal.
        ttl_ms: the lease's length.
    """
    if lease.token == 1:
        return AcquireLease(ttl_ms)
    if former is None or former.token != lease.token - 1:  # somebody came and went in between
        return AcquireLease(ttl_ms, former_token=lease.token - 1)
    if former.lease_id is None:
        return AcquireLease(ttl_ms, former.holder_id, former.token, "released")
    ran_out = _ran_out(former, lease, ttl_ms)
    return AcquireLease(ttl_ms, former.holder_id, former.token, "ran_out" if ran_out else "died")


def _ran_out(former: LeaseRow, lease: LeaseRow, ttl_ms: int) -> bool:
    """By the clock that decided: the boot's where both are of one boot, otherwise the store's."""
    same_boot = former.boot_id is not None and former.boot_id == lease.boot_id
    if same_boot and former.runs_out is not None and lease.runs_out is not None:
        return former.runs_out <= lease.runs_out - ttl_ms / 1000
    return former.expires_at <= lease.acquired_at

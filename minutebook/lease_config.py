"""How a session is held: the options of its lease, and what the session says about it.

Imported by the configuration and by the reads of a session. Keeping the lease is the
keeper's business; nothing here asks a store.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from domain.errors import InvalidOptions
from domain.limits import MAX_STORE_TIMEOUT_S, STORE_TIMEOUT_S
from domain.ports import LeaseRow, LeaseTimes

MIN_TTL_S: Final = 1.0
#: The longest lease: a worker that died would lock its session for as long.
MAX_TTL_S: Final = 24 * 3600.0
#: The longest time between two renewals that is chosen where none is given.
MAX_HEARTBEAT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """How a session is held against other workers. Times in seconds.

    Args:
        ttl_s: how long the session stays ours without a sign of life, 1 to 86,400. After a
            worker is lost, another one waits so long at most.
        heartbeat_s: how often the lease is renewed, at most half of `ttl_s`; None takes 10
            seconds, or a third of `ttl_s` where that is less.
        store_timeout_s: how long the store may take to answer about the lease, at most 30.
        worker_id: how the lease names this worker in messages; None names the process.
        lease_id: leave it out: it is then random for each opening. Two live workers that
            shared both ids would be one holder, and only the order of events would keep them apart.

    Raises:
        InvalidOptions: the option's name, what is allowed, what was given. Nothing was opened.
    """

    ttl_s: float = 30.0
    heartbeat_s: float | None = None
    store_timeout_s: float = STORE_TIMEOUT_S
    worker_id: str | None = None
    lease_id: str | None = None

    def __post_init__(self) -> None:
        _check("ttl_s", self.ttl_s, MIN_TTL_S, MAX_TTL_S)
        if self.heartbeat_s is not None:
            _check("heartbeat_s", self.heartbeat_s, 0.001, self.ttl_s / 2)
        _check("store_timeout_s", self.store_timeout_s, 0.001, MAX_STORE_TIMEOUT_S)
        for option in ("worker_id", "lease_id"):
            _check_word(option, getattr(self, option))

    def times(self) -> LeaseTimes:
        """The same with every default filled in."""
        heartbeat = self.heartbeat_s
        if heartbeat is None:
            heartbeat = min(MAX_HEARTBEAT_S, self.ttl_s / 3)
        return LeaseTimes(self.ttl_s, heartbeat, self.store_timeout_s)


@dataclass(frozen=True, slots=True)
class LeaseSnapshot:
    """The lease under which a session is held, as last renewed. Times are the store's clock, aware UTC.

    Args:
        token: rises with every new holder of the session; systems that remember the highest
            one they have seen can refuse a worker that was overtaken (`ctx.fence`).
    """

    worker_id: str
    lease_id: str
    token: int
    acquired_at: datetime
    renewed_at: datetime
    expires_at: datetime

    @classmethod
    def of(cls, row: LeaseRow) -> LeaseSnapshot:
        """What a row of the store says."""
        assert row.lease_id is not None, "a lease that is held has an id"
        return cls(row.holder_id, row.lease_id, row.token, row.acquired_at, row.renewed_at, row.expires_at)


def _check(option: str, value: Any, least: float, most: float) -> None:
    if type(value) not in (int, float) or not least <= value <= most:
        raise InvalidOptions(f"lease.{option}", f"seconds from {least:g} to {most:g}", value)


def _check_word(option: str, value: object) -> None:
    if value is None:
        return
    # PostgreSQL keeps no NUL, and a name has to be good for every store.
    if not isinstance(value, str) or not value or not _is_plain(value):
        expected = "text that UTF-8 can hold, without NUL and lone surrogates, or None"
        raise InvalidOptions(f"lease.{option}", expected, value)


def _is_plain(text: str) -> bool:
    return "\0" not in text and text.encode("utf-8", "replace").decode() == text
